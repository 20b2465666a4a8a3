"""What the notebooks display: each page once, each action with what it did, page text as text."""

from __future__ import annotations

from stand_ins import seen, task, walk

from wevo_nb import show
from wevo_nb.schema import Effect

PAGE = "[1] button '<b>'"


def test_a_strip_has_a_picture_for_every_action_and_repeats_it_where_nothing_was_done():
    one = walk(task(goal="<i>"), PAGE, "click [1]", PAGE, "stop [42]", PAGE, ended="stop")
    html = show.strip(one, [b"first", b"second"]).data
    assert html.count("<img") == 3 and html.count("c2Vjb25k") == 2  # base64 of second
    assert "click [1]" in html and "stop [42]" in html and "<i>" not in html


def test_effects_say_what_each_action_did():
    after = seen("[1] link 'x'", note="a new tab was opened", effect=Effect(changed=True, navigated=True, opened=1))
    refused = seen(PAGE, note="there is no element [9]", effect=Effect(problem="no_element"))
    table = show.effects(walk(task(), PAGE, "click [9]", refused, "click [1]", after, ended="limit"))
    assert table["it"].tolist() == ["not done (no_element)", "changed the page, went to another, 1 new tab"]
    assert table["note"].tolist() == ["there is no element [9]", "a new tab was opened"]


def test_a_page_shows_its_boxes_and_its_text_as_text():
    html = show.page(seen(PAGE, goal="go"), b"png", {1: (5.0, 6.0, 20.0, 10.0)}).data
    assert "left:5px;top:6px;width:20px;height:10px" in html and "&lt;b&gt;" in html and "<b>" not in html
