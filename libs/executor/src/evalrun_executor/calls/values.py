"""Values that cross between candidate and assertions, as JSON text. Standard library only, no code is evaluated.

These values cross as themselves: None, bool, int, float, complex, str, bytes, bytearray, list, tuple, set, frozenset,
dict, deque, OrderedDict, Counter, defaultdict, named tuples, range, slice, views of dicts, Fraction, Decimal, dates and
times, UUID, compiled patterns, SimpleNamespace; nested up to `MAX_DEPTH`, up to `MAX_BYTES` of text. Where numpy is
missing, its scalars and arrays become what their `tolist` returns. Types, exceptions and the harmless builtin functions
cross by name.

Identity: a `Heap` records what both sides know of a test's objects. Each object has the number under which it first
crossed, on the side that made it: `a` for the test's arguments, `p` for the program's objects. Later the object crosses
as a reference. Both sides number in the same order (a set's items by their text), so a new object needs no written
number. `changes` and `Decoder.apply` carry later changes of an object.

A class that the problem's prompt defines is known to both sides: its instances cross by their attributes, and become
instances of the other side's own class. An instance of another class of the program that derives from a plain type
(`S`) crosses as the plain type's content, read by the plain type's own methods, under a class of the same name: a
method that the program overrides is never called. Every other object is opaque (`h`): a number, the name of its type,
and the special methods that it has.

In JSON, None, bool, int, float, str and list stand for themselves. All others are objects with a single key: `t` tuple,
`s` set, `z` frozenset (elements sorted by their text), `d` dict (key, value, key, value, ...), `q` deque [maxlen,
items], `O` OrderedDict, `K` Counter, `D` defaultdict [factory, dict], `b` bytes, `y` bytearray (hexadecimal), `c`
complex [real, imaginary], `i` long int (hexadecimal), `f` nan, inf or -inf, `F` a numbered NaN, `u` str with lone
surrogates (hexadecimal UTF-8, surrogates passed), `n` a name, `v` a standard value [kind, parts], `w` view [kind,
dict], `B` buffer [type, state], `V` numpy view [array, parts], `N` SimpleNamespace, `T` named tuple [class, fields,
items], `I` instance of a known class [class, attributes, slots, content], `E` member of an enum [class, name, flags],
`X` exception, `H` a deep value [structure, fillings], `S` and `h` as above, `a` and `p` references. `MARKS` are the
caller's: `r` the result of an earlier call, `g` a name of the program, `L` a function of the test.
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
