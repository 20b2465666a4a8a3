"""The world model's report card: how its predictions compare with what really followed.

Metrics on held-out transitions: parses, exact match of the whole next page and outcome, F1
over changed elements only, accuracy of the outcome, and how well P(success) tells success
from failure. Beside it stands copying the page. Used by notebooks 02 and 06. Paper: Table 2
grades with a language model; these are rules, so that anyone gets the same number.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from wevo_nb.observation import changed_bodies
from wevo_nb.transitions import Transition
from wevo_nb.world_model import Prediction

RESAMPLES = 1000  # of the bootstrap that gives F1 and AUC their intervals
COLUMNS = ("model", "target", "metric", "n", "value", "low", "high")


def copy_page(transitions: Sequence[Transition]) -> list[Prediction]:
    """The baseline that predicts no change, ever."""
    sure = {"success": 0.0, "failure": 0.0, "changed": 0.0, "same": 1.0}
    return [Prediction(sure, "same", t.situation.observation, True) for t in transitions]


def report_card(
    transitions: Sequence[Transition], predictions: Sequence[Prediction], *, model: str, target: str
) -> list[dict]:
    """One row a metric: model, target, metric, n, value, 95% interval. Values from 0 to 1, high is good.

    Shares have Wilson intervals, F1 and AUC percentile bootstrap intervals over transitions.
    """
    pairs = list(zip(transitions, predictions, strict=True))
    open_pairs = [(t, p) for t, p in pairs if not t.following.done]
    ended = [(t, p) for t, p in pairs if t.following.done]
    rows = [
        _share("parses", [p.readable for _, p in pairs]),
        _share("exact_match", [_exact(t, p) for t, p in pairs]),
        _share("outcome_accuracy", [p.outcome == t.outcome for t, p in pairs]),
        _bootstrapped("changed_f1", open_pairs, _changed_f1),
        _bootstrapped("auc_success", ended, _auc_success),
    ]
    return [{"model": model, "target": target} | row for row in rows]


def _exact(transition: Transition, prediction: Prediction) -> bool:
    same_end = transition.outcome == prediction.outcome
    return same_end and (transition.following.done or transition.following.text == prediction.observation.text)


def _changed_f1(pairs: Sequence[tuple[Transition, Prediction]]) -> float:
    """Micro F1 of elements that came or went; a predicted end changes nothing."""
    hits = predicted = true = 0
    for transition, prediction in pairs:
        before = transition.situation.observation.text
        really = changed_bodies(before, transition.following.text)
        after = before if prediction.observation.done else prediction.observation.text
        imagined = changed_bodies(before, after)
        hits += (really & imagined).total()
        predicted += imagined.total()
        true += really.total()
    return 2 * hits / (predicted + true) if predicted + true else float("nan")


def _auc_success(pairs: Sequence[tuple[Transition, Prediction]]) -> float:
    """Chance that a real success gets a higher P(success | end) than a real failure; ties count half."""
    score = lambda p: p.probabilities["success"] / max(p.probabilities["success"] + p.probabilities["failure"], 1e-12)  # noqa: E731
    good = [score(p) for t, p in pairs if t.outcome == "success"]
    bad = [score(p) for t, p in pairs if t.outcome == "failure"]
    if not good or not bad:
        return float("nan")
    return sum((g > b) + 0.5 * (g == b) for g in good for b in bad) / (len(good) * len(bad))


def _share(metric: str, hits: Sequence[bool]) -> dict:
    from wevo_nb.metrics import wilson

    value, low, high = wilson(sum(hits), len(hits))
    return {"metric": metric, "n": len(hits), "value": value, "low": low, "high": high}


def _bootstrapped(metric: str, pairs: Sequence, statistic: Callable[[Sequence], float]) -> dict:
    import numpy as np

    rng = np.random.default_rng(0)
    draws = [
        statistic([pairs[i] for i in rng.integers(0, len(pairs), len(pairs))]) for _ in range(RESAMPLES if pairs else 0)
    ]
    low, high = np.nanpercentile(draws, [2.5, 97.5]) if draws and not np.isnan(draws).all() else (np.nan, np.nan)
    return {"metric": metric, "n": len(pairs), "value": statistic(pairs), "low": float(low), "high": float(high)}
