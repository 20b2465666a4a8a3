"""The rows a model is trained on: quotas, caps, the ledger, values, and what the gate refuses."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from stand_ins import CHECKED, FORM, SMOKE, did, seen, task, training_rows, walk

from wevo_nb.dataset import RowError, draw_transitions, gate, take_evenly, value_rows
from wevo_nb.params import load_params
from wevo_nb.targets import Row
from wevo_nb.transitions import Situation, Transition, openings, transitions

PARAMS = SMOKE.world_model
GATE = load_params("study").params.world_model_sft.gate  # of base.yaml


def test_rows_are_balanced_over_outcomes_without_repeats():
    """5 changed and 5 success are there; quotas 3, 9 and 2 give 3, 5 and none."""
    found = [
        t for i in range(5)
        for t in transitions([walk(task(goal=f"g{i}"), FORM, "click [1]", CHECKED, "click [2]", "", reward=1.0)])
    ]  # fmt: skip
    params = PARAMS.model_copy(update={"outcome_rows": {"changed": 3, "success": 9, "failure": 2}})
    rows, ledger = training_rows(found, params, seed=0)
    assert ledger == [
        {"outcome": "changed", "found": 5, "per_start": 5, "per_verb": 5, "taken": 3},
        {"outcome": "success", "found": 5, "per_start": 5, "per_verb": 5, "taken": 5},
        {"outcome": "failure", "found": 0, "per_start": 0, "per_verb": 0, "taken": 0},
    ]
    assert Counter(row.outcome for row in rows) == Counter(changed=3, success=5)
    assert len({(row.messages[1]["content"], row.reply) for row in rows}) == 8
    assert rows == training_rows(found, params, seed=0)[0] != training_rows(found, params, seed=1)[0]


def test_taking_evenly_takes_one_from_each_in_turn():
    taken = take_evenly({"a": [1, 2, 3, 4], "b": [5], "c": [6, 7]}, 5, random.Random(0))
    groups = Counter("a" if n < 5 else "b" if n == 5 else "c" for n in taken)
    assert groups == Counter(a=2, b=1, c=2) and len(set(taken)) == 5
    assert sorted(take_evenly({"a": [1, 2], "b": [5]}, 9, random.Random(0))) == [1, 2, 5]


def step(action: str, url: str = "", after: str = CHECKED) -> Transition:
    return Transition(Situation(task(goal=action), (), seen(FORM, url=url), did(action).action), seen(after), "changed")


def test_caps_on_start_pages_and_verbs_come_before_the_quotas():
    """Six clicks from /a, two from /b, a wait from /c: at most two a page leave 2 + 2 + 1, three of a verb 3 + 1."""
    found = [step(f"click [{i}]", "http://x/a") for i in range(1, 7)]
    found += [step(f"click [{i}]", "http://x/b") for i in range(7, 9)] + [step("wait", "http://x/c")]
    params = PARAMS.model_copy(update={"outcome_rows": {"changed": 9}, "per_start": 2, "per_verb": 3})
    taken, ledger = draw_transitions(found, params, seed=0)
    assert ledger == [{"outcome": "changed", "found": 9, "per_start": 5, "per_verb": 4, "taken": 4}]
    assert Counter(t.situation.action.verb for t in taken) == {"click": 3, "wait": 1}
    assert max(Counter(t.start for t in taken).values()) <= 2


def test_first_pages_have_a_quota_of_their_own():
    walked = [walk(task(seed=i, goal="g"), FORM, "click [1]", CHECKED, ended="limit") for i in range(4)]
    params = PARAMS.model_copy(update={"outcome_rows": {"changed": 1}, "opening_rows": 3})
    rows, ledger = training_rows(transitions(walked), params, seed=0, openings=openings(walked))
    assert ledger[-1] == {"outcome": "first page", "found": 4, "per_start": 4, "per_verb": 4, "taken": 3}
    opening = next(row for row in rows if "(no page is open)" in row.messages[1]["content"])
    assert len(rows) == 4 and opening.reply == "changed\n+[0] checkbox 'News'\n+[0] button 'OK'"


def test_values_grow_along_a_success_and_are_0_on_a_failure():
    won = walk(task(goal="g"), FORM, "click [1]", CHECKED, "click [2]", "", reward=1.0, success="success")
    lost = walk(task(seed=1, goal="g"), FORM, "click [2]", "", reward=-1.0, success="failure")
    unjudged = walk(task(seed=2, goal="g"), FORM, "click [2]", "", reward=-1.0)
    rows = value_rows([won, lost, unjudged], 9, seed=0)
    open_page = "PREDICTED PAGE 1:\n[1] checkbox"
    told = {(row.source[-1], open_page in row.messages[1]["content"], row.reply) for row in rows}
    assert told == {("0", True, "0.5"), ("0", False, "1"), ("1", False, "0")}
    assert len(value_rows([won, lost], 2, seed=0)) == 2


# -- the gate


def row(text: str = "a", reply: str = "b", source: str = "miniwob/click-button/0") -> Row:
    return Row(({"role": "user", "content": text},), reply, "click-button", "changed", source)


def test_good_rows_pass_with_their_statistics():
    found, checks = gate([row("a"), row("b"), row("c")], [10, 30, 20], GATE, max_length=30)
    assert found == {"rows": 3, "median_tokens": 20, "longest": 30, "tokens": 60}
    assert [(c["check"], c["rows"]) for c in checks] == [
        ("longer than max_length", 0), ("without a reply", 0), ("longer in the reply than max_tokens", 0),
        ("repeated", 0), ("of a held-out task", 0),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("rows", "lengths", "message"),
    [
        (
            [row("a"), row("b")],
            [10, 31],
            r"1 of 2 rows are longer than max_length: rows 1 \(miniwob/click-button/0, 31 tok",
        ),
        ([row("a", " "), row("b")], [1, 1], r"1 of 2 rows are without a reply: rows 0 \("),
        ([row("a"), row("a")], [1, 1], r"1 of 2 rows are repeated: rows 1 \("),
        ([row("a"), row("b", source="t/2")], [1, 1], r"1 of 2 rows are of a held-out task: rows 1 \(t/2, 1 tokens\)"),
        ([row(str(i)) for i in range(9)], [40] * 9, r"9 of 9 rows .* and 6 more: raise max_length above 30"),
    ],
)
def test_bad_rows_are_refused_by_name_with_the_cure(rows, lengths, message):
    with pytest.raises(RowError, match=message):
        gate(rows, lengths, GATE, max_length=30, held_out={"t/2"})


def test_replies_that_could_never_be_written_whole_are_counted_and_refused_above_the_limit():
    rows, how = [row(str(i)) for i in range(4)], dict(max_length=99, max_tokens=80)
    _, checks = gate(rows, [9] * 4, GATE, replies=[80, 81, 3, 3], **how)
    assert (checks[2]["rows"], checks[2]["share"]) == (1, 0.25)
    with pytest.raises(
        RowError, match="2 of 4 rows are longer in the reply than max_tokens: .* raise world_model.max_tok"
    ):
        gate(rows, [9] * 4, GATE, replies=[81, 81, 3, 3], **how)


def test_a_limit_lets_a_share_through():
    some = GATE.model_copy(update={"repeated": 0.5})
    _, checks = gate([row("a"), row("a")], [1, 1], some, max_length=30)
    assert checks[3] == {"check": "repeated", "rows": 1, "share": 0.5, "limit": 0.5}
