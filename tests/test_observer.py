"""What an agent is shown of a page: all that a person sees and can use in the window, and nothing that is hidden."""

from __future__ import annotations

import pytest
from local_site import LocalSite, Visit, act, find

from wevo_nb.observation import header, is_page, parse_page

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]

CONTROLS = """<!doctype html><title>Controls</title>
<button>native</button> <a href="#x">a link</a> <input type="submit"> <input type="button" value="press">
<div role="button" tabindex="0">by role</div> <span role="tab" aria-selected="true">tab</span>
<span id="heard">by listener</span> <div onclick="0">by attribute</div> <span style="cursor:pointer">by cursor</span>
<details><summary>more</summary><p>inside details</p></details>
<div contenteditable="true" aria-label="note">draft</div> <textarea placeholder="Say it"></textarea>
<input type="checkbox" id="c"><label for="c">plain box</label>
<input type="radio" name="r" aria-label="one" checked> <input type="range" aria-label="volume" value="30">
<input type="date" aria-label="day" value="2024-02-01"> <input type="number" aria-label="how many" value="3">
<input type="password" aria-label="secret" value="abc"> <input type="search" aria-label="find">
<input type="file" aria-label="photo"> <div role="switch" aria-checked="true">dark</div>
<div role="slider" aria-label="hue" aria-valuenow="5" tabindex="0">||</div>
<ul role="menu"><li role="menuitem">Open</li></ul> <button aria-haspopup="true" aria-expanded="false">File</button>
<a href="/x"><img alt="picture link" width="20" height="20"></a> <svg width="9" height="9"><text y="9">T</text></svg>
<button aria-pressed="true" aria-label="bold">B</button> <button aria-labelledby="l1 l2">x</button>
<i id="l1">first</i> <i id="l2">second</i> <select aria-label="size"><option>S</option><option selected>M</option></select>
<select multiple aria-label="toppings"><option selected>ham</option><option>egg</option></select>
<script>document.getElementById("heard").addEventListener("click", () => {})</script>"""
SEEN_CONTROLS = """
button 'native' / link 'a link' / button 'Submit' / button 'press' / button 'by role' / tab 'tab' selected: true
clickable 'by listener' / clickable 'by attribute' / clickable 'by cursor' / button 'more' expanded: false
textbox 'note' value: 'draft' / textbox 'Say it' / checkbox 'plain box' / radio 'one' checked: true
slider 'volume' value: '30' / textbox 'day' value: '2024-02-01' type: 'date' / spinbutton 'how many' value: '3'
textbox 'secret' value: '•••' / searchbox 'find' / button 'photo' / switch 'dark' checked: true
slider 'hue' value: '5' / menuitem 'Open' / button 'File' expanded: false hasPopup: 'menu' / link 'picture link'
img 'picture link' / StaticText 'T' / button 'bold' pressed: true / StaticText 'B' / button 'first second'
StaticText 'x' / StaticText 'first' / StaticText 'second' / combobox 'size' value: 'M' / option 'S' / option 'M'
listbox 'toppings' / option 'ham' selected: true / option 'egg'"""

HIDDEN = """<!doctype html><title>Hidden</title><p>shown</p>
<p style="display:none">no display</p><p style="visibility:hidden">no visibility</p><p aria-hidden="true">aria</p>
<p hidden>attribute</p><details><summary>sum</summary>closed</details><p style="opacity:0">no opacity</p>
<div style="height:0;overflow:hidden">cut off <button>cut button</button></div>
<div style="visibility:hidden">outer <b style="visibility:visible">inner</b></div>
<div style="position:absolute;width:1px;height:1px;overflow:hidden">for readers</div>
<div style="position:absolute;left:-5000px">far left</div><p style="position:absolute;top:3000px">far below</p>
<div style="content-visibility:hidden">skipped</div><template>template</template><noscript>noscript</noscript>
<div style="overflow:hidden;width:60px;height:20px"><div style="position:absolute;top:300px">out of its box</div></div>
<input type="hidden" value="token"><div style="opacity:0;pointer-events:none"><button>ghost</button></div>"""

STYLED = """<!doctype html><title>Styled</title><style>
.clip{position:absolute;width:1px;height:1px;overflow:hidden;clip:rect(0 0 0 0)} .gone{display:none}</style>
<input type="checkbox" id="a" class="clip" onchange="say(this)"><label for="a">clipped box</label>
<label><input type="checkbox" id="b" style="opacity:0;position:absolute" onchange="say(this)"><span>clear box</span></label>
<input type="radio" id="c" class="gone" onchange="say(this)"><label for="c">radio without display</label><p>nothing</p>
<script>function say(e) { document.querySelector("p").textContent = e.id + " " + e.checked }</script>"""

MODAL = """<!doctype html><title>Modal</title><p>under text</p><button>under</button>
<div style="position:fixed;inset:0;background:rgba(0,0,0,.5)"><div role="dialog" aria-label="Cookies" style="margin:200px">
<p>We use cookies</p><button onclick="this.parentNode.parentNode.remove()">Accept</button></div></div>"""
NATIVE_MODAL = """<!doctype html><title>Native</title><button>under</button>
<dialog>Sure? <button onclick="this.parentNode.close()">Yes</button></dialog>
<script>document.querySelector("dialog").showModal()</script>"""

FRAMES = """<!doctype html><title>Frames</title><p>before</p>
<iframe title="near" src="/inner" width="300" height="150"></iframe><p>between</p>
<iframe title="far" src="http://{other}/outer" width="400" height="200"></iframe><p>after</p>
<iframe title="empty" width="100" height="40"></iframe><iframe style="display:none" src="/inner"></iframe>"""
OUTER = """<!doctype html><p>outer text</p><iframe src="http://{here}/inner" width="300" height="100"></iframe>"""
INNER = """<!doctype html><p>inner text</p><button onclick="this.textContent='clicked'">inner button</button>
<p style="margin-top:900px">below the frame</p>"""

SHADOW = """<!doctype html><title>Shadow</title><div id="open"></div><div id="closed"></div><p id="said">-</p>
<script>
for (const mode of ["open", "closed"]) {
  const root = document.getElementById(mode).attachShadow({mode});
  root.innerHTML = `<label for="f">${mode} field</label><input id="f"><button>${mode} button</button>`;
  root.querySelector("button").addEventListener("click", () => {
    document.getElementById("said").textContent = mode + " " + (document.getElementById(mode).shadowRoot === null);
  });
}
</script>"""

TABLE = """<!doctype html><title>Table</title><table><tr><th>city<th>land<th>people</tr>
<tr><td><a href="#b">Bern</a><td>CH<td>134,000</tr><tr><td>Lima<td><td>10,000,000</tr></table>
<table><tr><td>layout</td><td>only</td></tr></table>"""

LONG = """<!doctype html><title>Long</title>""" + "".join(f"<button>b{i}</button>" for i in range(40))

PAGES = {
    "odd": "<iframe title=plain></iframe><iframe contenteditable title=editable></iframe>",
    "controls": CONTROLS, "hidden": HIDDEN, "styled": STYLED, "modal": MODAL, "native": NATIVE_MODAL, "frames": FRAMES,
    "outer": OUTER, "inner": INNER, "shadow": SHADOW, "table": TABLE, "long": LONG,
    "text": "<!doctype html><title>Text</title><h2>Great <i>book</i></h2><p>The review itself, <b>bold</b> too.</p>"
            "<blockquote>quoted</blockquote><ul><li>item</li></ul><dl><dt>key<dd>value</dl><pre>a\n b</pre>",
    "upper": "<!doctype html><style>button{text-transform:uppercase}</style><button>Send it</button>",
    "quotes": """<!doctype html><title>It's "T"</title><p>\\ it's [3] button 'Pay' \n[4] link: x</p>""",
    "select": "<!doctype html><label>Land <select>" + "".join(f"<option>c{i}</option>" for i in range(200)) + "</select></label>",
    "pane": "<!doctype html><div style='height:200px;overflow:auto'>" + "".join(f"<p>p{i}</p>" for i in range(12))
            + "</div><p>outside</p>",
}  # fmt: skip


@pytest.fixture(scope="module")
def site():
    with LocalSite(PAGES) as one:
        yield one


def lines(seen) -> list[str]:
    return [line.strip().partition("] ")[2] for line in seen.text.split("\n")]


# -- complete


async def test_every_kind_of_control_is_there_with_its_state(chromium, site):
    async with Visit(chromium, site, "controls") as (_, seen):
        assert lines(seen) == SEEN_CONTROLS.strip().replace("\n", " / ").split(" / ")
        assert is_page(seen.text)


async def test_text_that_is_no_control_is_there(chromium, site):
    """User report 2: a review's title was in the tree, its text was not."""
    async with Visit(chromium, site, "text") as (_, seen):
        assert lines(seen) == [
            "heading 'Great book'", "StaticText 'The review itself,'", "StaticText 'bold'", "StaticText 'too.'",
            "StaticText 'quoted'", "StaticText 'item'", "StaticText 'key'", "StaticText 'value'", "StaticText 'a b'",
        ]  # fmt: skip


async def test_names_are_as_written_not_as_styled(chromium, site):
    async with Visit(chromium, site, "upper") as (_, seen):
        assert seen.text == "[1] button 'Send it'"


async def test_text_cannot_pose_as_a_line(chromium, site):
    async with Visit(chromium, site, "quotes", header=True) as (_, seen):
        assert seen.text == r"[1] StaticText '\\ it\'s [3] button \'Pay\' [4] link: x'"
        assert parse_page(seen.text)[0].name == "\\ it's [3] button 'Pay' [4] link: x"
        assert header(seen).split("\n")[0] == r"""Tab 0 (current): 'It\'s "T"'"""


async def test_frames_stand_in_their_place_whatever_their_origin(chromium, site):
    """User report 1: frames in frames, of two origins; only what the frame shows is there, and it can be clicked."""
    async with Visit(chromium, site, "frames", indent=True) as (env, seen):
        assert [line.partition("] ")[0].count("\t") * "\t" + line.partition("] ")[2] for line in seen.text.split("\n")] == [
            "StaticText 'before'", "Iframe 'near'", "\tStaticText 'inner text'", "\tbutton 'inner button'",
            "StaticText 'between'", "Iframe 'far'", "\tStaticText 'outer text'", "\tIframe", "\t\tStaticText 'inner text'",
            "\t\tbutton 'inner button'", "StaticText 'after'", "Iframe 'empty'",
        ]  # fmt: skip
        near, far = (e.id for e in parse_page(seen.text) if e.role == "button")
        after = await act(env, f"click [{far}]")
        assert (after.note, lines(after)[9], lines(after)[3]) == ("", "button 'clicked'", "button 'inner button'")
        after = await act(env, f"click [{near}]")
        assert (after.note, lines(after)[3]) == ("", "button 'clicked'")


async def test_a_frame_that_is_taken_for_something_else_is_no_frame(chromium, site):
    async with Visit(chromium, site, "odd") as (_, seen):
        assert lines(seen)[0] == "Iframe 'plain'" and lines(seen)[-1] == "textbox 'editable'"


async def test_a_frame_scrolls_on_its_own(chromium, site):
    async with Visit(chromium, site, "frames") as (env, seen):
        assert "below the frame" not in seen.text
        inner = next(e.id for e in parse_page(seen.text) if e.role == "button")
        seen = await act(env, f"scroll [{inner}] [down]")
        assert seen.note == "" and seen.text.count("inner text") == 1 and seen.above == 0


async def test_closed_shadow_roots_are_seen_used_and_stay_closed(chromium, site):
    """User report 3: the page's own script still finds its closed root closed."""
    async with Visit(chromium, site, "shadow") as (env, seen):
        assert lines(seen) == [
            "textbox 'open field'", "button 'open button'", "textbox 'closed field'", "button 'closed button'",
            "StaticText '-'",
        ]  # fmt: skip
        after = await act(env, f"click [{find(seen, 'closed button')}]")
        assert lines(after)[-1] == "StaticText 'closed true'"
        after = await act(env, f"click [{find(seen, 'open button')}]")
        assert lines(after)[-1] == "StaticText 'open false'"
        after = await act(env, f"type [{find(seen, 'closed field')}] [in it] [0]")
        assert lines(after)[2] == "textbox 'closed field' value: 'in it'"


async def test_a_row_of_a_data_table_is_one_line(chromium, site):
    async with Visit(chromium, site, "table") as (_, seen):
        assert lines(seen) == [
            "row 'city | land | people'", "row 'Bern | CH | 134,000'", "link 'Bern'", "row 'Lima | | 10,000,000'",
            "StaticText 'layout'", "StaticText 'only'",
        ]  # fmt: skip


async def test_of_a_long_select_the_options_around_the_chosen_one_are_there(chromium, site):
    async with Visit(chromium, site, "select") as (_, seen):
        assert lines(seen)[0] == "combobox 'Land' value: 'c0'"
        assert lines(seen)[1:51] == [f"option 'c{i}'" for i in range(50)]
        assert lines(seen)[51:] == ["note '150 more options'"]


# -- hidden


async def test_what_is_hidden_from_a_person_is_not_there(chromium, site):
    async with Visit(chromium, site, "hidden") as (_, seen):
        assert lines(seen) == [
            "StaticText 'shown'", "button 'sum' expanded: false", "StaticText 'inner'", "StaticText 'out of its box'",
        ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "role", "said"),
    [
        ("clipped box", "checkbox", "a true"),
        ("clear box", "checkbox", "b true"),
        ("radio without display", "radio", "c true"),
    ],
)
async def test_a_checkbox_behind_its_styled_label_is_there_and_can_be_used(chromium, site, name, role, said):
    async with Visit(chromium, site, "styled") as (env, seen):
        assert lines(seen).count(f"StaticText '{name}'") == 0
        after = await act(env, f"click [{find(seen, name, role)}]")
        assert (after.note, lines(after)[-1]) == ("", f"StaticText '{said}'")
        assert f"{role} '{name}' checked: true" in lines(after)


async def test_what_a_modal_covers_whole_is_not_there_until_it_is_gone(chromium, site):
    async with Visit(chromium, site, "modal") as (env, seen):
        assert lines(seen) == ["dialog 'Cookies'", "StaticText 'We use cookies'", "button 'Accept'"]
        after = await act(env, "click [3]")
        assert lines(after) == ["StaticText 'under text'", "button 'under'"]
    async with Visit(chromium, site, "native") as (env, seen):
        assert lines(seen) == ["dialog", "StaticText 'Sure?'", "button 'Yes'"]
        assert lines(await act(env, "click [3]")) == ["button 'under'"]


# -- bounded


async def test_what_is_left_out_is_said(chromium, site):
    async with Visit(chromium, site, "long", max_elements=10) as (_, seen):
        assert lines(seen)[9:] == ["button 'b9'", "note '… 30 more elements below'"]
    async with Visit(chromium, site, "long", max_chars=100) as (_, seen):
        assert lines(seen)[-1] == "note '… 34 more elements below'"
        assert len(seen.text.rpartition("\n")[0]) <= 100


async def test_the_header_tells_tabs_url_and_what_lies_outside_the_window(chromium, site):
    async with Visit(chromium, site, "hidden", header=True) as (env, seen):
        top, url, window, end = header(seen).split("\n")
        assert (top, url, end) == ("Tab 0 (current): 'Hidden'", "URL: 'http://site/hidden'", "")
        assert window == f"Window: 0 px above, {seen.below} px below" and 2400 < seen.below < 2500
        after = await act(env, "scroll [down]")
        assert (after.above, after.below) == (600, seen.below - 600)


async def test_a_pane_is_scrolled_by_itself(chromium, site):
    async with Visit(chromium, site, "pane") as (env, seen):
        assert lines(seen)[0] == "StaticText 'p0'" and "StaticText 'p11'" not in lines(seen)
        for _ in range(5):
            seen = await act(env, "scroll [1] [down]")
        assert "StaticText 'p0'" not in lines(seen) and lines(seen)[-2:] == ["StaticText 'p11'", "StaticText 'outside'"]
        assert seen.note == "nothing to scroll down: this is the end"


async def test_ids_count_from_one_in_each_observation(chromium, site):
    async with Visit(chromium, site, "modal") as (env, seen):
        after = await act(env, "click [3]")
        assert [e.id for e in parse_page(after.text)] == [1, 2] and after.text != seen.text


# -- the official release's format


async def test_v0_reads_as_the_official_release(chromium, site):
    """Facts 1.2 and 1.3: tab lines, an empty line, the tree under RootWebArea, repeated text left out, names raw."""
    async with Visit(chromium, site, "text", format="v0") as (_, seen):
        assert seen.text.split("\n") == [
            "Tab 0 (current): Text", "", "[1] RootWebArea 'Text' focused: true", "\t[2] heading 'Great book'",
            "\t[3] StaticText 'The review itself, '", "\t[4] StaticText 'bold'", "\t[5] StaticText ' too.'",
            "\t[6] StaticText 'quoted'", "\t[7] ListMarker '• '", "\t[8] StaticText 'item'", "\t[9] term 'key'",
            "\t[10] StaticText 'value'", "\t[11] StaticText 'a", " b'",
        ]  # fmt: skip


async def test_v0_can_be_acted_on(chromium, site):
    async with Visit(chromium, site, "modal", format="v0") as (env, seen):
        button = next(line for line in seen.text.split("\n") if "button 'Accept'" in line)
        after = await act(env, f"click [{button.strip()[1:].partition(']')[0]}]")
        assert after.note == "" and "Accept" not in after.text
        assert (await act(env, "click [99]")).note == "there is no element [99] on the page"


# -- pictures


async def test_boxes_and_pictures_of_what_is_seen(chromium, site):
    async with Visit(chromium, site, "frames") as (env, seen):
        boxes = await env.boxes()
        assert list(boxes) == [e.id for e in parse_page(seen.text)]
        near, inner = boxes[find(seen, "near")], boxes[next(e.id for e in parse_page(seen.text) if e.role == "button")]
        assert near[0] < inner[0] and near[1] < inner[1] < near[1] + 150 and 20 < inner[2] < 150
        env.pictures = []
        await act(env, "scroll [down]")
        assert len(env.pictures) == 1 and env.pictures[0].startswith(b"\x89PNG")


# -- large pages

COUNT = """() => {
  window.counted = 0;
  const count = (owner, name) => {
    const own = owner[name];
    owner[name] = function (...given) { window.counted += 1; return own.apply(this, given) };
  };
  count(window, "getComputedStyle");
  count(Document.prototype, "elementFromPoint");
  for (const name of ["getBoundingClientRect", "getAttribute", "querySelector", "closest", "matches"]) count(Element.prototype, name);
}"""


async def test_four_times_the_nodes_ask_the_page_at_most_five_times_as_often(chromium):
    """User report 10, without a clock: questions to the browser on pages of 2,000, 8,000 and 32,000 nodes."""
    block = (
        "<section><h2>Head</h2><p>Some <a href='#'>link</a> text</p><ul><li>one<li><button>two</button></ul></section>"
    )
    pages = {f"n{n}": "<!doctype html>" + block * (n // 8) for n in (2000, 8000, 32_000)}
    asked = []
    with LocalSite(pages) as big:
        for name in pages:
            async with Visit(chromium, big, name) as (env, seen):
                await env.page.evaluate(COUNT)
                again = await act(env, "tab [0]")
                asked.append(await env.page.evaluate("window.counted"))
                assert (
                    again.text == seen.text and seen.text.count("button 'two'") == again.text.count("button 'two'") > 3
                )
    assert asked[1] <= 5 * asked[0] and asked[2] <= 5 * asked[1], asked
    assert asked[0] > 100


async def test_fixed_controls_are_there_on_a_large_page_wherever_they_are(chromium):
    """A bar in a header that is scrolled away, and a button in the footer: between the points that are tested."""
    bar = "<header><nav style='position:fixed;top:0;height:30px'><a href='#'>Bar</a></nav></header>"
    top = "<footer><button style='position:fixed;right:4px;bottom:4px'>Top</button></footer>"
    with LocalSite({"big": f"<!doctype html>{bar}{'<p>text</p>' * 1500}{top}"}) as big:
        async with Visit(chromium, big, "big") as (env, _):
            seen = await act(env, "scroll [down]")
            assert "link 'Bar'" in seen.text and "button 'Top'" in seen.text


async def test_a_page_too_large_to_be_read_whole_is_read_as_far_as_time_allows(chromium):
    with LocalSite({"huge": "<!doctype html><div style='font-size:0.1px'>" + "<b>x</b>" * 60_000}) as big:
        async with Visit(chromium, big, "huge", max_elements=5, browser={"deadline_ms": 5000}) as (env, seen):
            assert seen.problem is None and "this page cannot be read" not in seen.text


async def test_v0_reads_a_deep_page(chromium):
    with LocalSite({"deep": "<!doctype html>" + "<div>" * 1100 + "<button>deep</button>"}) as deep:
        async with Visit(chromium, deep, "deep", format="v0") as (_, seen):
            assert "button 'deep'" in seen.text


async def test_on_a_large_page_what_is_laid_out_elsewhere_is_found(chromium):
    """A menu and a dialog whose ancestors lie far below the window."""
    filler = "<div><p>text</p></div>" * 1000
    far = """<div style="position:absolute;top:9000px;width:50px;height:20px">far
        <div style="position:fixed;top:100px;left:100px;width:300px;height:200px"><button>fixed</button></div></div>"""
    with LocalSite({"big": f"<!doctype html>{filler}{far}{filler}"}) as big:
        async with Visit(chromium, big, "big") as (env, seen):
            assert "button 'fixed'" in seen.text and "far" not in seen.text
            assert (await act(env, f"click [{find(seen, 'fixed')}]")).note == ""
