"""The pairs that are reported, and the sentences that say what a comparison shows or could have shown."""

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
    assert comparisons.reported(["webevolver", "self_improve_1"]) == [("self_improve_1", "webevolver")]


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
    assert comparisons.describe(names | metrics.paired(won, lost, n)) == sentence


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


def test_a_pair_that_shares_no_episode_says_so():
    table = metrics.paired_table({"a": episodes("a", "SU"), "b": episodes("b", "US")}, [("a", "b")])
    assert comparisons.describe(table.iloc[0]) == "b and a share no scored episode of test_seeds."


def test_a_pair_that_hangs_on_a_cluster_says_so():
    """Ten of twelve won, all in one family: settled over episodes; with a second family of two it may be 0."""
    a, b = episodes("a", "F" * 12), episodes("b", "S" * 10 + "FF")
    [one] = metrics.paired_table({"a": a, "b": b}, [("a", "b")]).to_dict("records")
    assert comparisons.describe(one).endswith("p = 0.002); of task families there is one, it may hold for no other.")
    rest = {"a": a + episodes("a", "FF", name="x"), "b": b + episodes("b", "FF", name="x")}
    [two] = metrics.paired_table(rest, [("a", "b")]).to_dict("records")
    few = "; over 2 task families the interval is 0 to 83 and holds 0, and so few make it too narrow."
    assert comparisons.describe(two).endswith(few)
    assert comparisons.describe(two, "site").endswith(few.replace("task families", "sites"))
    alike = {"a": a + episodes("a", "F" * 10, name="x"), "b": b + episodes("b", "S" * 10, name="x")}
    [both] = metrics.paired_table(alike, [("a", "b")]).to_dict("records")
    assert comparisons.describe(both).endswith("won 20, lost 0, p < 0.001).")


def test_the_control_of_a_preset_has_its_scorer_and_imagines_nothing():
    wmla = load_params("demo").params.wmla
    for preset in ("wmla_d1", "wmla_k5_d2", "expected", "veto", "likelihood", "webdreamer", "paper", "released_code"):
        control = wmla.preset(comparisons.control_of(preset))
        assert (control.imagination, control.scorer) == ("none", wmla.preset(preset).scorer)


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
