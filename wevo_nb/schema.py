"""The records that every stage reads and writes, and the three interfaces behind them.

A world model is an environment: the browser and the language model that imagines pages
answer the same two calls, `reset` and `step`, so one loop (rollout.py) collects, synthesizes
and looks ahead. Every notebook uses these records. Paper: section 3 (Web agent, world model).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol

from pydantic import BaseModel, ConfigDict

Outcome = Literal["success", "failure", "unscored"]
# Where a task may be used: to learn from; known kinds with new seeds or entities; new kinds; new sites.
Split = Literal["train", "test_seeds", "test_tasks", "test_sites"]
Problem = Literal["unreadable", "no_element", "not_usable", "stale", "refused"]


class Record(BaseModel):
    """A frozen record; unknown keys are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Task(Record):
    """One thing to do: a task of a suite with a seed that fixes its page and its goal.

    `name` is the task's kind: a page of MiniWoB++, a template of the local sites, a live site.
    """

    suite: str
    name: str
    seed: int
    goal: str = ""  # known after the first reset where the page itself states it
    site: str = ""
    split: Split = "train"

    @property
    def key(self) -> str:
        """Name of this task in files, e.g. `miniwob/click-button/7`."""
        return f"{self.suite}/{self.name}/{self.seed}"


class Effect(Record):
    """What the last action did, beside the page that followed."""

    problem: Problem | None = None  # why nothing was done; the note of the observation says it in words
    changed: bool = False  # the page that is seen differs from the one before
    navigated: bool = False
    opened: int = 0  # new tabs
    dialogs: tuple[str, ...] = ()  # e.g. "confirm 'Really?' accepted"
    download: str = ""  # name of the file
    blocked: tuple[str, ...] = ()  # hosts that may not be reached and were asked for
    partial: bool = False  # the page had not settled by the deadline


class Observation(Record):
    """What an agent sees: the page as text (observation.py), and how the episode stands."""

    text: str
    url: str = ""
    title: str = ""
    tabs: tuple[str, ...] = ()  # titles of the open tabs, where the header is shown
    tab: int = 0  # the current one
    above: int = 0  # pixels of the page above the window, and below it
    below: int = 0
    goal: str = ""
    note: str = ""  # what the last action did, where the page alone does not tell
    effect: Effect | None = None
    blocked: str = ""  # why the site does not let a program in, e.g. a human-verification page
    screenshot: str = ""  # name of its picture in the stage's folder screenshots/, where they are kept

    @property
    def problem(self) -> Problem | None:
        """Why the last action was not done."""
        return self.effect.problem if self.effect else None

    done: bool = False
    reward: float | None = None  # only with done: the page's own, or P(success | end) if imagined; None: unknown


Verb = Literal["click", "type", "select", "scroll", "wait", "goback", "restart", "goto", "tab", "stop"]


class Action(Record):
    """One action of the grammar in actions.py."""

    verb: Verb
    id: int | None = None  # of an element; of a tab for `tab`
    text: str = ""  # what to type, to select, where to scroll or go, what to answer
    enter: bool = False  # press Enter after typing


class Candidate(Record):
    """One action that look-ahead considered: what it imagined and the score it gave."""

    reply: str
    imagined: tuple[str, ...] = ()
    score: float | None = None  # None = unscored
    chances: dict[str, float] = {}  # of each outcome after the last imagined step; empty where none was predicted

    @property
    def likeliest(self) -> str:
        """The outcome with the highest chance; empty where none was predicted."""
        return max(self.chances, key=self.chances.__getitem__) if self.chances else ""


class Cost(Record):
    """What a decision cost: calls of models, tokens they processed, time, steps of a real environment."""

    calls: int = 0
    tokens: int = 0
    seconds: float = 0.0  # of wall time, waiting for others' calls included
    model_seconds: float = 0.0  # that models worked for it
    steps: int = 0


class Decision(Record):
    """A policy's reply, and the action read from it (None where it cannot be read)."""

    reply: str
    action: Action | None
    error: str = ""
    alias: str = ""  # the word it used in place of a verb of the grammar
    probability: float | None = None  # of this reply among the valid ones, where the model tells it
    entropy: float | None = None  # of the policy over the valid replies, in nats
    candidates: tuple[Candidate, ...] = ()
    fell_back: str = ""  # why look-ahead left the choice to the policy
    cost: Cost | None = None  # None where it is not known: a random one, or calls merged with others


class Step(Record):
    """The page an agent saw and what it decided there."""

    observation: Observation
    decision: Decision
    valid: bool = True  # False: the environment could not carry the action out
    ms: int = 0  # of the action, until the next page was read


class Verdict(Record):
    """A judge's opinion of a trajectory. Files of earlier versions tell its outcome, judge and reason alone."""

    outcome: Outcome
    judge: str  # its kind, e.g. reward or llm
    reason: str = ""
    model: str = ""  # that was asked; none by a rule
    prompt: str = ""  # hash of all that this judge tells any model beside the trajectory
    replies: tuple[str, ...] = ()  # raw, in the order in which they were asked
    cost: Cost | None = None

    @property
    def by(self) -> str:
        """The judge with its model and prompt, e.g. `llm (gpt-4o, prompt 6d10964997f4)`."""
        told = ", ".join(part for part in (self.model, self.prompt and f"prompt {self.prompt}") if part)
        return f"{self.judge} ({told})" if told else self.judge

    @property
    def success(self) -> bool:
        return self.outcome == "success"


class Trajectory(Record):
    """An episode: n steps and the observation after the last of them."""

    task: Task
    policy: str
    environment: str
    steps: tuple[Step, ...]
    final: Observation
    ended: Literal["done", "stop", "limit", "dead_end", "stuck", "blocked", "error"]
    verdict: Verdict | None = None
    attempt: int = 0
    error: str = ""
    seconds: float = 0.0

    @property
    def key(self) -> str:
        """Unique within one file: task, seed, policy and attempt."""
        return f"{self.task.key}/{self.policy}/{self.attempt}"

    @property
    def answer(self) -> str | None:
        """What `stop [answer]` said; None where the episode did not end by it."""
        action = self.steps[-1].decision.action if self.steps else None
        return action.text or "" if action is not None and action.verb == "stop" else None

    @property
    def broken(self) -> str:
        """Why this episode says nothing about the agent: its environment broke off, or the site shut it out."""
        if self.ended not in ("error", "blocked"):
            return ""
        return self.error or self.final.blocked or self.ended

    def transitions(self) -> list[tuple[int, Step, Observation]]:
        """(position, step, the observation that followed it), in order."""
        following = [s.observation for s in self.steps[1:]] + [self.final]
        return [(i, s, o) for i, (s, o) in enumerate(zip(self.steps, following, strict=False))]  # no step: nothing


class Policy(Protocol):
    """Who chooses. `history` holds the earlier steps of this episode, oldest first."""

    name: str

    async def act(self, task: Task, history: Sequence[Step], observation: Observation) -> Decision | None:
        """The decision on this page; None where no action is left to try."""
        ...


class Environment(Protocol):
    """Where a policy acts: a browser or a world model. One instance serves one episode.

    `errors` are the exceptions that mean the environment broke, not the agent.
    """

    name: str
    errors: tuple[type[Exception], ...]

    async def reset(self, task: Task) -> Observation: ...

    async def step(self, action: Action, thought: str = "") -> Observation:
        """The page after the action. `thought` is what the policy said to it: a world model may read it."""
        ...

    async def close(self) -> None: ...


class Judge(Protocol):
    """What counts as success. `at_once`: how many it is worth asking side by side."""

    name: str
    at_once: int

    async def judge(self, trajectory: Trajectory) -> Verdict: ...
