"""Compares a function with its reference on arguments like those of its tests. Pure.

Uses the standard library only, and only tests import it: `varied_tests` copies this module's text into the tests that
it makes, where the text runs beside the assertions.
"""

import ast
import contextlib
import copy
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import zip_longest
from typing import Any

MAX_CALLS = 150
MAX_STEPS = 20_000
"""Calls and turns of loops that the reference may take for one list of arguments; else that is left out."""
MAX_ALL_STEPS = 400_000

_STEP, _EACH = "_evalrun_step", "_evalrun_each"

Call = list[Any]


class TooLongError(Exception):
    """The reference takes too many steps."""


def check_varied(candidate: Callable[..., Any], program: str, tests: Sequence[str], entry_point: str) -> None:
    """Raise AssertionError if a function differs from the reference on varied arguments.

    Args:
        candidate: the function.
        program: the reference: a program that defines a function of the name `entry_point`.
        tests: code that calls that function and raises if an answer is wrong.
        entry_point: the name.
    """
    wanted, ordered = answer_varied(program, tests, entry_point)
    assert wanted, "no arguments could be varied"
    outs = [_outcome(candidate, call) for call, _ in wanted]
    other = [call for (call, result), out in zip(wanted, outs, strict=True) if not same(result, out, ordered)]
    assert not other, f"differs from the reference, e.g. for {other[0]!r}"


def answer_varied(program: str, tests: Sequence[str], entry_point: str) -> tuple[list[tuple[Call, Any]], bool]:
    """Return varied arguments with the reference's results, and whether the order of elements matters.

    Leaves out arguments for which the reference raises, is slow, or returns another type than in the tests.
    """
    space = _space(program)
    function = space[entry_point]
    calls: list[Call] = []
    results: list[Any] = []

    def record_call(*args: Any, **named: Any) -> Any:
        before = copy.deepcopy(list(args))
        result = function(*args, **named)
        if not named and plain(before) and plain(result):
            calls.append(before)
            results.append(copy.deepcopy(result))
        return result

    _run(tests, space, entry_point, record_call)
    types = {type(result) for result in results}
    found: list[tuple[Call, Any]] = []
    steps = _Steps()
    counted = _load_counted(program, steps)[entry_point]
    for call in vary_calls(calls, MAX_CALLS):
        try:
            steps.begin()
            result = counted(*copy.deepcopy(call))
        # After any exception the reference has no result there.
        except Exception:
            continue
        if type(result) in types and plain(result):
            found.append((call, result))
    return found, not _is_order_free(program, tests, entry_point, results)


def _is_order_free(program: str, tests: Sequence[str], entry_point: str, results: Sequence[Any]) -> bool:
    """Return whether the tests accept the reference's lists turned round."""
    if not any(isinstance(result, list | tuple) and result[::-1] != result for result in results):
        return False
    space = _space(program)
    function = space[entry_point]

    def reverse_result(*args: Any, **named: Any) -> Any:
        result = function(*args, **named)
        return result[::-1] if isinstance(result, list | tuple) else result

    try:
        _run(tests, space, entry_point, reverse_result)
    # A failed assertion, or any other exception, shows that the two differ.
    except Exception:
        return False
    return True


def _space(program: str) -> dict[str, Any]:
    space: dict[str, Any] = {"__name__": "evalrun_reference"}
    exec(program, space)
    return space


def _run(tests: Sequence[str], space: dict[str, Any], entry_point: str, function: Callable[..., Any]) -> None:
    """Run the tests with a replacement of their function. Recursive calls are not replaced."""
    names = {**space, entry_point: function}
    for test in tests:
        exec(test, names)


class _Counted(ast.NodeTransformer):
    """Transformer after which a program counts its steps: calls of its functions, and turns of its loops."""

    def visit(self, node: ast.AST) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node, ast.FunctionDef | ast.For | ast.While):
            node.body.insert(0, ast.parse(f"{_STEP}()").body[0])
        elif isinstance(node, ast.comprehension):
            node.iter = ast.Call(ast.Name(_EACH, ast.Load()), [node.iter], [])
        return node


class _Steps:
    """Counts steps up to a bound."""

    def __init__(self) -> None:
        self.all = 0
        self.bound = 0

    def begin(self) -> None:
        """Begin another call. Raises TooLongError if no steps are left for all."""
        self.bound = min(self.all + MAX_STEPS, MAX_ALL_STEPS)
        self.step()

    def step(self) -> None:
        """Count a step. Raises TooLongError at the bound."""
        self.all += 1
        if self.all > self.bound:
            raise TooLongError

    def each(self, values: Iterable[Any]) -> Iterator[Any]:
        for value in values:
            self.step()
            yield value


def _load_counted(program: str, steps: _Steps) -> dict[str, Any]:
    tree = ast.parse(program)
    ast.fix_missing_locations(_Counted().visit(tree))
    space: dict[str, Any] = {"__name__": "evalrun_reference", _STEP: steps.step, _EACH: steps.each}
    # The reference's own work comes first.
    steps.bound = MAX_ALL_STEPS
    exec(compile(tree, "<reference>", "exec", dont_inherit=True), space)
    return space


def _outcome(candidate: Callable[..., Any], call: Call) -> Any:
    try:
        return candidate(*copy.deepcopy(call))
    # No reference raises here, so any exception is a difference.
    except Exception as error:
        return error


def plain(value: Any) -> bool:
    """Return whether a value consists of Python's own types."""
    if type(value).__module__ not in sys.stdlib_module_names:
        return False
    if isinstance(value, dict):
        return all(map(plain, value.keys())) and all(map(plain, value.values()))
    return not isinstance(value, list | tuple | set | frozenset) or all(map(plain, value))


def same(wanted: Any, found: Any, ordered: bool = True) -> bool:
    """Return whether two values are equal up to rounding; lists without required order are compared in any order."""
    if not ordered and isinstance(wanted, list | tuple) and isinstance(found, list | tuple):
        return same(sorted(wanted, key=repr), sorted(found, key=repr))
    if isinstance(wanted, float) and isinstance(found, int | float):
        return wanted == found or abs(wanted - found) <= 1e-6 + 1e-7 * abs(wanted) or wanted != wanted != found != found
    if isinstance(wanted, list | tuple) and type(wanted) is type(found) and len(wanted) == len(found):
        return all(map(same, wanted, found))
    return bool(wanted == found)


def vary_calls(calls: Sequence[Call], maximum: int) -> list[Call]:
    """Return at most `maximum` other lists of arguments, taken from each call in turn.

    Each variation changes a single argument: slightly, or to the argument of another call. Properties that all calls
    share are kept: an argument's types, the characters of its texts, and that its numbers are positive or not negative.
    """
    known = {repr(call) for call in calls}
    found: list[Call] = []
    seen = {
        width: [_Seen([call[place] for call in calls if len(call) == width]) for place in range(width)]
        for width in {len(call) for call in calls}
    }
    some = calls if len(calls) <= maximum else [calls[number * len(calls) // maximum] for number in range(maximum)]
    for several in zip_longest(*(_vary_call(call, seen[len(call)]) for call in some)):
        for call in several:
            if call is not None and len(found) < maximum and repr(call) not in known:
                known.add(repr(call))
                found.append(call)
        if len(found) >= maximum:
            break
    return found


class _Seen:
    """Facts about an argument, observed in the calls."""

    def __init__(self, values: list[Any]) -> None:
        self.values = values
        self.leaves = [leaf for value in values for leaf in _leaves(value)]
        numbers = [leaf for leaf in self.leaves if isinstance(leaf, int | float) and not isinstance(leaf, bool)]
        least = min(numbers, default=0)
        self.least = -float("inf") if least < 0 else 0 if least < 1 else 1
        self.letters = sorted({letter for leaf in self.leaves if isinstance(leaf, str) for letter in leaf})


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        value = [*value.keys(), *value.values()]
    if isinstance(value, list | tuple | set | frozenset):
        for each in value:
            yield from _leaves(each)
    else:
        yield value


def _vary_call(call: Call, seen: list[_Seen]) -> Iterator[Call]:
    """Yield variations of a call, one argument at a time."""
    others = [
        [*_vary_value(value, seen[place]), *(each for each in seen[place].values if type(each) is type(value))]
        for place, value in enumerate(call)
    ]
    for turn in range(max(map(len, others), default=0)):
        for place, values in enumerate(others):
            if turn < len(values):
                yield [*call[:place], values[turn], *call[place + 1 :]]


def _vary_value(value: Any, seen: _Seen, depth: int = 0) -> list[Any]:
    """Return variations of a value, beginning with the cases that tests forget most often."""
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int | float):
        return [other for other in _numbers(value) if other >= seen.least]
    if isinstance(value, str):
        return _texts(value, seen.letters)
    if isinstance(value, list | tuple):
        return [type(value)(other) for other in _sequences(list(value), seen, depth)]
    if isinstance(value, set | frozenset):
        return [type(value)(other) for other in _sequences(sorted(value, key=repr), seen, depth)]
    if isinstance(value, dict):
        fewer = [{name: each for name, each in value.items() if name != left} for left in value]
        return fewer + [{**value, name: other} for name in value for other in _vary_value(value[name], seen, depth + 1)]
    return []


def _numbers(value: Any) -> list[Any]:
    half = value // 2 if isinstance(value, int) else value / 2
    more = [value + 2, value + 10] if isinstance(value, int) else [float(round(value)), value + 0.5]
    return [value + 1, value - 1, value * 2, half, type(value)(0), type(value)(1), -value, *more]


def _texts(value: str, letters: list[str]) -> list[str]:
    middle = len(value) // 2
    found = [
        value[1:], value[:-1], value[:1], value + value[:1], value[::-1], value[:middle] + value[middle + 1 :],
        value[:middle] + value[middle : middle + 1] + value[middle:], value * 2, value[1::-1] + value[2:],
        value[:middle],
    ]  # fmt: skip
    for number, letter in enumerate(letters):
        place = number % (len(value) + 1)
        found += [value[:place] + letter + value[place + 1 :], value[:place] + letter + value[place:]]
        found += [letter + value, value + letter]
    if any(map(str.isupper, letters)) and any(map(str.islower, letters)):
        found += [value.swapcase(), value.upper(), value.lower()]
    return found


def _sequences(value: list[Any], seen: _Seen, depth: int) -> list[list[Any]]:
    middle = len(value) // 2
    found = [
        value[1:], value[:-1], value[:1], value[::-1], value + value[:1], value[-1:] + value,
        value[:middle] + value[middle + 1 :], value[1::-1] + value[2:],
        value[:middle] + value[middle : middle + 1] + value[middle:],
    ]  # fmt: skip
    # Not all elements have an order.
    with contextlib.suppress(TypeError):
        found.append(sorted(value))
    found.append([])
    if depth > 1 or not value:
        return found
    changed = [
        [(place, other) for other in _vary_value(each, seen, depth + 1)] for place, each in enumerate(value[:12])
    ]
    for several in zip_longest(*changed):
        found += [[*value[: each[0]], each[1], *value[each[0] + 1 :]] for each in several if each is not None]
    for number, leaf in enumerate(leaf for leaf in seen.leaves if type(leaf) is type(value[0])):
        place = number % (len(value) + 1)
        found.append([*value[:place], leaf, *value[place:]])
    return found
