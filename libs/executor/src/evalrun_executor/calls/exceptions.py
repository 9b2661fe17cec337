"""Converts exceptions to structures and back: class, arguments, attributes and causes."""

from __future__ import annotations

import sys

from evalrun_executor.calls.json_text import ValueRefusedError
from evalrun_executor.calls.originals import (
    NAME_LENGTH,
    Json,
    Value,
    id_,
    issubclass_,
    list_,
    module_of,
    own_of,
    qualified_name,
    read_state,
    str_,
    type_,
    type_name,
)
from evalrun_executor.calls.standard_values import NAME_OF, NAMED, standard_class

# The same as `typing.TYPE_CHECKING`, without the time that importing `typing` takes.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    Cross = Callable[[Value], Json]

_CAUSES = 5
"""Maximum depth of causes and contexts that cross."""


def _class_parts(kind: Value, depth: int = 0) -> Json:
    """Describe an exception's class: by name if builtin, by module and name if standard, else by name and bases."""
    name = NAME_OF.get(id_(kind))
    if name is not None:
        return name
    module, own = module_of(kind), str_(qualified_name(kind))[:NAME_LENGTH]
    if type_(module) is str and module in _EXCEPTION_MODULES and standard_class(module, own) is kind:
        return {"module": module, "name": own}
    # The base classes are read from `type` itself: a metaclass of the program could answer anything.
    bases = [base for base in vars(type)["__bases__"].__get__(kind) if issubclass_(base, BaseException)]
    # A program can build a class hierarchy of any depth, and each class costs the judge a class of its own.
    if depth > 8:
        bases = [Exception]
    return [own, [_class_parts(base, depth + 1) for base in bases]]


_EXCEPTION_MODULES = {
    "json": "JSONDecodeError",
    "json.decoder": "JSONDecodeError",
    "decimal": "DecimalException InvalidOperation DivisionByZero Overflow Inexact Rounded Clamped",
    "dataclasses": "FrozenInstanceError",
    "queue": "Empty Full",
    "re": "error",
    "asyncio.exceptions": "CancelledError InvalidStateError TimeoutError",
    "statistics": "StatisticsError",
    "binascii": "Error",
    "struct": "error",
    "zlib": "error",
    "configparser": "Error",
    "csv": "Error",
}


_ATTRIBUTES = 50
"""Maximum number of an exception's attributes that cross."""


def describe_exception(error: BaseException, cross: Cross, depth: int = 0) -> dict[str, Json]:
    """Describe an exception for the other side: class, `args`, `message`, attributes, the missing name, and causes.

    Args:
        error: the exception.
        cross: returns a value's structure, or None if the value cannot cross.
        depth: number of causes above this exception.
    """
    kind = type_(error)
    base = "Exception"
    for ancestor in type.mro(kind):
        # The nearest builtin class is what an `except` of the test can catch, whatever the program's class is called.
        if NAME_OF.get(id_(ancestor)) not in (None, "object"):
            base = NAME_OF[id_(ancestor)]
            break
    arguments = cross(vars(BaseException)["args"].__get__(error))
    if arguments is None:
        # Arguments that cannot cross are dropped, but the exception itself still decides the test.
        arguments = cross(())
    state: list[Json] = []
    for name, value in list_(dict.items(read_state(error) or {})):
        if type_(name) is str and name.isascii() and len(state) < _ATTRIBUTES:
            structure = cross(value)
            if structure is not None or value is None:
                state.append([name, structure])
    text: str | None
    try:
        text = str.__str__(str_(error))
    except BaseException:  # noqa: BLE001 - the program's own __str__
        text = None
    message = (text or "")[:2000].encode("ascii", "backslashreplace").decode()
    parts = {"type": type_name(error), "base": base, "args": arguments, "message": message}
    described = _class_parts(kind)
    if described != base:
        parts["class"] = described
    if type_(described) is list and _says_its_own_text(kind):
        parts["text"] = None if text is None else cross(text)
    if state:
        parts["state"] = state
    parts.update(_read_missing_name(error, kind))
    parts.update(_native_attributes(error, kind, cross))
    if depth < _CAUSES:
        _add_causes(parts, error, cross, depth)
    return parts


def _read_missing_name(error: BaseException, kind: Value) -> dict[str, Json]:
    """Return the name that a NameError or ImportError is about; empty if Python did not set it (before 3.10)."""
    for base in (NameError, ImportError):
        if issubclass_(kind, base) and "name" in vars(base):
            name = vars(base)["name"].__get__(error)
            return {"name": name[:NAME_LENGTH]} if type_(name) is str and name.isascii() else {}
    return {}


_NATIVE: tuple[tuple[Value, str], ...] = (
    (OSError, "errno strerror filename filename2"),
    (SyntaxError, "msg filename lineno offset text end_lineno end_offset"),
    (ImportError, "msg path"),
    (UnicodeEncodeError, "encoding object start end reason"),
    (UnicodeDecodeError, "encoding object start end reason"),
    (UnicodeTranslateError, "object start end reason"),
)
"""Attributes that these classes keep outside `__dict__` and set in `__init__`, which is not called again."""


def _native_attributes(error: BaseException, kind: Value, cross: Cross) -> dict[str, Json]:
    """Return the attributes that are set and that the exception keeps outside its `__dict__`."""
    for base, names in _NATIVE:
        if issubclass_(kind, base):
            found = [[name, cross(vars(base)[name].__get__(error))] for name in names.split()]
            return {"native": [pair for pair in found if pair[1] is not None]}
    return {}


def _says_its_own_text(kind: Value) -> bool:
    """Return whether the nearest `__str__` of an exception's class is the program's own."""
    for ancestor in type.mro(kind):
        if "__str__" in own_of(ancestor):
            return id_(ancestor) not in NAME_OF
    return False


def _add_causes(parts: dict[str, Json], error: BaseException, cross: Cross, depth: int) -> None:
    for name in ("cause", "context"):
        other = vars(BaseException)[f"__{name}__"].__get__(error)
        if other is not None and issubclass_(type_(other), BaseException):
            parts[name] = describe_exception(other, cross, depth + 1)
    parts["suppress"] = vars(BaseException)["__suppress_context__"].__get__(error)


def restore_exception(parts: Json, decode: Cross, classes: dict[str, Value], depth: int = 0) -> BaseException:
    """Create the exception from `describe_exception`, of the class itself if that is a standard class.

    Args:
        parts: the description.
        decode: returns the value of a structure.
        classes: the program's classes met so far, by name, so that each stays a single class.
        depth: number of causes above this exception.

    Raises:
        ValueRefusedError: the description is malformed.
    """
    if type(parts) is not dict or depth > _CAUSES:
        raise ValueRefusedError("malformed exception")
    base = NAMED.get(str(parts.get("base")))
    name, arguments = parts.get("type"), decode(parts.get("args"))
    if not isinstance(base, type) or not issubclass(base, BaseException) or type(name) is not str:
        raise ValueRefusedError("malformed exception")
    if issubclass(base, BaseExceptionGroup) and not _is_group(arguments):
        # Some exceptions of the group could not cross, and a group cannot be empty.
        base = Exception
    if type(arguments) is not tuple or "\0" in name:
        raise ValueRefusedError("malformed exception")
    kind: Value = base
    if "class" in parts or base.__name__ != name:
        kind = _rebuild_class(parts.get("class", [name, [base.__name__]]), classes)
        if issubclass(kind, BaseExceptionGroup) and not _is_group(arguments):
            kind = Exception
    try:
        # `__init__` is not called: a class of the program may want other arguments than `args` has.
        error: BaseException = kind.__new__(kind, *arguments)
    except (TypeError, ValueError) as problem:
        raise ValueRefusedError("malformed exception") from problem
    error.args = arguments
    if "text" in parts and kind is not base:
        text = parts["text"]
        # The text is kept outside the exception, because a test may compare its attributes.
        _TEXTS[id(error)] = error, None if text is None else decode(text)
        kind.__str__ = _recall_text
    _add_missing_name(error, parts.get("name"))
    _add_native(error, parts.get("native", []), decode)
    _add_state(error, parts.get("state", []), decode)
    for other in ("cause", "context"):
        if parts.get(other) is not None:
            setattr(error, f"__{other}__", restore_exception(parts[other], decode, classes, depth + 1))
    error.__suppress_context__ = parts.get("suppress") is True
    return error


_TEXTS: dict[int, tuple[BaseException, Value]] = {}
"""The text of a program's own `__str__`, by the restored exception's id; None if `__str__` raised."""


def _recall_text(error: BaseException) -> str:
    """Return the text of the program's own `__str__`. Raises RuntimeError if that `__str__` raised."""
    _, text = _TEXTS.get(id(error), (error, BaseException.__str__(error)))
    if type(text) is not str:
        raise RuntimeError("the __str__ of the program's exception raised")
    return text


def _add_missing_name(error: BaseException, name: Json) -> None:
    if isinstance(error, NameError | ImportError) and type(name) is str:
        error.name = name


def _is_group(arguments: Value) -> bool:
    """Return whether these are the arguments of an exception group."""
    if type(arguments) is not tuple or len(arguments) != 2 or type(arguments[1]) not in (list, tuple):
        return False
    return len(arguments[1]) > 0 and all(isinstance(inner, BaseException) for inner in arguments[1])


def _add_native(error: BaseException, native: Json, decode: Cross) -> None:
    if isinstance(error, SystemExit):
        error.code = error.args[0] if len(error.args) == 1 else error.args or None  # type: ignore[assignment]  # any
    if isinstance(error, StopIteration):
        error.value = error.args[0] if error.args else None
    names = next((names for base, names in _NATIVE if isinstance(error, base)), "").split()
    for name, value in native:
        if name not in names:
            raise ValueRefusedError("malformed exception")
        try:
            setattr(error, name, decode(value))
        except TypeError as problem:
            raise ValueRefusedError("malformed exception") from problem


def _add_state(error: BaseException, state: Json, decode: Cross) -> None:
    if type(state) is not list:
        raise ValueRefusedError("malformed exception")
    for pair in state:
        if type(pair) is not list or len(pair) != 2 or type(pair[0]) is not str:
            raise ValueRefusedError("malformed exception")
        error.__dict__[pair[0]] = decode(pair[1])


def _rebuild_class(described: Json, classes: dict[str, Value], depth: int = 0) -> Value:
    if type(described) is str:
        found = NAMED.get(described)
        if not isinstance(found, type) or not issubclass(found, BaseException):
            raise ValueRefusedError("malformed exception")
        return found
    if type(described) is dict:
        module, name = str(described.get("module")), described.get("name")
        if name not in _EXCEPTION_MODULES.get(module, "").split():
            raise ValueRefusedError("malformed exception")
        return getattr(sys.modules.get(module) or __import__(module, fromlist=["*"]), name)
    if type(described) is not list or len(described) != 2 or depth > 10:
        raise ValueRefusedError("malformed exception")
    name, bases = described
    if type(name) is not str or type(bases) is not list or not bases or "\0" in name:
        raise ValueRefusedError("malformed exception")
    name = name[:NAME_LENGTH]
    known = classes.get(name)
    if known is not None:
        return known
    above = tuple(_rebuild_class(base, classes, depth + 1) for base in bases)
    # The test catches the exception by this class, if it names one.
    named = classes.get(f"except {name}")
    if named is not None:
        above = (named, *(base for base in above if base not in (Exception, BaseException)))
    try:
        made = type(name, above, {"__module__": "program"})
    except TypeError as problem:
        raise ValueRefusedError("malformed exception") from problem
    classes[name] = made
    return made
