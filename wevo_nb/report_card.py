"""The world model's report card: how its predictions compare with what really followed, by rule.

Reads transitions and predictions, gives tidy rows; writes nothing. Beside a model stand two
baselines: copying the page and the most frequent outcome. Free walks (free_walks.py) are graded by
depth. Used by notebooks 02 and 06. Paper: Table 2 grades with a language model (grader.py); these
are rules, so that anyone gets the same number.

parses                  it has an outcome and, where that needs one, a page, and both can be read
ids_resolve             see `resolves`
exact_match             outcome and whole next page are right; where the episode ends, the outcome
exact_changed           the same over the transitions that really change the page
outcome_accuracy        of the four outcomes
end_precision, _recall  of the episodes predicted to end those that did; of those that did, the ones predicted
auc_success             chance that a real success gets a higher P(success | end) than a real failure
element_f1              over all elements of the next page; an element is its whole line without the id
changed_f1              the same over those that came or went with the action
copied                  share of the predicted page's elements that stand on the page it was made from
hallucinated_controls   share of the predicted controls, by role and name, that no real page so far shows, nor
                        the true next one
hallucinated_facts      the same of numbers, prices and names (facts.py); what the goal or the typed text
                        holds is not invented, and a placeholder such as <number> is no fact

What compares pages rests on the transitions that really stay open, exact_match on all. No page is
predicted where the reply cannot be read or ends the episode: F1 then finds no element and no change
predicted, ids do not resolve, and n of what is copied or hallucinated leaves the transition out.
In a free walk, outcome and changed_f1 are about the step: from the page that was imagined before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple

from wevo_nb.facts import facts_of, facts_on, facts_shown, with_parts
from wevo_nb.free_walks import Predict, Walked
from wevo_nb.intervals import wilson
from wevo_nb.observation import CLICKABLE, bodies_of, changed_bodies, element_of, parse_page
from wevo_nb.schema import Action, Observation
from wevo_nb.targets import AFTERWARDS, WORDS
from wevo_nb.transitions import NO_PAGE, Situation, Transition, outcome_counts
from wevo_nb.world_model import Prediction

RESAMPLES = 1000  # of the bootstrap that gives what is no share its interval
COLUMNS = ("model", "target", "depth", "metric", "n", "value", "low", "high")
TEACHER_FORCED = "teacher_forced_"  # before a metric: from the real page, at the positions of the walks
LOWER_IS_BETTER = frozenset(
    prefix + name for prefix in ("", TEACHER_FORCED) for name in ("hallucinated_controls", "hallucinated_facts")
)


class Case(NamedTuple):
    """A real transition, what was predicted, from which page, and what was really done next where that is known."""

    transition: Transition
    prediction: Prediction
    before: Observation
    next_action: Action | None

    @property
    def page(self) -> str | None:
        """The predicted page; None where there is none."""
        gone = self.prediction.observation.done or not self.prediction.readable
        return None if gone else self.prediction.observation.text


def copy_page(transitions: Sequence[Transition]) -> list[Prediction]:
    """The baseline that predicts no change, ever."""
    sure = {"success": 0.0, "failure": 0.0, "changed": 0.0, "same": 1.0}
    return [Prediction(sure, "same", t.situation.observation, True) for t in transitions]


def majority(transitions: Sequence[Transition], training: Sequence[Transition]) -> list[Prediction]:
    """The baseline that predicts the most frequent outcome of `training`, ever, and its shares as chances.

    The page stays as it was, or is gone where that outcome is an end. Raises ValueError without `training`.
    """
    counts = outcome_counts(training)
    if not counts:
        raise ValueError("no training transition to count outcomes of: give those that the world model learned from")
    chances = {outcome: counts[outcome] / counts.total() for outcome in WORDS}
    outcome = max(WORDS, key=chances.__getitem__)  # of several the first
    end = Observation(text="", done=True, reward=chances["success"]) if outcome in ("success", "failure") else None
    return [Prediction(chances, outcome, end or t.situation.observation, True) for t in transitions]


def as_predictor(baseline: Callable[[list[Transition]], list[Prediction]]) -> Predict:
    """A baseline in the form that `walk_freely` asks: of situations. It sees no truth."""

    async def predict_(situations: Sequence[Situation]) -> list[Prediction]:
        return baseline([Transition(situation, NO_PAGE, "") for situation in situations])

    return predict_


def report_card(
    transitions: Sequence[Transition],
    predictions: Sequence[Prediction],
    *,
    model: str,
    target: str,
    depth: int = 1,
    before: Sequence[Observation] | None = None,
    next_actions: Sequence[Action | None] | None = None,
    prefix: str = "",
) -> list[dict]:
    """One row a metric, with COLUMNS: values from 0 to 1, n, and a 95% interval; nan where nothing can be measured.

    `before`: the pages that the predictions were made from, where those are not the real ones.
    `next_actions`: what was really done next (free_walks.next_actions). Shares have Wilson
    intervals; F1, AUC, copied and hallucinated percentile bootstrap ones. Both take transitions as
    independent, which those of one episode are not quite. A sentence (`change_described`) is no
    page: of what compares pages only its facts are checked. Raises ValueError where lengths differ.
    """
    pages = [t.situation.observation for t in transitions] if before is None else before
    actions = [None] * len(transitions) if next_actions is None else next_actions
    cases = [Case(*one) for one in zip(transitions, predictions, pages, actions, strict=True)]
    rows = _outcome_rows(cases) + (_sentence_rows(cases) if target == "change_described" else _page_rows(cases))
    same = {"model": model, "target": target, "depth": depth}
    return [same | row | {"metric": prefix + row["metric"]} for row in rows]


def walk_card(walked: Sequence[Walked], *, model: str, target: str) -> list[dict]:
    """The report card of free walks: rows for each depth from 2 on.

    A walk that broke off stays in n at every later depth and counts as wrong. Pages at a depth
    differ from those at another in more than depth, so beside each metric stands the same one with
    TEACHER_FORCED: at the same positions, but predicted from the real page. What free walks lose is
    the difference of the two. Depth 1 is teacher-forced by itself: `report_card` of all that is held out.
    """
    rows = []
    for depth in sorted({w.depth for w in walked} - {1}):
        here = [w for w in walked if w.depth == depth]
        real = [w.transition for w in here]
        how = {"model": model, "target": target, "depth": depth, "next_actions": [w.next_action for w in here]}
        rows += report_card(real, [w.prediction for w in here], before=[w.before for w in here], **how)
        rows += report_card(real, [w.forced for w in here], prefix=TEACHER_FORCED, **how)
    return rows


def exact(transition: Transition, prediction: Prediction) -> bool:
    """Whether the outcome and the whole next page are right; after an end there is no page to compare."""
    if not prediction.readable or prediction.outcome != transition.outcome:
        return False
    return transition.following.done or transition.following.text == prediction.observation.text


def outcome_told(prediction: Prediction) -> str | None:
    """The outcome that a prediction names; None where its reply has none."""
    return prediction.outcome if any(prediction.probabilities.values()) else None


def resolves(case: Case) -> bool:
    """Whether the next page can be acted on: its ids are 1..n, each once, and the next real action finds its element.

    That is: under the action's id stands an element of the role that it has on the true next page.
    An action that names no element of that page, or is not known, asks nothing more.
    """
    if case.page is None:
        return False
    ids = [e.id for e in parse_page(case.page)]
    meant = _meant(case.next_action, case.transition.following.text)
    found = meant is None or _meant(case.next_action, case.page) == meant
    return ids == list(range(1, len(ids) + 1)) and found


def share(metric: str, hits: Sequence[float]) -> dict:
    """The row of a share of hits, with its Wilson interval."""
    value, low, high = wilson(sum(hits), len(hits))
    return {"metric": metric, "n": len(hits), "value": value, "low": low, "high": high}


def ratio(metric: str, parts: Sequence[tuple[float, float]]) -> dict:
    """The row of a sum of numerators over a sum of denominators, with its bootstrap interval."""
    import numpy as np

    counts = np.array(parts, float).reshape(-1, 2)
    drawn = _resampled(len(counts)) @ counts
    return _bootstrapped(metric, len(counts), counts.sum(axis=0), drawn)


def _outcome_rows(cases: Sequence[Case]) -> list[dict]:
    """What needs no page. A reply without an outcome is right about none."""
    told = [outcome_told(c.prediction) for c in cases]
    ends = [outcome in ("success", "failure") for outcome in told]
    really = [c.transition.following.done for c in cases]
    return [
        share("parses", [c.prediction.readable for c in cases]),
        share("outcome_accuracy", [outcome == c.transition.outcome for outcome, c in zip(told, cases, strict=True)]),
        share("end_precision", [true for end, true in zip(ends, really, strict=True) if end]),
        share("end_recall", [end for end, true in zip(ends, really, strict=True) if true]),
        _auc_success([c for c in cases if c.transition.following.done]),
    ]


def _page_rows(cases: Sequence[Case]) -> list[dict]:
    going = [c for c in cases if not c.transition.following.done]
    drawn = [c for c in going if c.page is not None]
    return [
        share("exact_match", [exact(c.transition, c.prediction) for c in cases]),
        share("exact_changed", [exact(c.transition, c.prediction) for c in cases if c.transition.outcome == "changed"]),
        share("ids_resolve", [resolves(c) for c in going]),
        ratio("element_f1", [_f1_parts(*_elements(c)) for c in going]),
        ratio("changed_f1", [_f1_parts(*_changes(c)) for c in going]),
        ratio("copied", [_copied(c) for c in drawn]),
        ratio("hallucinated_controls", [_invented(_controls(c.page), _shown(c)[0]) for c in drawn]),
        ratio("hallucinated_facts", [_invented(facts_on(c.page), _shown(c)[1]) for c in drawn]),
    ]


def _sentence_rows(cases: Sequence[Case]) -> list[dict]:
    said = [c for c in cases if c.prediction.outcome == "changed" and c.page and not c.transition.following.done]
    return [ratio("hallucinated_facts", [_invented(_facts_said(c.page), _shown(c)[1]) for c in said])]


def _meant(action: Action | None, page: str) -> tuple[int, str] | None:
    """(id, role) of the element that an action means on a page; None where it means none of it."""
    if action is None or action.verb == "tab":  # its number is a tab's
        return None
    element = element_of(page, action.id)
    return element and (element.id, element.role)


def _elements(case: Case) -> tuple[Counter, Counter]:
    return Counter(bodies_of(case.transition.following.text)), Counter(bodies_of(case.page or ""))


def _changes(case: Case) -> tuple[Counter, Counter]:
    """Of this step: the real one from the real page, the predicted one from the page it was made from."""
    really = changed_bodies(case.transition.situation.observation.text, case.transition.following.text)
    return really, Counter() if case.page is None else changed_bodies(case.before.text, case.page)


def _f1_parts(true: Counter, predicted: Counter) -> tuple[int, int]:
    return 2 * (true & predicted).total(), true.total() + predicted.total()


def _copied(case: Case) -> tuple[int, int]:
    page, before = Counter(bodies_of(case.page)), Counter(bodies_of(case.before.text))
    return (page & before).total(), page.total()


def _invented(told: Sequence | set, shown: set) -> tuple[int, int]:
    return sum(one not in shown for one in told), len(told)


def _controls(page: str) -> list[tuple[str, str]]:
    return [(e.role, e.name) for e in parse_page(page) if e.role in CLICKABLE]


def _real_pages(transition: Transition) -> list[str]:
    """Every real page so far, and the one that followed."""
    _, history, page, _ = transition.situation
    return [*(step.observation.text for step in history), page.text, transition.following.text]


def _shown(case: Case) -> tuple[set[tuple[str, str]], set[str]]:
    """Controls and facts that are not invented: those of the real pages, and facts that the goal holds or are typed."""
    task, _, _, action = case.transition.situation
    controls, facts = zip(*map(_shows, _real_pages(case.transition)), strict=True)
    return set().union(*controls), with_parts(facts_of(f"{task.goal}\n{action.text}")).union(*facts)


@lru_cache(maxsize=4096)  # a page is asked about once a later step, model and depth
def _shows(page: str) -> tuple[frozenset, frozenset]:
    """The controls and the facts of a real page."""
    return frozenset(_controls(page)), frozenset(with_parts(facts_shown(page)))


def _facts_said(page: str) -> set[str]:
    """The facts of a described change, the last note of the page. The first word of a sentence is no name."""
    notes = [e.name for e in parse_page(page) if e.name.startswith(AFTERWARDS)]
    sentences = notes[-1].removeprefix(AFTERWARDS).split(". ") if notes else []
    return facts_of("\n".join(sentence[:1].lower() + sentence[1:] for sentence in sentences))


def _auc_success(cases: Sequence[Case]) -> dict:
    """Ties count half. A prediction that leaves no chance to either end says nothing: P(success | end) = 1/2."""
    import numpy as np

    chances = [(c.prediction.probabilities["success"], c.prediction.probabilities["failure"]) for c in cases]
    scores = np.array([won / (won + lost) if won + lost else 0.5 for won, lost in chances])
    good = np.array([c.transition.outcome == "success" for c in cases], bool)
    above = scores[good][:, None] - scores[~good]
    above = (above > 0) + 0.5 * (above == 0)
    weights = np.vstack([np.ones((1, len(cases))), _resampled(len(cases))])  # first row: each case once
    won, lost = weights[:, good], weights[:, ~good]
    sums = np.stack([((won @ above) * lost).sum(axis=1), won.sum(axis=1) * lost.sum(axis=1)], axis=1)
    return _bootstrapped("auc_success", len(cases), sums[0], sums[1:])


def _resampled(n: int):
    """How often each of n is drawn, a row a resample: (RESAMPLES, n)."""
    import numpy as np

    return np.random.default_rng(0).multinomial(n, np.full(n, 1 / n), RESAMPLES) if n else np.zeros((RESAMPLES, 0))


def _bootstrapped(metric: str, n: int, total, drawn) -> dict:
    """`total` is (numerator, denominator), `drawn` the same of each resample."""
    import numpy as np

    values = drawn[:, 0] / np.where(drawn[:, 1], drawn[:, 1], np.nan)
    low, high = (np.nan, np.nan) if np.isnan(values).all() else np.nanpercentile(values, [2.5, 97.5])
    value = total[0] / total[1] if total[1] else np.nan
    return {"metric": metric, "n": n, "value": float(value), "low": float(low), "high": float(high)}
