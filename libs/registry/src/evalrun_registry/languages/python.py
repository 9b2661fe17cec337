"""Python."""

from typing import Final

from evalrun_registry.languages.language import Driver, Footprint, FusionNames, Language, Syntax

_CHECKER: Final = """\
import os, sys
for _name in ("input", "answer", "output"):
    with open(_name, "wb") as _file:
        _file.write(sys.stdin.buffer.read(int.from_bytes(sys.stdin.buffer.read({length}), "little")))
os.mkdir("feedback")
sys.argv[1:] = {arguments!r}
if {output_as_stdin!r}:
    sys.stdin = open("output", encoding="utf-8", errors="surrogateescape")
    os.dup2(sys.stdin.fileno(), 0)
del _name, _file
exec(compile({source!r}, "checker.py", "exec"))
"""

PYTHON: Final = Language(
    name="python",
    title="Python 3",
    aliases=("python3", "py"),
    tags=r"(?:i?python|py|pypy|cpython)[\d.]*",
    driver=Driver.PYTHON,
    # CPython 3.11 maps 30 MiB. What it may map, live sessions and harnesses know as `limits.INTERPRETER_MIB`.
    footprint=Footprint(resident_mib=12, mapped_mib=64),
    comment=('"""', '"""'),
    line_starts=r"def |class |import |from \w|return\b|for .*:|if .*:",
    syntax=Syntax(
        keywords="False None True and as assert async await break class continue def del elif else except finally for "
        "from global if import in is lambda nonlocal not or pass raise return try while with yield match case self",
        comment=r"#[^\n]*",
        string=r'"""(?s:.*?)(?:"""|\Z)|\'\'\'(?s:.*?)(?:\'\'\'|\Z)|"(?:\\.|[^"\\\n])*"?|\'(?:\\.|[^\'\\\n])*\'?',
    ),
    checker=_CHECKER,
    fusion=FusionNames(name="python", tags=frozenset({"python", "Python", "py", "Python3", "python3", "PY"})),
)
