"""Placeholders for values that are not known yet while calls are recorded."""

from __future__ import annotations

from evalrun_executor.calls.originals import Value
from evalrun_judge.function_tests.harness.current import CURRENT, ask_program

TYPE_CHECKING = False  # as typing's, without its import
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MAX_STEPS = 100_000
"""Operations on placeholders in one recording."""


class Placeholder:
    """Stands for a value that is not known yet: takes part in everything, and holds nothing."""

    __slots__ = ("call", "object")

    def __init__(self, call: int | None = None, *, object: bool = False) -> None:  # noqa: A002 - what it is
        self.call = call
        """The call that returns it; None for a value derived from one."""
        self.object = object
        """It is likely to be an object of the program: what is asked of it is a call too."""

    def __getattr__(self, name: str) -> Placeholder:
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
        return 0

    def __iter__(self) -> Iterator[Value]:
        return iter(())

    def __exit__(self, *_: object) -> None:
        pass


def make_placeholder(*_: object, **__: object) -> Placeholder:
    """Return what an operation on a placeholder gives."""
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
"""Attributes that a plain value answers itself, without asking the program."""
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

for _name in _OPERATIONS:
    setattr(Placeholder, _name, make_placeholder)
for _name, _value in CONSTANTS.items():
    setattr(Placeholder, _name, _constant(_value))
