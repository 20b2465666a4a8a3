"""Intervals and tests against published or hand-worked values; tables leave out what nobody scored."""

import subprocess
import sys
from math import isnan

import pandas as pd
import pytest
from stand_ins import did

from wevo_nb import metrics, paper
from wevo_nb.params import load_params, parse_arm
from wevo_nb.schema import Candidate, Cost, Decision, Observation, Step, Task, Trajectory, Verdict

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


@pytest.mark.parametrize(
    ("successes", "n", "low", "high"),
    [
        # Newcombe 1998, Statistics in Medicine 17, Table I, method 3 (four decimals are given there)
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1, 29, 0.0061, 0.1718),
        # edges by hand: none of n ends at z2 / (n + z2), all of n begins at n / (n + z2), z2 = 3.8415
        (0, 10, 0.0, 0.2775),
        (10, 10, 0.7225, 1.0),
        (1, 1, 0.2065, 1.0),
    ],
)
def test_wilson_gives_the_published_intervals(successes, n, low, high):
    rate, lower, upper = metrics.wilson(successes, n)
    assert rate == successes / n
    assert (lower, upper) == (pytest.approx(low, abs=5e-5), pytest.approx(high, abs=5e-5))
    assert 0 <= lower <= rate <= upper <= 1


def test_wilson_of_nothing_is_nan_and_of_too_much_an_error():
    assert all(isnan(value) for value in metrics.wilson(0, 0))
    for successes, n in ((-1, 10), (11, 10)):
        with pytest.raises(ValueError, match=f"{successes} successes out of {n}"):
            metrics.wilson(successes, n)


def test_paired_by_hand():
    """b = 8.5, c = 2.5, N = 52: centre 6/52, half 1.96 sqrt(11 - 36/52)/52; p = 2 (1 + 10 + 45)/1024."""
    row = metrics.paired(won=8, lost=2, n=50)
    assert row["difference"] == 0.12
    assert row["low"] == pytest.approx(-0.005626, abs=1e-6)
    assert row["high"] == pytest.approx(0.236396, abs=1e-6)
    assert row["p"] == pytest.approx(0.109375, abs=1e-12)


def test_paired_is_antisymmetric():
    row, mirrored = metrics.paired(8, 2, 50), metrics.paired(2, 8, 50)
    assert mirrored["difference"] == -row["difference"] and mirrored["p"] == row["p"]
    assert (mirrored["low"], mirrored["high"]) == (pytest.approx(-row["high"]), pytest.approx(-row["low"]))


def test_paired_at_its_edges():
    same = metrics.paired(0, 0, 5)  # half of the interval: 1.959964 / 7
    assert (same["difference"], same["p"]) == (0, 1)
    assert (same["low"], same["high"]) == (pytest.approx(-0.279995, abs=1e-6), pytest.approx(0.279995, abs=1e-6))
    swept = metrics.paired(5, 0, 5)  # 5/7 - 1.959964 sqrt(6 - 25/7)/7; the upper end would pass 1
    assert (swept["difference"], swept["high"], swept["p"]) == (1, 1, 0.0625)
    assert swept["low"] == pytest.approx(0.277945, abs=1e-6)
    assert all(isnan(value) for value in metrics.paired(0, 0, 0).values())
    for won, lost in ((-1, 0), (3, 3)):
        with pytest.raises(ValueError, match=f"won {won} and lost {lost} of 5"):
            metrics.paired(won, lost, 5)


def test_success_table_has_the_contract_and_leaves_out_the_unscored():
    by_arm = {
        "zero_shot": episodes("zero_shot", "FS", "test_tasks", "login-user") + episodes("zero_shot", "SFFFU-"),
        "webevolver": episodes("webevolver", "UU"),
    }
    table = metrics.success_table(by_arm)
    assert list(table.columns) == ["arm", "split", "n", "successes", "rate", "low", "high"]
    assert table[["arm", "split", "n", "successes"]].values.tolist() == [
        ["zero_shot", "test_seeds", 4, 1],
        ["zero_shot", "test_tasks", 2, 1],
        ["webevolver", "test_seeds", 0, 0],
    ]
    assert table["rate"].tolist()[:2] == [0.25, 0.5] and isnan(table["rate"][2])
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
    ]  # fmt: skip
    row = table.iloc[0].to_dict()
    assert (row["arm_a"], row["arm_b"], row["split"]) == ("a", "b", "test_seeds")
    assert (row["n"], row["won"], row["lost"]) == (5, 2, 1)
    assert row["difference"] == pytest.approx(0.2) and row["p"] == 1.0  # 2 to 1 is no evidence


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


@pytest.mark.parametrize(
    ("won", "lost", "n", "sentence"),
    [
        (60, 5, 192, "b is 29 points above a on 192 held-out episodes of test_seeds "
                     "(95% interval 21 to 36, won 60, lost 5, p < 0.001)."),
        (2, 8, 50, "b is 12 points below a on 50 held-out episodes of test_seeds "
                   "(95% interval -24 to 1, won 2, lost 8, p = 0.109); the interval holds 0, the sign is open."),
        (0, 0, 5, "b is level with a on 5 held-out episodes of test_seeds "
                  "(95% interval -28 to 28, won 0, lost 0, p = 1.000); the interval holds 0, the sign is open."),
    ],
)  # fmt: skip
def test_a_pair_in_words(won, lost, n, sentence):
    names = {"arm_a": "a", "arm_b": "b", "split": "test_seeds", "n": n, "won": won, "lost": lost}
    assert metrics.describe_pair(names | metrics.paired(won, lost, n)) == sentence


def test_importing_metrics_loads_nothing_heavy():
    code = "import sys, wevo_nb.metrics; print({'pandas', 'scipy', 'statsmodels', 'torch'} & set(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert loaded.strip() == "set()"


# -- where episodes were lost


def lost(*actions: str, ended="limit", text="page", final="page", done=False, outcome="failure") -> Trajectory:
    """An episode of these actions ("" = unread), all on one page."""
    steps = tuple(
        Step(observation=Observation(text=text), decision=did(action) if action else Decision(reply="?", action=None))
        for action in actions
    )
    verdict = Verdict(outcome=outcome, judge="reward")
    end = Observation(text=final, done=done, reward=0.0 if done else None)
    one = Task(suite="miniwob", name="a", seed=0)
    return Trajectory(task=one, policy="p", environment="e", steps=steps, final=end, ended=ended, verdict=verdict)


@pytest.mark.parametrize(
    ("trajectory", "cause"),
    [
        (lost("click [1]", ended="done", final="", done=True), "wrong action"),
        (lost("click [1]", "stop [41]", ended="stop", done=True), "wrong action"),
        (lost("", "click [1]"), "unread reply"),
        (lost("click [1]", "click [2]", "click [3]"), "no progress"),
        (lost("click [1]", ended="stuck", final="other"), "no progress"),
        (lost("click [1]", final="other"), "out of steps"),
        (lost(ended="error", outcome="unscored"), "environment"),
        (lost("click [1]", ended="blocked", outcome="unscored"), "environment"),
        (lost("click [1]", ended="done", done=True, outcome="success"), None),
    ],
)
def test_where_an_episode_was_lost(trajectory, cause):
    assert metrics.cause_of_loss(trajectory) == cause


def test_losses_are_counted_over_all_episodes():
    table = metrics.losses([lost(""), lost("click [1]"), lost("click [2]"), lost("click [1]", outcome="success")])
    assert list(table["cause"]) == ["wrong action", "unread reply", "no progress", "out of steps", "environment"]
    assert list(table["episodes"]) == [0, 1, 2, 0, 0] and list(table["share"]) == [0, 0.25, 0.5, 0, 0]


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
