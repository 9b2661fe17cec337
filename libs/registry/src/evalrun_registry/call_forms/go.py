"""Calls of Go functions."""

import re
from typing import Final

from evalrun_registry.call_forms.call_form import RETURNED, CallForm, write_reads
from evalrun_registry.call_forms.signature import Kind, Signature

_PACKAGE: Final = re.compile(r"^package[ \t]+\w+", re.MULTILINE)
_IMPORT: Final = re.compile(
    r'^import[ \t]*(?:\(.*?^[ \t]*\)|(?:[\w.]+[ \t]+)?"[^"\n]+"|\([^()\n]*\))', re.MULTILINE | re.DOTALL
)
_MAIN: Final = re.compile(r"^func\s+main\s*\(", re.MULTILINE)
# Under names of their own: the program may import them too, or not.
_IMPORTS: Final = """
import (
\tevalrunHex "encoding/hex"
\tevalrunFmt "fmt"
\tevalrunIo "io"
\tevalrunOs "os"
\tevalrunStrconv "strconv"
\tevalrunStrings "strings"
)
var _ = evalrunHex.EncodeToString
var evalrunWords []string
func evalrunWord() string { word := evalrunWords[0]; evalrunWords = evalrunWords[1:]; return word }
func evalrunCount() int { count, err := evalrunStrconv.Atoi(evalrunWord()); if err != nil { panic(err) }; return count }
"""
_READ: Final = {
    "int": "return evalrunCount()",
    "long": "return evalrunCount()",
    "double": "value, err := evalrunStrconv.ParseFloat(evalrunWord(), 64); if err != nil { panic(err) }; return value",
    "bool": 'return evalrunWord() == "1"',
    "string": "text, err := evalrunHex.DecodeString(evalrunWord()[1:]); if err != nil { panic(err) }; "
    "return string(text)",
}
_WRITE: Final = {
    "int": "out.WriteString(evalrunStrconv.Itoa(value))",
    "long": "out.WriteString(evalrunStrconv.Itoa(value))",
    "double": "out.WriteString(evalrunStrconv.FormatFloat(value, 'g', -1, 64))",
    "bool": 'if value { out.WriteString("1") } else { out.WriteString("0") }',
    "string": 'out.WriteString("s" + evalrunHex.EncodeToString([]byte(value)))',
}


def _write_codec(kind: Kind) -> str:
    name, typed = f"{kind.scalar}{kind.depth}", GO.write_type(kind)
    read, write = _READ[kind.scalar], _WRITE[kind.scalar]
    if kind.depth:
        item = f"{kind.scalar}{kind.depth - 1}"
        read = (
            f"value := make({typed}, evalrunCount()); for i := range value {{ value[i] = evalrunRead_{item}() }}; "
            "return value"
        )
        write = (
            "out.WriteString(evalrunStrconv.Itoa(len(value))); "
            f"for _, each := range value {{ evalrunWrite_{item}(out, each) }}"
        )
    return (
        f"func evalrunRead_{name}() {typed} {{ {read} }}\n"
        f'func evalrunWrite_{name}(out *evalrunStrings.Builder, value {typed}) {{ out.WriteString(" "); {write} }}\n'
    )


def _add_driver(program: str, signature: Signature) -> str:
    body = _MAIN.sub("func evalrunOwnMain(", _PACKAGE.sub("", program, count=1))
    reads, names = write_reads(
        signature, "evalrunA", lambda name, kind: f"\t{name} := evalrunRead_{kind.scalar}{kind.depth}()\n"
    )
    imports, rest = _split_imports(body)
    return (
        f"package main\n{imports}{_IMPORTS}{rest}\n{''.join(map(_write_codec, signature.kinds))}func main() {{\n"
        "\tevalrunAll, evalrunErr := evalrunIo.ReadAll(evalrunOs.Stdin)\n\tif evalrunErr != nil { panic(evalrunErr) }\n"
        f"\tevalrunWords = evalrunStrings.Fields(string(evalrunAll))\n{reads}"
        f"\tvalue := {signature.name}({names})\n\tout := &evalrunStrings.Builder{{}}\n"
        f"\tevalrunWrite_{signature.returned.scalar}{signature.returned.depth}(out, value)\n"
        f'\tevalrunFmt.Println("\\n{RETURNED}" + out.String())\n}}\n'
    )


def _split_imports(body: str) -> tuple[str, str]:
    """Return the imports, which have to stand before all else, and the rest."""
    found = list(_IMPORT.finditer(body))
    end = found[-1].end() if found else 0
    return body[:end], body[end:]


GO: Final = CallForm(
    language="go",
    scalars={"int": "int", "long": "int", "double": "float64", "bool": "bool", "string": "string"},
    listed="[]{item}",
    stub="func {name}({parameters}) {returned} {\n}",
    parameter="{name} {type}",
    add_driver=_add_driver,
    # With words that the driver writes, and that a function would hide.
    reserved=(
        "_ break case chan const continue default defer else fallthrough for func go goto if import init interface "
        "main map package range return select struct switch type var bool byte false float64 int len make nil panic "
        "string true"
    ),
)
