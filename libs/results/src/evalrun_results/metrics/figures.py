"""A metric's value with its interval, and the set in which the metrics of a dataset are collected. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, Self, TypeAlias
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from evalrun_results.metrics.intervals import (
    MIN_ON_A_SIDE,
    MIN_PROBLEMS,
    Floats,
    bootstrap_ratios,
    order_statistics,
    plus_four,
    wilson,
)
from evalrun_results.samples import JsonObject

Method: TypeAlias = Literal["wilson", "bootstrap", "plus_four", "order_statistics", "betting", "none"]
Mask: TypeAlias = NDArray[np.bool_]

TOO_FEW: Final = f"fewer than {MIN_PROBLEMS} problems: an interval over so few would be too narrow"
ROUNDING: Final = 1e-9
"""A narrower interval, relative to its value, comes from sums that differ only by rounding."""
ALL_ALIKE: Final = "every problem has the same value: how much they may differ is not known"


@dataclass(frozen=True, slots=True)
class Figure:
    """A metric's value with its 95 % interval.

    value: None if it is undefined (nothing judged, nothing solved).
    low, high: None without a value or an interval, and if the bound is infinite: more than 1 in 40 resamples solved
        nothing, or too few problems lie beyond a percentile.
    method: of the interval; `none` if there is none.
    n: how many problems the figure is about.
    no_interval_because: why a value has no interval; empty if it has one.
    high_bound: the value had every assumed timeout passed; None if there are none.
    """

    value: float | None
    low: float | None
    high: float | None
    method: Method
    n: int
    no_interval_because: str = ""
    high_bound: float | None = None

    @classmethod
    def make_without_interval(cls, value: float | None, n: int, because: str) -> Self:
        """Create a figure that has no interval."""
        return cls(value, None, None, "none", n, "" if value is None else because)

    def as_json(self) -> JsonObject:
        """Return the entry of summary.json."""
        entry: JsonObject = {
            "value": self.value, "low": self.low, "high": self.high, "method": self.method, "n": self.n,
        }  # fmt: skip
        if self.no_interval_because:
            entry["no_interval_because"] = self.no_interval_because
        if self.high_bound is not None:
            entry["high_bound"] = self.high_bound
        return entry


@dataclass(slots=True)
class MetricSet:
    """Collects metrics over the same problems, so that ratios share a set of bootstrap draws."""

    clustered: bool
    """Whether a problem has more than one sample: Wilson's interval would then be far too narrow."""
    _done: dict[str, Figure] = field(default_factory=dict)
    _ratios: dict[str, tuple[Floats, Floats, int]] = field(default_factory=dict)
    _means: dict[str, tuple[Floats, Mask]] = field(default_factory=dict)
    _few_shares: set[str] = field(default_factory=set)
    """Means of shares whose bootstrap would be too narrow."""
    _order: list[str] = field(default_factory=list)

    def share(self, name: str, hits: NDArray[np.generic], trials: NDArray[np.generic], members: Mask) -> None:
        """Report the mean over the member problems of hits / trials. With a single trial each it is a proportion."""
        hit, tried = hits[members].astype(np.int64), trials[members].astype(np.int64)
        if self.clustered or (tried != 1).any():
            shares = np.zeros(len(members))
            shares[members] = hit / tried
            self.mean_share(name, shares, members)
            return
        self._order.append(name)
        successes, count = int(hit.sum()), len(hit)
        self._done[name] = Figure(successes / count if count else None, *wilson(successes, count), "wilson", count)

    def mean_share(self, name: str, shares: Floats, members: Mask) -> None:
        """Report the mean over the member problems of values from 0 to 1."""
        self.mean(name, shares, members)
        if _few_shares(shares[members]):
            self._few_shares.add(name)

    def mean(self, name: str, values: Floats, members: Mask) -> None:
        """Report the mean over the member problems."""
        self._means[name] = (values, members)
        self.ratio(name, values, members.astype(np.float64), members)

    def ratio(self, name: str, above: Floats, below: Floats, members: Mask) -> None:
        """Report sum(above) / sum(below) over the member problems; its value is None if the denominator is 0."""
        self._order.append(name)
        self._ratios[name] = (np.where(members, above, 0.0), np.where(members, below, 0.0), int(members.sum()))

    def percentile(self, name: str, values: Floats, members: Mask, percentile: float) -> None:
        """Report numpy's linear percentile over the member problems."""
        self._order.append(name)
        known = values[members]
        value = float(np.percentile(known, percentile)) if len(known) else None
        low, high = order_statistics(known, percentile)
        self._done[name] = (
            Figure.make_without_interval(value, len(known), TOO_FEW)
            if low is None and high is None
            else Figure(value, low, high, "order_statistics", len(known))
        )

    def values(self) -> dict[str, float | None]:
        """Return the values alone."""
        ratios = {name: _quotient(above, below) for name, (above, below, _) in self._ratios.items()}
        return {name: figure.value for name, figure in self._done.items()} | ratios

    def means(self) -> dict[str, tuple[Floats, Mask]]:
        """Return the values and members of each mean; if the set is clustered, shares are means too."""
        return dict(self._means)

    def figures(self, seed: int) -> dict[str, Figure]:
        """Return every figure, in the order in which they were asked for."""
        done = dict(self._done)
        drawn: dict[str, tuple[Floats, Floats, int]] = {}
        for name, (above, below, count) in self._ratios.items():
            value = _quotient(above, below)
            if value is not None and name in self._few_shares:
                shares, members = self._means[name]
                done[name] = Figure(value, *plus_four(shares[members]), "plus_four", count)
            elif value is None or count < MIN_PROBLEMS:
                done[name] = Figure.make_without_interval(value, count, TOO_FEW)
            else:
                drawn[name] = (above, below, count)
        return {name: done[name] for name in self._order} if not drawn else self._bootstrap_figures(done, drawn, seed)

    def _bootstrap_figures(
        self, done: dict[str, Figure], drawn: Mapping[str, tuple[Floats, Floats, int]], seed: int
    ) -> dict[str, Figure]:
        above = np.stack([ratio[0] for ratio in drawn.values()], axis=1)
        below = np.stack([ratio[1] for ratio in drawn.values()], axis=1)
        bounds = bootstrap_ratios(above, below, np.random.default_rng([seed, crc32(b"ratios")]))
        for (name, (over, under, count)), (low, high) in zip(drawn.items(), bounds, strict=True):
            value = float(over.sum() / under.sum())
            done[name] = (
                Figure.make_without_interval(value, count, ALL_ALIKE)
                if low is not None and high is not None and high - low <= ROUNDING * abs(value)
                else Figure(value, low, high, "bootstrap", count)
            )
        return {name: done[name] for name in self._order}


def _quotient(above: Floats, below: Floats) -> float | None:
    return float(above.sum() / below.sum()) if below.sum() > 0 else None


def _few_shares(shares: Floats) -> bool:
    """Return whether the bootstrap of the mean of these shares would be too narrow."""
    if len(shares) < MIN_PROBLEMS:
        return True
    mean = float(shares.mean())
    return bool(min(mean, 1 - mean) * len(shares) < MIN_ON_A_SIDE or shares.min() == shares.max())
