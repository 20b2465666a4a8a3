"""What looking ahead did: endings, choices and price of small arms worked out by hand, and the sentences they give."""

from __future__ import annotations

from math import isnan

import pytest
from stand_ins import did, episodes, seen

from wevo_nb import comparisons, decisions, metrics
from wevo_nb.params import load_params, parse_arm
from wevo_nb.schema import Candidate, Cost, Step

PARAMS = load_params("demo").params
SPLIT = "test_seeds"
UP = {"success": 0.6, "failure": 0.2, "changed": 0.1, "same": 0.1}
ON = {"success": 0.1, "failure": 0.2, "changed": 0.6, "same": 0.1}


def looked(arm: str, letters: str, chances: list[dict], replies: list[str], calls: int, split: str = SPLIT) -> list:
    """An episode a letter, of one step: candidates `click [1]` and `click [2]`, the chances of both, the reply."""
    out = []
    for one, told, reply in zip(episodes(arm, letters, split), chances, replies, strict=True):
        candidates = tuple(Candidate(reply=f"click [{i}]", score=0.5, chances=told) for i in (1, 2))
        made = did(reply).model_copy(update={"reply": reply, "candidates": candidates if calls > 1 else ()})
        made = made.model_copy(update={"cost": Cost(calls=calls, tokens=100, seconds=calls / 2)})
        goal = one.task.model_copy(update={"goal": "go"})
        page = seen(f"[1] link 'a'\n[2] link '{one.task.seed}'")
        out.append(one.model_copy(update={"task": goal, "steps": (Step(observation=page, decision=made),)}))
    return out


def arms() -> dict[str, list]:
    """Plain: 1 of 4. Ahead: 3 of 4 by overruling three times. Best-of-k: what the plain policy does, to the action."""
    return {
        "zero_shot": looked("zero_shot", "SFFF", [{}] * 4, ["click [1]"] * 4, 1),
        "zero_shot+wmla_d1": looked(
            "zero_shot+wmla_d1", "SSSF", [UP, UP, ON, ON], ["click [1]", *["click [2]"] * 3], 3
        ),
        "zero_shot+best_of_k": looked("zero_shot+best_of_k", "SFFF", [ON] * 4, ["click [1]"] * 4, 3),
    }


def tables(found: dict[str, list]):
    paired = metrics.paired_table(found, comparisons.reported(list(found)))
    lookahead = metrics.lookahead_table(found, [parse_arm(name, PARAMS) for name in found])
    pairs = comparisons.pairs_table(paired, found, SPLIT)
    new_kinds = comparisons.pairs_table(paired, found, "test_tasks")
    return pairs, new_kinds, decisions.endings_table(found, SPLIT), decisions.choices_table(lookahead, found, SPLIT)


@pytest.mark.parametrize(
    ("letter", "ended", "told"),
    [
        ("S", "done", "success"), ("F", "done", "wrong end"), ("F", "stop", "wrong end"),
        ("F", "limit", "out of steps"), ("F", "stuck", "other"), ("F", "dead_end", "other"),
        ("U", "error", "unscored"), ("-", "limit", "unscored"),
    ],
)  # fmt: skip
def test_how_an_episode_ended(letter, ended, told):
    [one] = episodes("p", letter)
    assert decisions.ending(one.model_copy(update={"ended": ended})) == told


def test_endings_are_counted_an_arm_and_n_leaves_out_the_unscored():
    two = [one.model_copy(update={"ended": "limit"}) for one in episodes("b", "FF")]
    table = decisions.endings_table(
        {"a": episodes("a", "SSFU"), "b": two, "c": episodes("c", "S", "test_tasks")}, SPLIT
    )
    assert table.set_index("arm")[["n", *decisions.ENDINGS]].values.tolist() == [
        [3, 2, 1, 0, 0, 1], [2, 0, 0, 2, 0, 0], [0, 0, 0, 0, 0, 0],
    ]  # fmt: skip


def test_choices_say_what_was_overruled_what_was_likeliest_and_what_an_episode_costs():
    """Four decisions: three overruled; of the candidates done success was the likeliest outcome of two."""
    *_, choices = tables(arms())
    row = choices.set_index("arm").loc["zero_shot+wmla_d1"]
    assert (row["decisions"], row["overruled"], row["overruled %"]) == (4, 3, 75)
    assert [row[f"{outcome} %"] for outcome in decisions.OUTCOMES] == [50, 50, 0, 0]
    assert (row["calls"], row["seconds"], row["seconds an episode"]) == (3, 1.5, 1.5)
    plain = choices.set_index("arm").loc["zero_shot"]
    assert (plain["overruled %"], plain["seconds an episode"]) == (0, 0.5) and isnan(plain["success %"])
    assert row["tied %"] == 100 and isnan(plain["tied %"])


@pytest.mark.parametrize(
    ("scores", "tied"),
    [((0.5, 0.5, 0.2), True), ((0.5, 0.2, 0.2), False), ((None, 0.5), False), ((0.1, None, 0.1), True), ((), None)],
)
def test_a_tie_is_of_the_best_scores(scores, tied):
    candidates = tuple(Candidate(reply=f"click [{i}]", score=score) for i, score in enumerate(scores))
    assert decisions.tied(did("click [1]").model_copy(update={"candidates": candidates})) is tied


def test_an_episode_of_two_decisions_costs_both():
    found = arms()
    found["zero_shot"] = [one.model_copy(update={"steps": one.steps * 2}) for one in found["zero_shot"]]
    *_, choices = tables(found)
    row = choices.set_index("arm").loc["zero_shot"]
    assert (row["decisions"], row["seconds"], row["seconds an episode"]) == (8, 0.5, 1.0)


def test_what_a_pair_asks_about():
    kinds = {
        ("self_improve_1", "zero_shot"): "training", ("webevolver", "self_improve_1"): "more",
        ("webevolver+wmla_d1", "webevolver"): "ahead", ("webevolver+wmla_d1", "webevolver+best_of_k"): "world model",
        ("webevolver+veto", "webevolver+best_of_k_veto"): "world model", ("webevolver+wmla_d1", "zero_shot"): "",
        ("webevolver+best_of_k", "webevolver"): "control", ("webevolver+best_of_k", "zero_shot"): "",
    }  # fmt: skip
    assert {pair: decisions.kind_of(*pair) for pair in kinds} == kinds


def test_takeaways_are_the_tables_in_words():
    """Two won and none lost of four: half an episode is added to each cell of the table, (2.5 - 0.5) / 6 -+ 0.50."""
    assert decisions.takeaways(*tables(arms())) == [
        "Did looking ahead help? Open (the interval holds 0): zero_shot+wmla_d1 against zero_shot +50 [-17, +83] "
        "(2 won, 0 lost, n = 4).",
        "Was it the world model (against best-of-k)? Open (the interval holds 0): zero_shot+wmla_d1 against "
        "zero_shot+best_of_k +50 [-17, +83] (2 won, 0 lost, n = 4).",
        "Did best-of-k itself help? The very same actions: zero_shot+best_of_k and zero_shot (n = 4).",
        "What did looking ahead do? zero_shot+wmla_d1 overruled 3 of 4 decisions and found success the likeliest "
        "outcome of what it did in 50%; 0 of 4 episodes ran out of steps, 0 of 4 without looking ahead; 3.0 calls and "
        "1.5 s a decision in place of 1.0 and 0.5 s. zero_shot+best_of_k overruled 0 of 4 decisions.",
    ]


def test_takeaways_of_training_name_what_is_settled_first_and_count_the_new_kinds():
    found = {
        "zero_shot": episodes("zero_shot", "F" * 20) + episodes("zero_shot", "FF", "test_tasks", "x"),
        "self_improve_1": episodes("self_improve_1", "F" * 10 + "S" * 10),
        "self_improve_2": episodes("self_improve_2", "F" * 20),
    }
    for arm in ("self_improve_1", "self_improve_2"):  # no episode has a step, so arms that solve the same are the same
        found[arm] += episodes(arm, "SF", "test_tasks", "x")
    said = decisions.takeaways(*tables(found))
    assert [one.partition("?")[0] for one in said] == [
        "Did training help", "Did later rounds, or dreams, add to it", "Does it hold for kinds never trained on",
    ]  # fmt: skip
    assert said[0].startswith("Did training help? Better: self_improve_1 against zero_shot +50 [")
    assert "The very same actions: self_improve_2 and zero_shot (n = 20)." in said[0]
    assert said[1].startswith(
        "Did later rounds, or dreams, add to it? Worse: self_improve_2 against self_improve_1 -50 ["
    )
    assert said[2] == "Does it hold for kinds never trained on? 0 of 3 pairs (n = 2 at most) are off 0."
