"""Calls of the methods of a Java class."""

import re
from typing import Final

from evalrun_registry.call_forms.call_form import RETURNED, CallForm, write_reads
from evalrun_registry.call_forms.signature import Kind, Signature

CLASS: Final = re.compile(r"^(?:(?:public|final|abstract|strictfp)\s+)*class\s+(\w+)", re.MULTILINE)
IMPORT: Final = re.compile(r"^import\b[^;]*;", re.MULTILINE)
_MAIN: Final = re.compile(r"(\bstatic\s+void\s+)main\s*\(")
_PACKAGE: Final = re.compile(r"^package\b[^;]*;", re.MULTILINE)
_READ: Final = {
    "int": "return Integer.parseInt(words.nextToken());",
    "long": "return Long.parseLong(words.nextToken());",
    "double": "return Double.parseDouble(words.nextToken());",
    "bool": 'return words.nextToken().equals("1");',
    "string": "String word = words.nextToken(); byte[] text = new byte[word.length() / 2]; "
    "for (int i = 0; i < text.length; i++) "
    "text[i] = (byte) Integer.parseInt(word.substring(2 * i + 1, 2 * i + 3), 16); "
    "return new String(text, java.nio.charset.StandardCharsets.UTF_8);",
}
_WRITE: Final = {
    "int": "out.append(value);",
    "long": "out.append(value);",
    "double": "out.append(value);",
    "bool": "out.append(value ? 1 : 0);",
    "string": "out.append('s'); for (byte each : value.getBytes(java.nio.charset.StandardCharsets.UTF_8)) "
    'out.append(String.format("%02x", each));',
}


def make_unit(code: str, name: str) -> str:
    """Return an answer's classes, or its methods in a class of this name, without a package and a `main` of its own."""
    code = _MAIN.sub(r"\1evalrunOwnMain(", _PACKAGE.sub("", code))
    if CLASS.search(code):
        return code
    imports = "\n".join(found[0] for found in IMPORT.finditer(code))
    return f"{imports}\nclass {name} {{\n{IMPORT.sub('', code)}\n}}\n"


def _write_codec(kind: Kind) -> str:
    name, typed = f"{kind.scalar}{kind.depth}", JAVA.write_type(kind)
    read, write = _READ[kind.scalar], _WRITE[kind.scalar]
    if kind.depth:
        item, others = f"{kind.scalar}{kind.depth - 1}", "[]" * (kind.depth - 1)
        read = (
            f"{typed} value = new {JAVA.scalars[kind.scalar]}[Integer.parseInt(words.nextToken())]{others}; "
            f"for (int i = 0; i < value.length; i++) value[i] = read_{item}(); return value;"
        )
        write = f"out.append(value.length); for ({JAVA.write_type(kind.item)} each : value) write_{item}(each);"
    return (
        f"    static {typed} read_{name}() {{ {read} }}\n"
        f"    static void write_{name}({typed} value) {{ out.append(' '); {write} }}\n"
    )


def _add_driver(program: str, signature: Signature) -> str:
    reads, names = write_reads(
        signature,
        "a",
        lambda name, kind: f"        {JAVA.write_type(kind)} {name} = read_{kind.scalar}{kind.depth}();\n",
    )
    return (
        f"{make_unit(program, 'Solution')}\nclass EvalrunCall {{\n"
        "    static java.util.StringTokenizer words;\n"
        "    static final StringBuilder out = new StringBuilder();\n"
        f"{''.join(map(_write_codec, signature.kinds))}"
        "    public static void main(String[] args) throws Exception {\n"
        "        words = new java.util.StringTokenizer("
        "new String(System.in.readAllBytes(), java.nio.charset.StandardCharsets.ISO_8859_1));\n"
        f"{reads}        {JAVA.write_type(signature.returned)} value = "
        f"new Solution().{signature.name}({names});\n"
        f"        write_{signature.returned.scalar}{signature.returned.depth}(value);\n"
        f'        System.out.println("\\n{RETURNED}" + out);\n    }}\n}}\n'
    )


JAVA: Final = CallForm(
    language="java",
    scalars={"int": "int", "long": "long", "double": "double", "bool": "boolean", "string": "String"},
    listed="{item}[]",
    stub="class Solution {\n    public {returned} {name}({parameters}) {\n    }\n}",
    parameter="{type} {name}",
    add_driver=_add_driver,
    reserved=(
        "_ abstract assert boolean break byte case catch char class const continue default do double else enum "
        "extends false final finally float for goto if implements import instanceof int interface long native new "
        "null package private protected public return short static strictfp super switch synchronized this throw "
        "throws transient true try void volatile while"
    ),
)
