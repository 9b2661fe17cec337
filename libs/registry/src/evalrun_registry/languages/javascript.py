"""JavaScript, run by Node."""

from typing import Final

from evalrun_registry.languages.c_family import COMMENT, COMMENTS, QUOTED
from evalrun_registry.languages.language import Driver, Footprint, FusionNames, Interpreter, Language, Syntax

NODE: Final = Interpreter(
    program="node",
    source="main.js",
    # A stack as large as Python's, for contest programs recurse deeply. The heap is bounded by the limit itself, so
    # that garbage is collected before it.
    arguments=("--stack-size=62000", "--max-old-space-size={memory_mib}", "{source}"),
)

# Node 20: 41 MiB resident and more for young objects, 49 MiB mapped, 730 MiB of addresses.
NODE_FOOTPRINT: Final = Footprint(resident_mib=96, mapped_mib=256, reserved_mib=1024)

KEYWORDS: Final = (
    "async await break case catch class const continue debugger default delete do else export extends "
    "false finally for function if import in instanceof let new null of return static super switch this throw true "
    "try typeof undefined var void while with yield"
)
STRINGS: Final = QUOTED + r"|`(?s:\\.|[^`\\])*`?"

JAVASCRIPT: Final = Language(
    name="javascript",
    title="JavaScript (Node.js)",
    aliases=("js", "node", "nodejs"),
    tags=r"(?:javascript|js|mjs|cjs|node|nodejs)",
    driver=Driver.INTERPRETER,
    interpreter=NODE,
    footprint=NODE_FOOTPRINT,
    packages=("nodejs",),
    comment=COMMENT,
    line_starts=r"const \w|let \w|function \w|console\.|require\(",
    syntax=Syntax(
        keywords=KEYWORDS,
        comment=COMMENTS,
        string=STRINGS,
    ),
    fusion=FusionNames(name="nodejs", tags=frozenset({"javascript", "js"}), is_stock=False),
)
