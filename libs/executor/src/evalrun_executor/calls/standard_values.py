"""Objects of the standard library that cross by name, and the parts from which standard values are rebuilt."""

from __future__ import annotations

import builtins
import math
import operator
import sys

from evalrun_executor.calls.json_text import TypeRefusedError, ValueRefusedError
from evalrun_executor.calls.originals import (
    Value,
    all_,
    issubclass_,
    len_,
    list_,
    mro_of,
    own_of,
    qualified_name,
    type_,
    type_name,
)

# The same as `typing.TYPE_CHECKING`, without the time that importing `typing` takes.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

_FUNCTIONS = (
    "abs all any ascii bin callable chr divmod format hash hex isinstance issubclass iter len max min next oct ord pow"
    " repr round sorted sum"
)
_TYPES = (
    "bool bytearray bytes complex dict enumerate filter float frozenset int list map object range reversed set slice"
    " str tuple zip"
)
# A test may call whatever the program returned. Functions that would let the program act in the test's process are left
# out: eval, exec, open, getattr, and type with three arguments.
NAMED: dict[str, object] = {name: getattr(builtins, name) for name in (_FUNCTIONS + " " + _TYPES).split()}
NAMED.update(
    (name, thing)
    for name, thing in vars(builtins).items()
    if isinstance(thing, type) and issubclass(thing, BaseException)
)
NAMED["nan"] = math.nan
_COMPUTING = """abs add and_ concat contains countOf eq floordiv ge getitem gt index indexOf inv invert is_ is_not le
    lshift lt matmul mod mul ne neg not_ or_ pos pow rshift sub truediv truth xor"""
NAMED.update((f"operator.{name}", getattr(operator, name)) for name in _COMPUTING.split())
NAMED.update((f"math.{name}", thing) for name, thing in vars(math).items() if callable(thing) and name[0] != "_")
NAMED.update({"NoneType": type(None), "Ellipsis": ..., "NotImplemented": NotImplemented})
NAME_OF = {id(thing): name for name, thing in NAMED.items()}
_ADDRESSES = tuple(f"IPv{version}{kind}" for version in "46" for kind in ("Address", "Network", "Interface"))
STATEFUL = {"collections": ("ChainMap", "UserDict", "UserList", "UserString"), "argparse": ("Namespace",)}
"""Classes whose objects consist of their attributes."""
STANDARD = {
    "collections": ("Counter", "OrderedDict", "defaultdict", "deque", *STATEFUL["collections"]),
    "fractions": ("Fraction",),
    "decimal": ("Decimal",),
    "datetime": ("date", "datetime", "time", "timedelta", "timezone"),
    "uuid": ("UUID",),
    "pathlib": ("Path", "PurePath", "PosixPath", "PurePosixPath", "PureWindowsPath"),
    "types": ("SimpleNamespace", "MappingProxyType"),
    "array": ("array",),
    "io": ("StringIO", "BytesIO"),
    "ipaddress": _ADDRESSES,
    "zoneinfo": ("ZoneInfo",),
    "re": ("Pattern", "Match"),
}
"""Classes of the standard library that cross by name; values of most of them cross too."""


def standard_class(module: str, name: str) -> Value:
    """Return a class of the standard library. None if it was never imported: no value can then be of the class."""
    found = sys.modules.get(module)
    return None if found is None else vars(found).get(name)


def list_fields(kind: Value) -> list[str] | None:
    """Return the fields of a named tuple's class; None if the class changes methods of tuples."""
    own = own_of(kind)
    fields = own.get("_fields")
    if type_(fields) is not tuple or not all_(type_(name) is str and name.isidentifier() for name in fields):
        return None
    if mro_of(kind)[1:] != (tuple, object) or "__eq__" in own or "__hash__" in own or "__getattr__" in own:
        return None
    return list_(fields)


def standard_name(kind: Value) -> str:
    """Return the name under which a class of the standard library crosses; empty for other classes."""
    name = qualified_name(kind)
    for module, names in STANDARD.items():
        if name in names and standard_class(module, name) is kind:
            return f"{module}.{name}"
    return ""


def stateful_name(kind: Value) -> str:
    """Return the name of a class of `STATEFUL`; empty for other classes."""
    name = qualified_name(kind)
    for module, names in STATEFUL.items():
        if name in names and standard_class(module, name) is kind:
            return f"{module}.{name}"
    return ""


def stateful_class(name: str) -> Value:
    """Return the class of `STATEFUL` with this name. Raises ValueRefusedError without such a class."""
    module, _, own = name.rpartition(".")
    if own not in STATEFUL.get(module, ()):
        raise ValueRefusedError("malformed value")
    return getattr(__import__(module), own)


def find_viewed(view: Value) -> Value:
    """Return the object behind a view: a dict, or a memory view's bytes, copied if the view shows a part of them."""
    import gc

    if type_(view) is memoryview:
        behind = view.obj
        whole = type_(behind) in (bytes, bytearray) and view.nbytes == len_(behind) and view.strides == (1,)
        return behind if whole and view.format == "B" else _copy_view(view)

    # Views of dicts have no public attribute for their dict before Python 3.10, but the garbage collector knows it.
    for thing in gc.get_referents(view):
        if issubclass_(type_(thing), dict):
            return thing
    raise TypeRefusedError(f"value of type {type_name(view)}")


def _copy_view(view: memoryview) -> Value:
    if view.format != "B" or view.ndim != 1 or not view.readonly:
        raise TypeRefusedError("memoryview of a part that can change, or of another format than bytes")
    return view.tobytes()


VIEWS: dict[str, Value] = {
    "dict_keys": type({}.keys()),
    "dict_values": type({}.values()),
    "dict_items": type({}.items()),
    "mappingproxy": type(vars(type)),
    "memoryview": memoryview,
}


def _zone(moment: Value) -> Value:
    """Return a moment's time zone, or its offset if the zone's class is no standard class."""
    zone = moment.tzinfo
    if zone is None or standard_name(type_(zone)):
        return zone
    offset = moment.utcoffset()
    return None if offset is None else __import__("datetime").timezone(offset)


def _list_no_parts(_value: Value) -> Value:
    return ()


PARTS: dict[str, tuple[str, Callable[[Value], Value]]] = {
    "dict_keys": ("builtins", _list_no_parts), "dict_values": ("builtins", _list_no_parts),
    "dict_items": ("builtins", _list_no_parts),
    "mappingproxy": ("builtins", _list_no_parts), "memoryview": ("builtins", _list_no_parts),
    "Counter": ("collections", _list_no_parts),
    "SimpleNamespace": ("types", _list_no_parts),
    "Fraction": ("fractions", lambda v: (v.numerator, v.denominator)),
    "Decimal": ("decimal", lambda v: (str(v),)),
    "date": ("datetime", lambda v: (v.year, v.month, v.day)),
    "datetime": ("datetime", lambda v: (v.year, v.month, v.day, v.hour, v.minute, v.second, v.microsecond, _zone(v))),
    "time": ("datetime", lambda v: (v.hour, v.minute, v.second, v.microsecond, _zone(v))),
    "timedelta": ("datetime", lambda v: (v.days, v.seconds, v.microseconds)),
    "timezone": ("datetime", lambda v: (v.utcoffset(None),)),
    "UUID": ("uuid", lambda v: (str(v),)),
    "PosixPath": ("pathlib", lambda v: (str(v),)),
    "PurePosixPath": ("pathlib", lambda v: (str(v),)),
    "PureWindowsPath": ("pathlib", lambda v: (str(v),)),
    "ZoneInfo": ("zoneinfo", lambda v: (v.key,)),
    **{name: ("ipaddress", lambda v: (str(v),)) for name in _ADDRESSES},
    "Pattern": ("re", lambda v: (v.pattern, v.flags)),
}  # fmt: skip
"""Module, and function that lists the parts, of values of the standard library, by their type's name."""


def import_name(module: str, name: str) -> Value:
    """Return a class of the standard library that may cross by name. Raises ValueRefusedError for any other name."""
    if name not in STANDARD.get(module, ()):
        raise ValueRefusedError("malformed name")
    return getattr(__import__(module), name)
