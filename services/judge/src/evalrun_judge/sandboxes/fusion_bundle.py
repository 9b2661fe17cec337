"""Bundle that is sent to a stock SandboxFusion server to run tests: `stock_harness` and the modules that it needs.

The modules that call functions, two fifths of all, are sent only with programs whose functions are called.
"""

import base64
import marshal
from functools import cache
from pathlib import Path

import evalrun_executor
from evalrun_executor.harness import CALL_HARNESS, sources
from evalrun_executor.zygotes.zygote_process import MODULES
from evalrun_judge.sandboxes import stock_harness

LAUNCH = "evalrun-launch.py"
OTHER_INTERPRETER = 109
"""Exit code of a launch whose interpreter cannot load the bundle, because another interpreter compiled it."""

_PACKAGE = Path(evalrun_executor.__file__).parent
_NOT_SENT = (
    "syscalls", "seccomp", "harness_worker", "program_worker", "session", "session_worker", "zygote",
)  # fmt: skip

_READ = f"""\
import marshal, sys
MAGIC = sys.modules["_frozen_importlib_external"].MAGIC_NUMBER
with open("{stock_harness.BUNDLE}", "rb") as file:
    magic, bundle = marshal.load(file)
"""

_COMPILE = """\
import __future__, opcode
magic, flags = MAGIC, __future__.annotations.compiler_flag
numbers = {name: opcode.opmap[name] for name in ("IMPORT_NAME", "EXTENDED_ARG")}
for place, (name, path, source) in enumerate(bundle):
    source = source.replace("from __future__ import annotations", "")
    source = source.replace("from opcode import opmap", "opmap = " + repr(numbers))
    bundle[place] = name, path, marshal.dumps(compile(source, path, "exec", flags, dont_inherit=True, optimize=2))
"""
"""Compiles the modules without two imports, so that calls that load compiled code skip them: 0.5 ms less for each."""

_RUN = f"""\
if magic != MAGIC:
    sys.stderr.write("evalrun: this interpreter is not the one that compiled the harness\\n")
    sys.exit({OTHER_INTERPRETER})
for name, path, code in bundle:
    module = type(sys)(name)
    module.__file__, module.__package__ = path, name.rpartition(".")[0]
    sys.modules[name] = module
    if not path:
        module.__path__ = []
    exec(marshal.loads(code), module.__dict__)
    if module.__package__:
        setattr(sys.modules[module.__package__], name.rpartition(".")[2], module)
step = sys.modules["evalrun_harness_stock"].main(bundle, magic)
while callable(step):
    step = step()
"""


@cache
def bundle() -> bytes:
    """Return the modules as source, which any Python reads: name, file, source, in order of loading.

    The server returns them with the first reply as its own interpreter compiled them, under that interpreter's magic
    number, which saves 60 ms per request.
    """
    found = [("evalrun_executor", "", ""), ("evalrun_executor.contained", "", "")]
    for name in MODULES:
        if name not in _NOT_SENT:
            path = _PACKAGE / "contained" / f"{name}.py"
            found.append((f"evalrun_executor.contained.{name}", path.name, path.read_text()))
    harness = Path(stock_harness.__file__)
    found.append(("evalrun_harness_stock", harness.name, harness.read_text()))
    return marshal.dumps((b"", found), 2)


@cache
def call_modules() -> bytes:
    """Return the modules that call functions, in the form of `bundle`."""
    found = [(name, Path(path).name, text or "") for name, path, text in sources([CALL_HARNESS])]
    return marshal.dumps((b"", found), 2)


@cache
def launch(*, compiled: bool) -> str:
    """Return the script that launches a bundle, compiled or as source, in base64."""
    text = _READ + ("" if compiled else _COMPILE) + _RUN
    return base64.b64encode(text.encode()).decode()
