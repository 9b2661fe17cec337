"""TypeScript: its type annotations are removed, and Node runs the remaining JavaScript."""

from typing import Final

from evalrun_registry.languages.c_family import COMMENT, COMMENTS
from evalrun_registry.languages.javascript import KEYWORDS, NODE, NODE_FOOTPRINT, STRINGS
from evalrun_registry.languages.language import Compilation, Driver, FusionNames, Language, Syntax

_STRIP: Final = (
    "const fs = require('fs'), [tsc, source, output] = process.argv.slice(1); "
    "const ts = require(require('path').join(fs.realpathSync(tsc), '../../lib/typescript.js')); "
    "const {outputText, diagnostics} = ts.transpileModule(fs.readFileSync(source, 'utf8'), {fileName: source, "
    "reportDiagnostics: true, compilerOptions: {target: ts.ScriptTarget.ES2021, module: ts.ModuleKind.CommonJS, "
    "esModuleInterop: true}}); "
    "for (const each of diagnostics) { const place = each.file.getLineAndCharacterOfPosition(each.start); "
    "console.error(`${source}:${place.line + 1}: ${ts.flattenDiagnosticMessageText(each.messageText, ' ')}`); } "
    "if (diagnostics.length) process.exit(1); fs.writeFileSync(output, outputText);"
)

TYPESCRIPT: Final = Language(
    name="typescript",
    title="TypeScript (Node.js)",
    aliases=("ts",),
    tags=r"(?:typescript|ts|mts|cts)",
    driver=Driver.INTERPRETER,
    compilation=Compilation(
        compiler="tsc",
        source="main.ts",
        # Its compiler as a library: types are not checked, for they decide nothing about what a program prints, and
        # those of Node are not there.
        commands=(("/usr/bin/node", "-e", _STRIP, "{compiler}", "{source}", "{output}"),),
    ),
    interpreter=NODE,
    footprint=NODE_FOOTPRINT,
    packages=("nodejs", "node-typescript"),
    comment=COMMENT,
    line_starts=r"import \w|interface \w",
    syntax=Syntax(
        keywords=f"{KEYWORDS} any boolean declare enum implements interface keyof number private public readonly "
        "string type",
        comment=COMMENTS,
        string=STRINGS,
    ),
    fusion=FusionNames(name="typescript", tags=frozenset({"typescript", "ts"}), is_stock=False),
)
