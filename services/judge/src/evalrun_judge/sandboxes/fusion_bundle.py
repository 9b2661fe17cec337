"""What a stock SandboxFusion server is sent to run tests with: `stock_harness` and the modules that it stands on."""

import base64
import marshal
from functools import cache
from pathlib import Path

import evalrun_sandbox
from evalrun_judge.sandboxes import stock_harness
from evalrun_sandbox.zygote_process import MODULES

LAUNCH = "evalrun-launch.py"
CHANGED = "evalrun: this interpreter is not the one that compiled the harness"
"""What a launch says, and no more, where it cannot load the bundle."""

_PACKAGE = Path(evalrun_sandbox.__file__).parent
_NOT_SENT = ("keeper", "zygote")

_READ = f"""\
import marshal, sys
MAGIC = sys.modules["_frozen_importlib_external"].MAGIC_NUMBER
with open("{stock_harness.BUNDLE}", "rb") as file:
    magic, bundle = marshal.load(file)
"""

_COMPILE = """\
magic = MAGIC
for place, (name, path, source, at_once) in enumerate(bundle):
    code = compile(source, path, "exec", dont_inherit=True, optimize=2)
    bundle[place] = name, path, marshal.dumps(code), at_once
"""

_RUN = f"""\
if magic != MAGIC:
    sys.exit("{CHANGED}")
for name, path, code, at_once in bundle:
    if at_once:
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
    """Give the modules as source, which any Python reads: name, file, source, loaded at once, in order of loading.

    The server answers the first request with the same as its own interpreter compiled it, under that interpreter's
    magic number, which saves 60 ms a request.
    """
    found = [("evalrun_sandbox", "", "", True), ("evalrun_sandbox.contained", "", "", True)]
    for name in MODULES:
        if name not in _NOT_SENT:
            path = _PACKAGE / "contained" / f"{name}.py"
            found.append((f"evalrun_sandbox.contained.{name}", path.name, path.read_text(), True))
    harness = Path(stock_harness.__file__)
    found.append(("evalrun_harness_stock", harness.name, harness.read_text(), True))
    for name, file in (("evalrun_values", "values.py"), ("evalrun_harness_calls", "call_harness.py")):
        found.append((name, file, (_PACKAGE / file).read_text(), False))
    return marshal.dumps((b"", found), 2)


@cache
def launch(*, compiled: bool) -> str:
    """Give the script that launches a bundle, compiled or as source, in base64."""
    text = _READ + ("" if compiled else _COMPILE) + _RUN
    return base64.b64encode(text.encode()).decode()
