"""The first lines that the candidates' interpreter executes, given to it by `-c`.

Reads the modules and the settings from the descriptor named in its argument, registers the modules, and then does one
step after another: each forked process gets its next step from here, with nothing below it on the stack.
"""

import marshal
import os
import sys


def _boot() -> object:
    with os.fdopen(int(sys.argv[1]), "rb") as file:
        modules, settings = marshal.load(file)  # noqa: S302 - written by the front, which is trusted
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
    return sys.modules["evalrun_sandbox.contained.zygote"].main(settings)


step = _boot()
while callable(step):
    step = step()
