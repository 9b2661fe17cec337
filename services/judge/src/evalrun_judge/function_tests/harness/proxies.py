"""Proxies of the program's objects: operators, iteration and attributes become calls of the program."""

from __future__ import annotations

import sys

from evalrun_executor.calls import values
from evalrun_executor.calls.originals import Json, Value
from evalrun_judge.function_tests.harness.current import CURRENT, ask_program
from evalrun_judge.function_tests.harness.placeholders import ARITHMETIC, CONSTANTS, Placeholder, make_placeholder

# The same as `typing.TYPE_CHECKING`, without the time that importing `typing` takes.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

ORDER = frozenset(("eq", "ne", "lt", "le", "gt", "ge", "contains"))


class Proxy:
    """A proxy of an object of the program. Each operation on the proxy is a further call of the program.

    Each of the program's types gets a subclass with the special methods that the type has.
    """

    __slots__ = ()

    def __getattribute__(self, name: str) -> Value:
        # `isinstance` asks for `__class__`. Only a standard class is shown: a test that expects its own class must
        # fail.
        if name == "__class__":
            return standard_class(type(self))
        return CURRENT[-1].attribute(self, name)

    def __setattr__(self, name: str, value: Value) -> None:
        ask_program("setattr", self, name, value)

    def __delattr__(self, name: str) -> None:
        ask_program("delattr", self, name)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of the program>"

    def __copy__(self) -> Value:
        return ask_program("copy", self)

    def __deepcopy__(self, _memo: object) -> Value:
        return ask_program("deepcopy", self)


def _method(operation: str) -> Callable[..., Value]:
    special = f"__{operation}__"
    fixed = special in CONSTANTS

    def ask(self: Value, *args: Value) -> Value:
        found = CURRENT[-1].ask_program(operation, self, args)
        return CONSTANTS[special] if fixed and type(found) is Placeholder else found

    return ask


def _make_reflected(operation: str) -> Callable[..., Value]:
    def ask(self: Value, other: Value) -> Value:
        return CURRENT[-1].ask_program(operation, other, (self,))

    return ask


def _iterate(self: Value) -> Value:
    kind = type(self)
    if hasattr(kind, "__next__") and kind.__module__ != "program":
        # Every iterator of the standard library returns itself.
        return self
    found = ask_program("iter", self)
    if type(found) is Placeholder:
        # The number of items is not known while recording, so neither are the calls that the loop would make.
        CURRENT[-1].stop()
        return iter(())
    return found


def _next(self: Value) -> Value:
    found = ask_program("next", self)
    if type(found) is Placeholder:
        raise StopIteration
    return found


def _contains(self: Value, item: Value) -> Value:
    # Items are compared here, in the test's own process: the program must not decide whether its object contains a
    # value.
    run = CURRENT[-1]
    if run.is_made(self) or not hasattr(type(self), "__iter__"):
        return run.ask_program("contains", self, (item,))
    return any(found is item or found == item for found in self)


def _call_object(self: Value, *args: Value, **kwargs: Value) -> Value:
    return CURRENT[-1].call(".call", (self, *args), kwargs)


def _leave(self: Value, kind: Value, error: Value, _trace: Value) -> Value:
    if kind is None:
        return ask_program("exit", self)
    if issubclass(kind, AssertionError) and not any(error is raised for raised in CURRENT[-1].raised):
        # The assertion has failed, and no context manager of the program may undo that.
        return False
    swallows = ask_program("exit", self, error)
    if swallows:
        # The manager swallowed an exception of the program, so the program itself decides that the test goes on.
        CURRENT[-1].rests_on_own_answer()
    return swallows


def _format(self: Value, spec: str) -> Value:
    return CURRENT[-1].ask_program("format", self, (spec,)) if spec else str(self)


_METHODS: dict[str, Callable[..., Value]] = {name: _method(name) for name in values.SPECIALS}
_METHODS.update({f"r{name}": _make_reflected(name) for name in ARITHMETIC.split()})
_METHODS.update(iter=_iterate, next=_next, contains=_contains, call=_call_object, exit=_leave, format=_format)
_LOCAL = (
    ORDER
    | {"hash", "index", "int", "float", "complex", "bool"}
    | {name for name in values.SPECIALS if name.lstrip("ri") in ARITHMETIC.split() or name in ARITHMETIC.split()}
)
"""Operations that a derived value performs here by its plain type, whatever the program overrides."""
_KINDS: dict[Value, type] = {}


def proxy_class(description: Json, base: type | None) -> type:
    """Return the class of the proxies of a type of the program. Raises ValueError if the description is malformed."""
    name, module, ways = description
    if type(name) is not str or type(module) is not str or type(ways) is not list or "\0" in name:
        raise ValueError("no description")
    key = name, module, tuple(ways), base
    found = _KINDS.get(key)
    if found is None:
        specials = [values.SPECIALS[way] for way in ways if type(way) is int and way >= 0]
        space: dict[str, Value] = {"__module__": module if module in _STANDARD_MODULES else "program"}
        if base is None:
            space["__slots__"] = ()
            space.update((f"__{special}__", _METHODS[special]) for special in specials)
            # A class with `__eq__` and no `__hash__` has no hash in Python either, but the proxy would inherit one.
            if "eq" in specials and "hash" not in specials:
                space["__hash__"] = None
        else:
            space.update((f"__{special}__", _METHODS[special]) for special in specials if special not in _LOCAL)
            space["__getattr__"] = lambda self, name: CURRENT[-1].attribute(self, name)
        found = _KINDS[key] = type(name.rpartition(".")[2], (Proxy if base is None else base,), space)
    return found


_STANDARD_MODULES = frozenset(("builtins", "re", "itertools", "functools", "collections", "types"))


def standard_class(kind: type) -> type:
    """Return the standard library's class that a proxy class stands for, so that `isinstance` knows it; else `kind`."""
    if kind.__module__ == "program" or kind.__module__ not in _STANDARD_MODULES:
        return kind
    if kind.__module__ == "builtins":
        return _BUILTIN_KINDS.get(kind.__name__, kind)
    found = getattr(sys.modules.get(kind.__module__), kind.__name__, None)
    return found if isinstance(found, type) else kind


async def _coroutine() -> None:
    pass


_unawaited = _coroutine()
_BUILTIN_KINDS: dict[str, type] = {
    kind.__name__: kind
    for kind in (
        map, filter, zip, enumerate, reversed, memoryview, property, classmethod, staticmethod, type(len),
        type(make_placeholder),
        type(_ for _ in ()), type(_unawaited), type(iter([])), type(iter(())), type(iter("")), type(iter({})),
        type(iter(set())), type(iter(range(0))), type([].append), type(sys), type(_iterate.__code__), object,
    )
}  # fmt: skip
# A coroutine that is never awaited would write a warning at the end.
_unawaited.close()
