"""Stand-ins for names of the program: calling a stand-in is a call of the program."""

from __future__ import annotations

from evalrun_executor.calls.originals import Value
from evalrun_judge.function_tests.harness.current import CURRENT, ask_program
from evalrun_judge.function_tests.harness.placeholders import ARITHMETIC, Placeholder

# The same as `typing.TYPE_CHECKING`, without the time that importing `typing` takes.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable


class StandIn:
    """Stands for a name of the program: a call returns the program's result, and as a value it is the name."""

    __slots__ = ("_evalrun_name",)

    def __init__(self, name: str) -> None:
        object.__setattr__(self, "_evalrun_name", name)

    def __call__(self, *args: Value, **kwargs: Value) -> Value:
        return CURRENT[-1].call(name_of(self), args, kwargs)

    def __getattribute__(self, name: str) -> Value:
        if name == "__class__":
            return StandIn
        if name == "__mro_entries__":
            raise CURRENT[-1].needs_the_program(
                "classes", f"the test derives a class from the program's {name_of(self)}"
            )
        if name == "__name__" and CURRENT[-1].frozen:
            return name_of(self)
        return CURRENT[-1].attribute(self, name)

    def __setattr__(self, name: str, value: Value) -> None:
        ask_program("setattr", self, name, value)

    def __delattr__(self, name: str) -> None:
        ask_program("delattr", self, name)

    def __instancecheck__(self, instance: Value) -> bool:
        return _tells(ask_program("isinstance", instance, self))

    def __subclasscheck__(self, kind: Value) -> bool:
        return _tells(ask_program("issubclass", kind, self))

    def __hash__(self) -> int:
        return id(self)

    def __eq__(self, other: object) -> Value:
        return self is other or _resolve_stand_in(self) == other

    def __bool__(self) -> bool:
        return bool(_resolve_stand_in(self))

    def __repr__(self) -> str:
        return repr(_resolve_stand_in(self))


name_of: Callable[[StandIn], str] = vars(StandIn)["_evalrun_name"].__get__


def _tells(answer: Value) -> bool:
    return answer is True or type(answer) is Placeholder


def _resolve_stand_in(stand_in: StandIn) -> Value:
    return ask_program("get", stand_in)


def _on_value(special: str) -> Callable[..., Value]:
    def ask(self: StandIn, *args: Value) -> Value:
        value = _resolve_stand_in(self)
        return getattr(type(value), special)(value, *args)

    return ask


def _on_both(operation: str) -> Callable[..., Value]:
    def ask(self: StandIn, other: Value) -> Value:
        value = _resolve_stand_in(self)
        found = getattr(type(value), f"__{operation}__", lambda *_: NotImplemented)(value, other)
        if found is NotImplemented and hasattr(type(other), f"__r{operation}__"):
            found = getattr(type(other), f"__r{operation}__")(other, value)
        return found

    return ask


for _name in [
    "len",
    "iter",
    "next",
    "getitem",
    "setitem",
    "delitem",
    "str",
    "format",
    "int",
    "float",
    "complex",
    "index",
    "contains",
    "reversed",
    "abs",
    "neg",
]:
    setattr(StandIn, f"__{_name}__", _on_value(f"__{_name}__"))
for _name in ["lt", "le", "gt", "ge", *ARITHMETIC.split(), *(f"r{_name}" for _name in ARITHMETIC.split())]:
    setattr(StandIn, f"__{_name}__", _on_both(_name))
