"""How far a number may be off: intervals of a rate, a mean and a difference, tests of two arms on the same episodes.

Counts and values in, numbers out; nothing is read or written. Rates and differences are fractions,
intervals are 95% ones. The formulas are those of scipy and statsmodels where they have them. Used by
metrics.py, repeats.py and whatever states a rate. Paper: it gives no intervals.
"""

from __future__ import annotations

from collections.abc import Sequence

NAN = float("nan")
Z95 = 1.959964  # standard normal quantile of a two-sided 95% interval
RESAMPLES = 9999  # of a bootstrap: the ends of its interval move by about a hundredth of its width from seed to seed
# Below it a cluster bootstrap is too narrow: few is "less than 20 to less than 50" (Cameron and Miller 2015, Journal of
# Human Resources 50(2), section VI). Of 95% intervals over families of ten episodes, most of them all or nothing,
# 79% hold the truth with 3 families, 88% with 5, 93% with 10, 95% with 20 (tests/test_intervals.py draws some).
FEW_CLUSTERS = 20
POWER, ALPHA = 0.8, 0.05  # of a comparison that could have shown a difference: found in four cases of five, at p < 0.05


def wilson(successes: float, n: float) -> tuple[float, float, float]:
    """(rate, low, high), fractions: the Wilson 95% interval of `successes` out of `n`; nan where n is 0.

    Source: Wilson 1927; advised at every n, 0 and n successes included, by Brown, Cai and
    DasGupta 2001, Statistical Science 16(2). Raises ValueError unless 0 <= successes <= n.
    """
    if not 0 <= successes <= n:
        raise ValueError(f"{successes} successes out of {n}: give a count between 0 and n")
    if n == 0:
        return NAN, NAN, NAN
    from statsmodels.stats.proportion import proportion_confint

    low, high = proportion_confint(successes, n, alpha=0.05, method="wilson")
    rate = successes / n
    return rate, min(max(float(low), 0.0), rate), max(min(float(high), 1.0), rate)


def unscored_bounds(successes: int, n: int, unscored: int) -> tuple[float, float]:
    """(low, high): the rate of `n` scored and `unscored` further episodes, had all of these failed or all succeeded.

    No interval: the ends of what a judge that cannot be read leaves open (Manski 1990, bounds of worst and
    best case). nan where there is no episode. Raises ValueError where the counts do not fit.
    """
    if not 0 <= successes <= n or unscored < 0:
        raise ValueError(f"{successes} successes out of {n} and {unscored} unscored: give counts, successes at most n")
    whole = n + unscored
    return (successes / whole, (successes + unscored) / whole) if whole else (NAN, NAN)


def paired(won: int, lost: int, n: int) -> dict[str, float]:
    """How much better b is than a on the same n episodes: difference, low, high (fractions), p.

    `won` episodes succeed with b alone, `lost` ones with a alone. The interval is the adjusted
    Wald one (half an episode added to each cell of the 2 x 2 table) of Agresti and Min 2005,
    Statistics in Medicine 24(5); p is the exact, two-sided McNemar test: under no difference an
    episode that only one of the two solves is a fair coin. All nan where n is 0.
    Raises ValueError where the counts do not fit n.
    """
    _check_pairs(won, lost, n)
    if n == 0:
        return {"difference": NAN, "low": NAN, "high": NAN, "p": NAN}
    from scipy.stats import binomtest

    b, c, total = won + 0.5, lost + 0.5, n + 2
    centre = (b - c) / total
    half = Z95 * (b + c - (b - c) ** 2 / total) ** 0.5 / total
    p = float(binomtest(won, won + lost, 0.5).pvalue) if won + lost else 1.0
    return {"difference": (won - lost) / n, "low": max(centre - half, -1.0), "high": min(centre + half, 1.0), "p": p}


def paired_bootstrap(won: int, lost: int, n: int, *, seed: int = 0) -> tuple[float, float]:
    """(low, high) of (won - lost) / n, fractions: percentiles over n episodes drawn again and again, with their pair.

    An episode says won, lost or neither, so a draw of n of them is one multinomial count: numpy draws that, the
    very distribution of `scipy.stats.bootstrap` over the episodes, at a cost that does not grow with n. Both ends
    are 0 where no episode is won or lost: a bootstrap knows nothing that was not seen, `paired` is wider there.
    nan where n is 0. Raises ValueError where the counts do not fit n.
    """
    _check_pairs(won, lost, n)
    if n == 0:
        return NAN, NAN
    import numpy as np

    drawn = np.random.default_rng(seed).multinomial(n, [won / n, lost / n, (n - won - lost) / n], size=RESAMPLES)
    low, high = np.quantile((drawn[:, 0] - drawn[:, 1]) / n, [0.025, 0.975])
    return float(low), float(high)


def cluster_bootstrap(totals: Sequence[float], sizes: Sequence[int], *, seed: int = 0) -> tuple[float, float]:
    """(low, high) of sum(totals) / sum(sizes): percentiles over whole clusters drawn again and again.

    A cluster is a task family or a site: `totals` its successes (or won - lost), `sizes` its episodes. Episodes of
    one cluster resemble each other, so this is as a rule wider than an interval over episodes, and it speaks of
    other clusters like these. By `scipy.stats.bootstrap`. Below FEW_CLUSTERS it is too narrow all the same, and of
    fewer than two clusters it is nan. Raises ValueError where the lengths differ or a cluster is empty.
    """
    if len(totals) != len(sizes) or any(size <= 0 for size in sizes):
        raise ValueError(f"{len(totals)} totals and sizes {list(sizes)}: give both for each cluster, no size below 1")
    if len(sizes) < 2:
        return NAN, NAN
    from scipy.stats import bootstrap

    ratio = lambda total, size, axis=-1: total.sum(axis=axis) / size.sum(axis=axis)  # noqa: E731
    how = {"paired": True, "vectorized": True, "method": "percentile", "n_resamples": RESAMPLES, "batch": 1000}
    low, high = bootstrap((totals, sizes), ratio, rng=seed, **how).confidence_interval
    return float(low), float(high)


def holm(p: Sequence[float]) -> list[float]:
    """The p values of one table, each corrected for all of its comparisons; nan stays nan and counts for none.

    Below 0.05 after it: at most 5 tables in 100 hold such a row by luck alone. Source: Holm 1979, Scandinavian
    Journal of Statistics 6(2), by statsmodels. Raises ValueError on a p outside 0..1.
    """
    known = [value for value in p if value == value]
    if outside := [value for value in known if not 0 <= value <= 1]:
        raise ValueError(f"p = {outside[0]}: a p value lies between 0 and 1")
    if not known:
        return list(p)
    from statsmodels.stats.multitest import multipletests

    corrected = iter(multipletests(known, method="holm")[1])
    return [float(next(corrected)) if value == value else NAN for value in p]


def mean_interval(values: Sequence[float]) -> dict[str, float]:
    """Several runs of one thing: runs, mean, sd (n - 1 below), least, most, and low and high of the mean's interval.

    The interval is Student's t and needs three values: two have a difference and no more, and it is nan there,
    as sd is for one. Everything is nan for none.
    """
    values = [float(value) for value in values]
    if not values:
        return {"runs": 0} | dict.fromkeys(("mean", "sd", "least", "most", "low", "high"), NAN)
    from statistics import fmean, stdev

    n, mean = len(values), fmean(values)
    sd = stdev(values) if n > 1 else NAN
    half = NAN
    if n > 2:
        from scipy.stats import t

        half = float(t.ppf(0.975, n - 1)) * sd / n**0.5
    told = {"runs": n, "mean": mean, "sd": sd, "least": min(values), "most": max(values)}
    return told | {"low": mean - half, "high": mean + half}


def difference_of_rates(successes_a: int, n_a: int, successes_b: int, n_b: int) -> tuple[float, float, float]:
    """(difference, low, high) of b - a on different episodes, fractions: Newcombe's hybrid of two Wilson intervals.

    Source: Newcombe 1998, Statistics in Medicine 17, method 10, by statsmodels. nan where one has no episode.
    For the same episodes take `paired`. Raises ValueError unless 0 <= successes <= n.
    """
    for successes, n in ((successes_a, n_a), (successes_b, n_b)):
        if not 0 <= successes <= n:
            raise ValueError(f"{successes} successes out of {n}: give a count between 0 and n")
    if not (n_a and n_b):
        return NAN, NAN, NAN
    from statsmodels.stats.proportion import confint_proportions_2indep

    low, high = confint_proportions_2indep(successes_b, n_b, successes_a, n_a, compare="diff", method="newcomb")
    return successes_b / n_b - successes_a / n_a, float(low), float(high)


def mcnemar_power(n: int, disagree: float, difference: float, *, alpha: float = ALPHA) -> float:
    """The chance that the exact, two-sided McNemar test of n episodes comes out below `alpha`.

    `disagree` is the share of episodes that only one of the two arms solves, `difference` by how much the shares of
    b alone and a alone differ. Summed over how many episodes disagree (Duffy 1984, Biometrics 40(4); neither scipy
    nor statsmodels has it). Raises ValueError unless |difference| <= disagree <= 1.
    """
    if not abs(difference) <= disagree <= 1:
        raise ValueError(f"difference {difference} of {disagree} that disagree: give |difference| <= disagree <= 1")
    if n == 0 or disagree == 0:
        return 0.0
    import numpy as np
    from scipy.stats import binom

    ends = binom.ppf(1e-12, n, disagree), binom.isf(1e-12, n, disagree)
    discordant = np.arange(ends[0], ends[1] + 1)
    least = binom.isf(alpha / 2, discordant, 0.5) + 1  # of one side, for p below alpha
    share = (disagree + difference) / (2 * disagree)
    found = binom.sf(least - 1, discordant, share) + binom.cdf(discordant - least, discordant, share)
    return float((binom.pmf(discordant, n, disagree) * found).sum())


def detectable(won: int, lost: int, n: int) -> float:
    """The least difference, a fraction, that n such episodes show at p < ALPHA with a chance of POWER.

    As many of them disagree as did here, or just as many as the difference needs, all to one side. nan where n
    episodes could show none: five fair coins that fall alike are no evidence. Raises ValueError where the counts
    do not fit n.
    """
    _check_pairs(won, lost, n)
    missing = lambda gap: mcnemar_power(n, max((won + lost) / n, gap), gap) - POWER  # noqa: E731
    if n == 0 or missing(1.0) < 0:
        return NAN
    from scipy.optimize import brentq

    return float(brentq(missing, 1e-9, 1.0))


def _check_pairs(won: int, lost: int, n: int):
    if min(won, lost) < 0 or won + lost > n:
        raise ValueError(f"won {won} and lost {lost} of {n}: both are counts, and together at most n")
