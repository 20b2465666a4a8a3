"""The solutions of the exercises: their answers on small runs worked out by hand, and on a real smoke run.

The commands that the notebooks and docs give are read as the command line reads them, and planned.
"""

from __future__ import annotations

import importlib.util
import json
import math
import re
import shlex
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import nbformat
import pandas as pd
import pytest
import typer
from conftest import environment
from stand_ins import SMOKE, task, walk

from wevo_nb import chain, cli, metrics, synthesis
from wevo_nb.params import ROOT, parse_arm
from wevo_nb.runs import StageError, run_folder, write_csv, write_json, write_jsonl
from wevo_nb.sections import FINAL_ARMS

FOLDER = ROOT / "docs" / "solutions"
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
PAGE = "[1] button 'OK'"


def solution(name: str) -> ModuleType:
    """The file of a notebook, by its beginning: solution("01")."""
    [path] = FOLDER.glob(f"{name}*.py")
    if str(FOLDER) not in sys.path:
        sys.path.append(str(FOLDER))
    spec = importlib.util.spec_from_file_location(f"solution_{name}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def outputs(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("WEVO_OUTPUTS", str(tmp_path))
    return tmp_path


def episode(name: str, seed: int, success: bool, arm: str = "zero_shot"):
    """A judged held-out episode of one click, on a page of its own."""
    of = task(name, seed, goal="Click OK").model_copy(update={"split": "test_seeds"})
    reward = 1.0 if success else 0.0
    told = "success" if success else "failure"
    return walk(of, f"{PAGE}\n[2] StaticText '{seed}'", "click [1]", PAGE, reward=reward, policy=arm, success=told)


def evaluated(run: str, arm: str, solved: dict[str, list[bool]]):
    """The episodes of an arm: for each kind of task, which seeds it solved."""
    found = [episode(kind, seed, one, arm) for kind, told in solved.items() for seed, one in enumerate(told)]
    write_jsonl(run_folder(run) / "05_wmla" / arm / "trajectories.jsonl", found)
    return found


# -- on small runs


def test_what_is_not_there_is_refused_by_name_with_the_cure(outputs):
    with pytest.raises(StageError, match=r"there is no .*gone/05_wmla/lookahead.csv: 'wevo status --run gone'"):
        solution("05").exercise_3("gone")
    with pytest.raises(StageError, match="run 'gone' has no finished 02_wm_train"):
        solution("02").exercise_1("gone")


def collected(run: str, iteration: int, by_task: dict[str, tuple[int, int]], kept=()):
    """A collection's metrics.json and manifest: for each kind n and successes."""
    folder = run_folder(run) / f"iter-{iteration}" / "01_collect"
    n, won = (sum(counts[i] for counts in by_task.values()) for i in (0, 1))
    rows = [{"task": kind, "n": counts[0], "successes": counts[1]} for kind, counts in by_task.items()]
    funnel = [{"step": "episodes", "kept": n}, {"step": "successes", "kept": won}]
    write_json(folder / "metrics.json", {"by_task": rows, "funnel": funnel})
    write_jsonl(folder / "kept.jsonl", kept)
    write_json(folder / "manifest.json", {})


def test_01_few_episodes_miss_a_hard_kind(outputs):
    collected("r", 1, {"hard": (18, 3), "never": (18, 0), "short": (3, 1)})
    told = solution("01").exercise_1("r").set_index("task")
    assert list(told.index) == ["never", "hard", "short"]
    assert told.chance["hard"] == pytest.approx(1 - (15 * 14 * 13 * 12 * 11) / (18 * 17 * 16 * 15 * 14))
    assert told.chance["never"] == 0 and told.chance["short"] == 1  # three episodes are all there are


def test_01_two_collections_side_by_side(outputs):
    collected(
        "warm", 1, {"a": (4, 2), "b": (4, 1)}, [episode("a", 0, True), episode("a", 1, True), episode("b", 0, True)]
    )
    collected("cold", 1, {"a": (4, 4), "b": (4, 0)}, [episode("a", i, True) for i in range(4)])
    told = solution("01").exercise_2("warm", "cold")
    assert told.to_dict("list") == {
        "run": ["warm", "cold"], "episodes": [8, 8], "successes": [3, 4], "kinds": [2, 1],
    }  # fmt: skip


def test_01_news_of_each_iteration(outputs):
    collected("r", 1, {"a": (10, 5), "b": (10, 0)})
    collected("r", 2, {"a": (10, 9), "b": (10, 1)})
    collected("r", 3, {"a": (10, 0), "b": (10, 10)})
    told = solution("01").exercise_3("r")
    assert list(told.iteration) == [1, 2, 3] and list(told.rate) == [0.25, 0.5, 0.5]
    assert list(told.new_kinds) == [1, 1, 0]


def test_02_the_outcome_is_little_of_what_is_written(outputs):
    folder = run_folder("r") / "iter-2" / "02_wm_train"
    rows = [("success", "done success"), ("changed", "changed\n~[1] checkbox"), ("changed", "changed\n-[1]")]
    write_json(folder / "rows.json", [{"outcome": outcome, "reply": reply} for outcome, reply in rows])
    write_json(folder / "manifest.json", {})
    told = solution("02").exercise_1("r").set_index("outcome")
    assert told.loc["changed", ["rows", "characters", "share"]].tolist() == [2, 33, 14 / 33]
    assert told.loc["all", ["rows", "characters", "share"]].tolist() == [3, 45, 26 / 45]


def test_02_the_newest_card_of_each_run(outputs):
    columns = ["model", "target", "depth", "metric", "n", "value", "low", "high"]
    for run, iteration, value in (("r", 1, 0.2), ("r", 2, 0.5), ("s", 1, 0.75)):
        folder = run_folder(run) / f"iter-{iteration}" / "02_wm_train"
        mine = ("change", 1, "exact_match", 8, value, 0.1, 0.9)
        rows = [
            (f"iteration_{iteration}", *mine),
            ("copy_page", *mine),
            (f"iteration_{iteration}", "change", 2, *mine[2:]),
        ]
        write_csv(folder / "report_card.csv", pd.DataFrame(rows, columns=columns))
        write_json(folder / "manifest.json", {})
    solved = solution("02")
    assert solved.exercise_2("r", "s").value.tolist() == [0.2, 0.75]
    assert solved.exercise_3("r", "s").value.tolist() == [0.5, 0.75]


def test_03_the_lowest_threshold_that_is_true_enough(outputs):
    replayed = [(0.55, False), (0.65, False)] + [(0.75, True)] * 8 + [(0.75, False)] + [(0.97, True)] * 30
    write_csv(run_folder("r") / "03_synthesize" / "truth.csv", pd.DataFrame(synthesis.truth_by_threshold(replayed)))
    told = solution("03").exercise_1("r", precision=0.95)
    # 38 of 41 are true above .5, 38 of 40 = .95 above .6; the lower end is nowhere so high
    assert told[["by", "threshold", "n", "true"]].values.tolist() == [["rate", 0.6, 40, 38]]
    assert list(solution("03").exercise_1("r", precision=0.8).by) == ["rate", "low"]


def test_03_the_thresholds_of_the_study():
    """Seed 2: 55 of 64 above .7 are the most with four of five true; surely so 39 of 40 above .95."""
    told = solution("03").exercise_1(str(ROOT / "docs" / "study" / "seed-2" / "tables" / "truth.csv"))
    assert told[["by", "threshold", "n", "true"]].values.tolist() == [["rate", 0.7, 64, 55], ["low", 0.95, 40, 39]]


def test_03_from_a_world_model_to_a_policy(outputs):
    columns = ["model", "depth", "metric", "n", "value"]
    for run, learned, auc, replayed, true, won, lost in (("r", 150, 0.6, 0, 0, 0, 0), ("s", 400, 0.9, 65, 47, 3, 15)):
        funnel = [{"step": "imagined", "kept": 100}, {"step": "accepted", "kept": replayed}]
        told = {"funnel": funnel, "truth": {"replayed": replayed, "true": true}}
        write_json(run_folder(run) / "03_synthesize" / "metrics.json", told)
        taught = run_folder(run) / "iter-2" / "02_wm_train"
        write_json(taught / "metrics.json", {"gate": {"rows": learned}})
        card = [("iteration_2", 1, "auc_success", 9, auc), ("iteration_1", 1, "auc_success", 9, 0.1)]
        write_csv(taught / "report_card.csv", pd.DataFrame(card, columns=columns))
        write_json(taught / "manifest.json", {})
        row = {
            "arm_a": "self_improve_1",
            "arm_b": "webevolver",
            "split": "test_seeds",
            "n": 100,
            "won": won,
            "lost": lost,
        }
        other = row | {"split": "test_tasks", "n": 9}
        write_csv(run_folder(run) / "06_analysis" / "tables" / "paired.csv", pd.DataFrame([row, other]))
    solved = solution("03")
    assert solved.exercise_2("s").rate.tolist() == [47 / 65]
    told = solved.exercise_3("r", "s")
    shown = told[["rows", "auc_success", "accepted", "true", "n", "won", "lost", "difference"]]
    assert shown.values.tolist() == [[150, 0.6, 0, 0, 100, 0, 0, 0.0], [400, 0.9, 65, 47, 100, 3, 15, -0.12]]


def test_04_rows_before_they_are_repeated(outputs):
    row = lambda name, reply: {"task": name, "messages": [], "reply": reply}  # noqa: E731
    rows = [row("a", "x")] * 4 + [row("b", "x"), row("b", "y"), row("b", "y")]
    write_json(run_folder("r") / "iter-1" / "04_self_improve" / "rows.json", rows)
    told = solution("04").exercise_1("r")
    assert told.values.tolist() == [["a", 4, 1, 4.0], ["b", 3, 2, 1.5]]


def test_04_the_same_arm_of_two_runs_on_the_same_episodes(outputs):
    evaluated("full", "self_improve_1", {"a": [True, True, False]})
    evaluated("lora", "self_improve_1", {"a": [True, False, False]})
    [told] = solution("04").exercise_2("full", "lora").to_dict("records")
    assert (told["arm_b"], told["n"], told["won"], told["lost"]) == ("lora", 3, 0, 1)


def test_05_what_only_one_of_two_arms_solved(outputs):
    evaluated("r", "zero_shot", {"a": [True, False, False]})
    evaluated("r", "zero_shot+wmla_d1", {"a": [False, True, False]})
    told = solution("05").exercise_1("r")
    assert told.values.tolist() == [["miniwob/a/0", "zero_shot"], ["miniwob/a/1", "zero_shot+wmla_d1"]]


def test_05_gain_and_price_of_each_way(outputs):
    results = {
        "zero_shot": evaluated("r", "zero_shot", {"a": [False, False, True, True]}),
        "zero_shot+veto": evaluated("r", "zero_shot+veto", {"a": [True, True, True, False]}),
    }
    write_json(run_folder("r") / "05_wmla" / "zero_shot" / "manifest.json", {})
    arms = [parse_arm(name, SMOKE) for name in results]
    write_csv(run_folder("r") / "05_wmla" / "lookahead.csv", metrics.lookahead_table(results, arms))
    [told] = solution("05").exercise_2("r").to_dict("records")
    assert (told["arm"], told["won"], told["lost"], told["difference"]) == ("zero_shot+veto", 2, 1, 0.25)


def analysed(run: str, solved: dict[str, dict[str, list[bool]]], pairs: list[tuple[str, str]]):
    """The tables of notebook 06 for these arms."""
    results = {arm: evaluated(run, arm, told) for arm, told in solved.items()}
    tables = run_folder(run) / "06_analysis" / "tables"
    write_csv(tables / "tasks.csv", metrics.task_table(results))
    write_csv(tables / "paired.csv", metrics.paired_table(results, pairs))


ZERO = {"a": [False] * 4, "b": [False] * 4, "c": [True] * 4}
BETTER = {"a": [True] * 4, "b": [True, False, False, False], "c": [True, True, True, False]}


def test_06_where_the_gain_is_and_what_a_pair_adds_up_to(outputs):
    analysed("r", {"zero_shot": ZERO, "self_improve_1": BETTER}, [("zero_shot", "self_improve_1")])
    solved = solution("06")
    assert solved.exercise_1("r") == {"task": "a", "gain": 4, "total": 4, "share": 1.0}
    told = solved.exercise_2("r")
    assert (told["n"], told["won"], told["lost"], told["difference"]) == (12, 5, 1, 4 / 12)
    with pytest.raises(StageError, match="does not compare webevolver with zero_shot"):
        solved.exercise_2("r", b="webevolver")


def by_hand(run: str, rows: list[tuple]):
    """A paired.csv of (arm_a, arm_b, split, n, won, lost, difference, low, high)."""
    columns = ["arm_a", "arm_b", "split", "n", "won", "lost", "difference", "low", "high"]
    write_csv(run_folder(run) / "06_analysis" / "tables" / "paired.csv", pd.DataFrame(rows, columns=columns))


def power(n: int, won: float, lost: float) -> float:
    """The chance of an exact McNemar test below .05, summed over won and lost in a loop of its own."""
    total = 0.0
    for b in range(n + 1):
        for c in range(n + 1 - b):
            tail = sum(math.comb(b + c, i) for i in range(min(b, c) + 1)) / 2 ** (b + c)
            if b + c and 2 * tail < 0.05:
                rest = n - b - c
                ways = math.comb(n, b) * math.comb(n - b, c)
                total += ways * won**b * lost**c * (1 - won - lost) ** rest
    return total


def test_06_how_many_episodes_would_settle_a_pair(outputs):
    settled = ("zero_shot", "b", "test_seeds", 20, 9, 0, 0.45, 0.2, 0.7)
    alike = ("zero_shot", "c", "test_seeds", 20, 1, 1, 0.0, -0.2, 0.2)
    other = ("zero_shot", "a", "test_tasks", 8, 1, 0, 0.1, -0.1, 0.3)
    by_hand("r", [("zero_shot", "a", "test_seeds", 20, 7, 1, 0.3, -0.01, 0.5), settled, alike, other])
    told = solution("06").exercise_3("r")
    assert told[["arm_b", "n", "won", "lost"]].values.tolist() == [["a", 20, 7, 1], ["c", 20, 1, 1]]
    needed, never = told["needed"]
    assert math.isnan(never)
    assert power(int(needed) - 1, 0.35, 0.05) < 0.8 <= power(int(needed), 0.35, 0.05)


def test_06_whether_two_runs_differ_by_more_than_their_episodes(outputs):
    """Gaps of .3 and .1; the half width of two intervals of .1 each way is the root of .02, .1414."""
    by_hand("r", [("z", b, "test_seeds", 50, 5, 0, 0.1, 0.0, 0.2) for b in ("a", "b", "alone")])
    rows = [("z", "a", "test_seeds", 50, 20, 0, 0.4, 0.3, 0.5), ("z", "b", "test_seeds", 50, 10, 0, 0.2, 0.1, 0.3)]
    by_hand("s", rows)
    told = solution("06").exercise_4("r", "s").set_index("arm_b")
    assert told["gap"].tolist() == pytest.approx([0.3, 0.1]) and told["apart"].tolist() == [True, False]
    assert told.loc["a", ["low", "high"]].tolist() == pytest.approx([0.3 - 0.141421, 0.3 + 0.141421], abs=1e-6)
    assert told.loc["b", ["r", "s"]].tolist() == [0.1, 0.2]


# -- on a real run


@pytest.mark.notebook
@pytest.mark.parametrize("name", [path.stem for path in NOTEBOOKS])
def test_every_solution_answers_on_a_finished_run(unbroken, name, tmp_path):
    command = [sys.executable, str(FOLDER / f"{name}.py"), "smoke"]
    done = subprocess.run(command, env=environment(unbroken.parent), capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
    assert len(done.stdout.splitlines()) > 1


@pytest.mark.notebook
def test_the_answers_are_those_of_the_files(unbroken, monkeypatch):
    monkeypatch.setenv("WEVO_OUTPUTS", str(unbroken.parent))
    lines = lambda *parts: [json.loads(line) for line in unbroken.joinpath(*parts).read_text().splitlines()]  # noqa: E731
    rows = json.loads((unbroken / "iter-1/04_self_improve/rows.json").read_text())
    told = solution("04").exercise_1("smoke")
    assert told.rows.sum() == len(rows) and told.different.sum() == len({json.dumps(row) for row in rows})
    kept = lines("iter-1/01_collect/kept.jsonl")
    assert solution("01").exercise_2("smoke").kinds.tolist() == [len({one["task"]["name"] for one in kept})]
    won = {
        arm: {
            (t["task"]["name"], t["task"]["seed"]): t["verdict"]["outcome"] == "success"
            for t in lines(f"05_wmla/{arm}/trajectories.jsonl")
        }
        for arm in ("zero_shot", "self_improve_2")
    }
    differ = {
        f"miniwob/{name}/{seed}"
        for name, seed in won["zero_shot"]
        if won["zero_shot"][name, seed] != won["self_improve_2"][name, seed]
    }
    found = solution("05").exercise_1("smoke", plain="zero_shot", ahead="self_improve_2")
    assert set(found.task) <= differ and (len(found) > 0) == (len(differ) > 0)


@pytest.mark.notebook
def test_an_exercise_does_again_only_what_it_names(unbroken, monkeypatch):
    monkeypatch.setenv("WEVO_OUTPUTS", str(unbroken.parent))
    checked = 0
    for words in map(shlex.split, commands()):
        asked = parsed(words)
        if not asked or asked["source"] != "demo":
            continue
        overrides = cli.read_settings(asked["settings"], asked["iterations"])
        planned = chain.choose(chain.plan("smoke", overrides), asked["only"] or [], asked["iteration"], overrides)
        anew = next((step.stage for step in planned if not chain.stands("smoke", step)), planned[-1].stage)
        first = (asked["only"] or ["iter-3"])[0].split(",")[0]
        assert first in anew, f"{' '.join(words)} begins with {anew}"
        checked += 1
    assert checked >= 6


# -- the commands


def commands() -> list[str]:
    """Every `wevo ...` that a notebook or a page of docs gives."""
    texts = [cell.source for path in NOTEBOOKS for cell in nbformat.read(path, as_version=4).cells]
    texts += [path.read_text() for path in sorted((ROOT / "docs").rglob("*.md"))]
    texts += [path.read_text() for path in sorted(FOLDER.glob("*.py"))]
    found = [match for text in texts for match in re.findall(r"`(wevo [^`]+)`", text)]
    found += [line for text in texts for line in re.findall(r"(?m)^(wevo .+)$", text)]
    return sorted(set(found))


def parsed(words: list[str]) -> dict | None:
    """What the command line reads in `wevo ...`; None for another command than run. Raises where it is no command."""
    group, rest = typer.main.get_command(cli.app), words[1:]
    while hasattr(group, "commands"):
        name, *rest = rest
        assert name in group.commands, f"{' '.join(words)}: no command {name}"
        group = group.commands[name]
    if len(words) == 2 and words[1] != "run":
        return None  # its name alone, in a sentence
    context = group.make_context(" ".join(words), list(rest))
    return context.params if words[1] == "run" else None


def test_there_are_commands():
    assert len(commands()) > 20


@pytest.mark.parametrize("line", commands())
def test_a_command_is_one_that_the_command_line_takes(line, outputs):
    asked = parsed(shlex.split(line))
    if asked is None:
        return
    profile = asked["profile"] or "demo"
    overrides = cli.read_settings(asked["settings"], asked["iterations"])
    whole = chain.plan(profile, overrides)
    planned = chain.choose(whole, asked["only"] or [], asked["iteration"], overrides)
    arms = {arm for step in planned if step.notebook == "05_wmla" for arm in step.resolved.params.arms()}
    trained = {step.resolved.params.sft.arm for step in whole if step.notebook == "04_final_sft"}
    assert {arm.partition("+")[0] for arm in arms} & set(FINAL_ARMS) <= trained
