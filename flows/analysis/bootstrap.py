"""Confidence intervals by the bootstrap, seeded: the same sessions give the same interval.

Sessions are drawn, not observations, since observations of one session are alike; of a single session, its observations are.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

RESAMPLES = 1000
SEED = 20_240_101
LEVEL = 0.95

Floats = NDArray[np.float64]


class Summary(NamedTuple):
    """Of all observations together; `low` and `high` bound the median's 95 % interval."""

    n: int
    mean: float
    median: float
    p10: float
    p90: float
    low: float
    high: float


def summarise(groups: Sequence[Sequence[float]]) -> Summary | None:
    """`groups`: the observations of each session. None where there are none."""
    groups = [g for g in groups if len(g)]
    if not groups:
        return None
    values: Floats = np.concatenate([np.asarray(g, dtype=np.float64) for g in groups])
    if len(groups) > 1:
        owner = np.repeat(np.arange(len(groups)), [len(g) for g in groups])
    else:
        owner = np.arange(len(values))
    low, high = _interval(values, owner)
    p10, median, p90 = (float(v) for v in np.percentile(values, (10, 50, 90)))
    return Summary(len(values), float(values.mean()), median, p10, p90, low, high)


def _interval(values: Floats, owner: NDArray[np.int64]) -> tuple[float, float]:
    units = int(owner.max()) + 1
    if units < 2:
        return float("nan"), float("nan")
    order = np.argsort(values, kind="stable")
    ordered, owners = values[order], owner[order]
    random = np.random.default_rng(SEED)
    medians = np.empty(RESAMPLES)
    for i in range(RESAMPLES):
        drawn = np.bincount(random.integers(0, units, units), minlength=units)
        weight = np.cumsum(drawn[owners])
        # The middle one, or the mean of the two in the middle, as in the median itself. A resample may draw only sessions without
        # observations; then the last value stands in.
        middle = np.searchsorted(weight, ((weight[-1] + 1) // 2, weight[-1] // 2 + 1))
        medians[i] = ordered[np.minimum(middle, len(ordered) - 1)].mean()
    edge = (1 - LEVEL) / 2 * 100
    low, high = np.percentile(medians, (edge, 100 - edge))
    return float(low), float(high)


def share(counts: Sequence[tuple[int, int]]) -> tuple[float, float, float] | None:
    """A rate over sessions, each (events, of so many): the pooled rate and its interval. None where there is nothing to divide by."""
    array = np.asarray([c for c in counts if c[1] > 0], dtype=np.float64)
    if not len(array):
        return None
    rate = float(array[:, 0].sum() / array[:, 1].sum())
    if len(array) < 2:
        return rate, float("nan"), float("nan")
    random = np.random.default_rng(SEED)
    drawn = random.integers(0, len(array), (RESAMPLES, len(array)))
    sums = array[drawn].sum(axis=1)
    edge = (1 - LEVEL) / 2 * 100
    low, high = np.percentile(sums[:, 0] / sums[:, 1], (edge, 100 - edge))
    return rate, float(low), float(high)
