"""A child that becomes the program: an ordinary `python3 main.py`, as far as the program can tell.

The hash seed is 0, so that a program whose output depends on the order of a set prints the same each time.
"""

# ruff: noqa: SIM105
# Why: pathlib and contextlib would make the zygote larger, and each fork dearer.
from __future__ import annotations

import _signal as signal  # type: ignore[import-not-found]  # no stubs; `signal` itself makes enums of what it gives
import atexit
import builtins
import gc
import os
import sys
from _collections_abc import Callable

# The same as `typing.TYPE_CHECKING`, without the time that importing `typing` takes.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import CodeType, TracebackType

SCRIPT = "main.py"
OWN_MODULES = "evalrun_"
# Python itself ends with this status.
_FLUSH_FAILED = 120
_C_LONG = 1 << 63
# This name is bound before a program can replace `os._exit`.
_leave = os._exit


def prepare_streams() -> None:
    """Recreate sys.stdin, stdout and stderr on descriptors 0, 1 and 2, as Python does at start in C.UTF-8.

    The runner does it for all tests at once, which saves 300 us of page faults in each child. The zygote does not do it
    for all runners, because objects that were made last lie on fewer pages when a child touches them (25 faults of
    330).
    """
    # Python asks a descriptor for its kind when it makes a stream. A child later replaces these descriptors by a file
    # and two pipes of its own.
    nothing = os.memfd_create("stdin")
    keep_open, pipe = os.pipe()
    for fd, place in ((nothing, 0), (pipe, 1), (pipe, 2)):
        os.dup2(fd, place)
    for fd in (nothing, pipe, keep_open):
        os.close(fd)
    for name, fd, mode, errors in (
        ("stdin", 0, "r", "surrogateescape"),
        ("stdout", 1, "w", "surrogateescape"),
        ("stderr", 2, "w", "backslashreplace"),
    ):
        buffering = 1 if fd == 2 else -1
        stream = open(fd, mode, buffering, "utf-8", errors, "\n", closefd=False)  # noqa: SIM115 - lives as long as we do
        stream.buffer.raw.name = f"<{name}>"  # type: ignore[attr-defined]  # FileIO's name can be set
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def prepare_main(path: str) -> dict[str, object]:
    """Put a fresh `__main__` in place. Return its globals."""
    module = type(sys)("__main__")
    module.__dict__.update(__file__=path, __cached__=None, __builtins__=builtins, __annotations__={})
    sys.modules["__main__"] = module
    # `open(sys.argv[0])` finds the text, as under any judge.
    sys.argv = [path if path.startswith("/") else SCRIPT]
    return module.__dict__


_FORGOTTEN: list[object] = []


def forget_own_modules() -> None:
    """Remove our own modules from `sys.modules`, so that a program does not see that it is judged."""
    # The list keeps the modules alive. Otherwise a child that leaves the last function of a module would take the
    # module apart, page by page.
    _FORGOTTEN.extend(sys.modules.pop(name) for name in [*sys.modules] if name.startswith(OWN_MODULES))


def run_program(code: CodeType, namespace: dict[str, object], *, thorough: bool) -> None:
    """Run the compiled program to its end; never returns.

    Args:
        code: the compiled program.
        namespace: the result of `prepare_main`.
        thorough: destroy the program's objects at the end, which may be seen from outside; see
            `python_source.needs_teardown`.
    """
    status = 0
    if hasattr(sys, "set_int_max_str_digits"):
        # Contest judges do not limit the digits of an integer, and CPU time is limited anyway.
        sys.set_int_max_str_digits(0)
    try:
        exec(code, namespace)  # noqa: S102 - what a child is for
    except BaseException as error:  # noqa: BLE001 - the program's own, whatever it is
        status = _report_exception(error)
    _end_process(status, namespace if thorough else None)


_AT_START = (
    "__main__ _collections_abc _sitebuiltins abc builtins codecs encodings genericpath io os posixpath site stat sys"
)
_NEVER_SHADOWED = frozenset(_AT_START.split())
"""Modules that every Python has imported before its program starts: a file of that name beside the program is not
imported."""


def run_beside_files(code: CodeType, namespace: dict[str, object], directory: str, names: list[str]) -> None:
    """Run the program as if it were among the files in `directory`. Never returns.

    An import prefers these files to any module of the same name. The child therefore forgets modules of these names
    that the zygote imported ahead. The runner never imports a request's files.
    """
    shadowed = {name[:-3] if name.endswith(".py") else name for name in names} - _NEVER_SHADOWED
    hidden = [name for name in sys.modules if name.partition(".")[0] in shadowed.difference(sys.builtin_module_names)]
    _FORGOTTEN.extend(sys.modules.pop(name) for name in hidden)
    sys.path.insert(0, directory)
    run_program(code, namespace, thorough=True)


def run_harness(main: Callable[..., None], code: object, namespace: dict[str, object]) -> None:
    """Run a preloaded harness to its end, on a compiled program or on text; never returns."""
    status = 0
    try:
        main(code)
    except BaseException as error:  # noqa: BLE001 - the program's own, whatever it is
        status = _report_exception(error)
    _end_process(status, namespace)


def _report_exception(error: BaseException) -> int:
    """Print the exception as Python would. Return Python's exit status."""
    return _report_exit_code(error.code) if isinstance(error, SystemExit) else _report_uncaught(error)


def _report_exit_code(code: object) -> int:
    if code is None:
        return 0
    if isinstance(code, int):
        return code & 0xFF if -_C_LONG <= code < _C_LONG else 0xFF
    try:
        print(code, file=sys.stderr)  # noqa: T201 - as Python does
    except Exception:  # noqa: BLE001, S110 - the program may have closed or replaced stderr
        pass
    return 1


def _report_uncaught(error: BaseException) -> int:
    trace: TracebackType | None = error.__traceback__
    # The first frame is ours, and Python's own traceback has no such frame.
    trace = trace.tb_next if trace is not None else None
    error = error.with_traceback(trace)
    try:
        sys.excepthook(type(error), error, trace)
    except SystemExit as end:
        return _report_exit_code(end.code)
    except BaseException:  # noqa: BLE001 - a hook of the program's
        sys.__excepthook__(type(error), error, trace)
    if isinstance(error, KeyboardInterrupt):
        # Python ends itself by the signal, so that its parent sees the interrupt.
        _flush_streams()
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    return 1


def _end_process(status: int, namespace: dict[str, object] | None) -> None:
    """End the process as Py_FinalizeEx does: threads, atexit, flush, the globals' destructors.

    The rest of Python's own tear-down is left out: its effects cannot be seen from outside, and it would touch every
    page once more.
    """
    threading = sys.modules.get("threading")
    if threading is not None:
        _call_quietly(threading._shutdown)
    atexit._run_exitfuncs()
    status = _flush_streams() or status
    if namespace is not None:
        # Destructors print and flush: an unclosed file on descriptor 1 is written by its own destructor. A stdout that
        # the program put in place may need globals to flush, so it is removed while they exist.
        for name in ("stdin", "stdout", "stderr"):
            setattr(sys, name, getattr(sys, f"__{name}__", None))
        # Unreferenced cycles go first, while their destructors still find every name.
        gc.collect()
        for last in (False, True):
            for name in [*namespace]:
                if name != "__builtins__" and isinstance(namespace[name], _WITHOUT_END) is last:
                    namespace[name] = None
        gc.collect()
        status = _flush_streams() or status
    _leave(status)


_WITHOUT_END = (int, float, complex, str, bytes, type(None), type, type(sys), type(_report_exit_code), type(len))
"""Values whose end nobody sees. They go last: Python's own end runs destructors and clean-ups of generators while every
global is still there."""


def _call_quietly(call: Callable[[], object]) -> None:
    try:
        call()
    except BaseException as error:  # noqa: BLE001 - Python prints it as unraisable and goes on
        sys.__excepthook__(type(error), error, error.__traceback__)


def _flush_streams() -> int:
    """Flush stdout and stderr. Return 120 if that fails, the status with which Python ends, else 0."""
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except Exception:  # noqa: BLE001 - looked at again, one by one
        return _flush_each_stream()
    return 0


def _flush_each_stream() -> int:
    status = 0
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None and not stream.closed:
                stream.flush()
        except Exception as error:  # noqa: BLE001 - Python prints it as ignored, and ends with 120
            status = _FLUSH_FAILED
            _report_ignored(error)
    return status


def _report_ignored(error: Exception) -> None:
    try:
        sys.__stderr__.write(f"Exception ignored in: <sys.stdout>\n{type(error).__name__}: {error}\n")  # type: ignore[union-attr]
    except Exception:  # noqa: BLE001, S110 - stderr is gone too
        pass
