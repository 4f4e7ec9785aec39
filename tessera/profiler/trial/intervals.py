"""What is known of a median from few samples, whatever their distribution is.

The interval lies between two of the samples: of `n` independent ones, the number below the median is binomial (n, 1/2),
so that the k-th smallest and the k-th largest enclose it except with probability 2 P(Bin(n, 1/2) < k). This holds for
skewed samples and for outliers, at any level, where resampling twenty samples covers less than it says far out in the
tails (docs/decisions/0092).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MedianInterval:
    """A median, and where it lies with probability `confidence`."""

    low: float
    middle: float
    high: float
    confidence: float

    def holds(self, value: float) -> bool:
        return self.low <= value <= self.high

    def map(self, function: object) -> MedianInterval:
        """The interval of a decreasing or increasing function of the figure."""
        assert callable(function)
        ends = sorted((function(self.low), function(self.high)))
        return MedianInterval(ends[0], function(self.middle), ends[1], self.confidence)


def median_interval(samples: Sequence[float], confidence: float = 0.95) -> MedianInterval:
    """The median of independent samples. Where there are too few for the confidence, the interval is unbounded."""
    ordered, n = sorted(samples), len(samples)
    if not n:
        return MedianInterval(-math.inf, math.nan, math.inf, confidence)
    below, k, tail = (1 - confidence) / 2, 0, 0.0
    while k < n // 2 and (tail := tail + math.comb(n, k) / 2**n) <= below:
        k += 1
    low, high = (ordered[k - 1], ordered[n - k]) if k else (-math.inf, math.inf)
    return MedianInterval(low, statistics.median(ordered), high, confidence)
