"""The action grammar: `Thought: ... Action: ```click [3]``` `, read and written.

`parse_action(format_action(a)) == a` for every action; a reply that cannot be read gives a
`ReplyError` that says why, and its text goes back to the model. Used by notebooks 01, 03 and 05.
Source: the actions of WebEvolver's policy prompt (paper, appendix; official release), with
select, goto and tab beside them.
"""

from __future__ import annotations

import re

from wevo_nb.schema import Action

GRAMMAR = (
    "click [id], type [id] [text] [press_enter_after=0|1], select [id] [option], scroll [up|down], "
    "scroll [id] [up|down], wait, goback, restart, goto [url], tab [n], stop [answer]"
)
FENCE = re.compile(r"```(.*?)```", re.S)
VERB = re.compile(r"\s*([a-z][a-z_ ]*?)(?=\s*[\[(\"'0-9]|\s*$|\s+(?:up|down|direction)\b)", re.I)
VERBS_ALONE = ("wait", "goback", "restart")
# What models write in place of a verb of the grammar; accepted, and counted in Decision.alias.
ALIASES = {
    "press": "click", "tap": "click", "left_click": "click", "fill": "type", "input": "type", "enter_text": "type",
    "select_option": "select", "choose": "select", "go_back": "goback", "back": "goback", "go back": "goback",
    "navigate": "goto", "open": "goto", "visit": "goto", "switch_tab": "tab", "answer": "stop", "finish": "stop",
    "done": "stop", "exit": "stop", "reload": "restart", "noop": "wait",
}  # fmt: skip
ID = r"[\[(\"']*\s*(?:id\s*=\s*)?([0-9]{1,9})\s*[\])\"']*"
WAY = r"[\[(]*\s*(?:direction\s*=\s*)?(up|down)\s*[\])]*"
TEXT = r"[\[(](.*)[\])]"
NUMBERED = re.compile(rf"\s*{ID}\s*", re.S)
FLAGGED = re.compile(
    r"\s*\[\s*([0-9]{1,9})\s*\]\s*\[(.*)\]\s*\[\s*(press_enter_after\s*=\s*)?([0-9]+)\s*\]\s*", re.I | re.S
)
TEXTED = re.compile(r"\s*\[+\s*([0-9]{1,9})\s*\]+\s*\[(.*)\]\s*", re.S)
SCROLLED = re.compile(rf"\s*(?:\[\s*([0-9]{{1,9}})\s*\]\s*)?{WAY}\s*", re.I)
BRACKETED = re.compile(rf"\s*{TEXT}\s*", re.S)


class ReplyError(ValueError):
    """A model reply in which no action can be read."""


def format_action(action: Action) -> str:
    """The text form, e.g. `type [4] [red shoes] [0]`. Texts may hold any character."""
    match action.verb:
        case "click" | "tab":
            return f"{action.verb} [{action.id}]"
        case "type":
            return f"type [{action.id}] [{_escape(action.text)}] [{int(action.enter)}]"
        case "select":
            return f"select [{action.id}] [{_escape(action.text)}]"
        case "scroll":
            return f"scroll [{action.text}]" if action.id is None else f"scroll [{action.id}] [{action.text}]"
        case "stop" | "goto":
            return f"{action.verb} [{_escape(action.text)}]"
        case verb:
            return verb


def parse_action(text: str) -> Action:
    """The action written in `text`, which is the content of a fence. Raises ReplyError."""
    found = VERB.match(text)
    written = found[1].lower() if found else ""
    verb = ALIASES.get(written, written)
    rest = text[found.end() :] if found else text
    if verb in VERBS_ALONE and not rest.strip("[]() \n"):
        return Action(verb=verb)
    if verb in ("click", "tab") and (given := NUMBERED.fullmatch(rest)):
        return Action(verb=verb, id=int(given[1]))
    if verb == "scroll" and (given := SCROLLED.fullmatch(rest)):
        return Action(verb=verb, id=None if given[1] is None else int(given[1]), text=given[2].lower())
    if verb == "type" and (given := FLAGGED.fullmatch(rest)):
        if given[4] not in ("0", "1"):
            raise ReplyError(f"the last bracket of {text[:80]!r} is {given[4][:9]}: press_enter_after is 0 or 1")
        return Action(verb=verb, id=int(given[1]), text=_unescape(given[2]), enter=given[4] == "1")
    if verb in ("type", "select") and (given := TEXTED.fullmatch(rest)):
        return Action(verb=verb, id=int(given[1]), text=_unescape(given[2]))
    if verb == "goto" and (given := BRACKETED.fullmatch(rest)):
        return Action(verb=verb, text=_unescape(given[1]))
    if verb == "stop" and (not rest.strip() or (given := BRACKETED.fullmatch(rest))):
        return Action(verb=verb, text=_unescape(given[1]) if rest.strip() else "")
    raise ReplyError(f"no action in {text[:80]!r}: write Action: ```...``` with one of {GRAMMAR}")


def parse_reply(reply: str) -> Action:
    """The action of a whole reply: the last fence after `Action:`, or what stands there without one.

    A reply that is nothing but an action, or ends in one fence, is read too. Raises ReplyError.
    """
    return parse_action(_written(reply))


def alias_of(reply: str) -> str:
    """The word that a reply uses in place of a verb of the grammar, e.g. `answer`; empty where it uses none."""
    found = VERB.match(_written(reply))
    return found[1].lower() if found and found[1].lower() in ALIASES else ""


def format_reply(thought: str, action: Action) -> str:
    """The reply form of policy training and inference."""
    return f"Thought: {thought} Action: ```{format_action(action)}```"


def thought_of(reply: str) -> str:
    """The thought of a reply, without its labels and its action."""
    thought, label, rest = reply.rpartition("Action:")
    return (thought if label else rest).removeprefix("Thought:").strip()


def _written(reply: str) -> str:
    """Where the action of a reply is written."""
    _, _, tail = reply.rpartition("Action:")
    fences = FENCE.findall(tail)
    return fences[-1] if fences else tail.strip().removesuffix(".")


def _escape(text: str) -> str:
    """Bracket-, fence- and line-safe text."""
    for char, code in (("\\", "\\\\"), ("]", "\\]"), ("[", "\\["), ("`", "\\`"), ("\n", "\\n"), ("\r", "\\r")):
        text = text.replace(char, code)
    return text.replace("Action:", "Action\\:")


def _unescape(text: str) -> str:
    plain = {"n": "\n", "r": "\r"}
    return re.sub(r"\\(.)", lambda found: plain.get(found[1], found[1]), text, flags=re.S)
