"""A model as the grader of a world model, and two questions that say what a model knows of pages.

The grades of the paper's Table 2 (STR, Sim, OA), how much of the true page is covered, and WMA's
classes of errors; then WMA's two preliminary analyses: telling the page that follows from one that
is like it, and choosing an action without and with what it leads to. Any `Model` can be asked; the
prompts are ours, the paper's were not published. Gives tidy rows; writes nothing. Notebook 02.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from wevo_nb.free_walks import Walked
from wevo_nb.intervals import paired
from wevo_nb.llm import Model, Reply, Request
from wevo_nb.observation import bodies_of
from wevo_nb.policies import decision_of, valid_replies
from wevo_nb.prompts import (
    GRADER_ERROR,
    GRADER_ERRORS,
    GRADER_JSON,
    GRADER_NAME,
    GRADER_NUMBER,
    GRADER_REPLIES,
    GRADER_SCALES,
    NEXT_PAGE_REPLIES,
    action_choice_messages,
    grader_messages,
    next_page_messages,
)
from wevo_nb.replies import read_json
from wevo_nb.report_card import exact, ratio, share
from wevo_nb.schema import Action, Observation, Step, Task, Trajectory
from wevo_nb.sections import PolicyParams
from wevo_nb.transitions import Situation, Transition
from wevo_nb.world_model import Prediction

WARNING = (
    "The grades of a small local model are worth nearly nothing: little shows that it tells a right page from a "
    "wrong one. Read the metrics by rule, and believe a grader only as far as its two_choice lies above 0.5."
)
GRADE_TOKENS = 200  # of grades as JSON
NO_ERROR = "none"
NO_TARGET = "-"  # in the column `target` of what is asked of a model itself


class Grade(NamedTuple):
    """`scores` by STR, Sim, OA and coverage, 0 to 100; `error` one of GRADER_ERRORS. None: unscored, or not asked."""

    scores: dict[str, float | None]
    wrong: bool  # no exact match: then what is wrong was asked
    error: str | None


class Choice(NamedTuple):
    """A page and actions that are possible there, of which a successful trajectory took the one at `right`."""

    task: Task
    history: Sequence[Step]
    observation: Observation
    actions: tuple[Action, ...]
    right: int

    @property
    def situations(self) -> list[Situation]:
        """What a world model is asked to tell what each action leads to."""
        return [Situation(self.task, self.history, self.observation, action) for action in self.actions]


async def grade(
    model: Model, transitions: Sequence[Transition], predictions: Sequence[Prediction], *, free: bool = False
) -> list[Grade]:
    """The grades of each prediction, in order.

    Each is asked as an exact choice of one of five numbers, or (`free`) all of them in one JSON
    reply. What is empty, cut off, unreadable or out of range is unscored, never 0. What is wrong is
    asked of every prediction that is no exact match, a described change among them: the page may differ and
    nothing that matters be wrong, so `none` is one of the replies.
    """
    pairs = list(zip(transitions, predictions, strict=True))
    wrong = [not exact(t, p) for t, p in pairs]
    if free:
        asked = [Request(messages=_question(*pair, GRADER_JSON), max_tokens=GRADE_TOKENS) for pair in pairs]
        found = [read_grades(reply) for [reply, *_] in await model(asked)]
        return [Grade(scores, bad, error if bad else None) for (scores, error), bad in zip(found, wrong, strict=True)]
    number, name = f"{{}} {GRADER_NUMBER}", f"{GRADER_ERROR}. {GRADER_NAME}"
    asked = {
        (i, scale): Request(messages=_question(*pair, number.format(question)), choices=GRADER_REPLIES)
        for i, pair in enumerate(pairs)
        for scale, question in GRADER_SCALES.items()
    }
    asked |= {
        (i, "error"): Request(messages=_question(*pair, name), choices=tuple(GRADER_ERRORS))
        for i, pair in enumerate(pairs)
        if wrong[i]
    }
    said = await _choose(model, asked)
    scores = [{s: None if said[i, s] is None else float(said[i, s]) for s in GRADER_SCALES} for i in range(len(pairs))]
    return [Grade(given, bad, said.get((i, "error"))) for i, (given, bad) in enumerate(zip(scores, wrong, strict=True))]


async def grade_walks(
    model: Model, walked: Sequence[Walked], *, name: str, target: str, free: bool = False
) -> list[dict]:
    """The rows of `grade_rows` for each depth of free walks from 2 on. A walk that broke off shows an unreadable page.

    Depth 1 is teacher-forced by itself: `grade` of what is held out.
    """
    rows = []
    for depth in sorted({w.depth for w in walked} - {1}):
        here = [w for w in walked if w.depth == depth]
        grades = await grade(model, [w.transition for w in here], [w.prediction for w in here], free=free)
        rows += grade_rows(grades, model=name, target=target, depth=depth)
    return rows


def grade_rows(grades: Sequence[Grade], *, model: str, target: str, depth: int = 1) -> list[dict]:
    """Rows with the report card's COLUMNS, all from 0 to 1: STR, Sim, OA and coverage are means (the paper's / 100).

    The rest are shares: `error: none` of the wrong predictions in which no error was
    found, the four others of those with an error named, as in WMA; `unscored` of all that was asked.
    """
    rows = [
        ratio(scale, [(g.scores[scale] / 100, 1.0) for g in grades if g.scores[scale] is not None])
        for scale in GRADER_SCALES
    ]
    told = [g.error for g in grades if g.error is not None]
    named = [error for error in told if error != NO_ERROR]
    rows += [
        share(f"error: {kind}", [error == kind for error in (told if kind == NO_ERROR else named)])
        for kind in GRADER_ERRORS
    ]
    asked = [value for g in grades for value in (*g.scores.values(), *([g.error] if g.wrong else []))]
    rows.append(share("unscored", [value is None for value in asked]))
    return _columns(rows, model, target, depth)


def read_grades(reply: Reply) -> tuple[dict[str, float | None], str | None]:
    """Scores and error out of one JSON reply, fenced or not; None for each that it does not give, or not rightly."""
    told = read_json(reply)
    found = told if isinstance(told, dict) else {}
    given = {scale: found.get(scale) for scale in GRADER_SCALES}
    fits = {s: isinstance(v, (int, float)) and not isinstance(v, bool) and 0 <= v <= 100 for s, v in given.items()}
    error = found.get("error")
    known = isinstance(error, str) and error in GRADER_ERRORS
    return {s: float(v) if fits[s] else None for s, v in given.items()}, error if known else None


async def tell_next_page(
    model: Model, transitions: Sequence[Transition], *, others: Sequence[Transition] | None = None
) -> list[dict]:
    """Rows two_choice and two_choice_unscored: can a model tell the page that followed from one that is like it?

    Asked of the transitions that change the page and have a like page among `others` (default: the
    same transitions). Each is asked in both orders and counts once, with the share that is right: who
    always says A gets 1/2. One of which either reply cannot be read is unscored.
    """
    pool = transitions if others is None else others
    found = [(t, wrong) for t in transitions if t.outcome == "changed" and (wrong := most_alike(t, pool)) is not None]
    asked = {}
    for i, (t, wrong) in enumerate(found):
        task, _, page, action = t.situation
        for right, pages in (("A", (t.following.text, wrong)), ("B", (wrong, t.following.text))):
            messages = next_page_messages(task, page, action, pages)
            asked[i, right] = Request(messages=messages, choices=NEXT_PAGE_REPLIES)
    said = await _choose(model, asked)
    replies = [(said[i, "A"], said[i, "B"]) for i in range(len(found))]
    read = [((a == "A") + (b == "B")) / 2 for a, b in replies if a and b]
    rows = [share("two_choice", read), share("two_choice_unscored", [not (a and b) for a, b in replies])]
    return _columns(rows, model.name, NO_TARGET, 1)


def most_alike(transition: Transition, others: Sequence[Transition]) -> str | None:
    """Of the pages that followed elsewhere in the same kind of task the one most like the true one, never the same.

    Alike is the share of elements in common (Dice); of several the first. None where there is none.
    """
    true, task = transition.following.text, transition.situation.task
    pages = dict.fromkeys(
        t.following.text
        for t in others
        if (t.situation.task.suite, t.situation.task.name) == (task.suite, task.name) and not t.following.done
    )
    elements = Counter(bodies_of(true))

    def alike(page: str) -> float:
        own = Counter(bodies_of(page))
        return 2 * (own & elements).total() / (own.total() + elements.total())

    return max((page for page in pages if page and page != true), key=alike, default=None)


def action_choices(
    trajectories: Sequence[Trajectory], params: PolicyParams, *, k: int = 10, limit: int, seed: int = 0
) -> list[Choice]:
    """At most `limit` pages of successful trajectories, each with up to `k` actions in random order, by `seed`.

    The others are drawn from what the policy could do there (policies.valid_replies); what any
    successful trajectory with this goal did on this page is none of them.
    """
    steps: dict[tuple[str, str], list[tuple[Trajectory, int, Step]]] = {}
    for trajectory in (t for t in trajectories if t.verdict and t.verdict.success):
        for i, step, _ in trajectory.transitions():
            if step.decision.action is not None and step.valid:
                steps.setdefault((trajectory.task.goal, step.observation.text), []).append((trajectory, i, step))
    rng = random.Random(seed)
    found = []
    for here in rng.sample(list(steps.values()), len(steps)):
        trajectory, i, step = here[0]
        history = trajectory.steps[:i]
        replies = valid_replies(trajectory.task, history, step.observation, params)
        taken = {other.decision.action for _, _, other in here}
        possible = [a for a in dict.fromkeys(decision_of(reply).action for reply in replies) if a and a not in taken]
        if len(found) == limit:
            break
        if possible:
            actions = rng.sample(possible, min(k - 1, len(possible)))
            right = rng.randrange(len(actions) + 1)
            actions.insert(right, step.decision.action)
            found.append(Choice(trajectory.task, history, step.observation, tuple(actions), right))
    return found


async def choose_action(model: Model, choices: Sequence[Choice], outcomes: Mapping[Situation, str]) -> list[dict]:
    """Rows action_choice_without, _with, _gain, _chance and _unscored: does it help to know what actions lead to?

    `outcomes` holds for each of `Choice.situations` what comes of it, e.g. `predicted_text`. A choice
    with an outcome missing is not asked: the only one told would give itself away. One of which
    either reply cannot be read is unscored. Both ways are compared on the same choices: the gain is
    their difference, with the interval of `intervals.paired`; chance is what guessing would get.
    """
    whole = [c for c in choices if all(situation in outcomes for situation in c.situations)]
    asked = {}
    for i, choice in enumerate(whole):
        numbers = tuple(str(n) for n in range(1, len(choice.actions) + 1))
        for way, shown in (("without", None), ("with", [outcomes[s] for s in choice.situations])):
            messages = action_choice_messages(choice.task, choice.observation, choice.actions, shown)
            asked[i, way] = Request(messages=messages, choices=numbers)
    said = await _choose(model, asked)
    replies = [(said[i, "without"], said[i, "with"], str(c.right + 1)) for i, c in enumerate(whole)]
    read = [(without == right, with_ == right) for without, with_, right in replies if without and with_]
    gain = paired(read.count((False, True)), read.count((True, False)), len(read))
    rows = [
        share("action_choice_without", [without for without, _ in read]),
        share("action_choice_with", [with_ for _, with_ in read]),
        {"metric": "action_choice_gain", "n": len(read), "value": gain["difference"]}
        | {bound: gain[bound] for bound in ("low", "high")},
        ratio("action_choice_chance", [(1 / len(c.actions), 1.0) for c in whole]),
        share("action_choice_unscored", [not (without and with_) for without, with_, _ in replies]),
    ]
    return _columns(rows, model.name, NO_TARGET, 1)


def predicted_text(prediction: Prediction) -> str:
    """A prediction as a grader reads it: the page, how the episode ends, or behind bars what cannot be read."""
    if prediction.readable:
        return _came(prediction.outcome, prediction.observation)
    reply = prediction.reply.strip() or "(nothing)"
    return "(this cannot be read)\n" + "\n".join(f"| {line}" for line in reply.split("\n"))


def real_text(transition: Transition) -> str:
    """What really followed, as a grader reads it."""
    return _came(transition.outcome, transition.following)


def _came(outcome: str, following: Observation) -> str:
    if following.done:
        return f"(the episode ends: {outcome})"
    return following.text or "(no page is open)"


def _question(transition: Transition, prediction: Prediction, question: str):
    task, _, page, action = transition.situation
    return grader_messages(task, page, action, real_text(transition), predicted_text(prediction), question=question)


async def _choose(model: Model, asked: Mapping[tuple, Request]) -> dict[tuple, str | None]:
    """The choice that answers each request, in one call; None where it is empty, cut off or none of them."""
    replies = await model(list(asked.values()))
    said = {}
    for (key, request), [reply, *_] in zip(asked.items(), replies, strict=True):
        text = reply.text.strip()
        said[key] = text if reply.finish == "stop" and text in request.choices else None
    return said


def _columns(rows: Sequence[dict], model: str, target: str, depth: int) -> list[dict]:
    return [{"model": model, "target": target, "depth": depth} | row for row in rows]
