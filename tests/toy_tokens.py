"""A language model of a few lines, for servers that stand in: which tokens follow a text, and how often.

It can spell some words in two ways, as tokenizers can. `complete` writes the likeliest tokens that fit the
choices, and tells them as a chat completion does; `tokenize` cuts a text into the longest tokens.
"""

from __future__ import annotations

import math

END = "<|im_end|>"
TOY = {  # what was written so far: tokens that follow; they add up to 1
    "": {"changed": 0.2, "done": 0.15, "same": 0.05, "s": 0.25, "Well": 0.35},
    "done": {" success": 0.4, " fail": 0.1, "!": 0.5},
    "s": {"ame": 1.0},
}
NUMBERS = {"": {"0": 0.6, "1": 0.3, "Well": 0.1}, "0": {".": 0.5, END: 0.25, "!": 0.25}, "0.": {"5": 1.0}}
SKY = {"": {"yes": 0.4, "no": 0.1, "Well": 0.5}}
WORDS = sorted({token for toy in (TOY, NUMBERS, SKY) for after in toy.values() for token in after}, key=len)
_numbers: dict[str, int] = {}


def number(token: str) -> int:
    return _numbers.setdefault(token, len(_numbers))


def tokenize(text: str) -> list[int]:
    """The longest known token first; a text of others is one token."""
    tokens, left = [], text
    while left:
        token = next((word for word in reversed(WORDS) if left.startswith(word)), None)
        if token is None:
            return [number(text)]
        tokens.append(token)
        left = left.removeprefix(token)
    return [number(token) for token in tokens]


def detokenize(tokens: list[int]) -> str:
    known = {i: token for token, i in _numbers.items()}
    return "".join(known[i] for i in tokens)


def complete(
    toy: dict, choices: list[str], begun: str = "", *, masked: bool = True, divide: float = 1.0, ends: bool = True
) -> tuple[str, list[dict]]:
    """A reply that goes on from `begun` to one of the choices, and its `logprobs.content`.

    `masked`: tokens that fit no choice are taken out before they are told, as vLLM does. `divide`: a temperature
    that is told too. `ends`: whether the token that ends a reply is told.
    """
    text, content = "", []
    while True:
        fits = lambda token: any(c.startswith(text + token) for c in choices) or (token == END and text in choices)  # noqa: B023, E731
        after = toy.get(begun + text, {END: 1.0})
        allowed = {token: p for token, p in after.items() if fits(token)}
        told = {token: p ** (1 / divide) for token, p in (allowed if masked else after).items()}
        whole = sum(told.values())
        token = max(allowed, key=allowed.get)
        if token != END or ends:
            alternatives = [entry(other, p / whole) for other, p in told.items() if other != END or ends]
            content.append(entry(token, told[token] / whole) | {"top_logprobs": alternatives})
        if token == END:
            return text, content
        text += token


def entry(token: str, p: float) -> dict:
    """As vLLM tells it where it is asked for ids."""
    return {"token": f"token_id:{number(token)}", "logprob": math.log(p), "bytes": list(token.encode())}


def answer(body: dict, **how) -> tuple[str, list[dict]]:
    """What is said to a request that is bound to choices."""
    choices = body["structured_outputs"]["choice"]
    first, last = body["messages"][0], body["messages"][-1]
    begun = last["content"] if last["role"] == "assistant" else ""
    toy = SKY if "sky" in first["content"] else NUMBERS if "number" in first["content"] else TOY
    return complete(toy, choices, begun, **how)
