"""The signature of a function that tests call, and its values as the words that a program reads and prints. Pure.

A value is written as words between blanks, because three of the languages read no JSON: a number as it is, a bool as 1
or 0, a text as `s` and its UTF-8 in hexadecimal digits, a list as its length and its items.
"""

import json
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

SCALARS: Final = ("int", "long", "double", "bool", "string")
WIDTHS: Final = {"int": 32, "long": 64}
TOLERANCE: Final = 1e-6
"""Tolerance of a double, absolute or relative: languages add and print in different orders and digits."""

MAX_TEXT: Final = 2000
"""Characters of a signature."""
MAX_DEPTH: Final = 8
"""Maximum depth of lists in lists."""

_NAME: Final = r"[A-Za-z_][A-Za-z0-9_]*"
_SIGNATURE: Final = re.compile(rf"\s*({_NAME})\s*\((.*)\)\s*->\s*(\S.*?)\s*", re.DOTALL)
_PARAMETER: Final = re.compile(rf"\s*({_NAME})\s*:\s*(\S.*?)\s*", re.DOTALL)


class SignatureError(ValueError):
    """A signature, or a value for it, cannot be passed between languages. The message suggests a valid form."""


@dataclass(frozen=True, slots=True)
class Kind:
    """The type of a value: one of `SCALARS`, nested in `depth` lists."""

    scalar: str
    depth: int = 0

    @property
    def item(self) -> "Kind":
        """The type of the items of a list."""
        return Kind(self.scalar, self.depth - 1)

    def __str__(self) -> str:
        """Return it as signatures write it."""
        return "list[" * self.depth + self.scalar + "]" * self.depth


@dataclass(frozen=True, slots=True)
class Signature:
    """A function with the types of its parameters and of its result."""

    name: str
    parameters: tuple[tuple[str, Kind], ...]
    returned: Kind

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """Return every type in the signature once, with the element types of lists; element types come first."""
        whole = [kind for _, kind in self.parameters] + [self.returned]
        nested = (Kind(kind.scalar, depth) for kind in whole for depth in range(kind.depth + 1))
        return tuple(dict.fromkeys(nested))


def parse_signature(text: str) -> Signature:
    """Return the signature of a text such as `add(xs: list[int], k: int) -> list[int]`. Raises SignatureError."""
    if len(text) > MAX_TEXT:
        raise SignatureError(f"a signature has at most {MAX_TEXT} characters: write a shorter one")
    found = _SIGNATURE.fullmatch(text)
    if found is None:
        raise SignatureError(f"'{text[:80]}' is no signature: write NAME(PARAMETER: TYPE, ...) -> TYPE")
    parameters = []
    for part in found[2].split(",") if found[2].strip() else ():
        pair = _PARAMETER.fullmatch(part)
        if pair is None:
            raise SignatureError(f"'{part.strip()[:80]}' is no parameter: write NAME: TYPE")
        parameters.append((pair[1], _parse_kind(pair[2])))
    if len({name for name, _ in parameters}) < len(parameters):
        raise SignatureError(f"two parameters of {found[1]} have the same name: write another for one of them")
    return Signature(found[1], tuple(parameters), _parse_kind(found[3]))


def _parse_kind(text: str) -> Kind:
    depth, inner = 0, text.strip()
    while inner.startswith("list[") and inner.endswith("]"):
        depth, inner = depth + 1, inner[5:-1].strip()
        if depth > MAX_DEPTH:
            raise SignatureError(f"lists are nested at most {MAX_DEPTH} deep: write fewer")
    if inner not in SCALARS:
        raise SignatureError(
            f"the type '{text[:80]}' cannot be passed by value: write {', '.join(SCALARS)}, or list[...] of them"
        )
    return Kind(inner, depth)


def encode_arguments(signature: Signature, text: str) -> bytes:
    """Return the words of a call's arguments, a JSON list. Raises SignatureError where they are not of their types."""
    values = _load(text)
    if not isinstance(values, list) or len(values) != len(signature.parameters):
        raise SignatureError(
            f"the arguments '{text[:80]}' are not those of {signature.name}: write a list of "
            f"{len(signature.parameters)} values"
        )
    pairs = zip(signature.parameters, values, strict=True)
    words = [word for (_, kind), value in pairs for word in _encode(kind, value)]
    return f"{' '.join(words)}\n".encode()


def encode_result(signature: Signature, text: str) -> bytes:
    """Return the words that encode a call's result, a JSON value. Raises SignatureError where it is not of its type."""
    return " ".join(_encode(signature.returned, _load(text))).encode()


def is_result(signature: Signature, said: bytes, expected: bytes) -> bool:
    """Return whether the words that a program printed are the value of the expected words."""
    given, wanted = said.split(), expected.split()
    if len(given) != len(wanted):
        return False
    pairs = zip(given, wanted, strict=True)
    if signature.returned.scalar != "double":
        return all(left == right for left, right in pairs)
    counts = _count_positions(signature.returned, wanted)
    return all(
        left == right if place in counts else _is_close(left, right) for place, (left, right) in enumerate(pairs)
    )


def _count_positions(kind: Kind, words: Sequence[bytes]) -> set[int]:
    """Return the indices of list lengths among the words of a value."""
    found: set[int] = set()

    def _skip(depth: int, place: int) -> int:
        if not depth:
            return place + 1
        found.add(place)
        after = place + 1
        for _ in range(int(words[place])):
            after = _skip(depth - 1, after)
        return after

    _skip(kind.depth, 0)
    return found


def _is_close(said: bytes, expected: bytes) -> bool:
    try:
        value = float(said)
    except ValueError:
        return False
    return math.isclose(value, float(expected), rel_tol=TOLERANCE, abs_tol=TOLERANCE)


def _load(text: str) -> object:
    try:
        loaded: object = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise SignatureError(f"'{text[:80]}' is not JSON: {' '.join(str(error).split())[:80]}") from error
    return loaded


def _encode(kind: Kind, value: object) -> Iterator[str]:
    if kind.depth:
        if not isinstance(value, list):
            raise _mismatch(kind, value)
        yield str(len(value))
        for each in value:
            yield from _encode(kind.item, each)
    elif kind.scalar == "string" and isinstance(value, str):
        try:
            yield f"s{value.encode().hex()}"
        except UnicodeEncodeError as error:
            raise SignatureError("a text has half of a character (a lone surrogate): write whole ones") from error
    elif kind.scalar == "bool" and isinstance(value, bool):
        yield str(int(value))
    elif kind.scalar in WIDTHS and isinstance(value, int) and not isinstance(value, bool):
        if not -(1 << WIDTHS[kind.scalar] - 1) <= value < 1 << WIDTHS[kind.scalar] - 1:
            raise SignatureError(f"{str(value)[:40]} is no {kind}, which has {WIDTHS[kind.scalar]} bits")
        yield str(value)
    elif kind.scalar == "double" and isinstance(value, int | float) and not isinstance(value, bool):
        if not (isinstance(value, int) and abs(value) > 1 << 1000) and math.isfinite(value):
            yield repr(float(value))
        else:
            raise SignatureError("a double is not finite: write a number")
    else:
        raise _mismatch(kind, value)


def _mismatch(kind: Kind, value: object) -> SignatureError:
    return SignatureError(f"the value {json.dumps(value)[:80]} is no {kind}: write one, or another type")
