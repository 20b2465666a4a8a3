"""Predictions compared case by case: pairs, intervals and sentences, every number worked out by hand."""

from __future__ import annotations

import pandas as pd
import pytest
from stand_ins import did, seen, task

from wevo_nb.card_pairs import (
    CASE_COLUMNS,
    OWN,
    PAIR_COLUMNS,
    REAL,
    at_one_step,
    case_rows,
    conclusions,
    examples,
    pair_table,
    walk_rows,
)
from wevo_nb.free_walks import NO_PREDICTION, Walked
from wevo_nb.report_card import COLUMNS
from wevo_nb.transitions import NO_PAGE, Situation, Transition, outcome_of
from wevo_nb.world_model import Prediction

PAGE, NEXT = "[1] button 'OK'", "[1] button 'Done'"
TRUTH = ["changed"] * 6 + ["success"] * 2 + ["failure"] * 2
CHANCES = [None] * 6 + [0.9, 0.8, 0.1, 0.2]


def real(text: str = NEXT, reward: float | None = None) -> Transition:
    after = seen(text, done=reward is not None, reward=reward)
    return Transition(Situation(task(), (), seen(PAGE), did("click [1]").action), after, outcome_of(seen(PAGE), after))


def imagined(outcome: str, text: str = NEXT, success: float = 0.0, failure: float = 0.0) -> Prediction:
    done = outcome in ("success", "failure")
    chances = {"success": success, "failure": failure, "changed": 1 - success - failure, "same": 0.0}
    return Prediction(chances, outcome, seen("" if done else text, done=done), True)


def cases(model: str, predicted: list[str], exact: list[bool], depth: int = 1, start: str = REAL) -> list[dict]:
    truth = TRUTH[: len(predicted)]
    rows = zip(range(len(truth)), truth, predicted, exact, CHANCES, strict=False)
    return [dict(zip(CASE_COLUMNS, (model, depth, start, *row), strict=True)) for row in rows]


CASES = pd.DataFrame(
    cases("majority", ["changed"] * 10, [False] * 10)
    + cases("iteration_1", ["changed"] * 6 + ["success"] * 4, [True] * 2 + [False] * 4 + [True] * 2 + [False] * 2)
    + cases("iteration_2", TRUTH, [True] * 5 + [False] + [True] * 4)
    + cases("iteration_2", ["changed"] * 4, [True, False, False, False], 2, OWN)
    + cases("iteration_2", ["changed"] * 4, [True, True, False, True], 2)
)
SHARES = {"outcome_accuracy": (10, 0.6, 1.0), "exact_match": (10, 0.0, 0.9), "exact_changed": (6, 0.0, 5 / 6)}
CARD = pd.DataFrame(
    [(model, "change", 1, metric, n, value, 0.0, 1.0)
     for metric, (n, *both) in SHARES.items() for model, value in zip(("majority", "iteration_2"), both, strict=True)]
    + [("iteration_2", "change", 1, "auc_success", 4, 1.0, 1.0, 1.0),
       ("iteration_2", "change", 2, "exact_match", 4, 0.25, 0.05, 0.7)],
    columns=COLUMNS,
)  # fmt: skip


def test_a_case_says_what_was_true_and_what_was_predicted():
    found = case_rows(
        [real(), real(), real(reward=1.0), real(reward=0.0)],
        [imagined("changed"), NO_PREDICTION, imagined("success", success=0.6, failure=0.2), imagined("changed", PAGE)],
        model="m",
        target="change",
    )
    assert [tuple(row.values())[3:] for row in found] == [
        (0, "changed", "changed", True, None),
        (1, "changed", "unread", False, None),
        (2, "success", "success", True, pytest.approx(0.75)),  # 0.6 / 0.8
        (3, "failure", "changed", False, None),
    ]
    assert all(tuple(row) == CASE_COLUMNS for row in found)
    assert case_rows([real()], [imagined("changed")], model="m", target="change_described")[0]["exact"] is None


def test_a_place_of_a_walk_is_told_from_its_own_page_and_from_the_real_one():
    right, wrong = imagined("changed"), imagined("changed", PAGE)
    walked = [
        Walked(1, real(), right, seen(PAGE), right, None),
        Walked(2, real(), wrong, seen(PAGE), right, None),
        Walked(3, real(), NO_PREDICTION, NO_PAGE, wrong, None),
    ]
    found = [(row["depth"], row["start"], row["exact"]) for row in walk_rows(walked, model="m", target="change")]
    assert found == [(2, OWN, False), (2, REAL, True), (3, OWN, False), (3, REAL, False)]


def test_pairs_count_who_alone_is_right():
    """9 won of 10: half a case added to each cell gives (9.5 - 0.5) / 12 +- 1.96 sqrt(10 - 81 / 12) / 12."""
    table = pair_table(CASES, "iteration_2")
    assert tuple(table.columns) == PAIR_COLUMNS
    found = table.set_index(["a", "depth", "metric"])
    assert {key: (row.n, row.won, row.lost) for key, row in found.iterrows()} == {
        ("majority", 1, "outcome_accuracy"): (10, 4, 0),
        ("majority", 1, "exact_match"): (10, 9, 0),
        ("majority", 1, "exact_changed"): (6, 5, 0),
        ("iteration_1", 1, "outcome_accuracy"): (10, 2, 0),
        ("iteration_1", 1, "exact_match"): (10, 5, 0),
        ("iteration_1", 1, "exact_changed"): (6, 3, 0),
        (REAL, 2, "outcome_accuracy"): (4, 0, 0),
        (REAL, 2, "exact_match"): (4, 0, 2),
        (REAL, 2, "exact_changed"): (4, 0, 2),
    }
    row = found.loc[("majority", 1, "exact_match")]
    assert (row.difference, row.low, row.high) == pytest.approx((0.9, 0.4556, 1.0), abs=1e-3)


def test_conclusions_say_value_n_interval_and_whether_it_is_open():
    """All four ends are in order, AUC 1 [1, 1]; by luck two of the six orders are as clear, p = 1/3: open."""
    assert conclusions(CARD, CASES, "iteration_2") == [
        "The outcome: right in 10 of 10, 1.00 [0.00, 1.00]. Against majority, the best baseline: "
        "+40 points [+2, +65] (4 won, 0 lost): better.",
        "Outcome and page: right in 9 of 10, 0.90 [0.00, 1.00]. Against majority, the best baseline: "
        "+90 points [+46, +100] (9 won, 0 lost): better.",
        "The page, where it changed: right in 5 of 6, 0.83 [0.00, 1.00]. Against majority, the best baseline: "
        "+83 points [+21, +100] (5 won, 0 lost): better.",
        "Success against failure: AUC 1.00 [1.00, 1.00] on 2 successes and 2 failures (rank test p = 0.33); "
        "against a coin, 0.50: open.",
        "iteration_2 against iteration_1: the outcome +20 points [-10, +43] (2 won, 0 lost): open (n = 10); "
        "outcome and page +50 points [+9, +74] (5 won, 0 lost): better (n = 10); "
        "the page, where it changed +50 points [-4, +79] (3 won, 0 lost): open (n = 6).",
        "Step 2 of free walks: outcome and page right in 1 of 4, from the real page in 3: "
        "-50 points [-83, +17] (0 won, 2 lost): open.",
    ]


def test_what_is_not_there_is_said():
    first = CASES[(CASES["depth"] == 1) & (CASES["model"] == "iteration_2") & (CASES["truth"] != "success")]
    told = conclusions(CARD[CARD["model"] == "iteration_2"], first, "iteration_2")
    assert told[0] == "The outcome: right in 10 of 10, 1.00 [0.00, 1.00]."  # no baseline to set it against
    assert "not of both kinds" in told[3]
    assert told[4:] == [
        "Against an earlier iteration: none is there to compare with.",
        "Free walks: none has a second step.",
    ]


def test_sentences_about_a_change_have_no_page_to_compare():
    cases = CASES.assign(exact=None)
    card = CARD[~CARD["metric"].str.startswith("exact")]
    deep = pd.DataFrame([("iteration_2", "x", 2, "outcome_accuracy", 4, 1.0, 0.5, 1.0)], columns=COLUMNS)
    assert set(pair_table(cases, "iteration_2")["metric"]) == {"outcome_accuracy"}
    told = conclusions(pd.concat([card, deep]), cases, "iteration_2")
    told_of_walks = "the outcome right in 4 of 4, from the real page in 4: 0 points [-33, +33] (0 won, 0 lost): open."
    assert told[-1] == f"Step 2 of free walks: {told_of_walks}"  # 1.96 x 1 / 6: no pair that differs


def test_examples_are_one_right_and_one_of_each_way_to_be_wrong():
    assert examples(CASES, "iteration_1") == [0, 2, 8]  # right; another page; failure called success
    assert examples(CASES, "majority") == [0, 6]  # none right: a wrong page, a wrong outcome
    assert examples(CASES, "iteration_2") == [0, 5]  # no outcome is wrong


def test_the_table_of_one_step_has_n_and_a_column_a_model():
    table = at_one_step(CARD)
    assert list(table.columns) == ["n", "majority", "iteration_2"]
    assert list(table.index) == ["outcome_accuracy", "exact_match", "exact_changed", "auc_success"]
    assert table.loc["exact_changed"].tolist() == [6, 0.0, 0.83]
