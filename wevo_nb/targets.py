"""What a world model is asked and what it replies: one builder for training and for use.

A reply begins with the outcome (changed, same, done success, done fail), after a rationale if it
gives one. After `changed` comes the whole next page (`page`, the paper's), what differs (`change`,
WMA's abstraction), or one sentence about it (`change_described`). From each of them, and the page
before, a next page can be made. Used by notebooks 02, 03 and 05. Paper: section 3.2.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from wevo_nb.facts import facts_of, facts_shown, mask, with_parts
from wevo_nb.llm import CallFailed, Model, Request
from wevo_nb.observation import apply_changes, bodies_of, changes, is_page, number, quote
from wevo_nb.prompts import DESCRIBER, RATIONALE, Messages, explainer_messages, world_model_messages
from wevo_nb.runs import JSONL
from wevo_nb.schema import Record
from wevo_nb.sections import WorldModelParams
from wevo_nb.transitions import Situation, Transition, memory_of

WORDS = {"success": "done success", "failure": "done fail", "changed": "changed", "same": "same"}
# What a world model can be asked, and how: it is used with what it was taught with.
TAUGHT_WITH = tuple(
    f"world_model.{key}"
    for key in ("target", "history", "thoughts", "memory_chars", "rationale", "opening_rows", "value_rows")
)
UNSEEN = {"mask_facts": False, "memory_chars": 0}  # against what no model could know, and what turns it off
AFTERWARDS = "After the action: "  # how a described change stands on the page
SENTENCE_TOKENS = 60  # of a rationale or a described change


class Row(NamedTuple):
    """A training example: messages in, reply out, and what it is about. `source` is the task's key."""

    messages: Messages
    reply: str
    task: str
    outcome: str = ""
    source: str = ""


class Explanation(Record):
    """A sentence that the base model wrote about a real transition."""

    key: str
    text: str


def messages_for(situation: Situation, params: WorldModelParams, *, hint: bool = False) -> Messages:
    """The prompt: the same for training and for asking."""
    memory = memory_of(situation.history, situation.observation, params.memory_chars)
    how = {"target": params.target, "keep": params.history, "thoughts": params.thoughts}
    return world_model_messages(*situation, **how, memory=memory, hint=hint)


def row_for(transition: Transition, params: WorldModelParams, said: Mapping[str, str] = {}) -> Row:  # noqa: B006
    """The row that teaches a transition; `said` holds the sentences that `explain` collected."""
    task = transition.situation.task
    prompt = messages_for(transition.situation, params)
    return Row(prompt, target_text(transition, params, said), task.name, transition.outcome, task.key)


def target_text(transition: Transition, params: WorldModelParams, said: Mapping[str, str] = {}) -> str:  # noqa: B006
    """The reply to learn. Raises KeyError where a sentence is wanted that `said` does not hold."""
    lines = [said[key_of(transition, "rationale")]] if params.rationale else []
    lines.append(WORDS[transition.outcome])
    if transition.outcome == "changed":
        before, after = transition.situation.observation.text, transition.following.text
        if params.mask_facts:
            after = mask(after, known_facts(transition.situation))
        match params.target:
            case "page":
                lines.append(after)
            case "change":
                lines += changes(before, after)
            case "change_described":
                lines.append(said[key_of(transition, "change")])
    return "\n".join(lines)


def changed_by(taught: Sequence[Transition], params: WorldModelParams, said: Mapping[str, str] = {}) -> dict[str, int]:  # noqa: B006
    """For each option of UNSEEN that is on: how many of these rows are other than without it."""
    on = {key: params.model_copy(update={key: off}) for key, off in UNSEEN.items() if getattr(params, key) != off}
    return {
        key: sum(row_for(one, params, said) != row_for(one, without, said) for one in taught)
        for key, without in on.items()
    }


def known_facts(situation: Situation) -> set[str]:
    """What may stand on the next page without having been invented: the goal, what is typed, every page so far."""
    pages = [*(step.observation.text for step in situation.history), situation.observation.text]
    told = facts_of(f"{situation.task.goal}\n{situation.action.text}").union(*map(facts_shown, pages))
    return with_parts(told)


def read_page(before: str, reply: str, target: str) -> tuple[str, bool]:
    """The next page out of what followed `changed`, and whether all of it could be read.

    A described change becomes a last element `note` of the page before.
    """
    body = reply.strip("\n")
    match target:
        case "change":
            return apply_changes(before, body.split("\n"))
        case "page":
            return body, is_page(body)
        case _:
            note = f"note {quote(AFTERWARDS + body)}"
            return (number([*bodies_of(before), note]), True) if body.strip() else (before, False)


def wanted(params: WorldModelParams) -> list[str]:
    """Which sentences a target needs: rationale, change."""
    return ["rationale"] * params.rationale + ["change"] * (params.target == "change_described")


async def explain(
    model: Model,
    found: Sequence[Transition],
    params: WorldModelParams,
    cache: JSONL,
    *,
    batch: int,
    on_done: Callable[[int], None] = lambda n: None,
) -> dict[str, str]:
    """The sentences about `found` that the target needs, written by `model`, each once and kept in `cache`.

    An empty reply is kept as `(no explanation)`: a row must not end where its reply begins.
    """
    asked = [(key_of(t, kind), t, kind) for kind in wanted(params) for t in found if kind == "rationale" or _drawn(t)]
    missing = [(key, t, kind) for key, t, kind in dict((one[0], one) for one in asked).values() if key not in cache]
    for i in range(0, len(missing), batch):
        part = missing[i : i + batch]
        replies = await model([_question(t, kind) for _, t, kind in part])
        for (key, _, _), [reply, *_] in zip(part, replies, strict=True):
            if reply.finish == "failed":
                raise CallFailed("a sentence about a transition was not written: the same command asks for it again")
            text = " ".join(reply.text.split("\n")[0].split()) or "(no explanation)"
            cache.append(Explanation(key=key, text=text))
        on_done(len(part))
    return {key: cache.records[key].text for key, _, _ in asked}


def key_of(transition: Transition, kind: str) -> str:
    """Names the sentence of a kind about a transition."""
    question = str(_question(transition, kind).messages)
    return f"{kind}/{hashlib.sha256(question.encode()).hexdigest()[:16]}"


def _drawn(transition: Transition) -> bool:
    return transition.outcome == "changed"


def _question(transition: Transition, kind: str) -> Request:
    task, _, before, action = transition.situation
    came = WORDS[transition.outcome]
    if _drawn(transition):
        came = "\n".join(changes(before.text, transition.following.text))
    system = RATIONALE if kind == "rationale" else DESCRIBER
    messages = explainer_messages(task, before, action, came, system=system)
    return Request(messages=messages, max_tokens=SENTENCE_TOKENS, stop=("\n",))
