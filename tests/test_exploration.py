"""Why self-improvement stalls: every metric on a few trajectories, worked out by hand."""

from __future__ import annotations

import math
import random

import pandas as pd
import pytest
from stand_ins import episodes, seen, task, walk

from wevo_nb.exploration import describe_stall, done_in, stall_table

A, B, C = "[1] button 'ok'\n[2] button 'no'", "[1] link 'home'", "[1] button 'late'"
D, E = "[1] link 'home'\n[2] textbox 'q'", "[1] heading 'end'"
Z = 1.959964


def told(trajectory, *entropies):
    """The trajectory with the entropy of each of its decisions."""
    steps = [
        step.model_copy(update={"decision": step.decision.model_copy(update={"entropy": entropy})})
        for step, entropy in zip(trajectory.steps, entropies, strict=True)
    ]
    return trajectory.model_copy(update={"steps": tuple(steps)})


FIRST = [
    told(walk(task(seed=1), A, "click [1]", B, success="success"), 1.0),
    told(walk(task(seed=2), A, "click [2]", A, "click [1]", C, success="failure"), 0.5, 0.0),
]
SECOND = [
    walk(task(seed=11), A, "click [1]", B, success="success"),
    walk(task(seed=12), A, "click [2]", D, "click [1]", B, success="failure"),
    walk(task("click-link", 11), D, "click [1]", E, success="success"),
]


def rows(collections) -> pd.DataFrame:
    return stall_table(collections, arm="self_improve").set_index(["iteration", "metric"])


# A is seen by both episodes of the first iteration, B and C by one each. Of the three of the second,
# A, B and D are seen by two, E by one, which two drawn episodes miss with chance 1/3.
# Done on A: ok, no, ok. Then A: ok, no; D: home, home. Similarity in the second: to {ok} 1, and
# {no, home} to {ok, no} 1/3; no earlier episode is of the kind click-link.
EXPECTED = {
    (1, "distinct_pages"): (3, 2),
    (2, "distinct_pages"): (4, 3),
    (1, "pages_per_episode"): (3 / 2, 2),
    (2, "pages_per_episode"): ((1 + 1 + 1 + 2 / 3) / 2, 3),
    (1, "actions_per_page"): (2, 1),
    (2, "actions_per_page"): (1.5, 2),
    (2, "similarity"): (2 / 3, 2),
    (1, "entropy"): (0.5, 3),
    (1, "acceptance"): (1 / 2, 2),
    (2, "acceptance"): (2 / 3, 3),
    (1, "new_tasks"): (1, 1),
    (2, "new_tasks"): (1, 2),
}


@pytest.mark.parametrize(("iteration", "metric"), EXPECTED)
def test_a_metric_is_what_was_worked_out_by_hand(iteration, metric):
    row = rows({1: FIRST, 2: SECOND}).loc[(iteration, metric)]
    value, n = EXPECTED[iteration, metric]
    assert (row["value"], row["n"]) == (pytest.approx(value), n)


def test_the_table_has_the_columns_of_the_contract_and_no_value_where_nothing_tells():
    table = stall_table({2: SECOND, 1: FIRST}, arm="x")
    assert list(table.columns) == ["arm", "iteration", "metric", "value", "n", "low", "high"]
    assert table["iteration"].tolist() == [1] * 7 + [2] * 7 and set(table["arm"]) == {"x"}
    unknown = table[table["value"].isna()]
    assert list(zip(unknown["iteration"], unknown["metric"], unknown["n"], strict=True)) == [
        (1, "similarity", 0),
        (2, "entropy", 0),
    ]
    assert stall_table({}, arm="x").empty


def test_an_interval_takes_the_decisions_of_one_episode_as_one_draw():
    """Episodes of entropy (1.0), (0.7, 0.8), (0.9, 1.0, 1.0): mean 0.9; their sums are 0.1, -0.3, 0.2 from it."""
    page = (A, "click [1]") * 3
    episodes = [told(walk(task(seed=n), *page[: 2 * n], B), *e) for n, e in
                ((1, (1.0,)), (2, (0.7, 0.8)), (3, (0.9, 1.0, 1.0)))]  # fmt: skip
    half = Z * math.sqrt((0.1**2 + 0.3**2 + 0.2**2) * 3 / 2) / 6
    row = rows({1: episodes}).loc[(1, "entropy"), ["value", "low", "high"]]
    assert row.tolist() == pytest.approx([0.9, 0.9 - half, 0.9 + half])


def test_intervals_stay_where_values_can_be_and_counts_have_none():
    table = rows({1: FIRST, 2: SECOND})
    ends = lambda iteration, metric: table.loc[(iteration, metric), ["low", "high"]].tolist()  # noqa: E731
    half = Z * math.sqrt(2 * 0.5**2 * 2) / 2  # a page with 2 actions, one with 1
    assert ends(2, "actions_per_page") == pytest.approx([1.5 - half, 1.5 + half])
    half = Z * math.sqrt(2 * (1 / 3) ** 2 * 2) / 2  # 1 and 1/3; the other end would lie above 1
    assert ends(2, "similarity") == pytest.approx([2 / 3 - half, 1.0])
    assert ends(1, "acceptance") == pytest.approx([0.0945, 0.9055], abs=1e-4)  # Wilson
    for iteration, metric in ((1, "new_tasks"), (1, "distinct_pages"), (1, "actions_per_page")):  # one page: no spread
        assert all(map(math.isnan, ends(iteration, metric)))


def test_the_interval_of_pages_an_episode_counts_on_pages_that_were_not_seen():
    """First: B and C seen once, A twice, so 1/2 x 2 x 1 / (2 x 2) = 1/4 unseen; second: E alone seen once, so none."""
    table = rows({1: FIRST, 2: SECOND})
    for iteration, variance in ((1, 3 - 3**2 / 3.25), (2, 3 + (2 / 3) ** 2 - (11 / 3) ** 2 / 4)):
        value, low, high = table.loc[(iteration, "pages_per_episode"), ["value", "low", "high"]]
        half = Z * math.sqrt(variance) / 2
        assert (low, high) == (pytest.approx(value - half), pytest.approx(value + half))


def test_similarity_is_that_of_all_pairs():
    """Few or many elements, one that nearly every episode uses, episodes of 1 to 9 actions, the same ones again."""
    draw, values = random.Random(0), set()

    def some(iteration, elements):
        page = "\n".join(f"[{i}] button '{i}'" for i in range(elements + 1))
        for seed in range(60):
            used = [draw.randint(1, elements) for _ in range(draw.randint(0, 8))] + [0] * (draw.random() < 0.9)
            pages = [part for i in used for part in (page, f"click [{i}]")]
            if used:
                name = draw.choice(["click-link", "click-button"])
                yield walk(task(name, 100 * iteration + seed), *pages, page, success="success")

    def jaccard(one, other):
        a, b = done_in(one), done_in(other)
        return len(a & b) / len(a | b)

    for elements in (3, 8, 40):
        first, second = (list(some(iteration, elements)) for iteration in (1, 2))
        largest = [max(jaccard(t, old) for old in first if old.task.name == t.task.name) for t in second]
        value, n = rows({1: first, 2: second}).loc[(2, "similarity"), ["value", "n"]]
        assert (value, n) == (pytest.approx(sum(largest) / len(largest)), len(second))
        values |= set(largest)
    assert len(values) > 10


def test_a_third_iteration_is_compared_with_all_before_it():
    """Two actions of the second iteration again; its tasks were solved in the first or the second."""
    third = [walk(task(seed=21), A, "click [2]", D, "click [1]", B, success="success")]
    third += [walk(task("click-link", 21), D, "click [1]", E, success="success")]
    table = rows({1: FIRST, 2: SECOND, 3: third})
    assert table.loc[(3, "similarity"), ["value", "n"]].tolist() == [1.0, 2]
    assert table.loc[(3, "new_tasks"), ["value", "n"]].tolist() == [0.0, 2]


def test_what_broke_off_is_no_episode_and_what_is_unscored_was_not_refused():
    broken = walk(task(seed=3), A, "click [1]", C, ended="error", success="unscored")
    unscored = walk(task(seed=4), A, "click [1]", B, success="unscored")
    table = rows({1: [*FIRST, broken, unscored]})
    assert table.loc[(1, "distinct_pages"), ["value", "n"]].tolist() == [3, 3]
    assert table.loc[(1, "acceptance"), ["value", "n"]].tolist() == [0.5, 2]


def test_what_is_done_is_told_by_role_name_and_verb():
    page = "[1] textbox 'q'\n[2] textbox 'q'"
    pages = (page, "type [1] [red] [1]", page, "type [2] [blue] [0]", page, "scroll [down]", page, "click [9]", page)
    assert done_in(walk(task(), *pages)) == {("textbox", "q", "type"), ("", "", "scroll"), ("", "", "click")}
    assert done_in(walk(task(), page, "dance [1]", page)) == frozenset()


def test_an_episode_without_an_action_is_like_none():
    nothing = walk(task(seed=5), A, "dance [1]", A, success="failure")
    assert rows({1: [nothing], 2: FIRST}).loc[(2, "similarity"), "n"] == 0
    assert rows({1: FIRST, 2: [nothing]}).loc[(2, "similarity"), "n"] == 0
    assert rows({1: [nothing]}).loc[(1, "actions_per_page"), "n"] == 0


def test_an_end_without_a_page_is_no_page():
    gone = walk(task(seed=6), A, "click [1]", seen(""), success="success")
    assert rows({1: [gone]}).loc[(1, "distinct_pages"), "value"] == 1


NAN = float("nan")
KNOWN = pd.DataFrame(
    [
        ("self_improve", 1, "acceptance", 0.40, 200, 0.33, 0.47),
        ("self_improve", 2, "acceptance", 0.43, 200, 0.36, 0.50),
        ("self_improve", 1, "entropy", 1.2, 500, 1.1, 1.3),
        ("self_improve", 2, "entropy", 0.4, 480, 0.35, 0.45),
        ("self_improve", 1, "pages_per_episode", 2.0, 200, 1.9, 2.1),
        ("self_improve", 2, "pages_per_episode", 2.5, 200, 2.3, 2.7),
        ("self_improve", 1, "actions_per_page", 3.0, 1, NAN, NAN),
        ("self_improve", 2, "actions_per_page", 2.0, 50, 1.9, 2.1),
        ("self_improve", 1, "similarity", NAN, 0, NAN, NAN),
        ("self_improve", 2, "similarity", 0.8, 190, 0.75, 0.85),
        ("self_improve", 1, "new_tasks", 5.0, 9, NAN, NAN),
        ("self_improve", 2, "new_tasks", 0.0, 9, NAN, NAN),
    ],
    columns=["arm", "iteration", "metric", "value", "n", "low", "high"],
)


def test_the_table_is_read_in_sentences():
    assert describe_stall(KNOWN) == (
        "self_improve, iterations 1 to 2:\n"
        "  acceptance is level, 40% to 43% (n = 200, 200)\n"
        "  entropy falls, 1.20 nats to 0.40 nats (n = 500, 480)\n"
        "  the number of different pages an episode rises, 2.00 to 2.50 (n = 200, 200)\n"
        "  the number of different actions a page moves, 3.00 to 2.00 (n = 1, 50)\n"
        "  similarity to the iteration before is 0.80 in iteration 2 alone (n = 190)\n"
        "  kinds solved that no earlier iteration solved: 5, 0 (of 9, 9 that were tried)\n"
        "Level: the 95% interval of the change holds 0."
    )
    assert describe_stall(KNOWN.iloc[:0]) == "No iteration yet."


def test_tests_on_the_same_tasks_are_compared_in_pairs():
    """20 to 30 of 54 is level as two rates (37% [25, 50], 56% [42, 68]); 10 won and 0 lost are +19 [+7, +28]."""
    tests = {0: episodes("a", "S" * 20 + "F" * 34), 2: episodes("b", "S" * 30 + "F" * 24)}
    table = stall_table(tests, arm="tests")
    acceptance = lambda said: next(line.strip() for line in said.splitlines() if "acceptance" in line)  # noqa: E731
    assert acceptance(describe_stall(table)) == "acceptance is level, 37% to 56% (n = 54, 54)"
    paired = "acceptance rises (+19 points [+7, +28] on the same episodes), 37% to 56% (n = 54, 54)"
    assert acceptance(describe_stall(table, {"tests": tests})) == paired
    alike = {0: tests[0], 2: tests[0]}
    said = acceptance(describe_stall(stall_table(alike, arm="tests"), {"tests": alike}))
    assert said.startswith("acceptance is level (+0 points [-3, +3] on the same episodes)")


@pytest.mark.parametrize(
    ("first", "last", "way"),
    [
        ((0.40, 0.33, 0.47), (0.55, 0.48, 0.62), "rises"),  # 0.15 is more than sqrt(2) x 0.07 = 0.099
        ((0.40, 0.33, 0.47), (0.49, 0.42, 0.56), "is level"),  # 0.09 is less
        ((0.49, 0.42, 0.56), (0.40, 0.33, 0.47), "is level"),
        ((0.30, 0.20, 0.31), (0.20, 0.19, 0.30), "is level"),  # facing ends are 0.10 away: sqrt(2) x 0.10
        ((0.30, 0.29, 0.40), (0.20, 0.10, 0.21), "falls"),  # here 0.01 away: the far ends do not matter
    ],
)
def test_a_change_within_its_interval_is_level(first, last, way):
    table = KNOWN.iloc[:2].copy()
    table[["value", "low", "high"]] = [first, last]
    assert f"acceptance {way}, " in describe_stall(table)
