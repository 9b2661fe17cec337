"""What one comparator's verdict says about another's is data, and true of their functions."""

from itertools import product

import pytest

from evalrun_judge.comparators import find_disagreeing_comparators, passes
from evalrun_registry.comparators import COMPARATORS, COMPUTED, Comparator

TEXTS = (
    b"1 2\n",
    b"1 2",
    b"1  2\n\n",
    b" 1 2",
    b"1\n2",
    b"1.0 2",
    b"1.0000001 2",
    b"A b",
    b"a B\n",
    b"3",
    b"",
    b"\n",
    b"nan",
    b"1\n2\n",
    b"2\n1\n",
    b"1\n2 \n",
    b"2\n2\n1\n",
    *(b"".join(parts) for length in range(1, 4) for parts in product((b"1", b" ", b"\n"), repeat=length)),
)
"""Further comparators need two texts that they alone tell apart, or that they alone accept."""
OPTIONS = (Comparator(), Comparator(case_sensitive=False), Comparator(abs=1e-3), Comparator(abs=0.5, rel=0.5))


def test_implied_comparators_are_all_computed_from_the_texts() -> None:
    for name, rule in COMPARATORS.items():
        unknown = {*rule.implies, *rule.implies_with_tolerance} - {*COMPUTED}
        assert not unknown, f"{name} implies {', '.join(sorted(unknown))}, which is none of {', '.join(COMPUTED)}"


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("name", COMPUTED)
def test_implied_comparator_passes_whatever_its_stricter_one_passes(name: str, options: Comparator) -> None:
    rule = COMPARATORS[name]
    has_tolerance = options.abs is not None or options.rel is not None
    for expected, stdout in product(TEXTS, TEXTS):
        if passes(expected, stdout, named(name, options)):
            for implied in (*rule.implies, *(rule.implies_with_tolerance if has_tolerance else ())):
                assert passes(expected, stdout, named(implied, options)), (expected, stdout, implied)


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("name", COMPUTED)
def test_disagreeing_names_those_whose_own_functions_disagree(name: str, options: Comparator) -> None:
    for expected, stdout in product(TEXTS, TEXTS):
        passed = passes(expected, stdout, named(name, options))
        others = tuple(
            other
            for other in COMPUTED
            if other != name and passes(expected, stdout, named(other, options)) is not passed
        )
        assert find_disagreeing_comparators(expected, stdout, named(name, options), passed) == others, (
            expected,
            stdout,
        )


def named(name: str, options: Comparator) -> Comparator:
    return Comparator(name, options.case_sensitive, options.abs, options.rel)
