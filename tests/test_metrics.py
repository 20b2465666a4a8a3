"""The tables of results hold what they promise, and leave out what nobody scored."""

import subprocess
import sys
from itertools import product
from math import isnan

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from stand_ins import did, episodes

from wevo_nb import metrics, paper
from wevo_nb.params import load_params, parse_arm
from wevo_nb.schema import Candidate, Cost, Observation, Step, Task, Trajectory


def test_success_table_has_the_contract_and_leaves_out_the_unscored():
    by_arm = {
        "zero_shot": episodes("zero_shot", "FS", "test_tasks", "login-user") + episodes("zero_shot", "SFFFU-"),
        "webevolver": episodes("webevolver", "UU"),
    }
    table = metrics.success_table(by_arm)
    assert list(table.columns) == [
        "arm", "split", "n", "successes", "rate", "low", "high",
        "unscored", "low_bound", "high_bound", "clusters", "cluster_low", "cluster_high",
    ]  # fmt: skip
    assert table[["arm", "split", "n", "successes"]].values.tolist() == [
        ["zero_shot", "test_seeds", 4, 1],
        ["zero_shot", "test_tasks", 2, 1],
        ["webevolver", "test_seeds", 0, 0],
    ]
    assert table["rate"].tolist()[:2] == [0.25, 0.5] and isnan(table["rate"][2])
    # had the two unscored ones failed or succeeded: 1 and 3 of 6; with two of two unscored nothing is known
    assert table[["unscored", "low_bound", "high_bound"]].values.tolist() == [
        [2, 1 / 6, 3 / 6],
        [0, 0.5, 0.5],
        [2, 0, 1],
    ]
    assert table["clusters"].tolist() == [1, 1, 0] and table["cluster_low"].isna().all()
    assert metrics.unscored_count(by_arm).values.tolist() == [
        ["zero_shot", "test_seeds", 6, 2],
        ["zero_shot", "test_tasks", 2, 0],
        ["webevolver", "test_seeds", 2, 2],
    ]


def test_task_table_counts_a_task_once_an_arm():
    by_arm = {"zero_shot": episodes("zero_shot", "SSF") + episodes("zero_shot", "FU", name="enter-text")}
    table = metrics.task_table(by_arm)
    assert list(table.columns) == ["task", "arm", "split", "n", "successes", "rate", "low", "high"]
    assert table[["task", "n", "successes"]].values.tolist() == [["click-button", 3, 2], ["enter-text", 1, 0]]


def test_paired_table_pairs_on_task_and_seed():
    """Seeds 0..6: won (0, 1), lost (2), both (3), neither (4); 5 is unscored in a, 6 is not run by b."""
    by_arm = {"a": episodes("a", "FFSSFUS"), "b": list(reversed(episodes("b", "SSFSFS")))}
    table = metrics.paired_table(by_arm, [("a", "b")])
    assert list(table.columns) == [
        "arm_a", "arm_b", "split", "n", "won", "lost", "difference", "low", "high", "p",
        "p_holm", "boot_low", "boot_high", "detectable",
        "unscored", "low_bound", "high_bound", "clusters", "cluster_low", "cluster_high",
    ]  # fmt: skip
    row = table.iloc[0].to_dict()
    assert (row["arm_a"], row["arm_b"], row["split"]) == ("a", "b", "test_seeds")
    assert (row["n"], row["won"], row["lost"]) == (5, 2, 1)
    assert row["difference"] == pytest.approx(0.2) and row["p"] == 1.0  # 2 to 1 is no evidence
    assert (row["boot_low"], row["boot_high"]) == metrics.paired_bootstrap(2, 1, 5) and isnan(row["detectable"])
    # 5 is a success of b: level with a if a succeeded too, won if a failed; 2 - 1 = 1 beside it, of 6
    assert (row["unscored"], row["low_bound"], row["high_bound"]) == (1, pytest.approx(1 / 6), pytest.approx(2 / 6))


def completions(outcomes: str) -> list[str]:
    """Every way in which the unscored could have been scored."""
    return ["".join(filled) for filled in product(*["SF" if letter == "U" else letter for letter in outcomes])]


@settings(deadline=None, max_examples=30)  # the first example imports scipy
@given(st.lists(st.tuples(*[st.sampled_from("SFU")] * 2), min_size=1, max_size=5))
def test_the_bounds_are_the_extremes_of_every_way_to_score_the_unscored(pairs):
    a, b = ("".join(letters) for letters in zip(*pairs, strict=True))
    by_arm = {"a": episodes("a", a), "b": episodes("b", b)}
    [row] = metrics.paired_table(by_arm, [("a", "b")]).to_dict("records")
    gaps = [y.count("S") - x.count("S") for x, y in product(completions(a), completions(b))]
    assert (row["low_bound"], row["high_bound"]) == pytest.approx((min(gaps) / len(pairs), max(gaps) / len(pairs)))
    rates = [filled.count("S") / len(a) for filled in completions(a)]
    one = metrics.success_table(by_arm).iloc[0]
    assert (one["low_bound"], one["high_bound"]) == pytest.approx((min(rates), max(rates)))


def test_holm_counts_every_row_of_the_table():
    """Six won of six in one split, p = 1/32, doubled for the two rows; one episode of the other, p = 1."""
    by_arm = {
        "a": episodes("a", "FFFFFF") + episodes("a", "F", "test_tasks", "x"),
        "b": episodes("b", "SSSSSS") + episodes("b", "S", "test_tasks", "x"),
    }
    table = metrics.paired_table(by_arm, [("a", "b")])
    assert table["p"].tolist() == [1 / 32, 1] and table["p_holm"].tolist() == [1 / 16, 1]
    assert metrics.paired_table(by_arm, [])["p_holm"].tolist() == []


def test_clusters_are_families_or_sites():
    """Two families of one site, solved whole and not at all, and one of another site."""

    def of(arm: str, outcomes: str, name: str, site: str) -> list[Trajectory]:
        made = episodes(arm, outcomes, name=name)
        return [t.model_copy(update={"task": t.task.model_copy(update={"site": site})}) for t in made]

    by_arm = {
        "a": of("a", "FFF", "buy", "shop") + of("a", "FFF", "sort", "shop") + of("a", "FFF", "close", "issues"),
        "b": of("b", "SSS", "buy", "shop") + of("b", "FFF", "sort", "shop") + of("b", "FFF", "close", "issues"),
    }
    by_family, by_site = (
        metrics.success_table(by_arm, clusters).set_index("arm").loc["b"] for clusters in ("family", "site")
    )
    assert (by_family["clusters"], by_site["clusters"]) == (3, 2)
    # three families: none of b's in 8 of 27 draws, all three b's in 1 of 27; two sites: 0 of 3 or 3 of 6
    assert (by_family["cluster_low"], by_family["cluster_high"]) == (0, 1)
    assert (by_site["cluster_low"], by_site["cluster_high"]) == (0, 0.5)
    paired = [metrics.paired_table(by_arm, [("a", "b")], clusters).iloc[0] for clusters in ("family", "site")]
    assert [(row["clusters"], row["cluster_low"], row["cluster_high"]) for row in paired] == [(3, 0, 1), (2, 0, 0.5)]
    without = episodes("a", "S")[0].task
    assert metrics.cluster_of(without, "site") == metrics.cluster_of(without, "family") == "click-button"


def test_paired_table_keeps_the_splits_apart_and_its_columns_when_empty():
    by_arm = {"a": episodes("a", "FF") + episodes("a", "F", "test_tasks", "x"), "b": episodes("b", "SS")}
    table = metrics.paired_table(by_arm, [("a", "b")])
    assert table[["split", "n", "won"]].values.tolist() == [["test_seeds", 2, 2], ["test_tasks", 0, 0]]
    assert list(metrics.paired_table(by_arm, []).columns) == list(table.columns)


def test_paired_table_refuses_what_cannot_be_paired():
    with pytest.raises(ValueError, match="no trajectories of b; there are a"):
        metrics.paired_table({"a": episodes("a", "S")}, [("a", "b")])
    twice = episodes("a", "S") + episodes("a", "F")
    with pytest.raises(ValueError, match="a holds click-button, seed 0, twice"):
        metrics.paired_table({"a": twice, "b": episodes("b", "S")}, [("a", "b")])


def test_ledger_table_adds_the_truth_rate():
    outcomes = {"task": ["x", "y", "y"], "outcome": ["accepted", "accepted", "too long"], "n": [3, 1, 6]}
    table = metrics.ledger_table(pd.DataFrame(outcomes), {"replayed": 4, "true": 1})
    assert table[["counted", "outcome", "n", "of", "rate"]].values.tolist() == [
        ["imagined", "too long", 6, 10, 0.6],
        ["imagined", "accepted", 4, 10, 0.4],
        ["replayed", "true in the real page", 1, 4, 0.25],
    ]
    nothing = pd.DataFrame({"task": [], "outcome": [], "n": []})
    for truth in (None, {"replayed": 0, "true": 0}):
        assert metrics.ledger_table(nothing, truth).empty


def test_importing_metrics_loads_nothing_heavy():
    code = "import sys, wevo_nb.metrics; print({'pandas', 'scipy', 'statsmodels', 'torch'} & set(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert loaded.strip() == "set()"


def looked_ahead(arm: str, *replies: str, calls: int, fell_back: str = "") -> Trajectory:
    """One successful episode; each decision considered `click [1]` first and did the reply."""
    candidates = tuple(Candidate(reply=reply, score=1.0) for reply in ("click [1]", "click [2]"))
    cost = Cost(calls=calls, tokens=100 * calls, seconds=calls / 10)
    steps = [
        Step(
            observation=Observation(text="[1] link\n[2] link"),
            decision=did(reply).model_copy(
                update={"reply": reply, "candidates": candidates, "cost": cost, "fell_back": fell_back}
            ),
        )
        for reply in replies
    ]
    return episodes(arm, "S")[0].model_copy(update={"steps": tuple(steps)})


def test_the_look_ahead_table_counts_what_decisions_cost_and_changed():
    """Three decisions of 2, 2 and 5 calls: 3 a decision. Two did another than the first candidate, and one of
    these because nothing was scored.
    """
    params = load_params("demo").params
    plain, ahead = parse_arm("webevolver", params), parse_arm("webevolver+wmla_k5_d2", params)
    found = {
        "webevolver": episodes("webevolver", "SF"),
        "webevolver+wmla_k5_d2": [
            looked_ahead("w", "click [1]", "click [2]", calls=2),
            looked_ahead("w", "click [2]", calls=5, fell_back="nothing scored").model_copy(
                update={"task": Task(suite="miniwob", name="click-button", seed=9, split="test_seeds")}
            ),
        ],
    }
    table = metrics.lookahead_table(found, [plain, ahead]).set_index("preset")
    assert list(table.reset_index().columns[:4]) == ["preset", "policy", "k", "depth"]
    row = table.loc["wmla_k5_d2"]
    assert (row.policy, row.k, row.depth, row.split, row.n, row.rate) == ("webevolver", 5, 2, "test_seeds", 2, 1.0)
    assert (row.calls, row.tokens, row.seconds, row.steps) == (3, 300, pytest.approx(0.3), 0)
    assert (row.decisions, row.overruled, row.fell_back) == (3, 1, 1)
    assert (table.loc[""].k, table.loc[""].depth, table.loc[""].rate) == (1, 0, 0.5) and isnan(table.loc[""].calls)


def test_a_grid_is_read_along_both_axes():
    """d=1 with k 2 and 3, d=2 with k 3: one series along k, one along the depth that begins at the plain policy."""
    cells = [("", 1, 0, 0.2), ("wmla_k2_d1", 2, 1, 0.3), ("wmla_d1", 3, 1, 0.4), ("wmla_d2", 3, 2, 0.5)]
    same = {"policy": "p", "split": "test_seeds", "n": 9, "low": 0, "high": 1}
    rows = [same | {"preset": p, "k": k, "depth": d, "rate": r} for p, k, d, r in [*cells, ("veto", 3, 1, 0.9)]]
    grid = metrics.grid_table(pd.DataFrame(rows), "test_seeds")
    told = {key: sorted(zip(part.x, part.rate, strict=True)) for key, part in grid.groupby(["axis", "series"])}
    assert told == {
        ("k", "p, d = 1"): [(2, 0.3), (3, 0.4)],
        ("depth", "p, k = 2"): [(0, 0.2), (1, 0.3)],
        ("depth", "p, k = 3"): [(0, 0.2), (1, 0.4), (2, 0.5)],
    }
    one = [same | {"preset": p, "k": k, "depth": d, "rate": r} for p, k, d, r in cells if p in ("", "wmla_d1")]
    assert metrics.grid_table(pd.DataFrame(one), "test_seeds").empty  # plain and one way to look ahead: no grid
    assert metrics.grid_table(pd.DataFrame(rows), "test_tasks").empty and list(grid.columns) == metrics.GRID_COLUMNS
    assert list(paper.grids().columns) == metrics.GRID_COLUMNS


def test_a_repeat_of_the_same_page_and_goal_is_no_further_episode():
    """Seeds 0 and 2 give the same page and goal: the first one counts, in rates and in pairs."""

    def seeded(arm: str, outcomes: str, pages: str) -> list[Trajectory]:
        made = episodes(arm, outcomes)
        return [
            t.model_copy(update={"task": t.task.model_copy(update={"goal": "g"}), "final": Observation(text=page)})
            for t, page in zip(made, pages, strict=True)
        ]

    found = {"a": seeded("a", "FSS", "xyx"), "b": seeded("b", "SSF", "xyx")}
    table = metrics.success_table(found).set_index("arm")
    assert (table.loc["a", "n"], table.loc["a", "successes"]) == (2, 1)
    row = metrics.paired_table(found, [("a", "b")]).iloc[0]
    assert (row.n, row.won, row.lost) == (2, 1, 0)
    assert [t.task.seed for t in metrics.different(reversed(found["a"]))] == [0, 1]
