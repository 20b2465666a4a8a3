"""The action grammar: `Thought: ... Action: ```click [3]``` `, read and written.

`parse_action(format_action(a)) == a` for every action; a reply that cannot be read gives a
`ReplyError` that says why, and its text goes back to the model. Used by notebooks 01, 03 and 05.
Source: the actions of WebEvolver's policy prompt (paper, appendix; official release).
"""

from __future__ import annotations

import re

from wevo_nb.schema import Action

FENCE = re.compile(r"```(.*?)```", re.S)
VERBS_ALONE = ("wait", "goback", "restart")
CLICK = re.compile(r"click\s*[\[(]+\s*(\d+)\s*[\])]+", re.I)
TYPE = re.compile(r"type\s*\[\s*(\d+)\s*\]\s*\[(.*)\](?:\s*\[\s*(?:press_enter_after\s*=\s*)?([01])\s*\])", re.I | re.S)
TYPE_WITHOUT_ENTER = re.compile(r"type\s*\[\s*(\d+)\s*\]\s*\[(.*)\]", re.I | re.S)
SCROLL = re.compile(r"scroll\s*\[?\s*(?:direction\s*=\s*)?(up|down)\s*\]?", re.I)
STOP = re.compile(r"stop\s*(?:\[(.*)\])?", re.I | re.S)


class ReplyError(ValueError):
    """A model reply in which no action can be read."""


def format_action(action: Action) -> str:
    """The text form, e.g. `type [4] [red shoes] [0]`. Texts may hold any character."""
    match action.verb:
        case "click":
            return f"click [{action.id}]"
        case "type":
            return f"type [{action.id}] [{_escape(action.text)}] [{int(action.enter)}]"
        case "scroll":
            return f"scroll [{action.text}]"
        case "stop":
            return f"stop [{_escape(action.text)}]"
        case verb:
            return verb


def parse_action(text: str) -> Action:
    """The action written in `text`, which is the content of a fence. Raises ReplyError."""
    text = text.strip()
    lowered = text.lower()
    if lowered in VERBS_ALONE:
        return Action(verb=lowered)
    if found := CLICK.fullmatch(text):
        return Action(verb="click", id=int(found[1]))
    if found := TYPE.fullmatch(text) or TYPE_WITHOUT_ENTER.fullmatch(text):
        enter = found.re is TYPE and found[3] == "1"
        return Action(verb="type", id=int(found[1]), text=_unescape(found[2]), enter=enter)
    if found := SCROLL.fullmatch(text):
        return Action(verb="scroll", text=found[1].lower())
    if found := STOP.fullmatch(text):
        return Action(verb="stop", text=_unescape(found[1] or ""))
    raise ReplyError(
        f"no action in {text[:80]!r}: write one of click [id], type [id] [text] [press_enter_after=0|1], "
        "scroll [up|down], wait, goback, restart, stop [answer]"
    )


def parse_reply(reply: str) -> Action:
    """The action of a whole reply: the last fence after `Action:`. Raises ReplyError."""
    _, label, tail = reply.rpartition("Action:")
    if not label:
        raise ReplyError("no 'Action:' in the reply: write Thought: ... Action: ```...```")
    fences = FENCE.findall(tail)
    return parse_action(fences[-1] if fences else tail)


def format_reply(thought: str, action: Action) -> str:
    """The reply form of policy training and inference."""
    return f"Thought: {thought} Action: ```{format_action(action)}```"


def thought_of(reply: str) -> str:
    """The thought of a reply, without its labels and its action."""
    thought, label, rest = reply.rpartition("Action:")
    return (thought if label else rest).removeprefix("Thought:").strip()


def _escape(text: str) -> str:
    """Bracket-, fence- and line-safe text."""
    for char, code in (("\\", "\\\\"), ("]", "\\]"), ("[", "\\["), ("`", "\\`"), ("\n", "\\n"), ("\r", "\\r")):
        text = text.replace(char, code)
    return text.replace("Action:", "Action\\:")


def _unescape(text: str) -> str:
    plain = {"n": "\n", "r": "\r"}
    return re.sub(r"\\(.)", lambda found: plain.get(found[1], found[1]), text, flags=re.S)
