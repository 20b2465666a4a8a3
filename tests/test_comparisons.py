"""The pairs that are reported, and the sentences that say what a comparison shows or could have shown."""

from math import isnan

import pandas as pd
import pytest
from stand_ins import did, episodes, seen

from wevo_nb import comparisons, metrics
from wevo_nb.params import load_params
from wevo_nb.schema import Step


def test_comparisons_are_the_ones_reported():
    arms = ["zero_shot", "self_improve_1", "self_improve_2", "webevolver", "webevolver+wmla_d1", "webevolver+best_of_k"]
    assert comparisons.reported(arms) == [
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
    assert comparisons.reported(["zero_shot"]) == []
    assert comparisons.reported(["mixed", "real_only", "synthetic_only"]) == [
        ("real_only", "synthetic_only"), ("real_only", "mixed"), ("synthetic_only", "mixed"),
    ]  # fmt: skip
    search = ["zero_shot", "zero_shot+best_of_k", "zero_shot+tree_search"]
    assert ("zero_shot+best_of_k", "zero_shot+tree_search") not in comparisons.reported(search)
    assert comparisons.reported(["webevolver", "self_improve_1"]) == [("self_improve_1", "webevolver")]


def test_what_whole_clusters_do_to_the_intervals_in_words():
    """Two families, one solved whole and one not: 0 to 1 over them; Wilson of 10 of 20 is .2993 to .7007."""
    by_arm = {"a": episodes("a", "S" * 10) + episodes("a", "F" * 10, name="x") + episodes("a", "SF", "test_tasks", "y")}
    assert comparisons.describe_clusters(metrics.success_table(by_arm)) == [
        "test_seeds: over 2 task families instead of episodes the intervals are 2.5 times as wide (median); "
        "fewer than 20, so these are too narrow even then.",
        "test_tasks: over 1 task families instead of episodes there is no interval.",
    ]
    many = {"a": [t for i in range(20) for t in episodes("a", "SF", name=f"family-{i}")]}
    [said] = comparisons.describe_clusters(metrics.success_table(many, "site"), "site")
    assert said == "test_seeds: over 20 sites instead of episodes the intervals are 0.0 times as wide (median)."
    assert comparisons.describe_clusters(metrics.success_table({})) == []


def test_a_pair_that_hangs_on_a_cluster_says_so():
    """Ten of twelve won, all in one family: off 0 over episodes; with a second family of two it may be 0.

    Agresti and Min of 10 of 12: (10.5 - .5) / 14 = .714 -+ 1.96 x sqrt(11 - 100 / 14) / 14 = .275; of 10 of 14:
    10 / 16 = .625 -+ 1.96 x sqrt(11 - 100 / 16) / 16 = .267; of 20 of 22 .833 -+ .173, at most 1.
    """
    a, b = episodes("a", "F" * 12), episodes("b", "S" * 10 + "FF")

    def say(*families: str, clusters="family"):
        found = {"a": list(a), "b": list(b)}
        for outcomes in families:
            found["a"] += episodes("a", "F" * len(outcomes), name="x")
            found["b"] += episodes("b", outcomes, name="x")
        table = comparisons.mark_twins(metrics.paired_table(found, [("a", "b")]), [])
        return comparisons.brief(table.iloc[0], clusters)

    one = "b against a +83 [+44, +99] (10 won, 0 lost, n = 12): settled"
    assert say() == one + ", but all of it in one of the task families"
    said = "b against a +71 [+36, +89] (10 won, 0 lost, n = 14): settled, but over 2 task families [0, +83]"
    assert say("FF") == said
    assert say("FF", clusters="site") == said.replace("task families", "sites")
    assert say("S" * 10) == "b against a +91 [+66, +100] (20 won, 0 lost, n = 22): settled"


def test_the_control_of_a_preset_has_its_scorer_and_imagines_nothing():
    wmla = load_params("demo").params.wmla
    controls = {}
    for preset in ("wmla_d1", "wmla_d2", "wmla_k5_d2", *wmla.presets):
        if control := comparisons.control_of(preset):
            ours, its = wmla.preset(preset), wmla.preset(control)
            assert (its.imagination, its.scorer, its.k) == ("none", ours.scorer, ours.k)
            controls[preset] = control
    assert set(controls) == {
        "wmla_d1", "wmla_d2", "expected", "veto", "likelihood", "webdreamer", "paper", "released_code",
    }  # fmt: skip


def acting(arm: str, letters: str, *actions: str) -> list:
    """Episodes of one step, an action each."""
    steps = [(Step(observation=seen("[1] link 'a'"), decision=did(action)),) for action in actions]
    return [one.model_copy(update={"steps": acted}) for one, acted in zip(episodes(arm, letters), steps, strict=True)]


def test_a_pair_of_one_policy_under_two_names_is_no_open_question():
    """b takes a's actions; c solves the same episodes by another action; d solves what the others do not."""
    found = {
        "a": acting("a", "SF", "click [1]", "click [1]"),
        "b": acting("b", "SF", "click [1]", "click [1]"),
        "c": acting("c", "SF", "click [1]", "click [2]"),
        "d": acting("d", "SS", "click [1]", "click [1]"),  # the same actions with another verdict
        "e": acting("e", "U", "click [1]"),
    }
    paired = metrics.paired_table(found, [("a", name) for name in "bcde"])
    table = comparisons.pairs_table(paired, found, "test_seeds")
    assert table[["arm", "against", "n", "won", "lost", "points", "result"]].values.tolist() == [
        ["b", "a", 2, 0, 0, 0, "same actions"], ["c", "a", 2, 0, 0, 0, "open"], ["d", "a", 2, 1, 0, 50, "open"],
    ]  # fmt: skip
    assert comparisons.pairs_table(paired, found, "test_tasks").empty
    assert comparisons.told(table.iloc[0]) == "b and a (n = 2)"
    # half an episode in each of four cells: 0 -+ 1.96 / 4
    assert comparisons.told(table.iloc[1]) == "c against a 0 [-49, +49] (0 won, 0 lost, n = 2)"
    many = {"a": episodes("a", "F" * 20), "b": episodes("b", "S" * 20)}
    both = metrics.paired_table(many, [("a", "b"), ("b", "a")])
    assert comparisons.pairs_table(both, many, "test_seeds")["result"].tolist() == ["better", "worse"]


# -- one policy under two names

SOLVED = {"zero": "F" * 16, "one": "S" * 10 + "F" * 6, "twin": "S" * 10 + "F" * 6, "other": "S" * 6 + "F" * 10}
PAIRS = [("zero", "one"), ("zero", "twin"), ("one", "twin"), ("zero", "other")]


def compared(solved: dict[str, str], pairs: list, alike: list) -> pd.DataFrame:
    by_arm = {arm: episodes(arm, outcomes) for arm, outcomes in solved.items()}
    return comparisons.mark_twins(metrics.paired_table(by_arm, pairs), alike)


def test_twins_leave_holms_family_and_stay_in_the_table():
    """10 won, 0 lost is p = 2/2^10 = .001953, 6 and 0 p = 2/2^6 = .03125.

    Of two comparisons Holm doubles the smaller p alone. With the twin's two rows, p = .001953 and 1, it is one of
    four: the third smallest is doubled to .0625, and the verdict flips.
    """
    apart = compared(SOLVED, PAIRS, [("one", "twin")])
    assert list(apart.columns)[-1] == "same_policy" and apart["same_policy"].tolist() == [False, True, True, False]
    assert apart["p"].tolist() == [0.001953125, 0.001953125, 1.0, 0.03125]  # all rows are there
    assert apart["p_holm"][[0, 3]].tolist() == pytest.approx([0.00390625, 0.03125])
    assert all(map(isnan, apart["p_holm"][[1, 2]]))
    together = compared(SOLVED, PAIRS, [])
    assert not together["same_policy"].any()
    assert together["p_holm"].tolist() == pytest.approx([0.0078125, 0.0078125, 1.0, 0.0625])
    words = lambda table: comparisons.in_words(table)["verdict"].tolist()  # noqa: E731
    assert comparisons.in_words(apart)["points"][0] == comparisons.points(apart.iloc[0])
    assert words(apart) == ["settled", "same policy", "same policy", "settled"] and words(together)[3] == "leaning"
    assert comparisons.survivors(apart) == (
        "2 of 2 comparisons survive Holm's correction: one against zero (test_seeds), other against zero (test_seeds)."
    )
    assert comparisons.survivors(together, named=False) == "2 of 4 comparisons survive Holm's correction."


def test_a_row_of_a_twin_that_repeats_none_counts():
    """twin against other is one against other: a repeat where that is there, in either order, and not before."""
    marked = lambda pairs: compared(SOLVED, pairs, [("one", "twin")])["same_policy"].tolist()  # noqa: E731
    assert marked([("zero", "one"), ("twin", "other")]) == [False, False]
    assert marked([("twin", "other"), ("other", "one")]) == [True, False]  # the one under its own name is kept
    assert marked([("twin", "zero"), ("zero", "twin")]) == [False, True]
    none = compared(SOLVED, [], [("one", "twin")])
    assert none[~none["same_policy"]].empty and comparisons.survivors(none).startswith("0 of 0 ")


@pytest.mark.parametrize(
    ("won", "lost", "n", "p_holm", "said"),
    [
        (60, 5, 192, 0.01, "b against a +29 [+21, +36] (60 won, 5 lost, n = 192): settled"),
        (60, 5, 192, 0.06, "b against a +29 [+21, +36] (60 won, 5 lost, n = 192): leaning"),
        (2, 8, 50, 1.0, "b against a -12 [-24, +1] (2 won, 8 lost, n = 50): open, below 18 points mostly missed"),
        (0, 0, 5, 1.0, "b against a 0 [-28, +28] (0 won, 0 lost, n = 5): open, nothing could show"),
    ],
)
def test_a_pair_in_brief(won, lost, n, p_holm, said):
    names = {"arm_a": "a", "arm_b": "b", "n": n, "won": won, "lost": lost, "p_holm": p_holm}
    assert comparisons.brief(names | metrics.paired(won, lost, n)) == said
    few = {"clusters": 4, "cluster_low": -0.1, "cluster_high": 0.4}
    if "open" not in said:
        told = ", but over 4 task families [-10, +40]"
        assert comparisons.brief(names | metrics.paired(won, lost, n) | few) == said + told
    assert comparisons.brief(names | {"same_policy": True}) == "b against a: same policy"
    assert comparisons.brief(names | {"n": 0}) == "b against a: no episode"


ARMS = {
    "zero_shot": "F" * 16, "self_improve_1": "S" * 10 + "F" * 6, "webevolver": "S" * 10 + "F" * 6,
    "zero_shot+wmla_d1": "S" * 12 + "F" * 4, "zero_shot+best_of_k": "F" * 16,
}  # fmt: skip
IMPROVED = "self_improve_1 against zero_shot +62 [+30, +81] (10 won, 0 lost, n = 16): settled"
ONE_KIND = ", but all of it in one of the task families"


def test_the_three_claims_are_answered_from_the_pairs():
    """Agresti and Min of 12 of 16: (12.5 - .5) / 18 +- 1.96 x sqrt(13 - 144 / 18) / 18, so .423 to .910; of 10 .301
    to .810, of none +-.109.
    """
    pairs = comparisons.reported([*ARMS])
    alike = [("self_improve_1", "webevolver")]
    dreams = "24 dreams, 0 accepted: there is no truth rate"
    told = comparisons.claims(compared(ARMS, pairs, alike), alike, dreams)
    ahead = "+75 [+42, +91] (12 won, 0 lost, n = 16): settled"
    assert told == {
        "Does self-improvement help?": f"{IMPROVED}{ONE_KIND}.",
        "Do dreams help?": f"{dreams}; webevolver is self_improve_1 under another name, so this run says nothing "
        "about dreams.",
        "Does look-ahead help?": f"zero_shot+wmla_d1 against zero_shot {ahead}{ONE_KIND}; "
        f"zero_shot+wmla_d1 against zero_shot+best_of_k {ahead}{ONE_KIND}.",
    }
    told = comparisons.claims(compared(ARMS, pairs, []), [], "24 dreams, 3 accepted")
    assert told["Do dreams help?"].startswith(
        "24 dreams, 3 accepted; webevolver against self_improve_1 0 [-11, +11] (0 won, 0 lost, n = 16): open"
    )
    none = comparisons.claims(compared(ARMS, [], []), [], "no dream in this run")
    assert [*none.values()] == [
        "no pair of these arms is finished.", "no dream in this run.", "no pair of these arms is finished."
    ]  # fmt: skip


def test_dreams_in_words():
    """Wilson of 5 of 20 is 11 to 47%."""
    book = pd.DataFrame({"outcome": ["judge no", "accepted"], "n": [60, 20]})
    say = lambda rows, truth: comparisons.describe_dreams(metrics.ledger_table(rows, truth))  # noqa: E731
    assert say(book, {"replayed": 20, "true": 5}) == (
        "80 dreams, 20 accepted; of 20 replayed, 5 are true in the real page (95% interval 11 to 47%)"
    )
    assert say(book, None) == "80 dreams, 20 accepted; none was replayed: there is no truth rate"
    assert say(book[:1], {"replayed": 0, "true": 0}) == "60 dreams, 0 accepted: there is no truth rate"
    assert say(book[:0], None) == "no dream in this run"


def test_what_an_arm_is():
    arms = ["zero_shot", "self_improve_2", "webevolver", "self_improve_1+wmla_d2", "zero_shot+best_of_k_llm", "random"]
    told = comparisons.arms_table(arms, [("self_improve_2", "webevolver")])
    assert told.loc["self_improve_2"].tolist() == ["real successes of iterations 1 to 2", "its likeliest action"]
    assert told.loc["webevolver", "learned from"].endswith("; the same rows as self_improve_2: one policy")
    assert told.loc["self_improve_1+wmla_d2"].tolist() == [
        "D_1, the real successes of iteration 1", "the best of its candidates, wmla_d2"
    ]  # fmt: skip
    assert told["decides by"].tolist()[4] == "the best of its candidates, nothing imagined"
    assert told["learned from"].tolist()[5] == "nothing: it acts at random"


def test_a_kind_that_only_look_ahead_solves_is_named():
    rows = [
        ("a", "p", 3), ("a", "p+wmla_d1", 3), ("b", "p", 0), ("b", "p+wmla_d1", 2), ("c", "p", 0), ("c", "p+wmla_d1", 0)
    ]  # fmt: skip
    tasks = pd.DataFrame(rows, columns=["task", "arm", "successes"]).assign(n=9)
    assert comparisons.unsolved(tasks) == [
        "1 of 3 kinds were solved by no arm: c.",
        "b was solved by no plain policy, but by p+wmla_d1 2 of 9.",
    ]
    assert comparisons.unsolved(tasks[:0]) == []


def test_the_price_of_looking_ahead_is_told_by_episode():
    """30 decisions in 20 episodes are 1.5, of 4 calls and 200 tokens each: 6 calls and 300 tokens an episode."""
    spent = {
        "calls": 4.0,
        "tokens": 200.0,
        "seconds": 9.0,
        "model_seconds": 2.0,
        "steps": 0.0,
        "decisions": 30,
        "fell_back": 3,
    }
    plain = {"policy": "zero_shot", "preset": "", "split": "test_seeds", "n": 16.0, "rate": 0.5, "overruled": 0} | spent
    rows = [plain, plain | {"preset": "wmla_d1", "rate": 0.75, "overruled": 12}, plain | {"split": "test_tasks"}]
    told = comparisons.price_table(
        pd.DataFrame(rows),
        compared(ARMS, comparisons.reported([*ARMS]), []),
        {"zero_shot": 20, "zero_shot+wmla_d1": 20},
    )
    assert told.index.tolist() == ["zero_shot", "zero_shot+wmla_d1"]
    ahead = told.loc["zero_shot+wmla_d1"]
    assert ahead[["n", "success %", "over plain", "over best-of-k"]].tolist() == [
        16, 75.0, "+75 [+42, +91]", "+75 [+42, +91]"
    ]  # fmt: skip
    assert ahead[["decisions", "calls", "tokens", "seconds"]].tolist() == [1.5, 6.0, 300.0, 3.0]
    assert ahead[["overruled %", "fell_back %"]].tolist() == [40.0, 10.0]
    assert told.loc["zero_shot", ["over plain", "over best-of-k"]].tolist() == ["", ""]
