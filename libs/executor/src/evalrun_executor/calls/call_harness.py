"""Runs a batch of calls of a program's functions, in one contained process, and reports the outcome of each call.

The harness imports only the standard library and the modules of `values`. It holds no expected value: the program can
find only its own arguments here, and whatever it forges here it could as well have returned.

The batch is JSON on stdin: `{"imports": text, "classes": [name, ...], "prints": bool, "draws": seed, "tests": [[test,
[[callee, args, kwargs, changes], ...]], ...]}`, with values as `values` encodes them. `imports` is the part of the
test's own text that the program may see; it runs after the program, in the program's namespace. `classes` are the
program's classes that the test knows too. `changes` is what the test has done to objects that both sides know, or null.
A callee that begins with a dot is an operation of `OPERATIONS` on its first argument.

The reply has one line per event. Each line is written at once to a private copy of stdout, so that nothing is lost when
the process dies. First comes `load V null` or `load E exception`. Then each call has `TEST CALL P text` (what the call
printed, if anything) and one of `TEST CALL V [value, changes, held, printed]`, `TEST CALL E exception` with the same
members inside, or `TEST CALL S null`: a `.next` that was skipped because the one before it found the end. The last line
is `end`. `changes` is what the call did to objects that the test knows. `held` are those of these objects that the
program still holds, so that the test has to send its own changes of them.

A program meets this environment:

- `__name__` is "program" and the module is registered under that name. As with the usual judges of HumanEval and MBPP,
  which exec the text, an `if __name__ == "__main__":` block does not run.
- stdin is at its end. Up to `PRINT_LIMIT` bytes of what a call prints are kept, and the rest is dropped. What the
  program writes to descriptor 1 directly goes to stderr.
- Its calls run in order, in one process, so state survives between calls. At the end the process leaves at once,
  without atexit, destructors or waiting for threads.
- `random` is seeded, and what the program draws from the system follows `draws`, so that a program behaves the same in
  each round.
"""

from __future__ import annotations

import io
import operator
import os
import sys

from evalrun_executor.calls import values
from evalrun_executor.calls.originals import Json, Value

# The same as `typing.TYPE_CHECKING`, without the time that importing `typing` takes.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import CodeType


PRINT_LIMIT = 16384
TOLD_LIMIT = 1 << 20
"""Bytes that a test sees of what a call prints, if the test captures stdout."""
TRACEBACKS = 5
"""Maximum number of tracebacks on stderr; a test of a thousand raising calls would fill it."""

# These names are bound before the program runs. The program can replace `os.write` or `len`, and the harness would call
# its replacement.
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
    """Make everything that the program draws from the system repeat in each round of its tests.

    This covers `os.urandom`, and so `secrets`, `uuid` and `SystemRandom`, and generators of `random` without a seed, by
    which `tempfile` names files. Calls with derived arguments are found round by round, in a fresh process each.
    """
    # `_random` takes a quarter of the time that importing `random` takes.
    from _random import Random

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
"""Operations that a test performs on an object of the program."""


class Prints(io.RawIOBase):
    """Descriptor 1 as sys.stdout sees it: keeps the beginning of what is printed and drops the rest."""

    def __init__(self, limit: int) -> None:
        self.kept = bytearray()
        self._limit = limit

    def writable(self) -> bool:
        """Return True, which `BufferedWriter` asks for."""
        return True

    def fileno(self) -> int:
        """Return the descriptor of stdout."""
        return 1

    def write(self, data: Value) -> int:
        """Keep the part of `data` that fits, and report all of it as written."""
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
    """The state of the batch in this process."""

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
        """Number of times that each object is among the results, by id."""
        self._watched: list[Value] = []
        """Objects that the test knows and the program holds."""
        self._touched: list[Value] = []
        self._functions: dict[str, Value] = {}
        self._tracebacks = TRACEBACKS

    def answer(self, line: str) -> None:
        """Write a line to the judge."""
        # A pipe may take a part of a long line only, and the judge reads a torn line as nonsense.
        data = line.encode() + b"\n"
        while data:
            data = data[_write(self._answers, data) :]

    def load(self, code: str | CodeType, imports: str) -> bool:
        """Execute the program, then the test's imports. Return whether both succeeded."""
        try:
            if isinstance(code, str):
                code = compile(code, "<program>", "exec", dont_inherit=True)
            # Seeding imports `random`, so it is done only for programs that name one of its users.
            if not _DRAWING.isdisjoint(code.co_names):
                _seed_generators()
            # Executing the program is what this process exists for.
            exec(code, self._namespace)  # noqa: S102 - what it is for
            if imports:
                exec(compile(imports, "<setup>", "exec", dont_inherit=True), self._namespace)  # noqa: S102 - see above
        except _BaseException as error:
            self._trace(error)
            # Nobody reads the arguments of this exception.
            self.answer("load E " + _dumps({**_exception_parts(error), "args": {"t": []}}))
            return False
        self._take_printed()
        self.answer("load V null")
        return True

    def test(self, test: int, calls: list[Json], classes: list[str]) -> None:
        """Run one test's calls."""
        # A class that the program has replaced by a text is no class any more.
        known = {name: self._namespace[name] for name in classes if _type(self._namespace.get(name)) is not str}
        self._heap = _Heap("p", {name: kind for name, kind in known.items() if isinstance(kind, type)})
        self._results, self._counts, self._watched, self._functions = [], {}, [], {}
        ended: Json = None
        for number, call in enumerate(calls):
            head = f"{test} {number}"
            # A test that iterates sends `.next` calls ahead. Once the iterator is exhausted, the same call would only
            # raise again.
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
            # The exception's frames refer to the arguments. `held` would take them for objects that the program still
            # holds.
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
        # Arguments that the test already knew may have been changed by the call, and so may all that they lead to.
        # Without known objects before the call there is nothing to look for.
        referred = [item for item in (*args, *kwargs.values()) if id(item) in heap.places]
        if referred and before:
            self._touched += heap.find_reached(referred)
        self._touched += heap.objects["a"][before:]
        # Each local reference counts in `held`, which compares reference counts: it must be gone before the call
        # returns.
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
            # The result is too large, too deep, or holds something that cannot cross. The test may still ask it by
            # calls, so it crosses as an opaque object.
            heap.forget_after(before)
            heap.add(result, "p")
            return {"h": values.description(_type(result))}
        self._touched += heap.objects["p"][before:]
        return structure

    def _told(self, kind: str, structure: Json, printed: str) -> str:
        """Return the text about a call: value, changes, objects that the program now holds, and output."""
        printed = printed if self._tells_prints else ""
        touched = {id(thing): thing for thing in (*self._watched, *self._touched) if id(thing) in self._heap.shapes}
        # These lists, and `touched` below, hold references, which would count as the program's in `held`.
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
                    # Encoding the changes may have given numbers to new objects, which the program may hold as well.
                    things += [thing for thing in self._heap.objects["p"][before:] if id(thing) in self._heap.shapes]
            # A change that cannot cross leaves the two sides with different objects. The judge then does not judge the
            # test.
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
        # The program has closed its stdout.
        except ValueError:
            return ""
        text = self._prints.kept.decode("utf-8", "replace")
        self._prints.kept.clear()
        return text

    def _trace(self, error: BaseException) -> None:
        """Write the traceback to stderr without the frames of the harness."""
        self._tracebacks -= 1
        if self._tracebacks < 0:
            return
        trace = error.__traceback__
        while trace is not None and trace.tb_frame.f_code.co_filename in _OWN_FILES:
            trace = trace.tb_next
        with _Ignored():
            _show(type(error), error.with_traceback(trace), trace)

    def _made(self, payload: Json) -> Value:
        """Create a function that the test passes as an argument."""
        number, *made = payload
        # The same number is the same function: a program may compare two arguments with `is`.
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
    """Release the references that the exception's frames hold."""
    # The chain may be a circle that the program made, so the walk is bounded.
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
    """Run the batch on stdin with the program `code`, as text or compiled as `<program>`, and end the process.

    Raises:
        ValueRefusedError: the batch is not JSON.
    """
    batch = values.loads(_read_all(0).decode())
    # The program's own writes to descriptor 1 must not mix with the reply, which goes to a descriptor that the program
    # is not told of.
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
    # Leave without the interpreter's own end: atexit functions and destructors of the program would still run.
    _leave(0)
