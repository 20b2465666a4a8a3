"""Records as HTML: an episode, a page, a look-ahead decision beside what really came of it.

One drawing for all places: notebooks (show.py), `wevo view` (view.py) and `wevo report` (report.py)
fill the same templates of templates/, in which Jinja escapes every value: what a page says stays
text, whatever it says. Writes nothing. Used by every notebook.
"""

from __future__ import annotations

import functools
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from wevo_nb.actions import thought_of
from wevo_nb.observation import bodies_of, header, is_page
from wevo_nb.prompts import describe, imagined_text
from wevo_nb.schema import Decision, Effect, Observation, Step, Trajectory, Verdict

TEMPLATES = Path(__file__).parent / "templates"


class Shown(NamedTuple):
    """A step to draw: what was seen, what was done, and what came of it."""

    number: int
    page: Observation
    step: Step
    after: Observation
    action: str
    did: str
    real: bool  # what followed is a real page, and no dream


class Imagined(NamedTuple):
    """A candidate to draw. `steps` are its imagined pages, as marked lines."""

    thought: str
    action: str
    score: float | None
    chosen: bool
    steps: list[list[tuple[str, str]]]
    came: list[tuple[str, str]] | None  # what followed the chosen one, where that is known
    alike: tuple[int, int] | None  # how many lines of the first imagined page came, of how many


def render(template: str, **values) -> str:
    """A template of templates/ with these values, all of them escaped."""
    return _environment().get_template(template).render(**values)


def fragment(macro: str, *values, **more) -> str:
    """A macro of records.html with its style, for a place that has none: the output of a notebook's cell."""
    drawn = getattr(_environment().get_template("records.html").module, macro)(*values, **more)
    return f"<style>{style('records.css')}</style>{drawn}"


@functools.cache
def style(name: str) -> str:
    """The text of a file beside the templates."""
    return (TEMPLATES / name).read_text()


def steps_of(one: Trajectory) -> list[Shown]:
    """The steps of an episode, each with the page that followed it."""
    real = one.environment == "browser"
    return [
        Shown(
            i + 1,
            step.observation,
            step,
            after,
            action_of(step.decision, step.observation),
            did(step.observation, after),
            real,
        )
        for i, step, after in one.transitions()
    ]


def action_of(decision: Decision, page: Observation) -> str:
    """The action with the element that it means, or that none could be read."""
    return describe(decision.action, page) if decision.action else "(no action could be read)"


def did(before: Observation, after: Observation) -> str:
    """What an action did, in words: as the observation after it tells, or, in a dream, as the two pages differ."""
    told = after.effect or Effect(changed=not after.done and before.text != after.text)
    happened = {"ended the episode": after.done}
    happened |= {"changed the page": told.changed, "went to another": told.navigated, "partial": told.partial}
    happened |= {f"not done ({told.problem})": bool(told.problem), f"{told.opened} new tab": bool(told.opened)}
    return ", ".join(what for what, true in happened.items() if true) or "nothing"


def end_of(one: Trajectory) -> str:
    """How an episode ended, e.g. `done, reward 1.00`; of an imagined end P(success)."""
    if one.final.reward is None:
        return one.ended
    return f"{one.ended}, {'reward' if one.environment == 'browser' else 'P(success)'} {one.final.reward:.2f}"


def came_of(after: Observation, real: bool) -> str:
    """What came of an action, in the form in which a world model imagines it."""
    if real and after.done and after.reward is not None:
        return f"(the episode ends, reward {after.reward:.2f})"
    return imagined_text(after) or "(the page is gone)"


def more_of(verdict: Verdict) -> dict:
    """What a verdict tells beside its outcome, judge and reason, as plain values."""
    return verdict.model_dump(exclude_defaults=True, exclude={"outcome", "judge", "reason"})


def imagined_of(decision: Decision, after: Observation | None = None, real: bool = True) -> list[Imagined]:
    """The candidates of a decision; the chosen one beside the page `after` it, where that is known."""
    chosen = next((i for i, c in enumerate(decision.candidates) if c.reply.startswith(decision.reply)), None)
    out = []
    for i, candidate in enumerate(decision.candidates):
        pages = [[(line, "") for line in text.split("\n")] for text in candidate.imagined]
        came = alike = None
        if i == chosen and after is not None and pages:
            pages[0], came, alike = beside(candidate.imagined[0], came_of(after, real))
        action = candidate.reply.rpartition("Action:")[2].strip(" `\n")
        thought = thought_of(candidate.reply) if action != candidate.reply.strip(" `\n") else ""
        out.append(Imagined(thought, action, candidate.score, i == chosen, pages, came, alike))
    return out


def beside(imagined: str, came: str) -> tuple[list[tuple[str, str]], list[tuple[str, str]], tuple[int, int] | None]:
    """Both texts as (line, mark): `wrong` did not come, `missed` came and was not imagined; and how many are alike.

    Lines are compared without their ids, each as often as it stands there. Only two pages are
    compared line by line; of anything else (an end, a sentence) nothing is marked and nothing counted.
    """
    if not (is_page(imagined) and is_page(came)):
        plain = [[(line, "") for line in text.split("\n")] for text in (imagined, came)]
        return plain[0], plain[1], None
    marked = []
    for own, other, mark in ((imagined, came, "wrong"), (came, imagined, "missed")):
        left = Counter(bodies_of(other))
        side = []
        for line, body in zip(own.split("\n"), bodies_of(own), strict=True):
            side.append((line, "" if left[body] > 0 else mark))
            left[body] -= 1
        marked.append(side)
    return marked[0], marked[1], (sum(not mark for _, mark in marked[0]), len(marked[0]))


@functools.cache
def _environment():
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(TEMPLATES), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
    known = (steps_of, imagined_of, came_of, more_of, thought_of, header, end_of, style)
    environment.globals |= {function.__name__: function for function in known}
    return environment
