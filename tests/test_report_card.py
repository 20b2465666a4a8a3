"""The world model's report card on eight transitions of a six-element page, every number worked out by hand."""

from __future__ import annotations

import math

import pytest
from stand_ins import did, seen, task

from wevo_nb.report_card import COLUMNS, copy_page, report_card
from wevo_nb.world_model import UNREAD, Prediction, Situation, Transition, outcome_of

PAGE = """[1] textbox 'Name'
[2] checkbox 'A'
[3] checkbox 'B'
[4] button 'OK'
[5] link 'Help'
[6] StaticText 'x'"""
A_CHECKED = PAGE.replace("checkbox 'A'", "checkbox 'A' checked: true")
B_CHECKED = PAGE.replace("checkbox 'B'", "checkbox 'B' checked: true")
HELP_OPEN = PAGE.replace("link 'Help'", "dialog 'Help text'")


def real(text: str = PAGE, reward: float | None = None) -> Transition:
    following = seen(text, done=reward is not None, reward=reward)
    return Transition(
        Situation(task(), (), seen(PAGE), did("click [2]").action), following, outcome_of(seen(PAGE), following)
    )


def imagined(outcome: str, text: str = PAGE, *, success=0.0, failure=0.0, readable=True) -> Prediction:
    rest = (1 - success - failure) / 2
    probabilities = {"success": success, "failure": failure, "changed": rest, "same": rest}
    done = outcome in ("success", "failure")
    after = seen("" if done else text, done=done, reward=success if done else None, note="" if readable else UNREAD)
    return Prediction(probabilities, outcome, after, readable)


CASE = [
    (real(A_CHECKED), imagined("changed", A_CHECKED)),  # right
    (real(HELP_OPEN), imagined("changed", B_CHECKED)),  # another change
    (real(A_CHECKED), imagined("changed", readable=False)),  # unreadable: the page as it was
    (real(), imagined("same")),  # right
    (real(reward=1.0), imagined("success", success=0.8, failure=0.1)),  # right, 0.8/0.9
    (real(reward=-1.0), imagined("success", success=0.6, failure=0.2)),  # wrong, 0.6/0.8
    (real(reward=0.5), imagined("failure", success=0.1, failure=0.7)),  # right: a part is no success; 0.1/0.8
    (real(reward=1.0), imagined("changed", A_CHECKED, success=0.05, failure=0.45)),  # wrong, 0.05/0.5
]


def card(pairs) -> dict[str, dict]:
    rows = report_card([t for t, _ in pairs], [p for _, p in pairs], model="m", target="change")
    assert all(tuple(row) == COLUMNS for row in rows)
    return {row["metric"]: row for row in rows}


def test_every_metric_of_the_case_by_hand():
    """Changed elements: 6 came or went, 4 were predicted, 2 rightly: F1 = 4/10.

    P(success | end) of the real successes 0.889 and 0.1, of the failures 0.75 and 0.125: 2 of 4 pairs in order.
    """
    found = card(CASE)
    assert {name: (row["n"], row["value"]) for name, row in found.items()} == {
        "parses": (8, 7 / 8),
        "exact_match": (8, 4 / 8),
        "outcome_accuracy": (8, 6 / 8),
        "changed_f1": (4, pytest.approx(0.4)),
        "auc_success": (4, 0.5),
    }


def test_shares_have_wilson_intervals_and_the_others_bootstrap_ones():
    found = card(CASE)
    exact = found["exact_match"]  # 4 of 8: centre 1/2, half 1.96 sqrt(1/32 + 3.8415/256)/(1 + 3.8415/8)
    assert (exact["low"], exact["high"]) == (pytest.approx(0.2152, abs=1e-4), pytest.approx(0.7848, abs=1e-4))
    for name in ("changed_f1", "auc_success"):
        assert 0 <= found[name]["low"] <= found[name]["value"] <= found[name]["high"] <= 1


def test_a_perfect_model_gets_1_and_copying_the_page_only_what_stays():
    truth = [t for t, _ in CASE]
    sure = {"success": {"success": 1.0}, "failure": {"failure": 1.0}}
    perfect = [imagined(t.outcome, t.following.text, **sure.get(t.outcome, {})) for t in truth]
    assert {row["value"] for row in card(list(zip(truth, perfect, strict=True))).values()} == {1.0}
    copied = card(list(zip(truth, copy_page(truth), strict=True)))
    values = {name: row["value"] for name, row in copied.items()}
    assert values == {
        "parses": 1.0, "exact_match": 1 / 8, "outcome_accuracy": 1 / 8, "changed_f1": 0.0, "auc_success": 0.5,
    }  # fmt: skip


def test_a_right_page_under_a_wrong_outcome_is_no_match():
    """`changed` with a page like the one before is not `same`, though the text is right."""
    found = card([(real(), imagined("changed", PAGE))])
    assert found["exact_match"]["value"] == 0 and found["outcome_accuracy"]["value"] == 0


def test_what_cannot_be_measured_is_nan_not_0():
    found = card([(real(), imagined("same")), (real(reward=1.0), imagined("success", success=1.0))])
    assert math.isnan(found["changed_f1"]["value"]) and math.isnan(found["auc_success"]["value"])
    assert found["parses"]["value"] == 1
    assert math.isnan(card([])["exact_match"]["value"]) and card([])["changed_f1"]["n"] == 0
