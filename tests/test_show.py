"""What the notebooks display: each page once, each action with what it did, page text as text."""

from __future__ import annotations

import re

from stand_ins import did, seen, task, walk

from wevo_nb import markup, show
from wevo_nb.params import load_params
from wevo_nb.schema import Candidate, Cost, Effect, Verdict
from wevo_nb.transitions import Situation, Transition
from wevo_nb.world_model import Prediction

PAGE = "[1] button '<b>'"


def test_a_strip_has_a_picture_for_every_action_and_repeats_it_where_nothing_was_done():
    one = walk(task(goal="<i>"), PAGE, "click [1]", PAGE, "stop [42]", PAGE, ended="stop")
    html = show.strip(one, [b"first", b"second"]).data
    assert html.count("<img") == 3 and html.count("c2Vjb25k") == 2  # base64 of second
    assert "click [1]" in html and "stop [42]" in html and "<i>" not in html


def test_an_action_that_could_not_be_done_is_told_with_its_cause():
    refused = seen(PAGE, note="there is no element [9]", effect=Effect(problem="no_element"))
    html = show.trajectory(walk(task(), PAGE, "click [9]", refused, ended="limit")).data
    assert "not done (no_element): there is no element [9]" in html


def test_a_page_shows_its_boxes_and_its_text_as_text():
    html = show.page(seen(PAGE, goal="go"), b"png", {1: (5.0, 6.0, 20.0, 10.0)}).data
    assert "left:5px;top:6px;width:20px;height:10px" in html and "&lt;b&gt;" in html and "<b>" not in html


def test_an_episode_says_what_was_thought_done_and_judged_and_escapes_it():
    after = seen("[1] link 'x'", note="a new tab was opened", effect=Effect(changed=True, navigated=True, opened=1))
    one = walk(task(goal="<i>"), PAGE, "click [1]", after, "click [1]", "", reward=0.0)
    one = one.model_copy(update={"verdict": Verdict(outcome="failure", judge="reward", reason="<u>0.00</u>")})
    html = show.trajectory(one).data
    text = re.sub(r"<[^>]+>|\s+", " ", html)
    for said in ("1. click [1] button", "changed the page, went to another, 1 new tab: a new tab was opened",
                 "2. click [1] link", "ended the episode", "End: done, reward 0.00", "failure"):  # fmt: skip
        assert said in re.sub(" +", " ", text), said
    assert "&lt;u&gt;0.00" in html and "<i>" not in html and "<u>" not in html
    assert "not judged" in show.trajectory(walk(task(), PAGE, ended="dead_end")).data


def test_a_kept_picture_stands_in_the_notebook_itself(tmp_path):
    (tmp_path / "screenshots").mkdir()
    (tmp_path / "screenshots" / "0123456789abcdef.png").write_bytes(b"first")
    pages = [seen(PAGE, screenshot=f"{name}.png") for name in ("0123456789abcdef", "f" * 16)]  # the second is not there
    one = walk(task(), pages[0], "click [1]", pages[1], reward=1.0)
    assert show.trajectory(one, tmp_path).data.count("<img") == 1 and "Zmlyc3Q=" in show.trajectory(one, tmp_path).data
    assert "<img" not in show.trajectory(one).data


def test_a_decision_stands_beside_what_came_of_it():
    replies = [f"Thought: I act. Action: ```click [{i}]```" for i in (1, 2)]
    candidates = tuple(
        Candidate(reply=reply, imagined=("[1] link 'a'\n[2] link '<b>'",), score=score)
        for reply, score in zip(replies, (None, 0.25), strict=True)
    )
    made = did("click [2]").model_copy(update={"reply": replies[1], "candidates": candidates, "cost": Cost(calls=7)})
    alone = show.decision(made, seen(PAGE)).data
    assert alone.count('wevo-candidate"') == 1 and alone.count("wevo-candidate wevo-chosen") == 1
    assert "unscored" in alone and "0.25" in alone and "7 calls" in alone and "really came" not in alone
    beside = show.decision(made, seen(PAGE), seen("[1] link 'a'\n[2] link 'c'")).data
    assert beside.count("really came") == 1 and "1 of 2 lines came" in beside
    assert 'wrong">[2] link &#39;&lt;b&gt;&#39;</mark>' in beside and 'missed">[2] link &#39;c&#39;</mark>' in beside


def test_a_prediction_stands_beside_what_really_followed():
    before, after = seen("[1] link 'a'\n[2] link 'b'"), seen("[1] link 'a'\n[2] link '<c>'")
    real = Transition(Situation(task(), (), before, did("click [2]").action), after, "changed")
    html = show.prediction(real, Prediction({}, "changed", before, True)).data
    assert "click [2] link &#39;b&#39;" in html and "1 of 2 imagined lines came" in html
    assert 'wrong">[2] link &#39;b&#39;</mark>' in html and 'missed">[2] link &#39;&lt;c&gt;&#39;</mark>' in html
    ended = real._replace(following=seen("", done=True, reward=1.0), outcome="success")
    html = show.prediction(ended, Prediction({}, "changed", before, True)).data
    assert "(the episode ends: success)" in html and "lines came" not in html


def test_pages_are_compared_line_by_line_without_their_ids():
    """A line that stands there twice and was imagined once is missed once; an end is compared with nothing."""
    wrong, missed, alike = markup.beside("[1] link 'a'\n[2] link 'b'", "[1] link 'b'\n[2] link 'a'\n[3] link 'a'")
    assert (wrong, alike) == ([("[1] link 'a'", ""), ("[2] link 'b'", "")], (2, 2))
    assert missed == [("[1] link 'b'", ""), ("[2] link 'a'", ""), ("[3] link 'a'", "missed")]
    assert markup.beside("(the page changes)", "[1] link 'a'")[2] is None


def test_a_verdict_shows_whatever_it_holds():
    """Fields that a judge adds are shown by their names: words, counts and raw replies."""

    class Full(Verdict):
        model: str = ""
        replies: tuple[str, ...] = ()
        cost: Cost | None = None

    verdict = Full(outcome="success", judge="llm", model="m-1", replies=("<a>", "b"), cost=Cost(calls=2, tokens=30))
    html = markup.fragment("judged", "kept.jsonl", verdict)
    text = re.sub(r"\s+", " ", re.sub(r"<style>.*</style>|<[^>]+>", "", html, flags=re.S))
    assert (
        text.strip()
        == "✓ success by llm model m-1 cost 2 calls, 30 tokens from kept.jsonl replies, 1 &lt;a&gt; replies, 2 b"
    )


def test_a_dream_tells_of_a_change_by_its_pages():
    assert markup.did(seen("a"), seen("b")) == "changed the page" and markup.did(seen("a"), seen("a")) == "nothing"
    assert markup.did(seen("a"), seen("", done=True)) == "ended the episode"
    assert markup.did(seen("a"), seen("b", effect=Effect())) == "nothing"  # a browser that says so knows better


def test_params_that_were_set_come_first_and_the_rest_is_folded():
    html = show.params_table(load_params("smoke", {"policy.verbs": ["click"]}), "policy").data
    given, folded = html.split("<details>")
    rows = [re.findall(r"<t[dh][^>]*>(.*?)</t[dh]>", row) for row in re.findall(r"<tr>(.*?)</tr>", given)]
    assert rows[0] == ["key", "value", "set by", "meaning"]
    assert ["policy.verbs", "[click]", "overrides", "what may be chosen"] in rows
    assert {row[2] for row in rows[1:]} == {"smoke", "overrides"} and {row[0][:7] for row in rows[1:]} == {"policy."}
    assert "policy.no_repeat" in folded and ">true<" in folded and "policy.verbs" not in folded and ">seed<" in folded
    told = show.params_table(load_params("smoke", {"roles.judge.base": "<b>"}), "roles").data
    assert "&lt;b&gt;" in told and "<b>" not in told


def test_where_nothing_is_set_every_param_is_folded():
    html = show.params_table(load_params("smoke"), "analysis").data
    assert html.startswith("<details><summary>3 more, as in params/base.yaml</summary><table>")  # seed, runs, clusters
