"""The harnesses as ordinary stand-alone Python programs, for sandboxes that preload nothing (stock SandboxFusion)."""

from functools import cache

from evalrun_executor.harness import CALL_HARNESS, Harness, sources
from evalrun_judge.function_tests.assertions import ASSERTION_HARNESS

_LAUNCH = """\
import sys
MODULES = {modules!r}
CODE = {code!r}
for name, path, source in MODULES:
    module = type(sys)(name)
    sys.modules[name] = module
    if source is None:
        module.__path__ = []
    else:
        exec(compile(source, path, "exec", dont_inherit=True), module.__dict__)
sys.modules[{main!r}].main(CODE)
"""


def program(code: str) -> str:
    """Return the text of a program that reads a batch of calls on stdin and runs it with `code` as the program."""
    return _launched(CALL_HARNESS, code)


def assertion_program() -> str:
    """Return the text of a program that reads an assertion request on stdin and answers it."""
    return _launched(ASSERTION_HARNESS, "")


def _launched(harness: Harness, code: str) -> str:
    return _LAUNCH.format(modules=_modules(harness), code=code, main=harness.main)


@cache
def _modules(harness: Harness) -> list[tuple[str, str, str | None]]:
    return [(name, name, text) for name, _, text in sources([harness])]  # not the gateway's own paths
