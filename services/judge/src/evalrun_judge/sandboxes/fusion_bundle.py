"""What a stock SandboxFusion server is sent to run tests with: `stock_harness` and the modules that it stands on."""

import base64
import marshal
from functools import cache
from pathlib import Path

import evalrun_sandbox
from evalrun_judge.sandboxes import stock_harness
from evalrun_sandbox.zygote_process import MODULES

LAUNCH = "evalrun-launch.py"

_PACKAGE = Path(evalrun_sandbox.__file__).parent

_BOOT = f"""\
import marshal, sys
with open("{stock_harness.BUNDLE}", "rb") as file:
    bundle = marshal.load(file)
for place, (name, path, code, at_once) in enumerate(bundle):
    if type(code) is str:
        code = compile(code, path, "exec", dont_inherit=True)
        bundle[place] = name, path, code, at_once
    if at_once:
        module = type(sys)(name)
        module.__file__, module.__package__ = path, name.rpartition(".")[0]
        sys.modules[name] = module
        if not path:
            module.__path__ = []
        exec(code, module.__dict__)
        if module.__package__:
            setattr(sys.modules[module.__package__], name.rpartition(".")[2], module)
step = sys.modules["evalrun_harness_stock"].main(bundle)
while callable(step):
    step = step()
"""


@cache
def bundle() -> bytes:
    """Give the modules as source, which any Python reads: name, file, source, loaded at once, in order of loading.

    The server answers the first request with the same as its own interpreter compiled it, which saves 60 ms a request.
    """
    found = [("evalrun_sandbox", "", "", True), ("evalrun_sandbox.contained", "", "", True)]
    for name in MODULES:
        if name != "zygote":
            path = _PACKAGE / "contained" / f"{name}.py"
            found.append((f"evalrun_sandbox.contained.{name}", path.name, path.read_text(), True))
    harness = Path(stock_harness.__file__)
    found.append(("evalrun_harness_stock", harness.name, harness.read_text(), True))
    for name, file in (("evalrun_values", "values.py"), ("evalrun_harness_calls", "call_harness.py")):
        found.append((name, file, (_PACKAGE / file).read_text(), False))
    return marshal.dumps(found, 2)


@cache
def launch() -> str:
    """Give the launching script, in base64."""
    return base64.b64encode(_BOOT.encode()).decode()
