"""A figure with its interval, and the sheet on which a dataset's figures are collected. Pure."""

from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from evalrun_aggregator.intervals import Bounds, Floats, bootstrap_percentile, bootstrap_ratios, wilson
from evalrun_aggregator.results import JsonObject

Method: TypeAlias = Literal["wilson", "bootstrap"]
Mask: TypeAlias = NDArray[np.bool_]
NO_BOUNDS: Final[Bounds] = (None, None)


@dataclass(frozen=True, slots=True)
class Figure:
    """A metric's value with its 95 % interval.

    value: None where it is not defined (nothing judged, nothing solved).
    low, high: None where the value is, and where the bound is infinite: more than one draw in 40 solved nothing.
    method: of the interval.
    n: how many problems the figure is about.
    """

    value: float | None
    low: float | None
    high: float | None
    method: Method
    n: int

    def as_json(self) -> JsonObject:
        """Give the entry of summary.json."""
        return {"value": self.value, "low": self.low, "high": self.high, "method": self.method, "n": self.n}


@dataclass(slots=True)
class FigureSheet:
    """Collects figures over the same problems, so that the ratios among them share one set of bootstrap draws."""

    clustered: bool
    """Some problem has more than one sample: Wilson's interval would be far too narrow."""
    _done: dict[str, Figure] = field(default_factory=dict)
    _ratios: dict[str, tuple[Floats, Floats, int]] = field(default_factory=dict)
    _means: dict[str, tuple[Floats, Mask]] = field(default_factory=dict)
    _percentiles: dict[str, tuple[Floats, float]] = field(default_factory=dict)
    _order: list[str] = field(default_factory=list)

    def share(self, name: str, hits: NDArray[np.generic], trials: NDArray[np.generic], members: Mask) -> None:
        """Report the mean over the member problems of hits / trials; with one trial each it is a proportion."""
        hit, tried = hits[members].astype(np.int64), trials[members].astype(np.int64)
        if self.clustered or (tried != 1).any():
            shares = np.zeros(len(members))
            shares[members] = hit / tried
            self.mean(name, shares, members)
            return
        self._order.append(name)
        successes, count = int(hit.sum()), len(hit)
        self._done[name] = Figure(successes / count if count else None, *wilson(successes, count), "wilson", count)

    def mean(self, name: str, values: Floats, members: Mask) -> None:
        """Report the mean over the member problems."""
        self._means[name] = (values, members)
        self.ratio(name, values, members.astype(np.float64), members)

    def ratio(self, name: str, above: Floats, below: Floats, members: Mask) -> None:
        """Report sum(above) / sum(below) over the member problems; nothing where the denominator is 0."""
        self._order.append(name)
        self._ratios[name] = (np.where(members, above, 0.0), np.where(members, below, 0.0), int(members.sum()))

    def percentile(self, name: str, values: Floats, members: Mask, percentile: float) -> None:
        """Report numpy's linear percentile over the member problems."""
        self._order.append(name)
        self._percentiles[name] = (values[members], percentile)

    def means(self) -> dict[str, tuple[Floats, Mask]]:
        """Give the values and members of each mean; where the sheet is clustered, shares are means too."""
        return dict(self._means)

    def figures(self, seed: int) -> dict[str, Figure]:
        """Give every figure, in the order in which they were asked for."""
        done = dict(self._done)
        defined = {name: ratio for name, ratio in self._ratios.items() if ratio[1].sum() > 0}
        bounds = {}
        if defined:
            above = np.stack([ratio[0] for ratio in defined.values()], axis=1)
            below = np.stack([ratio[1] for ratio in defined.values()], axis=1)
            drawn = bootstrap_ratios(above, below, np.random.default_rng([seed, crc32(b"ratios")]))
            bounds = dict(zip(defined, drawn, strict=True))
        for name, (above, below, members) in self._ratios.items():
            value = float(above.sum() / below.sum()) if name in defined else None
            done[name] = Figure(value, *bounds.get(name, NO_BOUNDS), "bootstrap", members)
        for name, (values, percentile) in self._percentiles.items():
            # A stream of its own: a figure more leaves the intervals of the others as they are.
            rng = np.random.default_rng([seed, crc32(name.encode())])
            interval = bootstrap_percentile(values, percentile, rng)
            value = float(np.percentile(values, percentile)) if len(values) else None
            done[name] = Figure(value, *interval, "bootstrap", len(values))
        return {name: done[name] for name in self._order}
