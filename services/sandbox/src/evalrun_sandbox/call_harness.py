"""Runs a batch of calls of a program's functions, in one contained process, and reports what each gave.

Standard library only; imports nothing but `evalrun_values` (`values.py` under the name that a zygote or a stand-alone
program gives it). It holds no expected value: what the program finds here are its own arguments, and what it forges
here it could as well have returned.

The batch, JSON on stdin: `{"imports": text, "tests": [[test, [[callee, args, kwargs], ...]], ...]}`, values as
`evalrun_values` encodes them. `imports` runs after the program, in its namespace.

The answer, a line each, written at once to a private copy of stdout, so that nothing is lost when the process dies:
`load V null` or `load E exception` once; then for each call `TEST CALL P text` (what it printed, if anything) and
`TEST CALL V [value, changed arguments or null]` or `TEST CALL E exception`; then `end`. An object that cannot cross is
the mark `{"h": [call, number, type]}`: later calls of the same test may take it as an argument. A call may change its
arguments in place; then the lists, dicts and sets among them are sent back as [args, kwargs].

What a program meets:
- `__name__` is "program" and the module is registered under that name. As under the usual judges of HumanEval and MBPP,
  which exec the text, an `if __name__ == "__main__":` block does not run.
- stdin is at its end. What it prints is kept per call, up to `PRINT_LIMIT` bytes, and otherwise dropped. What it
  writes to descriptor 1 itself goes to stderr.
- Its calls run in order, in one process: state that it keeps between calls is kept. At the end the process leaves at
  once: no atexit, no destructors, no waiting for threads.
"""

from __future__ import annotations

import io
import os
import sys

TYPE_CHECKING = False  # as typing's, without its import
if TYPE_CHECKING:
    from types import CodeType

    from evalrun_sandbox import values
    from evalrun_sandbox.values import Json, Value
else:
    import evalrun_values as values

PRINT_LIMIT = 16384
TRACEBACKS = 5
"""Tracebacks written to stderr, at most; a test of a thousand raising calls would fill it."""

_write, _leave, _show, _BaseException = os.write, os._exit, sys.__excepthook__, BaseException
_OWN_FILES = ((lambda: None).__code__.co_filename, values.encode.__code__.co_filename)
_dumps, _exception_parts, _Refused = values.dumps, values.exception_parts, values.ValueRefusedError


class Prints(io.RawIOBase):
    """Descriptor 1 as sys.stdout sees it: keeps the beginning of what is printed, drops the rest."""

    def __init__(self) -> None:
        self.kept = bytearray()

    def writable(self) -> bool:
        """Say that it can be written to."""
        return True

    def fileno(self) -> int:
        """Give the descriptor of stdout."""
        return 1

    def write(self, data: Value) -> int:
        """Keep what there is room for."""
        size = len(data)
        room = PRINT_LIMIT - len(self.kept)
        if room > 0:
            self.kept += bytes(data)[:room]
        return size


class _Ignored:
    """Lets nothing out that a program's own __str__ or stderr raises."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> bool:
        return True


class Calls:
    """The batch's state in this process."""

    def __init__(self, namespace: dict[str, object], answers: int) -> None:
        self._namespace = namespace
        self._answers = answers
        self._prints = Prints()
        self._stdout = io.TextIOWrapper(io.BufferedWriter(self._prints), "utf-8", "backslashreplace", "\n")
        sys.stdout = self._stdout
        vars(sys)["__stdout__"] = self._stdout
        self._results: list[Value] = []
        self._opaque: dict[tuple[int, int], Value] = {}
        self._tracebacks = TRACEBACKS

    def answer(self, line: str) -> None:
        """Write one line to the judge."""
        data = line.encode() + b"\n"
        while data:
            data = data[_write(self._answers, data) :]

    def load(self, code: str | CodeType, imports: str) -> bool:
        """Execute the program, then the test's imports; says whether both ended well."""
        try:
            if isinstance(code, str):
                code = compile(code, "<program>", "exec", dont_inherit=True)
            exec(code, self._namespace)  # noqa: S102 - what it is for
            if imports:
                exec(compile(imports, "<setup>", "exec", dont_inherit=True), self._namespace)  # noqa: S102 - see above
        except _BaseException as error:
            self._trace(error)
            self.answer("load E " + _dumps({**_exception_parts(error), "args": {"t": []}}))  # nobody looks at them
            return False
        self._printed()
        self.answer("load V null")
        return True

    def test(self, test: int, calls: list[Json]) -> None:
        """Make one test's calls."""
        self._results, self._opaque = [], {}
        for number, (callee, given, named) in enumerate(calls):
            head = f"{test} {number}"
            result = None
            try:
                result, payload = self._call(number, callee, given, named)
                kind = "V"
            except _BaseException as error:
                self._trace(error)
                kind, payload = "E", _dumps(_exception_parts(error))
            self._results.append(result)
            printed = self._printed()
            if printed:
                self.answer(f"{head} P {_dumps(printed)}")
            self.answer(f"{head} {kind} {payload}")

    def _call(self, number: int, callee: Json, given: Json, named: Json) -> tuple[Value, str]:
        args = values.decode(given, self._find)
        kwargs = values.decode(named, self._find)
        result = self._function(callee)(*args, **kwargs)
        made: list[Value] = []

        def opaque(thing: Value) -> Json:
            self._opaque[number, len(made)] = thing
            made.append(thing)
            return {"h": [number, len(made) - 1, values.type_name(thing)]}

        try:
            text = _dumps(values.encode(result, opaque))
        except (_Refused, MemoryError, RecursionError, RuntimeError) as error:
            why = str(error) if type(error) is _Refused else type(error).__name__
            self._opaque[number, 0] = result
            text = _dumps({"h": [number, 0, f"{values.type_name(result)} ({why})"]})
        return result, f"[{text},{_changed(given, args, named, kwargs)}]"

    def _function(self, name: Json) -> Value:
        try:
            return self._namespace[name]
        except KeyError:
            raise NameError(f"name {name!r} is not defined") from None

    def _find(self, tag: str, payload: Json) -> Value:
        if tag == "r":
            return self._results[payload]
        if tag == "g":
            return self._function(payload)
        number, place, _ = payload
        return self._opaque[number, place]

    def _printed(self) -> str:
        try:
            self._stdout.flush()
        except ValueError:  # the program closed it
            return ""
        text = self._prints.kept.decode("utf-8", "replace")
        self._prints.kept.clear()
        return text

    def _trace(self, error: BaseException) -> None:
        """Write the traceback to stderr, without the harness's own frames."""
        self._tracebacks -= 1
        if self._tracebacks < 0:
            return
        trace = error.__traceback__
        while trace is not None and trace.tb_frame.f_code.co_filename in _OWN_FILES:
            trace = trace.tb_next
        with _Ignored():
            _show(type(error), error.with_traceback(trace), trace)


def _changed(given: Json, args: Value, named: Json, kwargs: Value) -> str:
    """Give the arguments where the call changed them in place, as JSON; `null` where it did not."""
    if not any(type(item) in (list, dict) for item in given) and not named["d"]:
        return "null"
    try:
        now = _dumps([values.encode(args), values.encode(kwargs)])
        return "null" if now == _dumps([given, named]) else now
    except (_Refused, MemoryError, RecursionError, RuntimeError):
        return "null"  # it put in what cannot cross, or the arguments held marks


def _read_all(descriptor: int) -> bytes:
    parts = []
    while part := os.read(descriptor, 1 << 20):
        parts.append(part)
    return b"".join(parts)


def main(code: str | CodeType) -> None:
    """Run the batch on stdin with the program `code`, as text or compiled as `<program>`; ends the process.

    Raises:
        ValueRefusedError: the batch is not JSON.
    """
    batch = values.loads(_read_all(0).decode())
    answers = os.dup(1)
    os.dup2(2, 1)
    sys.stdin = open(0, encoding="utf-8", errors="surrogateescape", closefd=False)  # noqa: SIM115 - stays
    module = type(sys)("program")
    module.__dict__["__builtins__"] = __builtins__
    sys.modules["program"] = module
    calls = Calls(module.__dict__, answers)
    if calls.load(code, batch["imports"]):
        for test, wanted in batch["tests"]:
            calls.test(test, wanted)
        calls.answer("end")
    with _Ignored():
        sys.stderr.flush()
    _leave(0)
