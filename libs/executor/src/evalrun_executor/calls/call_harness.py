"""Runs a batch of calls of a program's functions, in one contained process, and reports what each gave.

Standard library only, and the modules of `values`. It holds no expected value: what the program finds here are its own
arguments, and what it forges here it could as well have returned.

The batch, JSON on stdin: `{"imports": text, "classes": [name, ...], "prints": bool, "draws": seed, "tests": [[test,
[[callee, args, kwargs, changes], ...]], ...]}`, values as `values` encodes them. `imports`, and what else the program
may have of the test's own text, runs after the program, in its namespace; `classes` are those of the program that the
test knows too; `changes` is what the test has done to objects of both, or null. A callee that begins with a dot is an
operation of `OPERATIONS` on its first argument.

The answer, a line each, written at once to a private copy of stdout, so that nothing is lost when the process dies:
`load V null` or `load E exception` once; then for each call `TEST CALL P text` (what it printed, if anything) and
`TEST CALL V [value, changes, held, printed]`, `TEST CALL E exception` with the same inside, or `TEST CALL S null`: a
`.next` that was skipped, for the one before found the end; then `end`. `changes` is what the call did to objects that
the test knows; `held` are those of them that the program still holds, so that what the test does to them has to be
told.

What a program meets:
- `__name__` is "program" and the module is registered under that name. As under the usual judges of HumanEval and MBPP,
  which exec the text, an `if __name__ == "__main__":` block does not run.
- stdin is at its end. What it prints is kept per call, up to `PRINT_LIMIT` bytes, and otherwise dropped. What it
  writes to descriptor 1 itself goes to stderr.
- Its calls run in order, in one process: state that it keeps between calls is kept. At the end the process leaves at
  once: no atexit, no destructors, no waiting for threads.
- `random` is seeded, and what it draws from the system follows `draws`: a program gives the same in each round.
"""

from __future__ import annotations

import io
import operator
import os
import sys

from evalrun_executor.calls import values
from evalrun_executor.calls.originals import Json, Value

TYPE_CHECKING = False  # as typing's, without its import
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import CodeType


PRINT_LIMIT = 16384
TOLD_LIMIT = 1 << 20
"""Bytes of what a call prints that a test sees which captures stdout."""
TRACEBACKS = 5
"""Tracebacks written to stderr, at most; a test of a thousand raising calls would fill it."""

_write, _leave, _show, _BaseException = os.write, os._exit, sys.__excepthook__, BaseException
_OWN_FILES = frozenset(
    part.__code__.co_filename
    for part in (lambda: None, values.encode, values.decode, values.dumps, values.description, values.Heap.add)
)
_dumps, _exception_parts, _Refused = values.dumps, values.exception_parts, values.ValueRefusedError
_changes, _Encoder, _Heap, _Decoder = values.changes, values.Encoder, values.Heap, values.Decoder
_issubclass, _type, _len, _StopIteration = issubclass, type, len, StopIteration


def _run(awaitable: Value) -> Value:
    import asyncio

    return asyncio.run(awaitable)


def _seed(value: Value) -> None:
    import random

    random.seed(value)


def _repeat_draws(seed: Json) -> None:
    """Let the program draw the same from the system in each round of its tests: `os.urandom`, and so `secrets`, `uuid`
    and `SystemRandom`; and generators of `random` without a seed, by which `tempfile` names files.

    Calls with derived arguments are found round by round, in a fresh process each.
    """
    from _random import Random  # a quarter of random's cost

    drawn = Random(seed)

    def urandom(size: int, /) -> bytes:
        return drawn.getrandbits(8 * size).to_bytes(size, "little") if size else b""

    os.urandom = urandom
    if "random" in sys.modules:
        vars(sys.modules["random"])["_urandom"] = urandom


def _seed_generators() -> None:
    import random

    plain = random.Random.seed

    def seed(self: random.Random, a: Value = None, version: int = 2) -> None:
        plain(self, os.urandom(16) if a is None else a, version)

    vars(random)["_urandom"] = os.urandom
    setattr(random.Random, "seed", seed)  # noqa: B010 - a method, for mypy
    random.seed(0)


def _copy(value: Value) -> Value:
    import copy

    return copy.copy(value)


def _copy_deeply(value: Value) -> Value:
    import copy

    return copy.deepcopy(value)


_DRAWING = frozenset(("random", "tempfile"))
_BY_OPERATOR = """eq ne lt le gt ge contains getitem setitem delitem index abs neg pos invert
    add sub mul truediv floordiv mod pow lshift rshift and or xor matmul
    iadd isub imul itruediv ifloordiv imod ipow ilshift irshift iand ior ixor imatmul"""
OPERATIONS: dict[str, Callable[..., Value]] = {
    "call": lambda *args, **kwargs: args[0](*args[1:], **kwargs),
    "get": lambda value: value,
    "getattr": getattr, "setattr": setattr, "delattr": delattr, "isinstance": isinstance, "issubclass": issubclass,
    "run": _run, "seed": _seed, "copy": _copy, "deepcopy": _copy_deeply,
    "enter": lambda manager: type(manager).__enter__(manager),
    "exit": lambda manager, error=None: type(manager).__exit__(manager, error and type(error), error, None),
    "bool": bool, "len": len, "iter": iter, "next": next, "str": str, "repr": repr, "format": format, "int": int,
    "float": float, "complex": complex, "hash": hash, "round": round, "reversed": reversed, "bytes": bytes,
    "divmod": divmod, "length_hint": operator.length_hint, "trunc": lambda value: value.__trunc__(),
    "floor": lambda value: value.__floor__(), "ceil": lambda value: value.__ceil__(), "dir": dir,
    **{
        name: getattr(operator, f"__{name}__")
        for name in _BY_OPERATOR.split()
    },
}  # fmt: skip
"""Operations of a test on an object of the program."""


class Prints(io.RawIOBase):
    """Descriptor 1 as sys.stdout sees it: keeps the beginning of what is printed, drops the rest."""

    def __init__(self, limit: int) -> None:
        self.kept = bytearray()
        self._limit = limit

    def writable(self) -> bool:
        """Announce that it can be written to."""
        return True

    def fileno(self) -> int:
        """Return the descriptor of stdout."""
        return 1

    def write(self, data: Value) -> int:
        """Keep what there is room for."""
        size = len(data)
        room = self._limit - len(self.kept)
        if room > 0:
            self.kept += bytes(data)[:room]
        return size


class _Ignored:
    """Suppresses whatever a program's own __str__ or stderr raises."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> bool:
        return True


class Calls:
    """The batch's state in this process."""

    def __init__(self, namespace: dict[str, object], answers: int, *, tells_prints: bool) -> None:
        self._namespace = namespace
        self._tells_prints = tells_prints
        self._answers = answers
        self._prints = Prints(TOLD_LIMIT if tells_prints else PRINT_LIMIT)
        self._stdout = io.TextIOWrapper(io.BufferedWriter(self._prints), "utf-8", "backslashreplace", "\n")
        sys.stdout = self._stdout
        vars(sys)["__stdout__"] = self._stdout
        self._heap = _Heap("p")
        self._results: list[Value] = []
        self._counts: dict[int, int] = {}
        """Number of occurrences of each result among them."""
        self._watched: list[Value] = []
        """Objects that the test knows and the program holds."""
        self._touched: list[Value] = []
        self._functions: dict[str, Value] = {}
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
            if not _DRAWING.isdisjoint(code.co_names):
                _seed_generators()
            exec(code, self._namespace)  # noqa: S102 - what it is for
            if imports:
                exec(compile(imports, "<setup>", "exec", dont_inherit=True), self._namespace)  # noqa: S102 - see above
        except _BaseException as error:
            self._trace(error)
            self.answer("load E " + _dumps({**_exception_parts(error), "args": {"t": []}}))  # nobody looks at them
            return False
        self._take_printed()
        self.answer("load V null")
        return True

    def test(self, test: int, calls: list[Json], classes: list[str]) -> None:
        """Run one test's calls."""
        known = {name: self._namespace[name] for name in classes if _type(self._namespace.get(name)) is not str}
        self._heap = _Heap("p", {name: kind for name, kind in known.items() if isinstance(kind, type)})
        self._results, self._counts, self._watched, self._functions = [], {}, [], {}
        ended: Json = None
        for number, call in enumerate(calls):
            head = f"{test} {number}"
            if call == ended:
                self._results.append(None)
                self.answer(f"{head} S null")
                continue
            ended = None
            kind, structure, stopped = self._outcome(call)
            if stopped and call[0] == ".next":
                ended = call
            printed = self._take_printed()
            if printed:
                self.answer(f"{head} P {_dumps(printed[:PRINT_LIMIT])}")
            self.answer(f"{head} {kind} {self._told(kind, structure, printed)}")

    def _outcome(self, call: Json) -> tuple[str, Json, bool]:
        """Return the kind of a call's outcome, its value in a list or its exception, and whether an iteration ended."""
        try:
            return "V", [self._call(*call)], False
        except _BaseException as error:
            self._results.append(None)
            self._trace(error)
            parts = _exception_parts(error, self._heap)
            stopped = _type(error) is _StopIteration
            _drop(error)
            return "E", parts, stopped

    def _call(self, callee: Json, given: Json, named: Json, changed: Json = None) -> Json:
        heap = self._heap
        before = _len(heap.objects["a"])
        decoder = _Decoder(heap, self._find)
        self._touched = []
        if changed is not None:
            self._touched += decoder.apply(changed)
        args = [decoder.decode(item) for item in given]
        kwargs = {name: decoder.decode(item) for name, item in zip(named["d"][::2], named["d"][1::2], strict=True)}
        referred = [item for item in (*args, *kwargs.values()) if id(item) in heap.places]
        if referred and before:
            self._touched += heap.find_reached(referred)
        self._touched += heap.objects["a"][before:]
        del referred
        function = OPERATIONS[callee[1:]] if callee[0] == "." else self._function(callee)
        try:
            result = function(*args, **kwargs)
        finally:
            del args, kwargs
        structure = self._encode_result(result)
        self._results.append(result)
        self._counts[id(result)] = self._counts.get(id(result), 0) + 1
        return structure

    def _encode_result(self, result: Value) -> Json:
        heap = self._heap
        before = _len(heap.objects["p"])
        try:
            structure = _Encoder(heap).whole(result)
            _dumps(structure)
        except (_Refused, MemoryError, RecursionError, RuntimeError):
            # Too large or too deep, or it holds what cannot: the test may still ask it, as it is.
            heap.forget_after(before)
            heap.add(result, "p")
            return {"h": values.description(_type(result))}
        self._touched += heap.objects["p"][before:]
        return structure

    def _told(self, kind: str, structure: Json, printed: str) -> str:
        """Return what is said of a call: what it gave, what it changed, what the program now holds, what it printed."""
        printed = printed if self._tells_prints else ""
        touched = {id(thing): thing for thing in (*self._watched, *self._touched) if id(thing) in self._heap.shapes}
        self._watched = self._touched = []
        things = list(touched.values())
        del touched
        changed: Json = None
        held: Json = None
        if things:
            before = _len(self._heap.objects["p"])
            try:
                changed = _changes(self._heap, things) or None
                if changed:
                    _dumps(changed)
                    things += [thing for thing in self._heap.objects["p"][before:] if id(thing) in self._heap.shapes]
            except (_Refused, MemoryError, RecursionError, RuntimeError):
                self._heap.forget_after(before)
                changed = "lost"
            self._watched = self._heap.held(things, self._counts)
            held = [self._heap.reference(thing) for thing in self._watched] or None
        if kind == "E":
            return _dumps({**structure, "changes": changed, "held": held, "printed": printed})
        told = [*structure, changed]
        if held is not None or printed:
            told += [held, printed]
        return _dumps(told)

    def _function(self, name: Json) -> Value:
        try:
            return self._namespace[name]
        except KeyError:
            raise NameError(f"name {name!r} is not defined", name=name) from None

    def _find(self, tag: str, payload: Json) -> Value:
        if tag == "r":
            return self._results[payload]
        if tag == "g":
            return self._function(payload)
        return self._made(payload)

    def _take_printed(self) -> str:
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

    def _made(self, payload: Json) -> Value:
        """Create a function of the test's that it passes as an argument."""
        number, *made = payload
        if number not in self._functions:
            source, free, modules = made
            decoder = _Decoder(self._heap, self._find)
            space = {"__builtins__": __builtins__, "__name__": "evalrun_test"}
            for bound, module in modules:
                space[bound] = __import__(module, fromlist=["*"])
            exec(compile(source, "<test>", "exec", dont_inherit=True), space)  # noqa: S102 - the test's own function
            values_of_names = [decoder.decode(item) for item in free]
            self._touched += self._heap.find_reached(values_of_names)
            make: Value = space["evalrun_make"]
            self._functions[number] = make(*values_of_names)
        return self._functions[number]


def _drop(error: Value) -> None:
    """Release the references held by an exception's frames."""
    for _ in range(20):
        if error is None:
            return
        error.__traceback__ = None
        error = error.__context__


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
    _repeat_draws(batch.get("draws"))
    calls = Calls(module.__dict__, answers, tells_prints=batch.get("prints", False))
    if calls.load(code, batch["imports"]):
        for test, wanted in batch["tests"]:
            calls.test(test, wanted, batch.get("classes", []))
        calls.answer("end")
    with _Ignored():
        sys.stderr.flush()
    _leave(0)
