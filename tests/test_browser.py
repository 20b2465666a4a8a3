"""A real Chromium on a small page of our own and on MiniWoB: what is seen, what can be done, what is closed."""

from __future__ import annotations

from pathlib import Path

import pytest
from local_site import LocalSite, Visit, act, find
from stand_ins import SMOKE

from wevo_nb import chromium as chromium_module
from wevo_nb.browser import BrowserEnv
from wevo_nb.chromium import BrowserMissing, Chromium, find_chromium
from wevo_nb.observation import is_page
from wevo_nb.schema import Task
from wevo_nb.tasks.miniwob import MiniWoB

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]

CONTROLS = """<!doctype html><title>Shop</title>
<h1>Our
  shop</h1>
<button id="buy" onclick="say('bought')">Buy it</button>
<button disabled>Sold out</button>
<a href="#part">To the part</a> <a>no link</a>
<label><input type="checkbox" checked> Send me news</label>
<label for="name">Name</label><input id="name" value="ann">
<input type="hidden" value="secret"><input placeholder="City">
<select aria-label="Size" onchange="say('size ' + this.value)"><option value="s">Small</option>
<option value="l">Large</option></select>
<span id="listens">listens only</span>
<p style="display:none">gone</p><p style="visibility:hidden">invisible</p><p aria-hidden="true">for eyes</p>
<p id="said">nothing yet</p><p style="position:absolute;top:5000px">far below</p>
<script>
function say(text) { document.getElementById("said").textContent = text; }
document.getElementById("listens").addEventListener("click", () => say("heard"));
</script>"""
OVERLAY = """<!doctype html><title>Overlay</title><button onclick="document.title='clicked'">Under</button>
<div style="position:fixed;top:0;left:0;width:100%;height:60%;background:#fff">Half a cookie banner</div>"""
FORM = """<!doctype html><title>Form</title>
<form onsubmit="document.querySelector('p').textContent = 'sent ' + this.q.value; return false">
<input name="q" aria-label="Query" value="old words"></form><p>not sent</p>"""
SLOTTED = """<!doctype html><title>Slotted</title><div id="host"><span>Send</span></div>
<script>
const root = document.getElementById("host").attachShadow({mode: "open"});
root.innerHTML = "<button><slot></slot></button>";
root.querySelector("button").onclick = () => { document.title = "clicked"; };
</script>"""
PAGES = {"slotted": SLOTTED, "controls": CONTROLS, "overlay": OVERLAY, "form": FORM}


@pytest.fixture(scope="module")
def site():
    with LocalSite(PAGES) as one:
        yield one


@pytest.fixture(scope="module")
def miniwob():
    with MiniWoB() as suite:
        yield suite


# -- what is seen


async def test_a_page_is_seen_as_a_person_sees_it(chromium, site):
    async with Visit(chromium, site, "controls") as (_, seen):
        assert seen.text.split("\n") == [
            "[1] heading 'Our shop'",
            "[2] button 'Buy it'",
            "[3] button 'Sold out' disabled: true",
            "[4] link 'To the part'",
            "[5] StaticText 'no link'",
            "[6] checkbox 'Send me news' checked: true",
            "[7] textbox 'Name' value: 'ann'",
            "[8] textbox 'City'",
            "[9] combobox 'Size' value: 'Small'",
            "[10] option 'Small'",
            "[11] option 'Large'",
            "[12] clickable 'listens only'",
            "[13] StaticText 'nothing yet'",
        ]
        assert (seen.title, seen.goal, seen.note, seen.done, seen.reward) == ("Shop", "look around", "", False, None)
        assert seen.url.endswith("/controls") and is_page(seen.text)


async def test_a_button_whose_label_is_slotted_in_is_clicked(chromium, site):
    async with Visit(chromium, site, "slotted") as (env, seen):
        assert seen.text == "[1] button 'Send'"
        after = await act(env, "click [1]")
        assert (after.note, after.title) == ("", "clicked")


# -- what can be done


@pytest.mark.parametrize(("name", "said"), [("Buy it", "bought"), ("listens only", "heard")])
async def test_a_click_is_a_click(chromium, site, name, said):
    async with Visit(chromium, site, "controls") as (env, seen):
        after = await act(env, f"click [{find(seen, name)}]")
        assert after.note == "" and after.text == seen.text.replace("nothing yet", said)


async def test_a_checkbox_is_turned_off(chromium, site):
    async with Visit(chromium, site, "controls") as (env, seen):
        after = await act(env, f"click [{find(seen, 'Send me news')}]")
        assert after.text == seen.text.replace(" checked: true", "")


async def test_an_option_is_chosen_by_a_click_and_the_page_hears_of_it(chromium, site):
    async with Visit(chromium, site, "controls") as (env, seen):
        after = await act(env, f"click [{find(seen, 'Large')}]")
        assert after.text == seen.text.replace("value: 'Small'", "value: 'Large'").replace("nothing yet", "size l")


async def test_typing_replaces_what_is_there_and_enter_sends(chromium, site):
    async with Visit(chromium, site, "form") as (env, seen):
        assert seen.text == "[1] textbox 'Query' value: 'old words'\n[2] StaticText 'not sent'"
        after = await act(env, "type [1] [new ones] [0]")
        assert after.text == "[1] textbox 'Query' value: 'new ones'\n[2] StaticText 'not sent'"
        after = await act(env, "type [1] [zoë's] [1]")
        assert after.text == "[1] textbox 'Query' value: 'zoë\\'s'\n[2] StaticText 'sent zoë\\'s'"


async def test_scrolling_shows_what_is_below(chromium, site):
    async with Visit(chromium, site, "controls") as (env, seen):
        after = seen
        for _ in range(13):
            after = await act(env, "scroll [down]")
        assert "far below" in after.text and "Our shop" not in after.text
        assert "far below" not in (await act(env, "restart")).text


# -- what cannot be done


@pytest.mark.parametrize(
    ("page", "action", "note"),
    [
        ("overlay", "click [1]", "element [1] is covered by div Half a cookie banner"),
        ("controls", "click [3]", "element [3] is disabled"),
        ("controls", "type [3] [x] [0]", "element [3] is disabled"),
        ("controls", "click [99]", "there is no element [99] on the page"),
        ("controls", "click [0]", "there is no element [0] on the page"),
    ],
)
async def test_what_cannot_be_done_is_noted_and_changes_nothing(chromium, site, page, action, note):
    async with Visit(chromium, site, page) as (env, seen):
        after = await act(env, action)
        assert after.note == note
        assert (after.text, after.title) == (seen.text, seen.title)


async def test_an_element_that_went_away_is_noted(chromium, site):
    async with Visit(chromium, site, "controls") as (env, seen):
        await env.page.evaluate("document.getElementById('buy').remove()")
        after = await act(env, f"click [{find(seen, 'Buy it')}]")
        assert after.note == f"element [{find(seen, 'Buy it')}] is no longer on the page"
        assert after.problem == "stale"


async def test_going_back_with_nowhere_to_go_opens_the_task_again(chromium, site):
    async with Visit(chromium, site, "controls") as (env, seen):
        await act(env, f"click [{find(seen, 'Buy it')}]")
        after = await act(env, "goback")
        assert after.note == "there is no page to go back to: the task was opened again"
        assert (after.text, after.url) == (seen.text, seen.url)


async def test_going_back_within_a_page_keeps_the_page(chromium, site):
    """A link to a part of the page is a step of the history without a load."""
    async with Visit(chromium, site, "controls") as (env, seen):
        await act(env, f"click [{find(seen, 'Buy it')}]")
        there = await act(env, f"click [{find(seen, 'To the part')}]")
        assert there.url == f"{seen.url}#part"
        back = await act(env, "goback")
        assert (back.url, back.note) == (seen.url, "")
        assert "bought" in back.text


# -- episodes


async def test_one_context_an_episode_and_none_is_left(chromium, site):
    first, second = Visit(chromium, site, "form"), Visit(chromium, site, "form")
    async with first as (env, _), second as (other, seen):
        assert len(chromium.contexts) == 2
        await act(env, "type [1] [mine] [0]")
        assert (await act(other, "wait")).text == seen.text
        await env.reset(first.task)
        assert len(chromium.contexts) == 2
    assert len(chromium.contexts) == 0
    await env.close()  # twice does no harm


async def test_the_same_seed_is_the_same_page_and_goal(chromium, miniwob):
    async with Visit(chromium, miniwob, "click-button", seed=7) as (env, first):
        again = await env.reset(Task(suite="miniwob", name="click-button", seed=7))
    async with Visit(chromium, miniwob, "click-button", seed=8) as (_, other):
        pass
    assert first == again and first.goal.startswith("Click on the")
    assert (other.goal, other.text) != (first.goal, first.text)


async def test_miniwob_tells_full_partial_and_no_reward(chromium, miniwob):
    """click-checkboxes pays right minus wrong boxes by their number; seed 3 wants one of six, so none gives 4/6."""
    async with Visit(chromium, miniwob, "click-checkboxes", seed=3) as (env, seen):
        assert seen.goal == "Select YM2l8 and click Submit." and seen.text.count("checkbox") == 6
        partial = await act(env, f"click [{find(seen, 'Submit')}]")
        assert (partial.done, partial.reward) == (True, pytest.approx(4 / 6))
        again = await env.reset(Task(suite="miniwob", name="click-checkboxes", seed=3))
        assert again == seen
        await act(env, f"click [{find(seen, 'YM2l8')}]")
        full = await act(env, f"click [{find(seen, 'Submit')}]")
        assert (full.done, full.reward) == (True, 1.0)
    async with Visit(chromium, miniwob, "click-button", seed=10) as (env, seen):
        assert seen.goal == 'Click on the "Submit" button.'
        failed = await act(env, f"click [{find(seen, 'ok')}]")
        assert (failed.done, failed.reward) == (True, -1.0)


async def test_a_page_that_is_not_there_is_an_error_of_the_environment(chromium):
    with LocalSite(PAGES) as gone:
        pass
    env = BrowserEnv(chromium, gone, SMOKE.browser, SMOKE.observation)
    with pytest.raises(env.errors):
        await env.reset(Task(suite="site", name="form", seed=0))
    await env.close()
    assert len(chromium.contexts) == 0


# -- the executable


async def test_a_missing_chromium_is_told_with_the_cure(monkeypatch):
    monkeypatch.setenv("WEVO_CHROMIUM", "/nowhere/chromium")
    with pytest.raises(BrowserMissing, match="WEVO_CHROMIUM names /nowhere/chromium, and there is no such file"):
        find_chromium()
    with pytest.raises(BrowserMissing, match="browser.executable / WEVO_CHROMIUM names /other, and"):
        async with Chromium(SMOKE.browser.model_copy(update={"executable": "/other"})):
            pass
    monkeypatch.delenv("WEVO_CHROMIUM")
    monkeypatch.setattr(chromium_module, "SYSTEM_BROWSERS", ("/nowhere/chromium",))
    with pytest.raises(BrowserMissing, match="no Chromium in .*/nowhere/chromium: run 'make browser', .*WEVO_CHROMIUM"):
        find_chromium()


async def test_the_executable_that_params_name_comes_first(tmp_path: Path, monkeypatch):
    for name in ("a", "b"):
        (tmp_path / name).touch(mode=0o755)
    monkeypatch.setenv("WEVO_CHROMIUM", str(tmp_path / "a"))
    assert find_chromium(None, str(tmp_path / "b")) == str(tmp_path / "b")
    assert find_chromium() == str(tmp_path / "a")
