"""The harnesses as ordinary stand-alone Python programs, for sandboxes that preload nothing (stock SandboxFusion)."""

from functools import cache
from pathlib import Path

import evalrun_sandbox

_LAUNCH = """\
import sys

def _module(name, source):
    module = type(sys)(name)
    sys.modules[name] = module
    exec(compile(source, name, "exec", dont_inherit=True), module.__dict__)
    return module

VALUES = {values!r}
HARNESS = {harness!r}
CODE = {code!r}
_module("evalrun_values", VALUES)
_module("evalrun_harness", HARNESS).main(CODE)
"""


def program(code: str) -> str:
    """Give the text of a program that reads a batch of calls on stdin and runs it with `code` as the program."""
    return _LAUNCH.format(values=_sandbox_source("values.py"), harness=_sandbox_source("call_harness.py"), code=code)


def assertion_program() -> str:
    """Give the text of a program that reads an assertion request on stdin and answers it."""
    harness = Path(__file__).with_name("assertion_harness.py").read_text()
    return _LAUNCH.format(values=_sandbox_source("values.py"), harness=harness, code="")


@cache
def _sandbox_source(name: str) -> str:
    return Path(evalrun_sandbox.__file__).with_name(name).read_text()
