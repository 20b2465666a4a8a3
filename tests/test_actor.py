"""What an agent can do on a page: each action is really done, or is told why not and changes nothing."""

from __future__ import annotations

import pytest
from local_site import LocalSite, Visit, act, find

from wevo_nb.observation import parse_page

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]

SAY = "<p id='said'>-</p><script>const say = (t) => { document.getElementById('said').textContent = t }</script>"
PAGES = {
    "select": f"""{SAY}<select aria-label="sort" onchange="say('now ' + this.value)"><option value="r">Relevance</option>
        <option value="p-asc">Price, low to high</option><option value="p-desc">Price, high to low</option>
        <option disabled>Sold out</option></select><div role="combobox" tabindex="0" aria-label="own">pick</div>
        <select multiple aria-label="many" onchange="say([...this.selectedOptions].map(o => o.value))">
        <option>a</option><option>b</option><option>c</option></select>""",
    "fields": f"""{SAY}<input aria-label="name" value="old"><input aria-label="short" maxlength="3">
        <input aria-label="fixed" value="x" readonly><input type="date" aria-label="day">
        <input type="number" aria-label="count"><div contenteditable aria-label="free"><b>bold</b> text</div>
        <button>no field</button><div role="combobox" aria-label="wrapped"><input></div>
        <input aria-label="keys" onkeydown="say('key ' + event.key)" oninput="this.title = this.value">""",
    "mirror": f"""{SAY}<form onsubmit="say('sent ' + this.q.value); return false"><input name="q" aria-label="q"></form>""",
    "shifting": f"""{SAY}<div id="list"><button onclick="say('A')">A</button><button onclick="say('B')">B</button></div>""",
    "clock": f"""{SAY}<button onclick="say('bought')">Buy within 59 s</button>""",
    "late": f"""{SAY}<button onclick="setTimeout(() => say('half a second later'), 500)">go</button>""",
    "fetching": f"""{SAY}<button onclick="fetch('/slow?ms=400').then(() => say('it came'))">fetch</button>""",
    "going": """<p>first</p><a href="/slow?ms=500">to the slow page</a>""",
    "one": """<title>One</title><a href="/two">two</a>""",
    "two": """<title>Two</title><p>second</p>""",
    "card": f"""{SAY}<div onclick="say('opened')">Open card <button style="display:block;width:100%;height:60px"
        onclick="event.stopPropagation(); say('deleted')">Delete</button></div>""",
    "padded": """<iframe src="/buttons" style="padding:40px;transform:scale(.8)" width="300" height="200"></iframe>""",
    "buttons": "".join(f"<button style='display:block' onclick='this.textContent += &quot; done&quot;'>{n}</button>" for n in ("one", "two", "three")),
    "states": f"""{SAY}<button onclick="history.pushState(1, '', location.href); say('pushed')">push</button>
        <iframe src="/one" width="200" height="60"></iframe><script>onpopstate = () => say('popped')</script>""",
    "off": """<button disabled>off</button><fieldset disabled><button>in off</button></fieldset>
        <button aria-disabled="true">aria off</button><div inert><button>inert</button></div>""",
    "inline": f"""{SAY}<div style="width:120px"><a href="#" onclick="say('wrapped'); return false">a link that
        goes over three lines or more</a></div>""",
    "app": """<style>html,body{margin:0;height:100%;overflow:hidden}main{height:100%;overflow:auto}</style>
        <main>""" + "".join(f"<p>row {i}</p>" for i in range(60)) + "</main>",
}  # fmt: skip


@pytest.fixture(scope="module")
def site():
    with LocalSite(PAGES) as one:
        yield one


def said(seen) -> str:
    return next(e.name for e in parse_page(seen.text) if e.role == "StaticText")


def line(seen, name: str) -> str:
    return next(t.partition("] ")[2] for t in seen.text.split("\n") if f"'{name}'" in t)


# -- select


@pytest.mark.parametrize("option", ["Price, low to high", "p-asc", "price, LOW to high"])
async def test_an_option_is_selected_by_label_or_value(chromium, site, option):
    """User report 9: the change event fires and the value reads back."""
    async with Visit(chromium, site, "select") as (env, seen):
        after = await act(env, f"select [{find(seen, 'sort')}] [{option}]")
        assert (after.note, said(after)) == ("", "now p-asc")
        assert line(after, "sort") == "combobox 'sort' value: 'Price, low to high'"


@pytest.mark.parametrize(
    ("name", "option", "note"),
    [
        ("sort", "Price", "has no option 'Price'; it has Price, low to high, Price, high to low"),
        ("sort", "Sold out", "has no option 'Sold out'; it has "),
        ("own", "x", "is no list of options: click it"),
    ],
)
async def test_an_option_that_is_not_there_is_told_with_those_that_are(chromium, site, name, option, note):
    async with Visit(chromium, site, "select") as (env, seen):
        after = await act(env, f"select [{find(seen, name)}] [{option}]")
        assert note in after.note and after.problem == "not_usable" and said(after) == "-"


async def test_several_options_of_a_listbox(chromium, site):
    async with Visit(chromium, site, "select") as (env, seen):
        await act(env, f"select [{find(seen, 'many')}] [a]")
        after = await act(env, f"click [{find(seen, 'c')}]")
        assert said(after) == "a,c" and line(after, "c") == "option 'c' selected: true"


# -- type


@pytest.mark.parametrize(
    ("name", "text", "shown"),
    [
        ("name", "new", "textbox 'name' value: 'new'"),
        ("name", "", "textbox 'name'"),
        ("short", "abcdef", "textbox 'short' value: 'abc'"),
        ("day", "2024-03-09", "textbox 'day' value: '2024-03-09' type: 'date'"),
        ("count", "12", "spinbutton 'count' value: '12'"),
        ("free", "other words", "textbox 'free' value: 'other words'"),
        ("wrapped", "inside", "textbox value: 'inside'"),
        ("name", "tab\tand ünïcode 漢字 ", "textbox 'name' value: 'tab and ünïcode 漢字'"),
    ],
)
async def test_typing_replaces_what_a_field_holds(chromium, site, name, text, shown):
    async with Visit(chromium, site, "fields") as (env, seen):
        after = await act(env, f"type [{find(seen, name)}] [{text}] [0]")
        assert after.note == "" and shown in [t.partition("] ")[2] for t in after.text.split("\n")]


async def test_listeners_for_keys_hear_the_last_one(chromium, site):
    async with Visit(chromium, site, "fields") as (env, seen):
        after = await act(env, f"type [{find(seen, 'keys')}] [hello] [0]")
        assert said(after) == "key o" and line(after, "keys") == "textbox 'keys' value: 'hello'"


@pytest.mark.parametrize(
    ("name", "text", "note"),
    [
        ("fixed", "y", "is read-only"),
        ("no field", "y", "is a button, nothing can be typed into it"),
        ("day", "next week", "does not take 'next week': dates are 2024-01-31, times 13:45"),
    ],
)
async def test_what_cannot_be_typed_into_is_told(chromium, site, name, text, note):
    async with Visit(chromium, site, "fields") as (env, seen):
        after = await act(env, f"type [{find(seen, name)}] [{text}] [1]")
        assert note in after.note and after.problem == "not_usable" and after.text == seen.text


async def test_enter_is_pressed_only_if_asked_for(chromium, site):
    async with Visit(chromium, site, "mirror") as (env, seen):
        assert said(await act(env, f"type [{find(seen, 'q')}] [x] [0]")) == "-"
        assert said(await act(env, f"type [{find(seen, 'q')}] [y] [1]")) == "sent y"


# -- the right element or a typed error


async def test_a_node_inserted_in_between_does_not_shift_the_ids(chromium, site):
    """User report 4."""
    async with Visit(chromium, site, "shifting") as (env, seen):
        await env.page.evaluate(
            "document.getElementById('list').insertAdjacentHTML('afterbegin', '<button>new</button>')"
        )
        assert said(await act(env, f"click [{find(seen, 'A')}]")) == "A"


async def test_an_element_that_became_another_is_stale(chromium, site):
    """A list that reuses its nodes: the node is there, the thing is not."""
    async with Visit(chromium, site, "shifting") as (env, seen):
        await env.page.evaluate("document.querySelector('#list button').textContent = 'Delete all'")
        after = await act(env, f"click [{find(seen, 'A')}]")
        assert after.problem == "stale" and said(after) == "-"
        assert after.note.endswith("has changed in the meantime: it is now button Delete all")


async def test_a_label_that_counts_down_is_still_the_same(chromium, site):
    async with Visit(chromium, site, "clock") as (env, seen):
        await env.page.evaluate("document.querySelector('button').textContent = 'Buy within 58 s'")
        assert said(await act(env, f"click [{find(seen, 'Buy within 59 s')}]")) == "bought"


async def test_a_page_that_went_on_by_itself_is_stale(chromium, site):
    async with Visit(chromium, site, "one") as (env, seen):
        await env.page.goto(env.page.url.replace("one", "two"))
        after = await act(env, "click [1]")
        assert (after.problem, after.note, after.title) == ("stale", "element [1] is no longer on the page", "Two")


async def test_what_is_disabled_is_told(chromium, site):
    async with Visit(chromium, site, "off") as (env, seen):
        for name in ("off", "in off", "aria off", "inert"):
            after = await act(env, f"click [{find(seen, name)}]")
            assert after.problem in ("not_usable",) and after.text == seen.text, name


async def test_a_link_over_several_lines_is_clicked_where_it_is(chromium, site):
    async with Visit(chromium, site, "inline") as (env, seen):
        link = next(e.id for e in parse_page(seen.text) if e.role == "link")
        assert said(await act(env, f"click [{link}]")) == "wrapped"


async def test_a_click_is_not_given_to_a_control_inside(chromium, site):
    async with Visit(chromium, site, "card") as (env, seen):
        card = next(e.id for e in parse_page(seen.text) if e.role == "clickable")
        assert said(await act(env, f"click [{card}]")) == "opened"
        assert said(await act(env, f"click [{find(seen, 'Delete')}]")) == "deleted"


@pytest.mark.parametrize(("was", "now"), [("Buy for 5", "Buy for 5000"), ("message 3", "message 4")])
async def test_another_number_is_another_thing(chromium, site, was, now):
    async with Visit(chromium, site, "shifting") as (env, seen):
        await env.page.evaluate(f"document.querySelector('#list button').textContent = '{was}'")
        seen = await act(env, "wait")
        await env.page.evaluate(f"document.querySelector('#list button').textContent = '{now}'")
        after = await act(env, f"click [{find(seen, was)}]")
        assert after.problem == "stale" and said(after) == "-"


async def test_a_frame_with_padding_and_scale_is_clicked_where_it_is(chromium, site):
    async with Visit(chromium, site, "padded") as (env, seen):
        for name in ("one", "two", "three"):
            after = await act(env, f"click [{find(seen, name)}]")
            assert after.note == "" and f"button '{name} done'" in after.text, name


# -- waiting


async def test_what_an_action_asked_for_is_waited_for(chromium, site):
    async with Visit(chromium, site, "fetching") as (env, seen):
        after = await act(env, f"click [{find(seen, 'fetch')}]")
        assert said(after) == "it came" and not after.effect.partial


async def test_a_page_that_comes_late_is_the_next_observation(chromium, site):
    async with Visit(chromium, site, "going") as (env, seen):
        after = await act(env, f"click [{find(seen, 'to the slow page')}]")
        assert (after.title, after.effect.navigated, after.effect.changed) == ("Slow", True, True)


async def test_wait_sees_what_comes_by_itself(chromium, site):
    async with Visit(chromium, site, "late") as (env, seen):
        assert said(await act(env, f"click [{find(seen, 'go')}]")) == "-"
        assert said(await act(env, "wait")) == "half a second later"


async def test_an_action_without_effect_says_so(chromium, site):
    async with Visit(chromium, site, "two") as (env, seen):
        after = await act(env, "click [1]")
        assert not after.effect.changed and after.text == seen.text and after.problem is None


async def test_the_window_of_an_app_is_its_scrolling_pane(chromium, site):
    async with Visit(chromium, site, "app") as (env, seen):
        assert seen.below > 1000
        after = await act(env, "scroll [down]")
        assert after.above == 600 and "'row 0'" not in after.text
        after = await act(env, "scroll [up]")
        assert after.text == seen.text
        assert (await act(env, "scroll [up]")).note == "nothing to scroll up: this is the top"


# -- going places


async def test_back_forward_and_again(chromium, site):
    async with Visit(chromium, site, "one") as (env, seen):
        assert (await act(env, "click [1]")).title == "Two"
        back = await act(env, "goback")
        assert (back.text, back.note, back.effect.navigated) == (seen.text, "", True)
        await act(env, "click [1]")
        assert (await act(env, "restart")).text == seen.text


async def test_back_within_an_app_and_out_of_a_frame(chromium, site):
    async with Visit(chromium, site, "states") as (env, seen):
        pushed = await act(env, f"click [{find(seen, 'push')}]")
        assert said(pushed) == "pushed"
        back = await act(env, "goback")
        assert (said(back), back.note) == ("popped", "")
        inner = await act(env, f"click [{find(back, 'two')}]")
        assert "second" in inner.text
        again = await act(env, "goback")
        assert (again.note, "link 'two'" in again.text, said(again)) == ("", True, "popped")


async def test_goto_is_off_and_bound_to_the_hosts_of_the_task(chromium, site):
    async with Visit(chromium, site, "one") as (env, seen):
        after = await act(env, f"goto [http://{site.address}/two]")
        assert (after.problem, after.title) == ("refused", "One")
    async with Visit(chromium, site, "one", browser={"goto": True}) as (env, seen):
        assert (await act(env, "goto [http://site/two]")).title == "Two"
        for url in (
            "http://example.org/",
            "file:///etc/passwd",
            "javascript:alert(1)",
            r"http://\\[x",
            "http://℀.com/",
            "http://127.0.0.1:9/",
            "x",
        ):
            after = await act(env, f"goto [{url}]")
            assert (after.problem, after.title) == ("refused", "Two") and "may be visited" in after.note, url


async def test_stop_is_worth_what_the_suite_says(chromium, site):
    async with Visit(chromium, site, "two") as (env, seen):
        right = await act(env, "stop [right]")
        assert (right.done, right.reward, right.text) == (True, 1.0, seen.text)
        assert (await act(env, "stop [wrong]")).reward == 0.0
        unknown = await act(env, "stop [perhaps]")
        assert (unknown.done, unknown.reward) == (False, None)
