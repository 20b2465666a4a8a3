"""Intervals and tests against published or hand-worked values, at their edges too."""

from itertools import product
from math import comb, isnan, nan

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest, bootstrap
from statsmodels.stats.contingency_tables import mcnemar

from wevo_nb import intervals

# won, lost and neither, up to 40 of each
PAIRS = st.tuples(*[st.integers(0, 40)] * 3).map(lambda counts: (counts[0], counts[1], sum(counts)))


@pytest.mark.parametrize(
    ("successes", "n", "low", "high"),
    [
        # Newcombe 1998, Statistics in Medicine 17, Table I, method 3 (four decimals are given there)
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1, 29, 0.0061, 0.1718),
        # edges by hand: none of n ends at z2 / (n + z2), all of n begins at n / (n + z2), z2 = 3.8415
        (0, 10, 0.0, 0.2775),
        (10, 10, 0.7225, 1.0),
        (1, 1, 0.2065, 1.0),
    ],
)
def test_wilson_gives_the_published_intervals(successes, n, low, high):
    rate, lower, upper = intervals.wilson(successes, n)
    assert rate == successes / n
    assert (lower, upper) == (pytest.approx(low, abs=5e-5), pytest.approx(high, abs=5e-5))
    assert 0 <= lower <= rate <= upper <= 1


def test_wilson_of_nothing_is_nan_and_of_too_much_an_error():
    assert all(isnan(value) for value in intervals.wilson(0, 0))
    for successes, n in ((-1, 10), (11, 10)):
        with pytest.raises(ValueError, match=f"{successes} successes out of {n}"):
            intervals.wilson(successes, n)


def test_paired_by_hand():
    """b = 8.5, c = 2.5, N = 52: centre 6/52, half 1.96 sqrt(11 - 36/52)/52; p = 2 (1 + 10 + 45)/1024."""
    row = intervals.paired(won=8, lost=2, n=50)
    assert row["difference"] == 0.12
    assert row["low"] == pytest.approx(-0.005626, abs=1e-6)
    assert row["high"] == pytest.approx(0.236396, abs=1e-6)
    assert row["p"] == pytest.approx(0.109375, abs=1e-12)


def test_paired_is_antisymmetric():
    row, mirrored = intervals.paired(8, 2, 50), intervals.paired(2, 8, 50)
    assert mirrored["difference"] == -row["difference"] and mirrored["p"] == row["p"]
    assert (mirrored["low"], mirrored["high"]) == (pytest.approx(-row["high"]), pytest.approx(-row["low"]))


def test_paired_at_its_edges():
    same = intervals.paired(0, 0, 5)  # half of the interval: 1.959964 / 7
    assert (same["difference"], same["p"]) == (0, 1)
    assert (same["low"], same["high"]) == (pytest.approx(-0.279995, abs=1e-6), pytest.approx(0.279995, abs=1e-6))
    swept = intervals.paired(5, 0, 5)  # 5/7 - 1.959964 sqrt(6 - 25/7)/7; the upper end would pass 1
    assert (swept["difference"], swept["high"], swept["p"]) == (1, 1, 0.0625)
    assert swept["low"] == pytest.approx(0.277945, abs=1e-6)
    assert all(isnan(value) for value in intervals.paired(0, 0, 0).values())
    for won, lost in ((-1, 0), (3, 3)):
        with pytest.raises(ValueError, match=f"won {won} and lost {lost} of 5"):
            intervals.paired(won, lost, 5)


@settings(deadline=None)  # the first example imports scipy
@given(PAIRS)
def test_p_is_statsmodels_exact_mcnemar(pair):
    won, lost, n = pair
    if n:
        exact = mcnemar([[0, won], [lost, n - won - lost]], exact=True).pvalue if won + lost else 1.0
        assert intervals.paired(won, lost, n)["p"] == pytest.approx(exact, rel=1e-9)


# -- unscored


@pytest.mark.parametrize(
    ("successes", "n", "unscored", "bounds"),
    [
        (3, 8, 2, (0.3, 0.5)),
        (0, 4, 1, (0.0, 0.2)),  # none of n
        (4, 4, 1, (0.8, 1.0)),  # all of n
        (1, 1, 0, (1.0, 1.0)),  # nothing is open
        (0, 0, 5, (0.0, 1.0)),  # everything is
    ],
)
def test_the_unscored_bound_a_rate(successes, n, unscored, bounds):
    assert intervals.unscored_bounds(successes, n, unscored) == bounds


def test_no_episode_has_no_bounds_and_wrong_counts_are_refused():
    assert all(map(isnan, intervals.unscored_bounds(0, 0, 0)))
    for counts in ((5, 4, 0), (-1, 4, 0), (1, 4, -1)):
        with pytest.raises(ValueError, match="give counts, successes at most n"):
            intervals.unscored_bounds(*counts)


# -- bootstraps


@pytest.mark.parametrize(
    ("won", "lost", "n", "low", "high"),
    [
        # all on one side: the difference is Bin(n, won / n) / n, its quantiles are those of the binomial
        # Bin(50, .16): P(X <= 2) = .0090, P(X <= 3) = .0312, P(X <= 12) = .9525, P(X <= 13) = .9777
        (8, 0, 50, 3 / 50, 13 / 50),
        (0, 8, 50, -13 / 50, -3 / 50),
        (5, 5, 10, -0.6, 0.6),  # 2 Bin(10, .5) / 10 - 1: P(X <= 1) = .0107, P(X <= 2) = .0547
        (0, 0, 7, 0.0, 0.0),  # no discordant pair
        (1, 0, 1, 1.0, 1.0),
        (6, 0, 6, 1.0, 1.0),
    ],
)
def test_the_paired_bootstrap_has_the_quantiles_of_its_binomial(won, lost, n, low, high):
    assert intervals.paired_bootstrap(won, lost, n) == (pytest.approx(low), pytest.approx(high))


def test_the_paired_bootstrap_is_scipys_over_the_episodes():
    """The same by another path: 200 episodes of which 26 are won and 12 lost, another seed."""
    gains = np.repeat([1, -1, 0], [26, 12, 162])
    there = bootstrap((gains,), np.mean, n_resamples=9999, method="percentile", rng=7).confidence_interval
    here = intervals.paired_bootstrap(26, 12, 200)
    assert here == (pytest.approx(there.low, abs=1 / 200), pytest.approx(there.high, abs=1 / 200))
    assert here == intervals.paired_bootstrap(26, 12, 200)  # seeded


def test_a_bootstrap_of_nothing_is_nan_and_of_wrong_counts_an_error():
    assert all(map(isnan, intervals.paired_bootstrap(0, 0, 0)))
    assert all(map(isnan, intervals.cluster_bootstrap([], [])))
    with pytest.raises(ValueError, match="won 3 and lost 3 of 5"):
        intervals.paired_bootstrap(3, 3, 5)
    for totals, sizes in (([1], [1, 2]), ([0, 1], [0, 2])):
        with pytest.raises(ValueError, match="give both for each cluster, no size below 1"):
            intervals.cluster_bootstrap(totals, sizes)


@pytest.mark.parametrize(
    ("totals", "sizes", "low", "high"),
    [
        # half of ten families solved whole: Bin(10, .5) / 10, P(X <= 1) = .0107, P(X <= 2) = .0547
        ([10] * 5 + [0] * 5, [10] * 10, 0.2, 0.8),
        # two clusters, rates 0 and 1: both draws the first (1 in 4): 0; both the second: 1
        ([0, 3], [1, 3], 0.0, 1.0),
        # three: only the first (1 in 27, .037): 0 of 1; only the second: 2 of 2
        ([0, 2, 1], [1, 2, 2], 0.0, 1.0),
        ([5, 5, 5], [10, 10, 10], 0.5, 0.5),  # all alike
        ([0, 0], [4, 9], 0.0, 0.0),
        ([-2, 2], [4, 4], -0.5, 0.5),  # won - lost
    ],
)
def test_the_cluster_bootstrap_by_hand(totals, sizes, low, high):
    assert intervals.cluster_bootstrap(totals, sizes) == (pytest.approx(low), pytest.approx(high))


def test_clusters_of_one_episode_are_episodes_and_one_cluster_has_no_interval():
    """8 of 50: the binomial of the test above, of which the paired bootstrap is the other path."""
    assert intervals.cluster_bootstrap([1] * 8 + [0] * 42, [1] * 50) == (pytest.approx(0.06), pytest.approx(0.26))
    assert all(map(isnan, intervals.cluster_bootstrap([5], [10])))


def test_the_interval_over_families_is_wider_where_they_are_all_or_nothing():
    """50 of 100 in ten families: 19 points by Wilson, 60 over the families; alike families change little."""
    _, low, high = intervals.wilson(50, 100)
    wide = intervals.cluster_bootstrap([10] * 5 + [0] * 5, [10] * 10)
    alike = intervals.cluster_bootstrap([5] * 10, [10] * 10)
    assert (high - low, wide[1] - wide[0]) == (pytest.approx(0.192, abs=5e-4), pytest.approx(0.6))
    assert alike[1] - alike[0] == 0


def test_few_clusters_are_too_few():
    """Of 300 seeded draws of families with rates Beta(.5, .5), ten episodes each: how many intervals hold .5.

    Nine thousand draws beforehand: 79% with three families, 95% with twenty.
    """
    chance = np.random.default_rng(1)

    def held(families: int) -> float:
        solved = chance.binomial(10, chance.beta(0.5, 0.5, (300, families)))
        ends = [intervals.cluster_bootstrap(row.tolist(), [10] * families) for row in solved]
        return sum(low <= 0.5 <= high for low, high in ends) / 300

    assert held(3) < 0.86 and held(intervals.FEW_CLUSTERS) > 0.91


# -- a table, runs, other episodes


def test_holm_by_hand():
    """Sorted .005 x 4, .01 x 3, .03 x 2, and .04 x 1, which may not fall below the one before. nan is no comparison."""
    corrected = intervals.holm([0.01, 0.04, nan, 0.03, 0.005])
    assert corrected[:2] + corrected[3:] == pytest.approx([0.03, 0.06, 0.06, 0.02]) and isnan(corrected[2])
    assert intervals.holm([0.2]) == [0.2] and intervals.holm([]) == [] and isnan(intervals.holm([nan])[0])
    assert intervals.holm([0.6, 0.9]) == [1.0, 1.0]
    with pytest.raises(ValueError, match="p = 1.5"):
        intervals.holm([0.5, 1.5])


@settings(deadline=None, max_examples=20)  # statsmodels collects garbage at every call
@given(st.lists(st.floats(0, 1), min_size=1, max_size=30))
def test_holm_lies_between_p_and_bonferroni_and_keeps_the_order(values):
    corrected = intervals.holm(values)
    for p, held in zip(values, corrected, strict=True):
        assert p - 1e-12 <= held <= min(1, p * len(values)) + 1e-12
    in_order = [held for _, held in sorted(zip(values, corrected, strict=True))]
    assert in_order == sorted(in_order)


def test_the_mean_of_runs_by_hand():
    """1, 3, 5: sd 2, t of 2 degrees of freedom 4.3027 (any table of t), half 4.3027 x 2 / sqrt 3 = 4.9683."""
    assert intervals.mean_interval([1, 3, 5]) == {
        "runs": 3, "mean": 3, "sd": 2, "least": 1, "most": 5,
        "low": pytest.approx(-1.9683, abs=1e-4), "high": pytest.approx(7.9683, abs=1e-4),
    }  # fmt: skip
    same = intervals.mean_interval([0.5] * 4)
    assert (same["sd"], same["low"], same["high"]) == (0, 0.5, 0.5)


def test_two_runs_have_a_distance_one_has_itself_and_none_has_nothing():
    two, one, none = (intervals.mean_interval(values) for values in ([1, 3], [4], []))
    assert (two["mean"], two["sd"], two["least"], two["most"]) == (2, pytest.approx(2**0.5), 1, 3)
    assert isnan(two["low"]) and isnan(two["high"])
    assert (one["runs"], one["mean"], one["least"], one["most"]) == (1, 4, 4, 4) and isnan(one["sd"])
    assert none.pop("runs") == 0 and all(map(isnan, none.values()))


@pytest.mark.parametrize(
    ("b", "a", "low", "high"),
    [
        # Newcombe 1998, Statistics in Medicine 17, 873-890, Table II, method 10
        ((56, 70), (48, 80), 0.0524, 0.3339),
        ((9, 10), (3, 10), 0.1705, 0.8090),
        ((6, 7), (2, 7), 0.0582, 0.8062),
        ((5, 56), (0, 29), -0.0381, 0.1926),
        ((0, 10), (0, 20), -0.1611, 0.2775),
        ((0, 10), (0, 10), -0.2775, 0.2775),
        ((10, 10), (0, 20), 0.6791, 1.0000),
        ((10, 10), (0, 10), 0.6075, 1.0000),
    ],
)
def test_a_difference_on_other_episodes_is_newcombes(b, a, low, high):
    difference, *ends = intervals.difference_of_rates(*a, *b)
    assert difference == pytest.approx(b[0] / b[1] - a[0] / a[1])
    assert ends == [pytest.approx(low, abs=5e-5), pytest.approx(high, abs=5e-5)]


def test_a_difference_to_nothing_is_nan_and_of_wrong_counts_an_error():
    assert all(map(isnan, intervals.difference_of_rates(0, 0, 1, 2)))
    with pytest.raises(ValueError, match="3 successes out of 2"):
        intervals.difference_of_rates(1, 2, 3, 2)


# -- what n could have shown


def test_power_is_gpowers():
    """G*Power 3.1 manual, chapter 5 (O'Brien 2002): .08 and .32 discordant, n = 50, one-sided .05: power .839343.

    One-sided .05 is one side of two-sided .10; the other rejects once in a million here.
    """
    assert intervals.mcnemar_power(50, 0.40, 0.24, alpha=0.10) == pytest.approx(0.839343, abs=2e-5)


@pytest.mark.parametrize(("disagree", "difference"), [(0.5, 0.0), (0.6, 0.3), (0.9, 0.9), (0.4, -0.2)])
def test_power_is_the_sum_over_every_table(disagree, difference):
    """All tables of 12 episodes, each with its chance, those with p below .05 counted."""
    n, wins, losses = 12, (disagree + difference) / 2, (disagree - difference) / 2
    found = sum(
        comb(n, won) * comb(n - won, lost) * wins**won * losses**lost * (1 - disagree) ** (n - won - lost)
        for won, lost in product(range(n + 1), repeat=2)
        if 0 < won + lost <= n and binomtest(won, won + lost).pvalue < 0.05
    )
    assert intervals.mcnemar_power(n, disagree, difference) == pytest.approx(found, abs=1e-10)


def test_power_at_its_edges():
    assert intervals.mcnemar_power(6, 1.0, 1.0) == pytest.approx(1)  # six of six fall one way: p = 1 / 32
    assert intervals.mcnemar_power(6, 0.5, 0.5) == pytest.approx(1 / 64)  # all six have to disagree
    assert intervals.mcnemar_power(6, 0.5, 0.0) == pytest.approx(1 / 64 * 1 / 32)  # and to fall alike
    assert intervals.mcnemar_power(5, 1.0, 1.0) == intervals.mcnemar_power(0, 1.0, 1.0) == 0  # p = 1 / 16 at best
    assert intervals.mcnemar_power(9, 0.0, 0.0) == 0
    with pytest.raises(ValueError, match="difference 0.5 of 0.4 that disagree"):
        intervals.mcnemar_power(10, 0.4, 0.5)


def test_the_least_difference_that_n_shows_by_hand():
    """Six episodes: all must be won, chance gap^6 = .8. Seven: at least six, 7 gap^6 - 6 gap^7 = .8."""
    assert intervals.detectable(0, 0, 6) == pytest.approx(0.8 ** (1 / 6), abs=1e-9)
    gap = intervals.detectable(0, 0, 7)
    assert 7 * gap**6 - 6 * gap**7 == pytest.approx(0.8, abs=1e-9)
    assert all(isnan(intervals.detectable(0, 0, n)) for n in (0, 1, 5))
    with pytest.raises(ValueError, match="won 3 and lost 3 of 5"):
        intervals.detectable(3, 3, 5)


@settings(deadline=None)  # the first example imports scipy
@given(PAIRS.filter(lambda pair: pair[2] > 6))
def test_the_least_difference_has_the_power_that_it_claims(pair):
    won, lost, n = pair
    gap = intervals.detectable(won, lost, n)
    disagree = max(gap, (won + lost) / n)
    assert intervals.mcnemar_power(n, disagree, gap) == pytest.approx(intervals.POWER, abs=1e-6)
    assert intervals.mcnemar_power(n, disagree, gap / 2) < intervals.POWER


def test_a_hundred_thousand_episodes_show_what_six_cannot():
    """Normal approximation (Lachenbruch 1992): gap = (1.96 + .84) sqrt(disagree / n), .0043 at 23% of 100,000."""
    assert intervals.detectable(12_000, 11_000, 100_000) == pytest.approx(2.8 * (0.23 / 100_000) ** 0.5, rel=0.01)
