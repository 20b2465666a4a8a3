"""`wevo report`: what it says of a run that is done in part, and the file itself in a real Chromium."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from urllib.parse import unquote, urlsplit

import pytest
from stand_ins import walk

from wevo_nb import chain, report
from wevo_nb.report import Table, cost, funnels, gather, in_words, shared, write_report
from wevo_nb.runs import signature, write_json, write_jsonl
from wevo_nb.schema import Task, Verdict

EVIL = '<img src=x onerror="window.hacked=1"><script>window.hacked=1</script>'
MADE = {"git_commit": "a" * 40, "git_dirty": False, "python": "3.11.7", "machine": "x86_64, 2 cores", "gpu": []}
STAGES = ("iter-1/01_collect", "iter-1/02_wm_train", "05_wmla/zero_shot")
SUCCESS = """arm,split,n,successes,rate,low,high
zero_shot,test_seeds,100,47,0.47,0.3751,0.5671
zero_shot,test_tasks,0,0,,,
webevolver,test_seeds,100.0,49,0.49,0.394,0.586
"""
PAIRED = """arm_a,arm_b,split,n,won,lost,difference,low,high,p
zero_shot,webevolver,test_seeds,100,14,1,0.13,0.0546,0.2002,0.00097
"""


def manifest(name: str, seconds=60.0, memory=900, usage=None, **made) -> dict:
    return {
        "stage": name, "fingerprint": "f" * 16, "finished": "2026-11-30T08:20:41+00:00", "seconds": seconds,
        "peak_memory_mb": memory, "usage": usage or {}, "models": {}, "inputs": {},
        "outputs": {"metrics.json": "0" * 16, name: "1" * 16},
        "provenance": MADE | {"packages": {"torch": "2.13.0"}} | made,
    }  # fmt: skip


def picture() -> bytes:
    """A figure of 30 by 20 pixels."""
    from matplotlib.figure import Figure

    drawn = io.BytesIO()
    Figure(figsize=(3, 2)).savefig(drawn, dpi=10, format="png")
    return drawn.getvalue()


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A run of the smoke profile: three stages and the analysis done, with a notebook each."""
    monkeypatch.setenv("WEVO_OUTPUTS", str(tmp_path))
    run = tmp_path / "mine"
    write_json(run / "run.json", {"profile": "smoke", "created": "2026-11-30T08:17:31+00:00", "overrides": {"seed": 5}})
    for name in STAGES:
        usage = {"policy": {"calls": 400, "prompt_tokens": 70, "completion_tokens": 3, "seconds": 1.0}}
        write_json(run / name / "manifest.json", manifest(name, usage=usage if name == STAGES[0] else {}))
        write_json(run / name / "params.json", {"params": {"seed": 5, "collect": {"judge": "reward"}}})
        (run / name / "notebook.ipynb").write_text("{}")
    episodes = [walk(Task(suite="miniwob", name="a b#c", seed=i), "[1] button 'x'", reward=1.0) for i in range(4)]
    episodes[3] = episodes[3].model_copy(update={"verdict": Verdict(outcome="unscored", judge="llm")})
    write_jsonl(run / STAGES[0] / "trajectories.jsonl", episodes)
    write_json(
        run / STAGES[0] / "metrics.json", {"funnel": [{"step": "episodes", "kept": 4}, {"step": "kept", "kept": 3}]}
    )
    analysis = manifest("06_analysis") | {"inputs": {name: signature("mine", name) for name in STAGES}}
    write_json(run / "06_analysis" / "manifest.json", analysis)
    write_json(run / "06_analysis" / "metrics.json", {"takeaways": ["zero_shot solves 47 of 100.", EVIL]})
    (run / "06_analysis" / "notebook.ipynb").write_text("{}")
    for name, text in (("success", SUCCESS), ("paired", PAIRED), ("cost", f"stage,seconds\n{EVIL},1.23456\n")):
        path = run / "06_analysis" / "tables" / f"{name}.csv"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text.replace(EVIL, '"' + EVIL.replace('"', '""') + '"'))
    for name in ("success_by_arm", "stall"):
        path = run / "06_analysis" / "figures" / f"{name}.png"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(picture())
        path.with_suffix(".pdf").write_bytes(b"%PDF")
        write_json(path.with_suffix(".json"), {"caption": f"Caption of {name} {EVIL}"})
    return run


def planned() -> list[str]:
    return [part for step in chain.plan("smoke", {"seed": 5}) for part in step.parts]


# -- what it says


def test_what_is_missing_is_said_with_the_command_that_makes_it(folder):
    told = gather("mine")["missing"]
    begun = [name for name in planned() if name not in (*STAGES, "06_analysis")]
    assert begun  # the smoke profile has more stages than the three
    assert told == [
        *(f"{name} is not begun: wevo run --run mine" for name in begun),
        "trajectories that could not be scored, and are in no rate: 1",
    ]


def test_an_analysis_that_has_read_other_files_is_said(folder):
    """One stage made anew since, one gone, one that is new, one from a changed checkout, one without its notebook."""
    changed = manifest(STAGES[0], git_dirty=True) | {"outputs": {"trajectories.jsonl": "9" * 16}}
    write_json(folder / STAGES[0] / "manifest.json", changed)
    os.remove(folder / STAGES[1] / "manifest.json")
    write_json(folder / "04_extra" / "manifest.json", manifest("04_extra"))
    write_json(folder / "04_extra" / "params.json", {"params": {"seed": 5}})
    write_json(folder / "05_wmla" / "zero_shot.old-1" / "params.json", {"params": {}})  # set aside: not of this run
    (folder / STAGES[0] / "trajectories.jsonl").unlink()
    (folder / STAGES[0] / "trajectories.jsonl").symlink_to(os.devnull)
    told = gather("mine")["missing"]
    assert told[: len(planned()) - 3] == [
        f"{name} is {'begun' if name == STAGES[1] else 'not begun'}: wevo run --run mine"
        for name in planned() if name not in (STAGES[0], STAGES[2], "06_analysis")
    ]  # fmt: skip
    assert told[len(planned()) - 3 :] == [
        "04_extra has no executed notebook",
        "iter-1/01_collect was made anew since 06_analysis read it: wevo run --run mine --only 06",
        "06_analysis has read iter-1/02_wm_train, which is not there any more",
        "06_analysis was made before 04_extra was done: wevo run --run mine --only 06",
        "made from a checkout with changes that are not committed: iter-1/01_collect",
        "iter-1/01_collect/trajectories.jsonl: leads out of the run's folder and is not read",
    ]


def test_a_run_that_has_just_begun_has_a_report_too(tmp_path, monkeypatch):
    monkeypatch.setenv("WEVO_OUTPUTS", str(tmp_path))
    write_json(tmp_path / "new" / "run.json", {"profile": "smoke", "created": "2026-11-30T08:17:31+00:00"})
    text = write_report("new").read_text()
    assert "there are no tables and figures of notebook 06: wevo run --run new --only 06" in text
    assert "0 of" in text and "No stage is done yet." in text


def test_success_has_a_row_an_arm_and_a_column_a_split():
    headings, *rows = [line.split(",") for line in SUCCESS.splitlines()]
    table = in_words(Table("success", "x.csv", headings, rows))
    assert table.headings == ["arm", "test_seeds", "test_tasks"]
    words = [[cell.replace("\N{NO-BREAK SPACE}", " ") for cell in row] for row in table.rows]
    assert words == [
        ["zero_shot", "47% [38, 57], 47 of 100", "-, 0 of 0"], ["webevolver", "49% [39, 59], 49 of 100", ""],
    ]  # fmt: skip


def test_what_was_not_scored_stands_beside_its_rate_as_bounds():
    headings = ["arm", "split", "n", "successes", "rate", "low", "high", "unscored", "low_bound", "high_bound"]
    rows = [
        ["a", "s", "8", "4", "0.5", "0.215", "0.785", "2", "0.4", "0.6"],
        ["b", "s", "8", "4", "0.5", "0.215", "0.785", "0", "0.5", "0.5"],
    ]
    [first, second] = in_words(Table("success", "x.csv", headings, rows)).rows
    words = [cell.replace("\N{NO-BREAK SPACE}", " ") for cell in (first[1], second[1])]
    assert words == ["50% [22, 78], 4 of 8; 2 unscored, so 40 to 60%", "50% [22, 78], 4 of 8"]


def test_other_tables_keep_their_columns():
    headings, *rows = [line.split(",") for line in PAIRED.splitlines()]
    table = in_words(Table("paired", "x.csv", headings, rows))
    assert table.rows == [["webevolver", "zero_shot", "test_seeds", "+13 [+5, +20]", "14, 1, 100", "< 0.001"]]
    corrected = in_words(Table("paired", "x.csv", [*headings, "p_holm"], [[*rows[0], "0.0432"]]))
    assert corrected.headings[-2:] == ["p", "p, Holm"] and corrected.rows[0][-2:] == ["< 0.001", "0.043"]
    twin = in_words(
        Table(
            "paired",
            "x.csv",
            [*headings, "p_holm", "same_policy"],
            [[*rows[0], "", "True"], [*rows[0], "0.5", "False"]],
        )
    )
    assert [row[-1] for row in twin.rows] == ["same policy, not counted", "0.500"]
    odd = in_words(Table("paired", "x.csv", ["arm_a", "x"], [["1.5.2", "12345.678912"]]))
    assert (odd.headings, odd.rows) == (["arm_a", "x"], [["1.5.2", "12345.679"]])
    other = in_words(Table("stall", "x.csv", ["a", "b", "c", "d"], [["3", "0.25", "0.0000123", "nan"]]))
    assert other.rows == [["3", "0.25", "1.2e-05", "nan"]]


def test_each_part_of_a_funnel_is_measured_by_what_came_into_it(tmp_path):
    steps = [("real: steps", 168), ("real: kept", 113), ("imagined: steps", 425), ("imagined: kept", 128), ("all", 9)]
    write_json(tmp_path / "04_a" / "metrics.json", {"funnel": [{"step": s, "kept": k} for s, k in steps]})
    write_json(tmp_path / "04_b" / "metrics.json", {"rows": 3})
    assert funnels(tmp_path, {"04_a": {}, "04_b": {}}) == [
        ("04_a", [(*steps[0], 168), (*steps[1], 168), (*steps[2], 425), (*steps[3], 425), (*steps[4], 9)])
    ]


def test_cost_sums_over_roles_and_stages():
    used = {"calls": 400, "prompt_tokens": 68_203, "completion_tokens": 7}
    usage = {"policy": used, "judge": {"calls": 12, "prompt_tokens": 3_542, "completion_tokens": 0}}
    rows = cost({"a": manifest("a", 184.2, 1293, usage), "b": manifest("b", 3601.0, 880)})
    assert rows == [
        ["a", "3:04", "1,293", "412", "71,745", "7"], ["b", "60:01", "880", "0", "0", "0"],
        ["together", "63:05", "1,293 at most", "412", "71,745", "7"],
    ]  # fmt: skip


def test_what_stages_were_made_with_stands_once():
    manifests = {"a": manifest("a", browser="156"), "b": manifest("b"), "c": manifest("c", git_commit="b" * 40)}
    (first, names), (second, others) = shared(manifests)
    assert (names, others) == (["a", "b"], ["c"])
    assert first["browser"] == "156" and first["packages.torch"] == "2.13.0" and second["git_commit"] == "b" * 40


# -- the file


@pytest.mark.browser
@pytest.mark.asyncio(loop_scope="module")
async def test_the_file_needs_nothing_but_itself(chromium, folder):
    path = write_report("mine")
    context = await chromium.new_context(viewport={"width": 400, "height": 800}, color_scheme="light")
    page, asked, problems = await context.new_page(), [], []
    page.on("request", lambda request: asked.append(request.url) if not request.url.startswith("data:") else None)
    page.on("console", lambda told: problems.append(told.text))
    page.on("pageerror", lambda error: problems.append(str(error)))
    await page.goto(path.as_uri())
    assert asked == [path.as_uri()]
    for width in (1600, 400):
        await page.set_viewport_size({"width": width, "height": 800})
        assert await page.evaluate("document.documentElement.scrollWidth") <= width
    widths = "[...document.images].map(image => image.naturalWidth)"
    assert await page.evaluate(widths) == [30, 30]
    assert await page.evaluate("window.hacked") is None
    text = await page.locator("main").inner_text()
    assert text.count(EVIL) == 3  # a sentence and two captions
    assert await page.locator("details td").filter(has_text=EVIL).count() == 1  # folded, in a table
    assert "seed=5" in text and "4 of" in text and "zero_shot solves 47 of 100." in text
    colour = "getComputedStyle(document.body).backgroundColor"
    before = await page.evaluate(colour)
    await page.keyboard.press("t")  # its script runs under its own rule
    assert (before, await page.evaluate(colour)) == ("rgb(255, 255, 255)", "rgb(22, 24, 28)")
    await page.keyboard.press("j")
    assert await page.evaluate("document.activeElement.id") == "run"
    assert problems == []
    await context.close()


@pytest.mark.browser
@pytest.mark.asyncio(loop_scope="module")
async def test_every_link_leads_to_a_file_of_the_run(chromium, folder):
    path = write_report("mine")
    context = await chromium.new_context()
    page = await context.new_page()
    await page.goto(path.as_uri())
    links = await page.evaluate("[...document.querySelectorAll('a')].map(link => link.getAttribute('href'))")
    await context.close()
    files = [link for link in links if not link.startswith("#")]
    assert all(urlsplit(link).scheme == "" and not link.startswith("/") for link in files)
    assert {unquote(link) for link in files} == {
        *(f"{name}/notebook.ipynb" for name in (*STAGES, "06_analysis")), f"{STAGES[0]}/trajectories.jsonl",
        "06_analysis/tables/cost.csv", "06_analysis/figures/success_by_arm.pdf", "06_analysis/figures/stall.pdf",
    }  # fmt: skip
    assert all((folder / unquote(link)).exists() for link in files)
    places = set(re.findall(r'\bid="([\w-]+)"', path.read_text()))
    assert all(link[1:] in places for link in links if link.startswith("#"))


# -- the command


def test_the_command_says_where_the_report_is(folder):
    command = [sys.executable, "-m", "wevo_nb.cli", "report"]
    done = subprocess.run([*command, "mine"], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout.strip()) == (0, str(folder / report.NAME))
    done = subprocess.run([*command, "nobody"], capture_output=True, text=True, timeout=120)
    assert done.returncode == 2 and "there is no run 'nobody'" in done.stderr and "Traceback" not in done.stderr
