"""What the tests share: a scripted model endpoint, and short ways to write records."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from wevo_nb.dataset import draw_transitions
from wevo_nb.llm import Reply, Request, Usage
from wevo_nb.params import load_params
from wevo_nb.policies import decision_of
from wevo_nb.schema import Decision, Observation, Step, Task, Trajectory, Verdict
from wevo_nb.sections import WorldModelParams
from wevo_nb.targets import WORDS, Row, row_for
from wevo_nb.transitions import Transition

SMOKE = load_params("smoke").params
ONE_THREAD = SMOKE.llm.model_copy(update={"dtype": "float32", "threads": 1})


class Scripted:
    """A model endpoint that answers by a function of the request, and keeps what it was asked."""

    def __init__(self, answer: Callable[[Request], str | Reply], name: str = "scripted"):
        self.answer, self.name, self.usage = answer, name, Usage()
        self.asked: list[Request] = []

    async def __call__(self, requests: Sequence[Request]) -> list[list[Reply]]:
        self.asked += requests
        self.usage.add(calls=len(requests), prompt=0, completion=0, seconds=0)
        replies = [self.answer(request) for request in requests]
        return [[r if isinstance(r, Reply) else Reply(text=r)] for r in replies]


def outcome_reply(outcome: str, **probabilities: float) -> Reply:
    """The world model's choice of an outcome, with the probability of each (else 1 and 0)."""
    given = probabilities or {outcome: 1.0}
    values = tuple(math.log(given[o]) if given.get(o) else -math.inf for o in WORDS)
    return Reply(text=WORDS[outcome], logprobs=values)


def ranked(request: Request) -> Reply:
    """The first choice is the likeliest, the second comes next, and so on."""
    weights = [2.0**-i for i in range(len(request.choices))]
    logprobs = tuple(math.log(w / sum(weights)) for w in weights)
    return Reply(text=request.choices[0], logprobs=logprobs)


def task(name: str = "click-button", seed: int = 0, goal: str = "") -> Task:
    return Task(suite="miniwob", name=name, seed=seed, goal=goal)


def seen(text: str, **more) -> Observation:
    return Observation(text=text, **more)


def did(action: str) -> Decision:
    """The decision whose reply holds `action`, e.g. `click [3]`."""
    return decision_of(f"Thought: I act. Action: ```{action}```")


# A form of one box, what ticking it makes of it, and the two ways of saying so.
FORM = "[1] checkbox 'News'\n[2] button 'OK'"
CHECKED = "[1] checkbox 'News' checked: true\n[2] button 'OK'"
CHANGE = "~[1] checkbox 'News' checked: true"
GOAL = "Check News"
CHECK, PRESS = did("click [1]").action, did("click [2]").action


def training_rows(found: Sequence[Transition], params: WorldModelParams, **how) -> tuple[list[Row], list[dict]]:
    """The rows that notebook 02 trains on, and the ledger."""
    taken, ledger = draw_transitions(found, params, **how)
    return [row_for(transition, params) for transition in taken], ledger


def walk(of: Task, *pages_and_actions, ended="done", reward=None, policy="p", attempt=0, success=None) -> Trajectory:
    """page, action, page, action, ..., last page; pages are texts or observations."""
    pages = [seen(p) if isinstance(p, str) else p for p in pages_and_actions[::2]]
    actions = pages_and_actions[1::2]
    steps = [
        Step(observation=page, decision=did(action), valid=not following.note)
        for page, action, following in zip(pages, actions, pages[1:], strict=False)
    ]
    final = pages[-1]
    if ended == "done":
        final = final.model_copy(update={"done": True, "reward": reward})
    verdict = None if success is None else Verdict(outcome=success, judge="reward")
    return Trajectory(
        task=of, policy=policy, environment="browser", steps=tuple(steps), final=final, ended=ended,
        verdict=verdict, attempt=attempt,
    )  # fmt: skip


def episodes(arm: str, outcomes: str, split: str = "test_seeds", name: str = "click-button") -> list[Trajectory]:
    """One episode a letter, seeds 0, 1, ...: S, F, U (unscored) or - (no verdict)."""
    names = {"S": "success", "F": "failure", "U": "unscored"}
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
