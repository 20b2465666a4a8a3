"""Analyses of runs, written by hand: small tables whose sums and intervals are known. For the tests of exhibits."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path

import pandas as pd
import pytest

from wevo_nb.metrics import wilson
from wevo_nb.runs import write_json

SPLITS = {"test_seeds": 20, "test_tasks": 8}
SOLVED = {  # of 20 held-out seeds and 8 held-out tasks, by run
    "one": {"zero_shot": (5, 2), "self_improve_1": (8, 2), "webevolver": (10, 3), "webevolver+wmla_d1": (14, 4)},
    "two": {"zero_shot": (7, 1), "self_improve_1": (10, 3), "webevolver": (12, 2), "webevolver+wmla_d1": (16, 3)},
}
GRADES = {"one": 0.5, "two": 0.7}  # STR of the newest world model, n = 10, +- 0.2


@contextmanager
def one_and_two(outputs: Path):
    """Two runs that differ in their seed, below `outputs`, which is where results are read from meanwhile."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WEVO_OUTPUTS", str(outputs))
        for seed, run in enumerate(SOLVED):
            write(outputs, run, seed=seed)
        yield


def rates(n: int, successes: int) -> dict:
    rate, low, high = wilson(successes, n)
    return {"n": n, "successes": successes, "rate": rate, "low": low, "high": high}


def write(outputs: Path, run: str, *, seed: int, suite: str = "miniwob", k: int = 3, splits=SPLITS, target="change"):
    """The analysis of one run of SOLVED, with the params that its arms noted; `splits` are the n of each."""
    solved, main = SOLVED[run], next(iter(splits))
    success = [
        {"arm": arm, "split": split} | rates(n, counts[i])
        for arm, counts in solved.items()
        for i, (split, n) in enumerate(splits.items())
    ]
    tasks = [
        {"task": task, "arm": arm, "split": main} | rates(10, counts[0] // 2)
        for arm, counts in solved.items()
        for task in ("click-link", "enter-text")
    ]
    lookahead = []
    for row in success:
        policy, _, preset = row["arm"].partition("+")
        spent = dict.fromkeys(("calls", "tokens", "seconds", "model_seconds", "steps"), 4.0 if preset else 1.0)
        row = {key: row[key] for key in ("split", "n", "rate", "low", "high")} | spent
        named = {"policy": policy, "preset": preset, "k": k if preset else 1, "depth": int(bool(preset))}
        lookahead.append(named | row | {"decisions": 100, "overruled": 3, "fell_back": 0})
    card = []
    for depth, correct in ((1, 8), (2, 5)):
        share = rates(10, correct if run == "one" else correct - 1)
        named = {"model": "iteration_2", "target": target, "depth": depth}
        values = {key: share[key] for key in ("low", "high")}
        card.append(named | {"metric": "exact_match", "n": 10, "value": share["rate"]} | values)
        grade = {"n": 10, "value": GRADES[run], "low": GRADES[run] - 0.2, "high": GRADES[run] + 0.2}
        card.append(named | {"metric": "STR"} | grade)
    ledger = [
        {"arm": "webevolver", "family": "click-link", "outcome": "accepted", "n": 6},
        {"arm": "webevolver", "family": "click-link", "outcome": "judge no", "n": 14},
    ]
    stall = [{"arm": "self_improve", "iteration": i, "metric": "acceptance", "value": 0.5, "n": 30} for i in (1, 2)]
    cost = {"stage": "05_wmla/webevolver", "seconds": 60.0, "peak_memory_mb": 900, "calls": 100}
    tables = {
        "success": success, "tasks": tasks, "lookahead": lookahead, "report_card": card, "ledger": ledger,
        "stall": [row | {"low": 0.4, "high": 0.6} for row in stall],
        "cost": [cost | {"prompt_tokens": 1_500_000, "completion_tokens": 500_000}],
    }  # fmt: skip
    folder = outputs / run / "06_analysis" / "tables"
    folder.mkdir(parents=True)
    for name, rows in tables.items():
        pd.DataFrame(rows).to_csv(folder / f"{name}.csv", index=False)
    for arm in solved:
        params = {"seed": seed, "collect.suite": suite, "wmla": {"k": k, "depth": 1, "temperature": 0.7}}
        write_json(outputs / run / "05_wmla" / arm / "params.json", {"params": params, "inputs": {}})
        write_json(outputs / run / "05_wmla" / arm / "manifest.json", {"stage": f"05_wmla/{arm}"})
    write_json(
        outputs / run / "03_synthesize" / "params.json", {"params": {"seed": seed, "synthesize": {"horizon": 7}}}
    )
