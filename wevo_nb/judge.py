"""What counts as success: the page's own reward, the published answer, or a language model that is asked.

A verdict is success, failure or unscored, with its judge, model, prompt hash, raw replies and cost. A
reply that cannot be read is asked for once more and then unscored, never a success. What a judge is
worth is measured in calibration.py. Used by notebooks 01 to 06.
Paper: section 3.1 (the base model inside the loop), section 4 (GPT-4o outside).
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from wevo_nb import prompts
from wevo_nb.answers import quasi_exact, same_answer
from wevo_nb.llm import CallRefused, Model, Reply, Request, Usage, ask, cost_of, metered, object_schema
from wevo_nb.params import Params
from wevo_nb.replies import read_choice, read_json
from wevo_nb.runs import JSONL, StageError
from wevo_nb.schema import Action, Decision, Judge, Observation, Step, Task, Trajectory, Verdict
from wevo_nb.sections import JudgeParams

AT_ONCE = 16  # trajectories that one endpoint judges side by side
FAILURES = dict.fromkeys(("fail", "failed", "not success", "not successful", "unsuccessful"), "failure")


class RewardJudge:
    """Success is an end with at least `threshold` of reward: the page's, or the imagined P(success)."""

    model: Model | None = None
    at_once = 1

    def __init__(self, threshold: float = 1.0, name: str = "reward"):
        self.threshold, self.name = threshold, name

    async def judge(self, trajectory: Trajectory) -> Verdict:
        return by_reward(trajectory, self.threshold, self.name)


def by_reward(one: Trajectory, threshold: float, judge: str) -> Verdict:
    """The verdict by the reward of the end; unscored where the episode broke off, or nothing is known of its end."""
    reward = one.final.reward
    if one.broken:
        return Verdict(outcome="unscored", judge=judge, reason=one.broken)
    if reward is None and one.final.done and one.environment != "browser":
        return Verdict(outcome="unscored", judge=judge, reason="an imagined end of which nothing is known")
    if reward is None:
        return Verdict(outcome="failure", judge=judge, reason=f"no end ({one.ended})")
    return Verdict(outcome="success" if reward >= threshold else "failure", judge=judge, reason=f"reward {reward:.2f}")


class Form(NamedTuple):
    """How one of `values` is asked for: as a word that an engine can bind (`word`), or in JSON after a reason."""

    key: str
    values: tuple[str, ...]
    word: str
    json: str
    also: dict[str, str] = {}  # other words for a value
    last: tuple[str, ...] = ()  # values after which nothing may follow

    @property
    def schema(self) -> dict:
        return object_schema(**{"reason": {"type": "string"}, self.key: {"type": "string", "enum": list(self.values)}})

    def read(self, reply: Reply) -> str | None:
        return read_choice(reply, self.key, self.values, also=self.also, last=self.last)


VERDICT = Form("verdict", prompts.JUDGE_REPLIES, prompts.JUDGE_WORD, prompts.JUDGE_JSON, FAILURES, ("success",))
RELEVANCE = Form("relevance", prompts.RELEVANCE_REPLIES, prompts.RELEVANCE_NUMBER, prompts.RELEVANCE_JSON)
GRADE = Form("grade", prompts.GRADE_REPLIES, prompts.GRADE_WORD, prompts.GRADE_JSON, last=("correct",))


class Asked(NamedTuple):
    """What a judge's model is and how it is asked: `fixed` binds it to words, else it writes JSON with a reason."""

    model: Model
    name: str  # of the model, as its provider calls it
    fixed: bool = True
    seed: int = 0
    max_tokens: int = 400

    def request(self, messages: prompts.Messages, form: Form) -> Request:
        how = {"messages": messages, "seed": self.seed, "max_tokens": self.max_tokens}
        return Request(choices=form.values, **how) if self.fixed else Request(json_schema=form.schema, **how)

    def words(self, form: Form) -> str:
        return form.word if self.fixed else form.json


class ModelJudge:
    """What judges by a model have in common; `_judge` gives outcome and reason and keeps the raw replies."""

    kind = ""
    at_once = 1

    def __init__(self, asked: Asked, how: JudgeParams):
        self.asked, self.how, self.model = asked, how, asked.model
        self.at_once = 1 if asked.fixed else AT_ONCE  # a model in this process does one thing at a time
        self.name = self.kind
        shown = [*self.examples(), prompts.UNREAD, prompts.UNREAD_CUT, how.model_dump(), asked.fixed]
        self.prompt = hashlib.sha256(json.dumps(shown, ensure_ascii=False).encode()).hexdigest()[:12]

    async def judge(self, trajectory: Trajectory) -> Verdict:
        """Raises ModelError where the model is away. A call that it refuses is unscored."""
        if trajectory.broken:
            return Verdict(outcome="unscored", judge=self.name, reason=trajectory.broken)
        raw: list[str] = []
        started = time.perf_counter()
        with metered() as used:
            try:
                outcome, reason = await self._judge(trajectory, raw)
            except CallRefused as problem:
                outcome, reason = "unscored", str(problem)[:300]
        cost = cost_of(used, time.perf_counter() - started)
        told = {"model": self.asked.name, "prompt": self.prompt, "replies": tuple(raw), "cost": cost}
        return Verdict(outcome=outcome, judge=self.name, reason=reason, **told)

    def examples(self) -> list[prompts.Messages]:
        """All that this judge says to a model, about EXAMPLE: what its prompt hash is made of."""
        raise NotImplementedError

    async def _judge(self, trajectory: Trajectory, raw: list[str]) -> tuple[str, str]:
        raise NotImplementedError

    async def _decide(self, messages: prompts.Messages, form: Form, raw: list[str]) -> tuple[str | None, str]:
        """(value or None, reason) of one question, asked again once."""
        return await self._twice(self.asked.request(messages, form), form.read, raw)

    async def _twice(self, request: Request, read: Callable[[Reply], Any], raw: list[str]) -> tuple[Any, str]:
        reply = await ask(self.model, request)
        raw.append(reply.text)
        if read(reply) is None:
            whole = reply.text if reply.finish == "stop" else ""
            again = prompts.asked_again(request.messages, whole)
            reply = await ask(self.model, request.model_copy(update={"messages": again}))
            raw.append(reply.text)
        value = read(reply)
        return value, _unread(reply) if value is None else _reason(reply)


class LLMJudge(ModelJudge):
    """A language model reads the objective, the actions, the answer and the last pages. Paper: section 3.1."""

    kind = "llm"

    def examples(self) -> list[prompts.Messages]:
        return [self._question(EXAMPLE)]

    async def _judge(self, trajectory: Trajectory, raw: list[str]) -> tuple[str, str]:
        verdict, reason = await self._decide(self._question(trajectory), VERDICT, raw)
        return verdict or "unscored", reason

    def _question(self, trajectory: Trajectory) -> prompts.Messages:
        how = {"pages": self.how.pages, "acted": self.how.actions, "form": self.asked.words(VERDICT)}
        return prompts.judge_messages(trajectory, **how)


class KeyPointJudge(ModelJudge):
    """Key points of the objective, the pages that tell of them, then a verdict: in the manner of WebJudge.

    A page of which the relevance cannot be read is taken for relevant, and the last one always is. At
    most `pages` are read, the most relevant. Source: Xue et al. 2025, Online-Mind2Web (arXiv 2504.01382).
    """

    kind = "key_points"

    def examples(self) -> list[prompts.Messages]:
        points = ("a point",)
        return [
            prompts.key_points_messages(EXAMPLE.task),
            self._relevance(EXAMPLE.task, points, EXAMPLE.final),
            self._question(EXAMPLE, points, [EXAMPLE.final]),
        ]

    async def _judge(self, trajectory: Trajectory, raw: list[str]) -> tuple[str, str]:
        schema = object_schema(key_points={"type": "array", "items": {"type": "string"}})
        request = Request(
            messages=prompts.key_points_messages(trajectory.task),
            json_schema=schema,
            seed=self.asked.seed,
            max_tokens=self.asked.max_tokens,
        )
        points, reason = await self._twice(request, read_points, raw)
        if points is None:
            return "unscored", f"key points: {reason}"
        pages = await self._relevant(trajectory, points, raw)
        verdict, reason = await self._decide(self._question(trajectory, points, pages), VERDICT, raw)
        return verdict or "unscored", reason

    async def _relevant(self, trajectory: Trajectory, points: Sequence[str], raw: list[str]) -> list[Observation]:
        """The pages that are read, in the order in which they were seen."""
        seen = [*(s.observation for s in trajectory.steps), trajectory.final]
        pages = list({o.text: o for o in seen if o.text}.values())
        asked = [self._relevance(trajectory.task, points, page) for page in pages]
        replies = await self.model([self.asked.request(messages, RELEVANCE) for messages in asked])
        raw += [reply.text for [reply, *_] in replies]
        rated = [int(RELEVANCE.read(reply) or max(RELEVANCE.values)) for [reply, *_] in replies]
        last = len(pages) - 1
        best = sorted(range(len(pages)), key=lambda i: (i == last, rated[i], i), reverse=True)
        kept = [i for i in best if i == last or rated[i] >= self.how.relevant][: self.how.pages]
        return [pages[i] for i in sorted(kept)]

    def _relevance(self, task: Task, points: Sequence[str], page: Observation) -> prompts.Messages:
        return prompts.relevance_messages(task, points, page, form=self.asked.words(RELEVANCE))

    def _question(self, trajectory, points: Sequence[str], pages: Sequence[Observation]) -> prompts.Messages:
        how = {"pages": pages, "acted": True, "points": points, "form": self.asked.words(VERDICT)}
        return prompts.judge_messages(trajectory, **how)


class References(Protocol):
    """A suite that knows published answers (tasks/live.py)."""

    rule: str

    def reference(self, task: Task): ...


class AnswerJudge(ModelJudge):
    """`stop [answer]` against the published answer, by the rule of its suite.

    GAIA: its quasi exact match. SimpleQA: a model says correct, incorrect or not attempted (`asked`).
    Others: answers.same_answer. An episode without an answer is a failure; a task without a
    published one is unscored.
    """

    kind = "answer"

    def __init__(self, suite: References, asked: Asked | None, how: JudgeParams):
        self.suite = suite
        if suite.rule == "model":
            super().__init__(asked, how)
        else:
            self.name, self.model = self.kind, None

    def examples(self) -> list[prompts.Messages]:
        return [prompts.grade_answer_messages("question", "right", "given", form=self.asked.words(GRADE))]

    async def judge(self, trajectory: Trajectory) -> Verdict:
        wanted, given = self.suite.reference(trajectory.task), trajectory.answer
        if trajectory.broken or wanted.answer is None or not given:
            failed = not trajectory.broken and wanted.answer is not None
            reason = trajectory.broken or ("no answer was given" if failed else "no answer is published")
            return Verdict(outcome="failure" if failed else "unscored", judge=self.name, reason=reason)
        if self.suite.rule == "model":
            return await super().judge(trajectory)
        gaia = self.suite.rule == "gaia"
        right = quasi_exact(given, wanted.answer) if gaia else same_answer(given, wanted.answer, wanted.text)
        reason = f"'{given}' is {'' if right else 'not '}the published answer by {'GAIA' if gaia else 'our'} rule"
        return Verdict(outcome="success" if right else "failure", judge=self.name, reason=reason)

    async def _judge(self, trajectory: Trajectory, raw: list[str]) -> tuple[str, str]:
        wanted = self.suite.reference(trajectory.task)
        messages = prompts.grade_answer_messages(
            wanted.text, wanted.answer, trajectory.answer, form=self.asked.words(GRADE)
        )
        grade, reason = await self._decide(messages, GRADE, raw)
        if grade is None:
            return "unscored", reason
        return ("success" if grade == "correct" else "failure"), f"{grade}: {reason}" if reason != grade else grade


def read_points(reply: Reply) -> list[str] | None:
    """The key points in a JSON reply; None where there are none that can be read."""
    found = read_json(reply)
    points = found.get("key_points") if isinstance(found, dict) else None
    if not isinstance(points, list) or not all(isinstance(point, str) for point in points):
        return None
    return [point for point in points if point.strip()] or None


def _reason(reply: Reply) -> str:
    """The reason in a JSON reply, else the reply."""
    found = read_json(reply)
    reason = found.get("reason") if isinstance(found, dict) else None
    return reason if isinstance(reason, str) else reply.text


def _unread(reply: Reply) -> str:
    said = {"length": "an empty reply or one that was cut off", "filtered": "a refusal", "failed": "a call that failed"}
    return f"unread twice, last: {said.get(reply.finish) or repr(reply.text[:200])}"


def _did(page: str, **action) -> Step:
    return Step(observation=Observation(text=page), decision=Decision(reply="reply", action=Action(**action)))


EXAMPLE = Trajectory(
    task=Task(suite="example", name="example", seed=0, goal="goal"),
    policy="example",
    environment="example",
    steps=(_did("[1] link 'a'", verb="click", id=1), _did("[1] link 'b'", verb="stop", text="answer")),
    final=Observation(text="[1] link 'c'"),
    ended="stop",
)


def usage_of_judge(role: str, judge: Judge) -> dict[str, Usage]:
    """What the model behind a judge costs, by its role, for a stage to track; nothing where none is asked."""
    return {} if judge.model is None else {role: judge.model.usage}


async def judge_all(judge: Judge, trajectories: Sequence[Trajectory], sink: JSONL | None = None) -> list[Trajectory]:
    """The trajectories with this judge's verdicts, in order; those in `sink` are not judged again, others are added."""
    waiting = iter([(i, t) for i, t in enumerate(trajectories) if sink is None or t.key not in sink])
    judged = {}

    async def work():
        for i, one in waiting:
            judged[i] = one.model_copy(update={"verdict": await judge.judge(one)})
            if sink is not None:
                sink.append(judged[i])

    workers = [asyncio.create_task(work()) for _ in range(judge.at_once)]
    try:
        await asyncio.gather(*workers)
    finally:
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
    return [judged[i] if i in judged else sink.records[t.key] for i, t in enumerate(trajectories)]


def judged_file(folder: Path, judge: str) -> JSONL | None:
    """What a judge by a model, or by answers, said of a collection; None for the reward, which is read anew."""
    return None if judge == "reward" else JSONL(folder / f"{judge}_judge.jsonl", Trajectory)


async def as_collected(folder: Path, params: Params) -> list[Trajectory]:
    """The episodes of a collection's folder with the verdicts that it went by, those of collect.judge.

    Raises StageError where it went by another judge.
    """
    episodes = JSONL(folder / "trajectories.jsonl", Trajectory).values()
    judged = judged_file(folder, params.collect.judge)
    if judged is None:
        return await judge_all(RewardJudge(), episodes)
    if missing := [t.key for t in episodes if t.key not in judged]:
        raise StageError(
            f"{judged.path} holds no verdict of {len(missing)} episodes, e.g. {missing[0]}: the collection went by "
            f"another judge than {params.collect.judge}; set collect.judge as it was there"
        )
    return [judged.records[t.key] for t in episodes]
