"""What a collection found, in words that were known before: rates, differences, kinds."""

from __future__ import annotations

import pytest
from stand_ins import episodes

from wevo_nb import collection, metrics

# easy: 9 of 10 against 4 of 10; hard: 0 of 10 against 1 of 10; none: 0 of 5 against nothing
TABLE = metrics.task_table(
    {
        "policy": [
            *episodes("policy", "SSSSSSSSSF", name="easy"),
            *episodes("policy", "FFFFFFFFFF", name="hard"),
            *episodes("policy", "FFFFFU", name="none"),
        ],
        "random": [
            *episodes("random", "SSSSFFFFFF", name="easy"),
            *episodes("random", "FFFFFFFFFS", name="hard"),
        ],
    }
)


def test_kinds_stand_side_by_side_with_n_and_interval():
    """Wilson's interval of 9 of 10 is .596 to .982, of 0 of 5 it is 0 to .434 (Brown, Cai and DasGupta's formula)."""
    wide = collection.side_by_side(TABLE)
    assert list(wide.columns) == ["policy", "random"] and list(wide.index) == ["easy", "hard", "none"]
    assert wide.loc["easy", "policy"] == "9 of 10 (90% [60%, 98%])"
    assert wide.loc["none"].tolist() == ["0 of 5 (0% [0%, 43%])", "–"]  # the unscored one is in no n


def test_two_groups_are_compared_over_all_kinds_and_by_kinds():
    """9 of 20 = 45% against 5 of 20 = 25%: +20 points, and n is too small to settle it. `none` is left out."""
    said = collection.compare(TABLE, "random", "policy")
    assert said.startswith("policy 9 of 20 (45% [26%, 66%]), random 5 of 20 (25% [11%, 47%]): +20 points [")
    assert "open, the interval holds 0" in said
    assert said.endswith("Kinds solved by policy alone: none; by random alone: hard; by neither: none.")


@pytest.mark.parametrize(("a", "b"), [("easy", "never"), ("never", "easy")])
def test_a_settled_difference_names_the_better_one(a, b):
    table = metrics.task_table({"easy": episodes("easy", "S" * 20), "never": episodes("never", "F" * 20)})
    assert "points" in (said := collection.compare(table, a, b)) and "easy succeeds more often" in said
    assert ("-100 points" in said) == (b == "never")


def test_where_one_group_scored_nothing_nothing_is_compared():
    table = metrics.task_table({"a": episodes("a", "SF"), "b": episodes("b", "U")})
    assert collection.side_by_side(table)["b"].tolist() == ["0 of 0"]
    assert collection.compare(table, "a", "b") == "b and a tried no kind in common: nothing to compare."


def test_no_success_is_not_never():
    policy = TABLE[TABLE["arm"] == "policy"]
    assert collection.never(policy) == (
        "No success: hard (0 of 10, the true rate may be up to 28%), none (0 of 5, the true rate may be up to 43%)."
    )
    assert collection.never(policy[policy["task"] == "easy"]) == "Every kind was solved at least once."
