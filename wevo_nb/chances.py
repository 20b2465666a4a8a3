"""The chances of fixed replies, from what a server tells of the tokens that it wrote.

A choice is a path of token ids, as the server's own tokenizer cuts it and as training cut it. For each
token that a server wrote it can tell the likeliest tokens at that place: so much for the paths that part
there. What lies below a token that was not written has to be asked for, which endpoint.py does. Used by
endpoint.py. Paper: none.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

Path = tuple[int, ...]

MOST_CHOICES = 8  # of which chances are told: more of them part in too many places
TOP = 20  # tokens told of a place: the most that vLLM and OpenAI tell
ASKED = 1e-5  # chance of a beginning from which it is asked how it goes on
OPEN = 1e-3  # chance that may be left undivided


class Seen:
    """What was told: the log-probabilities of tokens by the path before them, and the tokens that end a reply."""

    def __init__(self, paths: Sequence[Path]):
        self.paths = list(paths)
        self.after: dict[Path, dict[int, float]] = {}
        self.ends: set[int] = set()

    def add(self, written: Sequence, place: Path = ()):
        """Takes in a reply that was written after `place`, as far as it keeps to a path.

        `written`: `logprobs.content` of a chat completion. A token after a whole path is one that ends a reply.
        """
        for token in written:
            told = {id_of(other): other.logprob for other in (*(token.top_logprobs or ()), token)}
            self.after.setdefault(place, told)
            one = id_of(token)
            if not self.fitting((*place, one)):
                if place in self.paths:
                    self.ends.add(one)
                return
            place = (*place, one)

    def fitting(self, begun: Path) -> list[Path]:
        """The paths that begin so."""
        return [path for path in self.paths if path[: len(begun)] == begun]


class Told(NamedTuple):
    """The log-probability of each path, or None; and the beginnings to ask about, the likeliest first."""

    logprobs: tuple[float, ...] | None
    open: list[Path]


def choice_chances(seen: Seen) -> Told:
    """How the probability splits over the paths, as far as it was seen; None where too little was.

    At each place what is on no path is left out and the rest is scaled to 1, as models.py does. So it does not
    matter whether the server masks other tokens before it tells. Exact but for an undivided chance of at most OPEN,
    of which all paths that it may belong to get equal parts: tokens of a path beyond the TOP of a place, and
    beginnings with less than ASKED. Of several tokens that end a reply only those that ended one are known.
    """
    chances, undivided, ask = Counter(), Counter(), Counter()
    waiting: list[tuple[Path, float]] = [((), 1.0)]
    while waiting:
        begun, chance = waiting.pop()
        fitting = seen.fitting(begun)
        if len(fitting) == 1:
            chances[fitting[0]] += chance
        elif begun not in seen.after:
            ask[begun] += chance
        elif begun in fitting and not seen.ends:
            return Told(None, [])  # this choice begins another, and how often it ends here is not told
        else:
            ways, rest = _ways(begun, fitting, seen)
            undivided[begun] += chance * rest
            chances[begun] += chance * ways.pop(None, 0.0)
            waiting += [((*begun, token), chance * part) for token, part in ways.items()]
    undivided.update(ask)
    logprobs = None
    if undivided.total() <= OPEN:
        for begun, chance in undivided.items():
            fitting = seen.fitting(begun)
            chances.update(dict.fromkeys(fitting, chance / len(fitting)))
        logprobs = tuple(math.log(chances[path]) if chances[path] else -math.inf for path in seen.paths)
    return Told(logprobs, [begun for begun, chance in ask.most_common() if chance >= ASKED])


def pick(logprobs: Sequence[float], *, temperature: float, n: int, seed: int) -> list[int]:
    """Positions of n choices: the likeliest, or drawn at `temperature` by `seed`, as models.py does both."""
    if temperature == 0:
        return [max(range(len(logprobs)), key=logprobs.__getitem__)] * n
    top = max(logprobs)
    weights = [math.exp((logprob - top) / temperature) for logprob in logprobs]
    return random.Random(seed).choices(range(len(weights)), weights, k=n)


def id_of(token) -> int:
    """The id of a token that was told: llama.cpp says it apart, vLLM in place of the text where it is asked to."""
    told = getattr(token, "id", None)
    return int(token.token.removeprefix("token_id:")) if told is None else told


def _ways(begun: Path, fitting: Sequence[Path], seen: Seen) -> tuple[dict[int | None, float], float]:
    """How it goes on after `begun`: the chance of each token of a path, None for an end; and of those not told."""
    told = {token: math.exp(logprob) for token, logprob in seen.after[begun].items()}
    nexts = {path[len(begun)] for path in fitting if path != begun}
    ways: dict[int | None, float] = {token: told[token] for token in nexts if token in told}
    if begun in fitting:
        ways[None] = sum(p for token, p in told.items() if token in seen.ends)
    hidden = len(nexts - told.keys())  # each less likely than every token that was told
    rest = min(max(0.0, 1.0 - sum(told.values())), hidden * min(told.values()))
    whole = sum(ways.values()) + rest
    if not whole:
        return {}, 1.0
    return {token: p / whole for token, p in ways.items()}, rest / whole
