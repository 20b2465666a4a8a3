"""What the notebooks display: tables of rows, a page, a trajectory, a look-ahead decision.

Every function returns something that Jupyter draws; page text is always shown as text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING

from wevo_nb import markup
from wevo_nb.actions import format_action
from wevo_nb.meanings import meaning_of
from wevo_nb.observation import header
from wevo_nb.params import Resolved
from wevo_nb.prompts import describe
from wevo_nb.schema import Decision, Observation, Trajectory

if TYPE_CHECKING:
    from pathlib import Path

    import pandas as pd
    from IPython.display import HTML, Image

    from wevo_nb.transitions import Transition
    from wevo_nb.world_model import Prediction

CELL = "padding:6px 10px;border:1px solid #bbb;vertical-align:top;text-align:left"
PRE = "white-space:pre-wrap;font-size:12px;line-height:1.35;margin:0;tab-size:2;background:none"


def params_table(resolved: Resolved, *sections: str) -> HTML:
    """The params of the named sections: those that the profile, its suite or the overrides set, the others folded.

    Each with its value, the layer that set it, and what it means.
    """
    rows = resolved.rows("seed", *sections)
    given = [row for row in rows if row["set by"] != "base"]
    left = [row for row in rows if row["set by"] == "base"]
    folded = f"<details><summary>{len(left)} more, as in params/base.yaml</summary>{_params(left)}</details>"
    return _html((_params(given) if given else "") + (folded if left else ""))


def table(rows: Iterable[dict], columns: Sequence[str] | None = None) -> pd.DataFrame:
    """Rows as a frame; `columns` where there may be no row."""
    import pandas as pd

    pd.options.display.max_colwidth = 200  # a whole reply
    return pd.DataFrame(list(rows), columns=columns)


def page(observation: Observation, screenshot: bytes | None = None, boxes: dict | None = None) -> HTML:
    """A page as a person sees it, the elements in `boxes` numbered, beside what the agent reads.

    `boxes`: id -> left, top, width, height in pixels of the window, as BrowserEnv.boxes() gives them.
    """
    goal = f"OBJECTIVE: {observation.goal}\n\n" if observation.goal else ""
    text = _pre(f"{goal}{header(observation)}{observation.text}")
    if screenshot is None:
        return _html(text)
    marks = "".join(_mark(number, *box) for number, box in (boxes or {}).items())
    picture = f'<div style="position:relative;overflow:hidden;border:1px solid #bbb">{_image(screenshot)}{marks}</div>'
    return _html(f'<table><tr><td style="{CELL}">{picture}</td><td style="{CELL}">{text}</td></tr></table>')


def strip(one: Trajectory, pictures: Sequence[bytes]) -> HTML:
    """An episode as a strip of screenshots, each under the action that led to it.

    `pictures`: of the first page and after each action; an unread reply and a stop lead to no new one.
    """
    actions = ["start", *(format_action(s.decision.action) if s.decision.action else "(unread)" for s in one.steps)]
    taken = iter(pictures)
    shown = [next(taken)]
    for step in one.steps:
        acted = step.decision.action is not None and step.decision.action.verb != "stop"
        shown.append(next(taken) if acted else shown[-1])
    end = f"{one.ended}, {one.verdict.outcome}" if one.verdict else one.ended
    cells = "".join(
        f'<div style="flex:0 0 240px;margin:0 8px 8px 0"><div>{i}. <code>{escape(action)}</code></div>'
        f"{_image(picture, 240)}</div>"
        for i, (action, picture) in enumerate(zip(actions, shown, strict=True))
    )
    head = f"<p><b>{escape(one.task.goal)}</b> ({escape(end)})</p>"
    return _html(f'{head}<div style="display:flex;flex-wrap:wrap">{cells}</div>')


def trajectory(one: Trajectory, folder: Path | None = None) -> HTML:
    """An episode: each page, what the policy thought and did there, what came of it, and how it ended.

    `folder`: the stage's, where pictures of the pages were kept (browser.screenshots).
    """

    def picture(seen: Observation) -> str:
        path = folder / "screenshots" / seen.screenshot if folder and seen.screenshot else None
        return _address(path.read_bytes()) if path and path.is_file() else ""

    return _html(markup.fragment("trajectory", one, [("", one.verdict)] if one.verdict else [], picture=picture))


def came(observation: Observation) -> str:
    """What an imagined page shows, or how the episode ends."""
    if observation.done:
        return "(ends)" if observation.reward is None else f"(ends, P(success) = {observation.reward:.2f})"
    return observation.text or "(nothing that can be read)"


def decision(one: Decision, page: Observation | None = None, after: Observation | None = None) -> HTML:
    """A look-ahead decision: the page, each candidate, what was imagined of it step by step, its score.

    The chosen one is framed, beside the page that really came (`after`); what fell back to the policy's
    own choice says why.
    """
    return _html(markup.fragment("alone", one, page, after))


def prediction(real: Transition, told: Prediction) -> HTML:
    """A page and an action, what really followed and what a world model imagined, unlike lines marked."""
    _, _, before, action = real.situation
    really = f"(the episode ends: {real.outcome})" if real.following.done else real.following.text
    imagined, really, alike = markup.beside(came(told.observation), really)
    return _html(markup.fragment("foretold", describe(action, before), before.text, really, imagined, alike))


def picture(path: Path) -> Image:
    """A saved figure at its printed size."""
    from IPython.display import Image

    return Image(str(path), retina=True)


def messages(turns: Sequence[dict[str, str]]) -> HTML:
    """A prompt, turn by turn."""
    rows = "".join(
        f'<tr><td style="{CELL}"><b>{t["role"]}</b></td><td style="{CELL}">{_pre(t["content"])}</td></tr>'
        for t in turns
    )
    return _html(f"<table>{rows}</table>")


def _params(rows: Iterable[dict[str, str]]) -> str:
    """Rows of `Resolved.rows` with their meaning, as a table."""
    heads = ("key", "value", "set by", "meaning")
    lines = [heads, *((row["key"], row["value"], row["set by"], meaning_of(row["key"])) for row in rows)]
    cells = ["".join(f'<td style="{CELL}">{escape(cell)}</td>' for cell in line) for line in lines]
    cells[0] = re.sub(r"(</?)td", r"\1th", cells[0])
    return f"<table>{''.join(f'<tr>{line}</tr>' for line in cells)}</table>"


def _mark(number: int, left: float, top: float, width: float, height: float) -> str:
    """A numbered box over a screenshot."""
    place = f"left:{left:.0f}px;top:{top:.0f}px;width:{width:.0f}px;height:{height:.0f}px"
    label = "position:absolute;left:-1px;top:-1px;background:#D55E00;color:#fff;font:10px/1.2 sans-serif;padding:0 2px"
    return (
        f'<div style="position:absolute;{place};box-sizing:border-box;border:1px solid #D55E00">'
        f'<span style="{label}">{number}</span></div>'
    )


def _image(picture: bytes, width: int | None = None) -> str:
    size = f"width:{width}px;" if width else "max-width:none;"
    return f'<img src="{_address(picture)}" style="{size}display:block;margin:0">'


def _address(picture: bytes) -> str:
    """A picture as its own address."""
    from base64 import b64encode

    return f"data:image/png;base64,{b64encode(picture).decode()}"


def _pre(text: str) -> str:
    return f'<pre style="{PRE}">{escape(text)}</pre>'


def _html(markup: str) -> HTML:
    from IPython.display import HTML

    return HTML(markup)
