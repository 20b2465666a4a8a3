"""The tables of results hold what they promise, and leave out what nobody scored."""

import subprocess
import sys
from math import isnan

import pandas as pd
import pytest
from stand_ins import did

from wevo_nb import metrics, paper
from wevo_nb.params import load_params, parse_arm
from wevo_nb.schema import Candidate, Cost, Observation, Step, Task, Trajectory, Verdict

S, F, U = "success", "failure", "unscored"


def episodes(arm: str, outcomes: str, split: str = "test_seeds", name: str = "click-button") -> list[Trajectory]:
    """One episode a letter, seeds 0, 1, ...: S, F, U (unscored) or - (no verdict)."""
    names = {"S": S, "F": F, "U": U}
    return [
        Trajectory(
            task=Task(suite="miniwob", name=name, seed=seed, split=split),
            policy=arm,
            environment="browser",
            steps=(),
            final=Observation(text=""),
            ended="done",
            verdict=None if letter == "-" else Verdict(outcome=names[letter], judge="reward"),
        )
        for seed, letter in enumerate(outcomes)
    ]


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
    assert "share no scored episode" in metrics.describe_pair(table.iloc[1])
    assert list(metrics.paired_table(by_arm, []).columns) == metrics.PAIRED_COLUMNS


def test_paired_table_refuses_what_cannot_be_paired():
    with pytest.raises(ValueError, match="no trajectories of b; there are a"):
        metrics.paired_table({"a": episodes("a", "S")}, [("a", "b")])
    twice = episodes("a", "S") + episodes("a", "F")
    with pytest.raises(ValueError, match="a holds click-button, seed 0, twice"):
        metrics.paired_table({"a": twice, "b": episodes("b", "S")}, [("a", "b")])


def test_comparisons_are_the_ones_reported():
    arms = ["zero_shot", "self_improve_1", "self_improve_2", "webevolver", "webevolver+wmla_d1", "webevolver+best_of_k"]
    assert metrics.comparisons(arms) == [
        ("zero_shot", "self_improve_1"),
        ("zero_shot", "self_improve_2"),
        ("zero_shot", "webevolver"),
        ("zero_shot", "webevolver+wmla_d1"),
        ("zero_shot", "webevolver+best_of_k"),
        ("self_improve_1", "self_improve_2"),
        ("self_improve_1", "webevolver"),
        ("self_improve_2", "webevolver"),
        ("webevolver", "webevolver+wmla_d1"),
        ("webevolver+best_of_k", "webevolver+wmla_d1"),
        ("webevolver", "webevolver+best_of_k"),
    ]
    assert metrics.comparisons(["zero_shot"]) == []
    assert metrics.comparisons(["webevolver", "self_improve_1"]) == [("self_improve_1", "webevolver")]


def test_iteration_table_is_in_percent_and_places_the_final_arms_after_the_last_iteration():
    arms = {"random": "F", "zero_shot": "FFFS", "self_improve_1": "SSFF", "webevolver": "SSSF"}
    success = metrics.success_table({arm: episodes(arm, outcomes) for arm, outcomes in arms.items()})
    table = metrics.iteration_table(success)
    assert table[["method", "iteration", "success_percent"]].values.tolist() == [
        ["zero_shot", 0, 25.0],
        ["self_improve_1", 1, 50.0],
        ["webevolver", 2, 75.0],
    ]
    assert not table["reported"].any()


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


def test_agreement_counts_the_table_and_scores_the_judge():
    judge = [t.verdict for t in episodes("x", "SSSSFFFFU-")]
    truth = [t.verdict for t in episodes("x", "SSSFSFFFSS")]
    counts = metrics.agreement(judge, truth)
    assert {k: counts[k] for k in ("n", "unscored", "agree", "both_success", "both_failure", "only_a", "only_b")} == {
        "n": 8, "unscored": 2, "agree": 6, "both_success": 3, "both_failure": 3, "only_a": 1, "only_b": 1,
    }  # fmt: skip
    assert counts["accuracy"][0] == counts["precision"][0] == counts["recall"][0] == 0.75
    assert counts["precision"][1] == pytest.approx(0.3006, abs=5e-5)  # Wilson of 3 of 4, by hand
    assert counts["precision"][2] == pytest.approx(0.9544, abs=5e-5)


def test_agreement_of_a_judge_that_never_says_success_has_no_precision():
    counts = metrics.agreement([t.verdict for t in episodes("x", "FF")], [t.verdict for t in episodes("x", "SF")])
    assert isnan(counts["precision"][0]) and counts["recall"][0] == 0.0
    with pytest.raises(ValueError, match="1 verdicts against 0"):
        metrics.agreement([None], [])


@pytest.mark.parametrize(
    ("won", "lost", "n", "sentence"),
    [
        (60, 5, 192, "b is 29 points above a on 192 held-out episodes of test_seeds "
                     "(95% interval 21 to 36, won 60, lost 5, p < 0.001)."),
        # .176 has a power of .8 in the sum over all tables of 50 episodes of which .2 disagree, by a loop of its own
        (2, 8, 50, "b is 12 points below a on 50 held-out episodes of test_seeds "
                   "(95% interval -24 to 1, won 2, lost 8, p = 0.109); the interval holds 0, the sign is open: "
                   "50 such episodes can show 18 points or more, hardly less."),
        (0, 0, 5, "b is level with a on 5 held-out episodes of test_seeds "
                  "(95% interval -28 to 28, won 0, lost 0, p = 1.000); the interval holds 0, the sign is open: "
                  "5 such episodes can show no difference."),
    ],
)  # fmt: skip
def test_a_pair_in_words(won, lost, n, sentence):
    names = {"arm_a": "a", "arm_b": "b", "split": "test_seeds", "n": n, "won": won, "lost": lost}
    assert metrics.describe_pair(names | metrics.paired(won, lost, n)) == sentence


def test_what_whole_clusters_do_to_the_intervals_in_words():
    """Two families, one solved whole and one not: 0 to 1 over them; Wilson of 10 of 20 is .2993 to .7007."""
    by_arm = {"a": episodes("a", "S" * 10) + episodes("a", "F" * 10, name="x") + episodes("a", "SF", "test_tasks", "y")}
    assert metrics.describe_clusters(metrics.success_table(by_arm)) == [
        "test_seeds: over 2 task families instead of episodes the intervals are 2.5 times as wide (median); "
        "fewer than 20, so these are too narrow even then.",
        "test_tasks: over 1 task families instead of episodes there is no interval.",
    ]
    many = {"a": [t for i in range(20) for t in episodes("a", "SF", name=f"family-{i}")]}
    [said] = metrics.describe_clusters(metrics.success_table(many, "site"), "site")
    assert said == "test_seeds: over 20 sites instead of episodes the intervals are 0.0 times as wide (median)."
    assert metrics.describe_clusters(metrics.success_table({})) == []


def test_a_pair_that_hangs_on_a_cluster_says_so():
    """Ten of twelve won, all in one family: settled over episodes; with a second family of two it may be 0."""
    a, b = episodes("a", "F" * 12), episodes("b", "S" * 10 + "FF")
    [one] = metrics.paired_table({"a": a, "b": b}, [("a", "b")]).to_dict("records")
    assert metrics.describe_pair(one).endswith("p = 0.002); of task families there is one, it may hold for no other.")
    rest = {"a": a + episodes("a", "FF", name="x"), "b": b + episodes("b", "FF", name="x")}
    [two] = metrics.paired_table(rest, [("a", "b")]).to_dict("records")
    few = "; over 2 task families the interval is 0 to 83 and holds 0, and so few make it too narrow."
    assert metrics.describe_pair(two).endswith(few)
    assert metrics.describe_pair(two, "site").endswith(few.replace("task families", "sites"))
    alike = {"a": a + episodes("a", "F" * 10, name="x"), "b": b + episodes("b", "S" * 10, name="x")}
    [both] = metrics.paired_table(alike, [("a", "b")]).to_dict("records")
    assert metrics.describe_pair(both).endswith("won 20, lost 0, p < 0.001).")


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
        ("k", "p+wmla_d1"): [(2, 0.3), (3, 0.4)],
        ("depth", "p+wmla k=2"): [(0, 0.2), (1, 0.3)],
        ("depth", "p+wmla k=3"): [(0, 0.2), (1, 0.4), (2, 0.5)],
    }
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


def test_the_control_of_a_preset_has_its_scorer_and_imagines_nothing():
    wmla = load_params("demo").params.wmla
    for preset in ("wmla_d1", "wmla_k5_d2", "expected", "veto", "likelihood", "webdreamer", "paper", "released_code"):
        control = wmla.preset(metrics.control_of(preset))
        assert (control.imagination, control.scorer) == ("none", wmla.preset(preset).scorer)
