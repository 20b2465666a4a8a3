"""What the notebooks display: tables of rows, a page, a trajectory, a look-ahead decision.

Every function returns something that Jupyter draws; page text is always shown as text.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING

from wevo_nb.actions import format_action
from wevo_nb.observation import header
from wevo_nb.params import Resolved
from wevo_nb.prompts import imagined_text
from wevo_nb.schema import Decision, Effect, Observation, Trajectory

if TYPE_CHECKING:
    from pathlib import Path

    import pandas as pd
    from IPython.display import HTML, Image

CELL = "padding:6px 10px;border:1px solid #bbb;vertical-align:top;text-align:left"
PRE = "white-space:pre-wrap;font-size:12px;line-height:1.35;margin:0;tab-size:2;background:none"


def params_table(resolved: Resolved, *sections: str) -> pd.DataFrame:
    """The params of the named sections with the layer that set each."""
    return table(resolved.rows("seed", *sections)).set_index("key")


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


def effects(one: Trajectory) -> pd.DataFrame:
    """What each action of an episode did: a row a step."""
    rows = []
    for number, step, after in one.transitions():
        told = after.effect or Effect()
        happened = {"ended the episode": after.done}
        happened |= {"changed the page": told.changed, "went to another": told.navigated, "partial": told.partial}
        happened |= {f"not done ({told.problem})": bool(told.problem), f"{told.opened} new tab": bool(told.opened)}
        action = format_action(step.decision.action) if step.decision.action else "(unread)"
        did = ", ".join(what for what, true in happened.items() if true) or "nothing"
        rows.append({"step": number + 1, "action": action, "it": did, "note": after.note, "ms": step.ms})
    return table(rows).set_index("step")


def trajectory(one: Trajectory) -> HTML:
    """An episode: each page, what the policy replied, and how it ended."""
    rows = [
        f'<tr><td style="{CELL}">{i}</td><td style="{CELL}">{_pre(_noted(step.observation))}</td>'
        f'<td style="{CELL}">{_pre(step.decision.reply or step.decision.error)}</td></tr>'
        for i, step in enumerate(one.steps, start=1)
    ]
    verdict = f"{one.verdict.outcome} by {one.verdict.by}: {one.verdict.reason}" if one.verdict else "not judged"
    end = f"{one.ended}{', ' + one.error if one.error else ''}; {verdict}"
    where = f"{escape(one.policy)} in {escape(one.environment)}"
    head = f"<p><b>{escape(one.task.key)}</b>: {escape(one.task.goal)}<br>{where}</p>"
    cells = "".join(f'<td style="{CELL}">{text}</td>' for text in ("end", _pre(_noted(one.final)), _pre(end)))
    last = f"<tr>{cells}</tr>"
    return _html(f"{head}<table><tr><th>step</th><th>page</th><th>reply</th></tr>{''.join(rows)}{last}</table>")


def came(observation: Observation) -> str:
    """What an imagined page shows, or how the episode ends."""
    if observation.done:
        return "(ends)" if observation.reward is None else f"(ends, P(success) = {observation.reward:.2f})"
    return observation.text or "(nothing that can be read)"


def decision(one: Decision, page: Observation | None = None) -> HTML:
    """A look-ahead decision as a picture: the page, each candidate, what was imagined of it step by step, its score.

    The chosen one is framed; what fell back to the policy's own choice says why.
    """
    steps = max((len(candidate.imagined) for candidate in one.candidates), default=0)
    heads = ["candidate", *(f"imagined, step {i + 1}" for i in range(steps)), "score"]
    rows = []
    for candidate in one.candidates:
        chosen = candidate.reply.startswith(one.reply)
        shade = ";background:rgba(0,158,115,.15)" if chosen else ""
        pages = [*candidate.imagined, *[""] * (steps - len(candidate.imagined))]
        cells = [_pre(candidate.reply), *(_pre(f"\N{RIGHTWARDS ARROW} {text}") if text else "" for text in pages)]
        cells.append(_score(candidate.score) + (" (chosen)" if chosen else ""))
        rows.append("".join(f'<td style="{CELL}{shade}">{cell}</td>' for cell in cells))
    shown = f'<td style="{CELL}" rowspan="{max(1, len(rows))}">{_pre(page.text)}</td>' if page else ""
    lines = "".join(f"<tr>{shown if i == 0 else ''}{row}</tr>" for i, row in enumerate(rows))
    titles = "".join(f"<th>{head}</th>" for head in (["page"] if page else []) + heads)
    fell = f"<p>Left to the policy: {escape(one.fell_back)}.</p>" if one.fell_back else ""
    cost = one.cost and f"<p>{one.cost.calls} calls, {one.cost.tokens:,} tokens, {one.cost.seconds:.2f} s.</p>"
    return _html(f"<table><tr>{titles}</tr>{lines}</table>{fell}{cost or ''}")


def _score(score: float | None) -> str:
    """A score from 0 to 1 as a bar."""
    if score is None:
        return "unscored"
    bar = f'<span style="display:inline-block;height:.7em;width:{4 * score:.2f}em;background:#009E73"></span>'
    return f"{bar} {score:.2f}"


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


def _mark(number: int, left: float, top: float, width: float, height: float) -> str:
    """A numbered box over a screenshot."""
    place = f"left:{left:.0f}px;top:{top:.0f}px;width:{width:.0f}px;height:{height:.0f}px"
    label = "position:absolute;left:-1px;top:-1px;background:#D55E00;color:#fff;font:10px/1.2 sans-serif;padding:0 2px"
    return (
        f'<div style="position:absolute;{place};box-sizing:border-box;border:1px solid #D55E00">'
        f'<span style="{label}">{number}</span></div>'
    )


def _image(picture: bytes, width: int | None = None) -> str:
    from base64 import b64encode

    size = f"width:{width}px;" if width else "max-width:none;"
    return f'<img src="data:image/png;base64,{b64encode(picture).decode()}" style="{size}display:block;margin:0">'


def _noted(observation: Observation) -> str:
    note = f"\n\nNOTE: {observation.note}" if observation.note else ""
    return (imagined_text(observation) if observation.done and not observation.text else observation.text) + note


def _pre(text: str) -> str:
    return f'<pre style="{PRE}">{escape(text)}</pre>'


def _html(markup: str) -> HTML:
    from IPython.display import HTML

    return HTML(markup)
