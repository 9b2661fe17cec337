"""Calls of Python functions."""

from typing import Final

from evalrun_registry.call_forms.call_form import RETURNED, CallForm
from evalrun_registry.call_forms.signature import Signature

# Before the program, whose part for `__main__`, if it has one, would read the arguments.
BEFORE: Final = """\
import sys as _evalrun_sys
_evalrun_words = iter(_evalrun_sys.stdin.read().split())
__name__ = "solution"
"""
_DRIVER: Final = """
def _evalrun_read(scalar, depth):
    word = next(_evalrun_words)
    if depth:
        return [_evalrun_read(scalar, depth - 1) for _ in range(int(word))]
    if scalar == "string":
        return bytes.fromhex(word[1:]).decode()
    return word == "1" if scalar == "bool" else float(word) if scalar == "double" else int(word)

def _evalrun_write(scalar, depth, value):
    if depth:
        if not isinstance(value, (list, tuple)):
            return "?"
        return " ".join([str(len(value)), *(_evalrun_write(scalar, depth - 1, each) for each in value)])
    if scalar == "string":
        return "s" + value.encode().hex() if isinstance(value, str) else "?"
    if scalar == "bool":
        return str(int(value)) if isinstance(value, bool) else "?"
    return repr(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else "?"

_evalrun_value = (%(name)s if "%(name)s" in globals() else Solution().%(name)s)(%(arguments)s)
print("\\n%(returned)s " + _evalrun_write("%(scalar)s", %(depth)d, _evalrun_value))
"""


def _add_driver(program: str, signature: Signature) -> str:
    reads = [f'_evalrun_read("{kind.scalar}", {kind.depth})' for _, kind in signature.parameters]
    return f"{program}\n" + _DRIVER % {
        "name": signature.name,
        "arguments": ", ".join(reads),
        "returned": RETURNED,
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
)
