"""Choice of the results for the QA logs: stratified samples of a stream, independent of its order. Pure."""

import heapq
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Final, Generic, TypeVar

T = TypeVar("T")

STRATA: Final = ("success", "wrong_answer", "syntax_error", "runtime_error", "timeout")
API_ERROR: Final = "api_error"
API_ERROR_EXTRA: Final = 5
"""Extra places for completions that were not judged."""

OTHER_QUOTAS: Final = dict(zip(STRATA, (4, 8, 4, 2, 2), strict=True))
QUOTAS: Final[Mapping[str, Mapping[str, int]]] = {
    "codecontests_valid": dict(zip(STRATA, (10, 20, 10, 5, 5), strict=True)),
    "codecontests_test": dict(zip(STRATA, (6, 12, 6, 3, 3), strict=True)),
    "humaneval": OTHER_QUOTAS,
    "mbpp_reg": OTHER_QUOTAS,
}
"""Places by dataset and stratum (docs/outputs.md): 120 in all."""


def find_quotas(dataset: str) -> Mapping[str, int]:
    """Return a dataset's quota of samples by stratum. A dataset outside the table has 20 samples, split as
    humaneval's."""
    return QUOTAS.get(dataset, OTHER_QUOTAS)


def find_stratum(final_status: str) -> str:
    """Return the stratum of a final status: empty_output counts with syntax_error."""
    return "syntax_error" if final_status == "empty_output" else final_status


def allot(quotas: Mapping[str, int], available: Mapping[str, int], seed: int) -> dict[str, int]:
    """Fill each stratum's quota as far as possible, and give the rest to the other strata in proportion to their
    quotas.

    The rest is split into whole numbers by largest remainder; equal remainders are ordered by the seed. What a stratum
    cannot fill of its part is distributed again, until nothing is left to give or to take.
    """
    taken = {stratum: min(quota, available.get(stratum, 0)) for stratum, quota in quotas.items()}
    while True:
        left = sum(quotas.values()) - sum(taken.values())
        room = {name: available.get(name, 0) - taken[name] for name in quotas if available.get(name, 0) > taken[name]}
        if left == 0 or not room:
            return taken
        for stratum, places in largest_remainder(left, {name: quotas[name] for name in room}, seed).items():
            taken[stratum] += min(places, room[stratum])


def largest_remainder(places: int, weights: Mapping[str, int], seed: int) -> dict[str, int]:
    """Split an integer in proportion to positive weights; equal remainders are ordered by the seed."""
    total = sum(weights.values())
    shares = {name: places * weight // total for name, weight in weights.items()}
    by_remainder = sorted(weights, key=lambda name: (-(places * weights[name] % total), priority(seed, name)))
    for name in by_remainder[: places - sum(shares.values())]:
        shares[name] += 1
    return shares


def priority(seed: int, *key: str | int) -> int:
    """Return a pseudo-random 64-bit number that is the same for the same seed and key on every machine."""
    text = "\x1f".join(map(str, (seed, *key)))
    return int.from_bytes(blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big")


@dataclass(slots=True)
class Reservoir(Generic[T]):
    """Keeps the `size` items of lowest priority: a uniform sample that does not depend on the order of the stream."""

    size: int
    seen: int = 0
    _kept: list[tuple[int, int, T]] = field(default_factory=list)
    """A heap, the highest priority first: negated priority, minus the place in the stream (so that items need no
    order), item."""

    def offer(self, chance: int, make: Callable[[], T]) -> None:
        """Offer an item, which is created only if it is kept for now."""
        self.seen += 1
        if len(self._kept) < self.size:
            heapq.heappush(self._kept, (-chance, -self.seen, make()))
        elif self._kept and -chance > self._kept[0][0]:
            heapq.heapreplace(self._kept, (-chance, -self.seen, make()))

    def take(self, places: int) -> list[T]:
        """Return the `places` items of lowest priority."""
        return [item for _, _, item in heapq.nlargest(places, self._kept, key=lambda kept: kept[:2])]


@dataclass(slots=True)
class DatasetSample(Generic[T]):
    """A dataset's sample: the items by stratum, with the available and wanted numbers."""

    quotas: Mapping[str, int]
    available: dict[str, int]
    taken: dict[str, list[T]]


@dataclass(slots=True)
class StratifiedSampler(Generic[T]):
    """Samples each dataset of a stream by stratum. Holds at most (5 x total + 5) items per dataset."""

    seed: int
    _reservoirs: dict[str, dict[str, Reservoir[T]]] = field(default_factory=dict)

    def offer(self, dataset: str, final_status: str, key: tuple[str, int], make: Callable[[], T]) -> None:
        """Offer a result. key: problem and sample, unique in the dataset. make: builds the item to keep."""
        reservoirs = self._reservoirs.get(dataset)
        if reservoirs is None:
            # Any stratum may have to replace all others.
            total = sum(find_quotas(dataset).values())
            reservoirs = {stratum: Reservoir[T](total) for stratum in STRATA}
            reservoirs[API_ERROR] = Reservoir[T](API_ERROR_EXTRA)
            self._reservoirs[dataset] = reservoirs
        reservoirs[find_stratum(final_status)].offer(priority(self.seed, dataset, *key), make)

    def finish(self) -> dict[str, DatasetSample[T]]:
        """Return each dataset's sample, in the order of their names."""
        return {name: self._sample(name) for name in sorted(self._reservoirs)}

    def _sample(self, dataset: str) -> DatasetSample[T]:
        quotas, reservoirs = find_quotas(dataset), self._reservoirs[dataset]
        available = {stratum: reservoir.seen for stratum, reservoir in reservoirs.items()}
        places = allot(quotas, available, self.seed) | {API_ERROR: API_ERROR_EXTRA}
        return DatasetSample(
            quotas=dict(quotas) | {API_ERROR: API_ERROR_EXTRA},
            available=available,
            taken={stratum: reservoir.take(places[stratum]) for stratum, reservoir in reservoirs.items()},
        )
