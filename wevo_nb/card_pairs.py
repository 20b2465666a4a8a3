"""The report card's predictions one by one: who is right where another is wrong, and what that proves.

Every model and baseline of a report card answers the same held-out transitions, so two of them are
compared pair by pair, not by their two shares. Reads transitions, predictions and walks; gives tidy
rows and sentences; writes nothing. Notebook 02. Paper: it gives no intervals.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from wevo_nb.free_walks import Walked
from wevo_nb.intervals import paired
from wevo_nb.report_card import exact, outcome_told
from wevo_nb.transitions import Transition
from wevo_nb.world_model import Prediction, chance_of_success

if TYPE_CHECKING:
    import pandas as pd

REAL, OWN = "real page", "own page"  # where a prediction starts
BASELINES = ("copy_page", "majority", "untrained")
CASE_COLUMNS = ("model", "depth", "start", "case", "truth", "predicted", "exact", "p_success")
PAIR_COLUMNS = ("a", "b", "depth", "metric", "n", "won", "lost", "difference", "low", "high", "p")
SHOWN = ("parses", "outcome_accuracy", "exact_match", "exact_changed", "changed_f1", "auc_success")
SHARES = {  # metric that is right or wrong case by case: how a sentence calls it
    "outcome_accuracy": "The outcome",
    "exact_match": "Outcome and page",
    "exact_changed": "The page, where it changed",
}
UNREAD = "unread"  # predicted: no outcome
COIN = 0.5  # the AUC of one
ALPHA = 0.05


def case_rows(
    transitions: Sequence[Transition],
    predictions: Sequence[Prediction],
    *,
    model: str,
    target: str,
    depth: int = 1,
    start: str = REAL,
) -> list[dict]:
    """A row a prediction, CASE_COLUMNS: `case` is its place in `transitions`, `exact` whether outcome and page are
    right (None for a described change, which is no page), `p_success` P(success | end).

    Raises ValueError where lengths differ.
    """
    page = target != "change_described"
    return [
        {"model": model, "depth": depth, "start": start, "case": i, "truth": t.outcome}
        | {"predicted": outcome_told(p) or UNREAD, "exact": exact(t, p) if page else None}
        | {"p_success": chance_of_success(p.probabilities)}
        for i, (t, p) in enumerate(zip(transitions, predictions, strict=True))
    ]


def walk_rows(walked: Sequence[Walked], *, model: str, target: str) -> list[dict]:
    """The rows of free walks from depth 2 on, each position twice: from the walk's own page and from the real one."""
    rows = []
    for depth in sorted({w.depth for w in walked} - {1}):
        here = [w for w in walked if w.depth == depth]
        real = [w.transition for w in here]
        for start, told in ((OWN, [w.prediction for w in here]), (REAL, [w.forced for w in here])):
            rows += case_rows(real, told, model=model, target=target, depth=depth, start=start)
    return rows


def at_one_step(card: pd.DataFrame) -> pd.DataFrame:
    """A report card's main metrics (SHOWN) at depth 1: a row a metric with its n, a column a model."""
    first = card[(card["depth"] == 1) & card["metric"].isin(SHOWN)]
    shown = first.pivot_table(index="metric", columns="model", values="value", sort=False).round(2)
    shown.insert(0, "n", first.groupby("metric")["n"].max())
    return shown.reindex([metric for metric in SHOWN if metric in shown.index])


def pair_table(cases: pd.DataFrame, newest: str) -> pd.DataFrame:
    """PAIR_COLUMNS, b against a on the same cases (difference, low, high: fractions, by `intervals.paired`).

    At depth 1 b is `newest` and a each other model; from depth 2 on b is `newest` from its own page
    (OWN) and a the same model from the real one (REAL). `won`: b alone is right.
    """
    import pandas as pd

    first, mine = cases[cases["depth"] == 1], cases[cases["model"] == newest]
    own = first[first["model"] == newest]
    rows = []
    for other in dict.fromkeys(first["model"]):
        if other != newest:
            rows += _pairs(first[first["model"] == other], own, {"a": other, "b": newest, "depth": 1})
    for depth, walks in mine[mine["depth"] > 1].groupby("depth"):
        starts = dict(list(walks.groupby("start")))
        rows += _pairs(starts[REAL], starts[OWN], {"a": REAL, "b": OWN, "depth": depth})
    return pd.DataFrame(rows, columns=PAIR_COLUMNS)


def conclusions(card: pd.DataFrame, cases: pd.DataFrame, newest: str) -> list[str]:
    """What a report card shows of its newest world model, and how sure it is: sentences, each with n and interval.

    Differences are told in points (hundredths), against the baseline that is best at the
    metric, the world model before (`iteration_<i>`) and the real page; *open* where the interval holds 0.
    """
    pairs = pair_table(cases, newest)
    first = card[card["depth"] == 1].set_index(["model", "metric"])
    said = [_share(first, pairs, newest, metric) for metric in SHARES if (newest, metric) in first.index]
    if (newest, "auc_success") in first.index:
        said.append(_order(first.loc[(newest, "auc_success")], cases, newest))
    return [*said, _before(pairs, newest), *_walks(card, pairs, newest)]


def examples(cases: pd.DataFrame, newest: str) -> list[int]:
    """Places of up to three predictions of `newest` at depth 1: a right one (of a page that changed, if any), one with
    the right outcome and a wrong page, one with a wrong outcome.
    """
    mine = cases[(cases["model"] == newest) & (cases["depth"] == 1)]
    wrong = mine["predicted"] != mine["truth"]
    right = mine[mine["exact"].eq(True)].sort_values("truth", key=lambda truth: truth != "changed", kind="stable")
    kinds = (right, mine[~mine["exact"].eq(True) & ~wrong], mine[wrong])
    return [int(kind["case"].iloc[0]) for kind in kinds if len(kind)]


def _pairs(of_a: pd.DataFrame, of_b: pd.DataFrame, named: dict) -> Iterable[dict]:
    both = of_a.merge(of_b, on=["case", "truth"], suffixes=("_a", "_b"))
    changed = both[both["truth"] == "changed"]
    for metric in SHARES:
        part = changed if metric == "exact_changed" else both
        if metric == "outcome_accuracy":
            a, b = part["predicted_a"] == part["truth"], part["predicted_b"] == part["truth"]
        elif part[["exact_a", "exact_b"]].isna().any(axis=None):
            continue
        else:
            a, b = part["exact_a"].astype(bool), part["exact_b"].astype(bool)
        won, lost = int((b & ~a).sum()), int((a & ~b).sum())
        yield named | {"metric": metric, "n": len(part), "won": won, "lost": lost} | paired(won, lost, len(part))


def _share(first: pd.DataFrame, pairs: pd.DataFrame, newest: str, metric: str) -> str:
    """One step: the share that is right, and the difference from the baseline that is best at it."""
    row, name = first.loc[(newest, metric)], SHARES[metric]
    if not row.n:
        return f"{name}: no such case is held out."
    told = (
        f"{name}: right in {round(row.value * row.n)} of {row.n:.0f}, {row.value:.2f} [{row.low:.2f}, {row.high:.2f}]."
    )
    there = [model for model in BASELINES if (model, metric) in first.index]
    if not there:
        return told
    best = max(there, key=lambda model: first.loc[(model, metric)].value)
    [pair] = pairs[(pairs["a"] == best) & (pairs["metric"] == metric)].itertuples()
    return f"{told} Against {best}, the best baseline: {_difference(pair)}."


def _order(row: pd.Series, cases: pd.DataFrame, newest: str) -> str:
    """AUC. Its bootstrap interval has no width where all ends are in order, so a rank test has to agree with it."""
    from scipy.stats import mannwhitneyu

    mine = cases[(cases["model"] == newest) & (cases["depth"] == 1)]
    good, bad = (mine[mine["truth"] == end]["p_success"].fillna(COIN) for end in ("success", "failure"))
    if not (len(good) and len(bad)):
        return "Success against failure: not measured, for the held-out ends are not of both kinds."
    p = float(mannwhitneyu(good, bad).pvalue)
    settled = not row.low <= COIN <= row.high and p < ALPHA
    word = ("better" if row.value > COIN else "worse") if settled else "open"
    return (
        f"Success against failure: AUC {row.value:.2f} [{row.low:.2f}, {row.high:.2f}] on {len(good)} successes and "
        f"{len(bad)} failures (rank test p = {p:.2g}); against a coin, 0.50: {word}."
    )


def _before(pairs: pd.DataFrame, newest: str) -> str:
    earlier = [name for name in pairs["a"] if name.startswith("iteration_")]
    if not earlier:
        return "Against an earlier iteration: none is there to compare with."
    rows = pairs[(pairs["a"] == earlier[-1]) & (pairs["depth"] == 1)].itertuples()
    told = "; ".join(f"{SHARES[row.metric].lower()} {_difference(row)} (n = {row.n})" for row in rows if row.n)
    return f"{newest} against {earlier[-1]}: {told}."


def _walks(card: pd.DataFrame, pairs: pd.DataFrame, newest: str) -> list[str]:
    """A sentence a depth: how often a free walk is right there, and the same places from the real page."""
    deep = pairs[pairs["depth"] > 1]
    metric = "exact_match" if "exact_match" in set(deep["metric"]) else "outcome_accuracy"
    right = card[(card["model"] == newest) & (card["metric"] == metric)].set_index("depth")["value"]
    said = []
    for pair in deep[deep["metric"] == metric].itertuples():
        hits = round(right[pair.depth] * pair.n)
        told = f"{SHARES[metric].lower()} right in {hits} of {pair.n}, from the real page in"
        told += f" {hits - pair.won + pair.lost}: {_difference(pair)}."
        said.append(f"Step {pair.depth} of free walks: {told}")
    return said or ["Free walks: none has a second step."]


def _difference(pair) -> str:
    points = [f"{round(100 * value):+d}".replace("+0", "0") for value in (pair.difference, pair.low, pair.high)]
    word = "better" if pair.low > 0 else "worse" if pair.high < 0 else "open"
    return f"{points[0]} points [{points[1]}, {points[2]}] ({pair.won} won, {pair.lost} lost): {word}"
