"""benchmarks/environment.py: its pages, its measure of recall and what it writes, on small cases known before."""

from __future__ import annotations

import json
import sys
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "benchmarks"))

import environment
import reading
import recall
from pages import Pages, generate
from reading import Window

from wevo_nb.schema import Action, Decision, Observation, Step, Task, Trajectory

PAGE = """<!doctype html><title>Known</title><style>body{margin:0} .far{position:absolute;top:3000px}</style>
<button id="seen">Seen</button> <a id="link" href="#x">A  link</a> <input id="field" aria-label="A field">
<button id="gone" style="display:none">Gone</button> <button id="unseen" style="visibility:hidden">Unseen</button>
<button id="far" class="far">Far</button> <a id="aside" href="#y" style="position:absolute;left:-999px">Aside</a>
<label><input id="drawn" type="checkbox" style="position:absolute;opacity:0;width:0;height:0"><b>Drawn</b></label>
<div id="listens">Listens</div><script>document.getElementById("listens").addEventListener("click", () => {})</script>
<div style="position:relative;width:200px;height:40px"><button id="under">Under</button>
<p style="position:absolute;inset:0;margin:0;background:white">a cover</p></div>"""
SEEN = {"seen", "link", "field", "drawn", "listens"}
AXTREE = """RootWebArea 'Shop', focused
\t[3] heading 'Shop'
\t\t[4] link 'To the "part"', clickable, url='/part'
\t[5] button "Don't buy", clickable
\t[6] LabelText '', clickable
\t\tStaticText 'News'
\t\t[7] checkbox 'News', clickable, checked='false'
\t[8] paragraph ''
\t\tStaticText 'only text'
\t[9] generic, clickable
\t\tStaticText 'listens'
\tStaticText 'after it'"""


class Tags(HTMLParser):
    """The elements that a page's source has."""

    def __init__(self, page: str):
        super().__init__()
        self.tags, self.ids = [], []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.ids += [value for key, value in attrs if key == "id"]


@pytest.mark.parametrize("elements", [200, 2000])
def test_a_generated_page_is_always_the_same_of_the_asked_size_and_its_controls_have_names_of_their_own(elements):
    page = generate(elements)
    assert page == generate(elements)
    source = Tags(page.html)
    assert elements <= len(source.tags) <= elements + 30
    assert [ident for ident in source.ids if ident.startswith("c-")] == list(page.controls)
    assert len(set(page.controls.values())) == len(page.controls) > elements / 4
    assert page.hidden < set(page.controls.values())
    assert {"a", "button", "input", "select", "textarea", "details", "table", "ul", "h2", "p"} <= set(source.tags)


def test_names_of_a_flattened_accessibility_tree_are_those_of_its_controls():
    assert recall.named_by_axtree(AXTREE) == Counter({'to the "part"': 1, "don't buy": 1, "news": 2, "listens": 1})


def test_a_name_that_stands_there_twice_has_to_be_named_twice():
    visible = [{"id": "", "text": text} for text in ("Edit", " edit ", "Home\n page", "")]
    truth = recall.expected(visible, None)
    assert truth == Counter({"edit": 2, "home page": 1})
    names = recall.named("[1] link 'Edit'\n[2] StaticText 'Edit'\n[3] button 'Home page'\n[4] link 'More'")
    assert recall.found(truth, names) == 2
    assert recall.missed(truth, names) == ["edit"]
    assert recall.shown_hidden({"More", "Edit me"}, names) == ["more"]


@pytest.mark.browser
@pytest.mark.asyncio(loop_scope="module")
async def test_the_truth_is_what_a_person_sees_and_the_observation_names_it(chromium):
    with Pages() as suite:
        suite.put("known", PAGE)
        every = "#seen, #link, #field, #gone, #unseen, #far, #aside, #drawn, #listens, #under"
        visible, elements = await reading.look(chromium, suite.url("known"), every)
        assert {one["id"] for one in visible} == SEEN
        assert elements == 20
        ms, text = await reading.read(chromium, suite, reading.page_params(), "known", 2)
    names = recall.named(text)
    assert len(ms) == 2 and min(ms) > 0
    assert recall.missed(recall.expected(visible, None), names) == []
    assert recall.shown_hidden({"Gone", "Unseen", "Far", "Aside"}, names) == []


@pytest.mark.browser
@pytest.mark.asyncio(loop_scope="module")
async def test_all_visible_controls_of_a_generated_page_are_named_and_no_hidden_one(chromium):
    page = generate(200)
    with Pages() as suite:
        suite.put("generated-200", page.html)
        windows = {}
        for path in ("generated-200", "generated-200#s6"):
            visible, _ = await reading.look(chromium, suite.url(path), reading.selector(page))
            assert not page.hidden & {page.controls[one["id"]] for one in visible}
            ms, text = await reading.read(chromium, suite, reading.page_params(), path, 1)
            windows[path] = Window(ms, text, reading.expected(visible, page))
    row = reading.row("generated-200", page, 207, windows, {}, {})
    assert (row["recall"], row["missed"], row["named_hidden"]) == (1.0, [], [])
    assert row["controls"] > 80 and set(row) == set(
        "page elements ms characters controls recall missed named_hidden".split()
    )


def test_a_row_compares_both_systems_over_both_windows():
    truth = Counter({"one": 1, "two": 1})
    ours = {
        "p": Window([1.0, 2.0], "[1] link 'One'\n[2] link 'Two'", truth),
        "p#s": Window([3.0], "[1] link 'One'", truth),
    }
    theirs = {path: Window([40.0], "[3] link 'One'", truth) for path in ours}
    row = reading.row("p", None, 9, ours, theirs, {"p": [10.0], "p#s": [10.0]})
    assert (row["ms"], row["ms_browsergym"], row["ratio_to_browsergym"], row["ratio_without_screenshot"]) == (
        2,
        40,
        20,
        15,
    )
    assert (row["recall"], row["recall_browsergym"], row["controls"], row["missed"]) == (0.75, 0.5, 4, ["two"])


def test_rates_are_told_with_and_without_the_resets():
    seen = Observation(text="[1] button 'Go'")
    step = Step(observation=seen, decision=Decision(reply="go", action=Action(verb="click", id=1)), ms=50)
    task = Task(suite="site", name="page", seed=0)
    one = Trajectory(
        task=task, policy="random", environment="browser", steps=(step,) * 4, final=seen, ended="limit", seconds=0.8
    )
    assert environment.rate([one, one], 1.6) == {
        "episodes": 2, "errors": 0, "steps": 8, "step_ms": 50.0, "steps_per_second": 5.0, "without_resets": 20.0
    }  # fmt: skip


@pytest.mark.browser
@pytest.mark.parametrize("part", ["miniwob", "memory"])
def test_a_part_is_measured_printed_and_written(part, tmp_path, monkeypatch, capsys):
    small = environment.Sizes(1, 0, 1, 0, 0, 10)
    for name, value in {
        "RESULTS": tmp_path / "e.json",
        "FULL": small,
        "CONTEXTS": (1, 2),
        "MINIWOB": ("click-test",),
    }.items():
        monkeypatch.setattr(environment, name, value)
    monkeypatch.setattr(sys, "argv", ["environment.py", "--only", part, "--no-browsergym"])
    environment.main()
    written = json.loads((tmp_path / "e.json").read_text())
    assert set(written) == {"measured", "quick", "machine", "versions", part}
    assert set(written["machine"]) == {"cpu", "cores", "memory_gb", "system", "load_before"} and not written["quick"]
    if part == "miniwob":
        assert set(written["miniwob"]["steps_per_second"]) == {"1", "2"}
        assert [row["errors"] for row in written["miniwob"]["rows"]] == [0, 0]
        assert "without resets" in capsys.readouterr().out
    else:
        assert [loads for loads, _ in written["memory"]["mb"]] == list(range(1, 11))
        assert all(50 < mb < 5000 for _, mb in written["memory"]["mb"])
        assert "MB per 100 loads" in capsys.readouterr().out
