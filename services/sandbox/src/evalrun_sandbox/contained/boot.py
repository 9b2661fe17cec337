"""The first lines of a zygote, executed with its modules and its settings, which came over a descriptor.

Registers the modules, and then does one step after another: each forked process gets its next step from here, with
nothing below it on the stack.
"""

import sys


def _boot(modules: list[tuple[str, str, "str | None"]], settings: dict[str, object]) -> object:
    for name, path, source in modules:
        module = type(sys)(name)
        module.__file__ = path
        module.__package__ = name.rpartition(".")[0]
        sys.modules[name] = module
        if source is None:
            module.__path__ = []
            continue
        exec(compile(source, path, "exec", dont_inherit=True), module.__dict__)  # noqa: S102 - our own modules
        setattr(sys.modules[module.__package__], name.rpartition(".")[2], module)
    step: object = sys.modules["evalrun_sandbox.contained.zygote"].main(settings)
    return step


step = _boot(modules, settings)  # type: ignore[name-defined]  # noqa: F821 - set by the command line, see zygote_process
while callable(step):
    step = step()
