"""The first lines of a zygote, executed with its modules and its settings, which came over a descriptor.

They register the modules, and then run one step after another. A function that forks returns the child's next step,
which runs from here, so that none of our functions lies below it on the stack.

Modules come as byte code or, for another version of Python than the service's, as text. Texts are compiled in a process
of their own: a compiler leaves 400 pages behind, and each page that a zygote holds costs 0.2 us in a fork and the
child's end together.
"""

# ruff: noqa: PTH123
# Why: pathlib would make the zygote larger, and each fork dearer.
import sys

# The same as `typing.TYPE_CHECKING`, without the time that importing `typing` takes.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Source = tuple[str, str, str | bytes | None]


def _compile_modules(sources: "list[Source]") -> "list[tuple[str, str, object]]":
    import marshal

    if not any(isinstance(source, str) for _, _, source in sources):
        return [
            (name, path, marshal.loads(source) if isinstance(source, bytes) else None)  # noqa: S302 - our own modules
            for name, path, source in sources
        ]
    import os

    # The compiler runs in a child, which takes the pages that it leaves behind with it.
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            codes = [
                (name, path, None if source is None else compile(source, path, "exec", dont_inherit=True, optimize=2))
                for name, path, source in sources
            ]
            with open(writing, "wb") as file:
                marshal.dump(codes, file)
            status = 0
        finally:
            os._exit(status)
    os.close(writing)
    with open(reading, "rb") as file:
        found: list[tuple[str, str, object]] = marshal.load(file)  # noqa: S302 - our own child's
    os.waitpid(pid, 0)
    return found


def _boot(given: "list[Any]") -> object:
    modules: list[Source]
    harnesses: list[Source]
    modules, harnesses, settings = given
    # The list is a global, which would keep all texts as long as any process lives.
    given.clear()
    compiled = _compile_modules([*modules, *harnesses])
    for name, path, code in compiled[: len(modules)]:
        module = type(sys)(name)
        module.__file__ = path
        module.__package__ = name.rpartition(".")[0]
        sys.modules[name] = module
        if code is None:
            # A module without code is a package.
            module.__path__ = []
            continue
        exec(code, module.__dict__)  # type: ignore[arg-type]  # noqa: S102 - our own modules
        setattr(sys.modules[module.__package__], name.rpartition(".")[2], module)
    main, harness_codes = sys.modules["evalrun_executor.contained.zygote"].main, compiled[len(modules) :]
    return lambda: main(settings, harness_codes)


# Each step ends before the next begins, so a child's stack holds this loop alone and a program has (almost) all of its
# recursion limit.
step = _boot(rest)  # type: ignore[name-defined]  # noqa: F821 - set by the command line, see zygote_process
while callable(step):
    step = step()
