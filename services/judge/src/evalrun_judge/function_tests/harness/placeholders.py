"""Placeholders for values that are not known yet while calls are recorded."""

from __future__ import annotations

from evalrun_executor.calls.originals import Value
from evalrun_judge.function_tests.harness.current import CURRENT, ask_program

# The same as `typing.TYPE_CHECKING`, without the time that importing `typing` takes.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MAX_STEPS = 100_000
"""Maximum number of operations on placeholders in a recording."""


class Placeholder:
    """Stands for a value that is not known yet: accepts every operation, and holds nothing."""

    __slots__ = ("call", "object")

    def __init__(self, call: int | None = None, *, object: bool = False) -> None:  # noqa: A002 - what it is
        self.call = call
        """Number of the call that returns the value; None for a value derived from another placeholder."""
        self.object = object
        """Whether the value is likely to be an object of the program: operations on it are then calls too."""

    def __getattr__(self, name: str) -> Placeholder:
        # Python asks objects for optional special methods, such as `__array__`. A placeholder that had them all would
        # be taken for anything.
        if name.startswith("__"):
            raise AttributeError(name)
        if self.call is not None and (self.object or name not in PLAIN_NAMES):
            return ask_program("getattr", self, name)  # type: ignore[no-any-return]
        return Placeholder()

    def __call__(self, *args: Value, **kwargs: Value) -> Value:
        if self.call is None or not self.object:
            return Placeholder()
        return CURRENT[-1].call(".call", (self, *args), kwargs)

    def __hash__(self) -> int:
        # A constant, so that a placeholder may be a key and equals every other key of the same hash.
        return 0

    def __iter__(self) -> Iterator[Value]:
        return iter(())

    def __exit__(self, *_: object) -> None:
        pass


def make_placeholder(*_: object, **__: object) -> Placeholder:
    """Return the result of an operation on a placeholder: another placeholder."""
    CURRENT[-1].step()
    return Placeholder()


def _constant(value: Value) -> Callable[..., Value]:
    def give(*_: object, **__: object) -> Value:
        CURRENT[-1].step()
        return value

    return give


PLAIN_NAMES = frozenset(
    name for kind in (list, dict, set, tuple, str, int, float, complex, bytes) for name in dir(kind)
)
"""Attributes of plain values: reading them needs no call of the program."""
ARITHMETIC = """add sub mul truediv floordiv mod pow lshift rshift and or xor matmul divmod"""
_SPECIAL = """neg pos abs invert round trunc floor ceil getitem enter next await reversed copy deepcopy"""
_OPERATIONS = [f"__{prefix}{name}__" for name in ARITHMETIC.split() for prefix in ("", "r", "i")]
_OPERATIONS += [f"__{name}__" for name in _SPECIAL.split()]
_OPERATIONS.remove("__idivmod__")
CONSTANTS: dict[str, Value] = {
    **dict.fromkeys(("__bool__", "__eq__", "__lt__", "__le__", "__gt__", "__ge__", "__contains__"), True),
    "__ne__": False,
    **dict.fromkeys(("__len__", "__int__", "__index__", "__length_hint__"), 0),
    **dict.fromkeys(("__str__", "__repr__", "__format__"), ""),
    **dict.fromkeys(("__setitem__", "__delitem__"), None),
    "__float__": 0.0,
    "__complex__": 0j,
    "__bytes__": b"",
}

# Special methods are looked up on the class, never by `__getattr__`, so each is set here.
for _name in _OPERATIONS:
    setattr(Placeholder, _name, make_placeholder)
for _name, _value in CONSTANTS.items():
    setattr(Placeholder, _name, _constant(_value))
