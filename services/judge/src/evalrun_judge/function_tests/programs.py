"""The harnesses as ordinary stand-alone Python programs, for sandboxes that preload nothing (stock SandboxFusion)."""

from functools import cache

from evalrun_executor.harness import Harness, sources

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


def program(harness: Harness, code: str) -> str:
    """Return the text of a program that reads the harness's request on stdin and writes the reply.

    Args:
        harness: the call harness, which runs calls of `code`, or the assertion harness, which needs no code.
        code: the candidate's program.
    """
    return _LAUNCH.format(modules=_modules(harness), code=code, main=harness.main)


@cache
def _modules(harness: Harness) -> list[tuple[str, str, str | None]]:
    # The paths are replaced by names: the gateway's own paths mean nothing in the sandbox.
    return [(name, name, text) for name, _, text in sources([harness])]
