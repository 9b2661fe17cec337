"""Calls of Python functions."""

from keyword import kwlist
from typing import Final

from evalrun_registry.call_forms.call_form import RETURNED, CallForm
from evalrun_registry.call_forms.signature import Signature

# Before the program, whose part for `__main__`, if it has one, would read the arguments, and whose names may hide those
# of Python: each function keeps what it calls.
BEFORE: Final = """\
import sys as _evalrun_sys
_evalrun_names = globals()
_evalrun_words = iter(_evalrun_sys.stdin.read().split())
__name__ = "solution"

def _evalrun_read(scalar, depth, words=_evalrun_words, next=next, range=range, int=int, float=float, bytes=bytes):
    word = next(words)
    if depth:
        return [_evalrun_read(scalar, depth - 1) for _ in range(int(word))]
    if scalar == "string":
        return bytes.fromhex(word[1:]).decode()
    return word == "1" if scalar == "bool" else float(word) if scalar == "double" else int(word)

def _evalrun_write(
    scalar, depth, value,
    isinstance=isinstance, len=len, list=list, tuple=tuple, str=str, bool=bool, int=int, float=float,
):
    if depth:
        if not isinstance(value, (list, tuple)):
            return "?"
        return " ".join([str(len(value)), *[_evalrun_write(scalar, depth - 1, each) for each in value]])
    if scalar == "string":
        return "s" + str.encode(value).hex() if isinstance(value, str) else "?"
    if scalar == "bool":
        return str(int(value)) if isinstance(value, bool) else "?"
    if isinstance(value, float):
        return float.__repr__(value)
    return int.__repr__(value) if isinstance(value, int) and not isinstance(value, bool) else "?"

def _evalrun_print(scalar, depth, value, print=print):
    print("\\n%(returned)s " + _evalrun_write(scalar, depth, value))

""".replace("%(returned)s", RETURNED)
_DRIVER: Final = """
_evalrun_value = (%(name)s if "%(name)s" in _evalrun_names else Solution().%(name)s)(%(arguments)s)
_evalrun_print("%(scalar)s", %(depth)d, _evalrun_value)
"""


def _add_driver(program: str, signature: Signature) -> str:
    reads = [f'_evalrun_read("{kind.scalar}", {kind.depth})' for _, kind in signature.parameters]
    return f"{program}\n" + _DRIVER % {
        "name": signature.name,
        "arguments": ", ".join(reads),
        "scalar": signature.returned.scalar,
        "depth": signature.returned.depth,
    }


PYTHON: Final = CallForm(
    language="python",
    scalars={"int": "int", "long": "int", "double": "float", "bool": "bool", "string": "str"},
    listed="list[{item}]",
    stub="def {name}({parameters}) -> {returned}:\n    ...",
    parameter="{name}: {type}",
    add_driver=_add_driver,
    before=BEFORE,
    reserved=" ".join((*kwlist, "Solution")),
)
