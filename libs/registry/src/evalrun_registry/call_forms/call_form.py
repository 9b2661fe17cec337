"""The description of how a language's programs are called by values."""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from evalrun_registry.call_forms.signature import Kind, Signature

RETURNED: Final = "evalrun-returned"
"""The text before the returned value, on the same line: a program may print other lines before it."""

_WHOLE: Final = re.compile(rb"-?[0-9]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class CallForm:
    """How a language's programs are called."""

    language: str
    """Name of the language."""
    scalars: Mapping[str, str]
    """The language's types by the scalar types of signatures."""
    listed: str
    """The type of a list, with `{item}`."""
    stub: str
    """The function without its body, with `{name}`, `{parameters}` (or `{names}`) and `{returned}`."""
    parameter: str
    """Text of one parameter, with `{name}` and `{type}`."""
    add_driver: Callable[[str, Signature], str]
    """Function that returns a program together with code that reads the arguments, calls its function and prints the
    value."""
    reserved: str
    """Names that no function may have, between blanks: words of the language, and names that the driver needs."""
    before: str = ""
    """Text that is put before the program."""
    exact_bits: int = 64
    """A whole number of more bits, with its sign, is not exact."""

    def write_type(self, kind: Kind) -> str:
        """Return a type in the language."""
        return self.listed.replace("{item}", self.write_type(kind.item)) if kind.depth else self.scalars[kind.scalar]

    def write_stub(self, signature: Signature) -> str:
        """Return the function's head in the language, as a prompt shows it."""
        names = self._name_parameters(signature)
        parameters = ", ".join(
            self.parameter.format(name=name, type=self.write_type(kind))
            for name, (_, kind) in zip(names, signature.parameters, strict=True)
        )
        words = {
            "name": signature.name,
            "names": ", ".join(names),
            "parameters": parameters,
            "returned": self.write_type(signature.returned),
        }
        text = self.stub
        for word, value in words.items():
            text = text.replace("{" + word + "}", value)
        return text

    def _name_parameters(self, signature: Signature) -> list[str]:
        """Return the parameters' names, with `_` behind those that are words of the language."""
        reserved = self.reserved.split()
        given = {name for name, _ in signature.parameters}
        names = []
        for name, _ in signature.parameters:
            written = name
            while written in reserved or (written != name and written in given):
                written += "_"
            names.append(written)
        return names

    def find_inexact(self, values: Iterable[bytes]) -> str:
        """Return the first whole number among encoded values that the language cannot represent exactly, or an empty
        text."""
        bound = 1 << (self.exact_bits - 1)
        numbers = (word for value in values for word in value.split() if _WHOLE.fullmatch(word))
        return next((word.decode() for word in numbers if not -bound <= int(word) < bound), "")


def write_reads(signature: Signature, prefix: str, write: Callable[[str, Kind], str]) -> tuple[str, str]:
    """Return a driver's lines that read the arguments, and their names as the call takes them.

    Args:
        signature: of the function.
        prefix: of the names.
        write: returns the lines that read the argument of a name and type.
    """
    names = [f"{prefix}{number}" for number in range(len(signature.parameters))]
    pairs = zip(names, signature.parameters, strict=True)
    return "".join(write(name, kind) for name, (_, kind) in pairs), ", ".join(names)
