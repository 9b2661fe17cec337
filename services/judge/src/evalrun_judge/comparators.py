"""Applies the comparators of `evalrun_registry.comparators`. Pure. A checker is a program: see `families.checker`."""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from evalrun_registry.comparators import COMPARATORS, Comparator, Leniency

_FUNCTIONS: Final = {name: rule.passes for name, rule in COMPARATORS.items() if rule.passes is not None}


def passes(expected: bytes, stdout: bytes, comparator: Comparator) -> bool:
    """Return whether `stdout` answers `expected`.

    Raises:
        ValueError: the comparator is `checker`, which is no function of the two texts.
    """
    decide = _FUNCTIONS.get(comparator.name)
    if decide is None:
        raise ValueError(f"{comparator.name} is not computed from the texts")
    return expected == stdout or decide(expected, stdout, comparator)


def find_disagreeing_comparators(
    expected: bytes, stdout: bytes, comparator: Comparator, passed: bool
) -> tuple[str, ...]:
    """Name the comparators that would have decided otherwise than `comparator`, which decided `passed`.

    All comparators get the options of `comparator`: `tokens` has a tolerance only if `comparator` sets one.
    """
    if expected == stdout:
        return () if passed else tuple(_FUNCTIONS)
    implications = _STRICT if comparator.abs is None and comparator.rel is None else _TOLERANT
    verdicts = implications.follow(comparator.name, passed)
    for name, decide in _FUNCTIONS.items():
        if name not in verdicts:
            verdicts.update(implications.follow(name, decide(expected, stdout, comparator)))
    return tuple(name for name in _FUNCTIONS if name != comparator.name and verdicts[name] is not passed)


def rests_on(expected: bytes, stdout: bytes, comparator: Comparator) -> tuple[Leniency, ...]:
    """Return the leniencies of `comparator` without which an output that passed would have failed."""
    find = COMPARATORS[comparator.name].rests_on
    found = set() if find is None else set(find(expected, stdout, comparator))
    return tuple(leniency for leniency in Leniency if leniency in found)


class _Implications:
    """Verdicts of comparators that follow from the verdict of another comparator."""

    def __init__(self, implied: Mapping[str, Iterable[str]]) -> None:
        self._passing = {name: _reachable(name, lambda one: implied.get(one, ())) for name in implied}
        self._failing = {
            name: {other for other, reached in self._passing.items() if name in reached} for name in implied
        }

    def follow(self, name: str, passed: bool) -> dict[str, bool]:
        return dict.fromkeys((self._passing if passed else self._failing)[name], passed)


def _reachable(name: str, following: Callable[[str], Iterable[str]]) -> set[str]:
    found, waiting = {name}, [name]
    while waiting:
        new = set(following(waiting.pop())) - found
        found |= new
        waiting += new
    return found


_STRICT: Final = _Implications({name: rule.implies for name, rule in COMPARATORS.items()})
_TOLERANT: Final = _Implications(
    {name: (*rule.implies, *rule.implies_with_tolerance) for name, rule in COMPARATORS.items()}
)
