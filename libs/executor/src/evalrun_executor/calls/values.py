"""Values that cross between candidate and assertions, as JSON text. Standard library only, no code is evaluated.

What crosses as itself: None, bool, int, float, complex, str, bytes, bytearray, list, tuple, set, frozenset, dict,
deque, OrderedDict, Counter, defaultdict, named tuples, range, slice, views of dicts, Fraction, Decimal, dates and
times, UUID, compiled patterns, SimpleNamespace; nested up to `MAX_DEPTH`, up to `MAX_BYTES` of text. numpy scalars and
arrays are what their `tolist` says. Types, exceptions and the harmless builtin functions cross by name.

Identity. A `Heap` is what both sides know of a test's objects. Each object has the number under which it first
crossed, on the side that made it: `a` for the test's arguments, `p` for the program's. Later it is a reference. Both
sides number in the same order (a set's items by their text), so that no number is written where an object is new.
`Heap.changes` and `apply` carry what was done to an object since.

A class that the problem's prompt defines is known to both sides: its instances cross by their attributes, and become
instances of the other side's own class. An instance of any other class of the program that derives from a plain type
(`S`) is that type's content, read by the base type's own methods, under a class of the same name: nothing that a
program overrides is ever asked. Everything else is opaque (`h`): a number, its type's name, and which special methods
it has.

In JSON: None, bool, int, float, str and list stand for themselves. The others are objects with a key:
`t` tuple, `s` set, `z` frozenset (elements sorted by their text), `d` dict (key, value, key, value, ...), `q` deque
[maxlen, items], `O` OrderedDict, `K` Counter, `D` defaultdict [factory, dict], `b` bytes, `y` bytearray (hexadecimal),
`c` complex [real, imaginary], `i` long int (hexadecimal), `f` nan, inf or -inf, `u` str with lone surrogates
(hexadecimal UTF-8, surrogates passed), `n` a name, `v` a standard value [kind, parts], `w` view [kind, dict],
`N` SimpleNamespace, `T` named tuple [class, fields, items], `I` instance of a known class [class, attributes, content],
`X` exception,
`S` and `h` as above, `a` and `p` references; `MARKS` are the caller's: `r` the result of an earlier call, `g` a name of
the program, `L` a function of the test.
"""

from __future__ import annotations

from evalrun_executor.calls.decoding import Decoder, decode, exception_from
from evalrun_executor.calls.encoding import MAX_DEPTH, Encoder, changes, encode, exception_parts
from evalrun_executor.calls.heap import Heap
from evalrun_executor.calls.json_text import MAX_BYTES, TypeRefusedError, ValueRefusedError, dumps, loads
from evalrun_executor.calls.opaque import SPECIALS, description
from evalrun_executor.calls.originals import Json, Value, type_name

__all__ = [
    "MAX_BYTES",
    "MAX_DEPTH",
    "SPECIALS",
    "Decoder",
    "Encoder",
    "Heap",
    "Json",
    "TypeRefusedError",
    "Value",
    "ValueRefusedError",
    "changes",
    "decode",
    "description",
    "dumps",
    "encode",
    "exception_from",
    "exception_parts",
    "loads",
    "type_name",
]
