"""An execution of a test: known calls are replayed, and the calls after them are recorded."""

from __future__ import annotations

import sys

from evalrun_executor.calls import values
from evalrun_executor.calls.originals import Json, Value
from evalrun_judge.function_tests.harness.current import Ended, ask_program
from evalrun_judge.function_tests.harness.placeholders import ARITHMETIC, MAX_STEPS, Placeholder, make_placeholder
from evalrun_judge.function_tests.harness.proxies import ORDER, Proxy, proxy_class
from evalrun_judge.function_tests.harness.source import TEST
from evalrun_judge.function_tests.harness.stand_ins import StandIn, name_of

# The same as `typing.TYPE_CHECKING`, without the time that importing `typing` takes.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from evalrun_judge.function_tests.harness.problem import Problem

    Result = tuple[str, Json]
    Ending = dict[str, str]
    """Status and reason of a test, with the cause and the missing module where software acts on them."""

FORESEEN = 16
"""Minimum number of iteration steps that are requested at once."""
MAX_CALLS = 20_000
"""Maximum number of calls recorded in a test; more is a loop that waits for a value."""


class Run:
    """An execution of a test: which calls are known, and how far it has come."""

    def __init__(self, problem: Problem, calls: list[Json], results: list[Result], *, recording: bool) -> None:
        self.calls: list[Json] = []
        """Calls made so far, as structures."""
        self.ending: Ending | None = None
        self.unknown = False
        self.valued = False
        """Whether a value has come back."""
        self.raised: list[BaseException] = []
        """Exceptions that the stand-in raised for the program."""
        self.last: Value = None
        """The last returned value."""
        self.frozen = False
        """Whether calls are forbidden, because an assertion is being explained."""
        self.heap = values.Heap("a")
        self._problem = problem
        self._known = calls
        self._results = results
        self._recording = recording
        self._stopped = False
        self._decoding = False
        """Whether values of the program are being built. Nothing may call the program meanwhile, not even for a hash.
        """
        self._steps = 0
        self._values: list[Value] = []
        self._held: list[Value] = []
        """Values known to the test that the program holds: if the test changes such a value, the next call reports it.
        """
        self._made: set[int] = set()
        """Objects that the test made from a class of the program, and results of operators between such objects."""
        self._decisive: set[int] = set()
        """Comparing methods of opaque objects: the test may not call them."""
        self._told: dict[tuple[str, int], Value] = {}
        """Plain results of objects, kept until the next other call of the program."""
        self.own_answer_line = 0
        """Line of the test at which a result of the program's own operators first counted; 0: nowhere."""
        self._functions: dict[int, tuple[Value, Json]] = {}

    def end(self, status: str, reason: str, cause: str = "") -> Ended:
        """Fix the test's outcome. It stays, whatever the test does with the exception."""
        if self.ending is None and not self.unknown and not self.frozen:
            self.ending = {"status": status, "reason": reason, "cause": cause}
        return Ended(self.frozen)

    def step(self) -> None:
        """Count an operation on placeholders: `while value: value = value[0]` would never end."""
        self._steps += 1
        if self._steps > MAX_STEPS:
            raise Ended

    def stop(self) -> None:
        """Record no further call: the next calls depend on results that are not known yet."""
        self._stopped = True

    def attribute(self, thing: Value, name: str) -> Value:
        """Return an attribute of a name or an object of the program."""
        found = self.call(".getattr", (thing, name), {})
        # `value.__eq__` and the like would let the program compare. The result counts only for objects that the test
        # made.
        if name in DECISIVE_NAMES and isinstance(thing, Proxy):
            if id(thing) in self._made:
                self.rests_on_own_answer()
            elif isinstance(found, Proxy):
                self._decisive.add(id(found))
        return found

    def is_made(self, thing: Value) -> bool:
        """Return whether the test made the object from a class of the program: its operators are then under test."""
        return id(thing) in self._made

    def ask_program(self, operation: str, thing: Value, args: tuple[Value, ...]) -> Value:
        """Return the program's result of an operation, unless the program would decide about a value of the test."""
        # `len` or `bool` of an object does not change by itself, and a test may ask for it a thousand times.
        if operation in _PLAIN_ANSWERS:
            key = operation, id(thing)
            if key not in self._told:
                answer = self.call(f".{operation}", (thing,), {})
                if type(answer) is Placeholder:
                    return answer
                self._told[key] = answer
            return self._told[key]
        deciding = operation in DECIDING
        both = (thing, *args)
        # The program must not decide whether its own object equals the expected value. It may compare two objects of
        # its own.
        if deciding and not all(_may_answer(one, self._made) for one in both):
            alone = len(both) == 1 or operation == "round"
            if alone or not all(map(_is_the_programs, both)):
                raise self.stands_for_a_value()
        found = self.call(f".{operation}", both, {})
        if deciding and type(found) is not Placeholder:
            self.rests_on_own_answer()
            if isinstance(found, Proxy) and any(id(one) in self._made for one in both):
                self._made.add(id(found))
        return found

    def rests_on_own_answer(self) -> None:
        """Record that the program itself decides here: the verdict can be forged."""
        if self.own_answer_line or self._recording:
            return
        frame: Value = sys._getframe(1)
        while frame is not None and frame.f_code.co_filename != TEST:
            frame = frame.f_back
        self.own_answer_line = frame.f_lineno if frame is not None else 1

    def stands_for_a_value(self) -> Ended:
        """Fail the test: no object of the program may see a value of the test, or decide about it."""
        return self.end("wrong_answer", "an object of the program's own stands where a value is expected")

    def call(self, callee: str, args: tuple[Value, ...], kwargs: dict[str, Value]) -> Value:
        """Replay a call, record it, or end the test."""
        self._may_call()
        # Any other call may change the objects, so plain results that are kept no longer hold.
        if callee[0] != "." or callee[1:] not in _PLAIN_ANSWERS:
            self._told.clear()
        if callee == ".call" and id(args[0]) in self._decisive:
            raise self.stands_for_a_value()
        likely = callee[0] == "." or callee[0].isupper()
        if self._stopped:
            if len(self.calls) >= MAX_CALLS:
                raise Ended
            self._check_later(callee, args, kwargs)
            return Placeholder()
        try:
            wanted = self._encode_call(callee, args, kwargs)
        except _Derived:
            # The arguments are known once the calls so far have been made.
            self._stopped = True
            return Placeholder()
        except values.ValueRefusedError as error:
            raise self._refuse_value(callee, error) from None
        number, same = self._next_known(wanted)
        if same:
            self.calls.append(self._known[number])
            return self._replay(number, callee, args)
        if not self._recording:
            self.unknown = True
            raise Ended
        # The test left the known path here: later results belong to calls that it does not make.
        self._results = self._results[:number]
        self.calls.append(wanted)
        if callee == ".next":
            self._foresee(number, wanted)
        if number >= MAX_CALLS:
            self._stopped = True
        return Placeholder(number, object=likely)

    def _next_known(self, wanted: Json) -> tuple[int, bool]:
        """Return the next call's number and whether its result is known. Skips iteration steps that were never made."""
        same = False
        while len(self.calls) < len(self._results):
            number = len(self.calls)
            same = self._same(self._known[number], wanted)
            if same or self._results[number][0] != "S":
                break
            # The step came after the iteration's end, so the program did nothing.
            self.calls.append(self._known[number])
            self._values.append(None)
        return len(self.calls), same and len(self.calls) < len(self._results)

    def _refuse_value(self, callee: str, error: values.ValueRefusedError) -> Ended:
        reason = f"the test calls {callee} with a {error}, which cannot cross"
        return self.needs_the_program("arguments", reason)

    def needs_the_program(self, cause: str, reason: str) -> Ended:
        """End a test that has to run in the program's process.

        That can only be decided before any completion has run. Once results of a program are in, the test fails
        instead.
        """
        if self._results:
            return self.end("runtime_error", reason)
        ended = self.end("api_error", reason)
        if self.ending is not None:
            self.ending["together"] = cause
        return ended

    def _check_later(self, callee: str, args: tuple[Value, ...], kwargs: dict[str, Value]) -> None:
        """End the test if an argument of a call after the last known call can never cross to the program."""
        if self._results:
            return
        try:
            self._encode_call(callee, args, kwargs)
        except values.TypeRefusedError as error:
            raise self._refuse_value(callee, error) from None
        except (_Derived, values.ValueRefusedError):
            pass

    def _may_call(self) -> None:
        # A hash of a proxy would be a call, and no call can be made while a result is being decoded.
        if self._decoding:
            raise ValueError("a value whose hash is a call")
        if self.frozen or self.ending is not None or self.unknown:
            raise Ended

    def _encode_call(self, callee: str, args: tuple[Value, ...], kwargs: dict[str, Value]) -> Json:
        # The test may have defined further shared classes since the last call.
        self._problem.update_known(self.heap.known)
        changed = None
        if self._held or self.heap.places:
            known = {id(thing): thing for thing in (*self._held, *self.heap.find_reached([*args, *kwargs.values()]))}
            changed = values.changes(self.heap, list(known.values()), self._mark) or None
        encoder = values.Encoder(self.heap, self._mark)
        wanted = [callee, [encoder.whole(arg) for arg in args]]
        named = {"d": [part for name, arg in kwargs.items() for part in (name, encoder.whole(arg))]}
        return [*wanted, named] if changed is None else [*wanted, named, changed]

    def _foresee(self, number: int, wanted: Json) -> None:
        """Request more steps of an iteration ahead, twice as many each time.

        Steps that the test does not take do not count.
        """
        taken = sum(call == wanted for call in self._known[:number])
        self.calls += [wanted] * min(max(FORESEEN, taken), MAX_CALLS)
        self._stopped = True

    def _mark(self, thing: Value) -> Json:
        kind = type(thing)
        if kind is Placeholder:
            if thing.call is None:
                raise _Derived
            return {"r": thing.call}
        if kind is StandIn:
            return {"g": name_of(thing)}
        if kind is type(make_placeholder):
            return self._function(thing)
        raise values.TypeRefusedError(f"value of type {values.type_name(thing)}")

    def _function(self, function: Value) -> Json:
        """Encode a function of the test as its text, with the values of the names that it uses."""
        made = self._functions.get(id(function))
        if made is not None:
            # The number is given before the values are encoded, because a function may refer to itself.
            return {"L": [made[1]]}
        number = len(self._functions)
        self._functions[id(function)] = function, number
        source, names = self._problem.find_function_source(function)
        cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
        free, modules, given = [], [], []
        for name in names:
            if name in cells:
                value = cells[name].cell_contents
            elif name in function.__globals__:
                value = function.__globals__[name]
            else:
                continue
            if type(value) is type(sys):
                modules.append([name, value.__name__])
            elif value is not function:
                free.append(name)
                given.append(values.Encoder(self.heap, self._mark).whole(value))
        return {"L": [number, source.replace("EVALRUN_NAMES", ", ".join(free), 1), given, modules]}

    def _same(self, known: Json, wanted: Json) -> bool:
        """Compare calls. A recorded `{"r": call}` stands for the value that the call has returned by now."""
        return known == wanted or bool(self._values and self._fill_references(known) == wanted)

    def _fill_references(self, structure: Json) -> Json:
        if type(structure) is list:
            return [self._fill_references(item) for item in structure]
        if type(structure) is dict:
            if "r" in structure:
                number = structure["r"]
                if number >= len(self._values):
                    return structure
                value = self._values[number]
                try:
                    return self.heap.reference(value) or values.encode(value, self.heap, self._mark)
                except values.ValueRefusedError:
                    return structure
            return {tag: self._fill_references(payload) for tag, payload in structure.items()}
        return structure

    def _replay(self, number: int, callee: str, args: tuple[Value, ...]) -> Value:
        kind, payload = self._results[number]
        if kind == "D":
            raise self.end(*payload)
        if kind == "S" and callee == ".next":
            self._values.append(None)
            raise StopIteration
        decoder = values.Decoder(self.heap, None, _object)
        # The program wrote all of this, so any failure of decoding is the program's.
        value: Value = None
        self._decoding = True
        try:
            if kind == "S":
                raise ValueError(payload)
            if kind == "E":
                error = values.exception_from(payload, decoder)
                changed, held, printed = payload.get("changes"), payload.get("held"), payload.get("printed")
            else:
                if type(payload) is not list or not 2 <= len(payload) <= 4:
                    raise ValueError(payload)
                structure, changed, held, printed = [*payload, None, None][:4]
                value = decoder.decode(structure)
            if changed is not None:
                decoder.apply(changed)
            self._held = [decoder.decode(reference) for reference in held or ()]
            if printed:
                sys.stdout.write(str(printed))
        except (values.ValueRefusedError, ValueError, TypeError, LookupError, RecursionError, AttributeError):
            raise self.end("runtime_error", "the program wrote what is no value into the judge's channel") from None
        finally:
            self._decoding = False
        value = _find_same(value, args)
        self._values.append(value)
        if isinstance(value, Proxy) and self._problem.is_class(callee):
            self._made.add(id(value))
        if kind == "E":
            raise self._convert_exception(error, callee)
        self.valued = True
        self.last = value
        if callee == ".run" or type(value).__name__ != "coroutine" or not isinstance(value, Proxy):
            return value
        return _run_coroutine(value)

    def _convert_exception(self, error: BaseException, callee: str) -> BaseException:
        if callee == ".next" and isinstance(error, StopIteration):
            return error
        self.raised.append(error)
        if type(error) is NameError and error.name in self._problem.hidden:
            # The name may hold an expected value, so the program does not get it. The program chose to use the name,
            # and must not leave the score that way.
            why = f"the program uses {error.name}, which only the test defines, and its assertions use"
            return self.end("runtime_error", why)
        if callee == ".getattr" and isinstance(error, AttributeError):
            # The test chose the attribute, by `hasattr` or `getattr` with a default, so the exception is not the
            # program's failure.
            self.raised.pop()
        # A StopIteration inside a generator of the test would silently end the generator, so Python turns it into
        # RuntimeError there.
        if isinstance(error, (StopIteration, StopAsyncIteration)) and not self._problem.iterates:
            made = RuntimeError()
            made.__cause__ = error
            return made
        return error


def _object(description: Json, content: Value) -> Value:
    base: Value = None if content is None else type(content)
    if content is None:
        return object.__new__(proxy_class(description, None))
    if base in (list, dict, set, bytearray):
        return base.__new__(proxy_class(description, base))
    return base.__new__(proxy_class(description, base), content)


def _find_same(value: Value, args: tuple[Value, ...]) -> Value:
    """Return the argument that equals a returned text or number, so that `f(x) is x` holds for immutable values."""
    if type(value) in (str, bytes, int):
        return next((arg for arg in args if type(arg) is type(value) and arg == value), value)
    return value


_PLAIN_ANSWERS = frozenset(("bool", "len", "str", "repr", "hash"))
"""Operations that return a plain value of an object, asked for once."""
DECIDING = frozenset(
    (
        *ORDER,
        *(prefix + name for name in ARITHMETIC.split() for prefix in ("", "r", "i")),
        *("int", "float", "complex", "index", "abs", "round", "trunc", "floor", "ceil", "neg", "pos", "invert"),
        "format",
    )
)
"""Operations that compare, compute or convert."""
DECISIVE_NAMES = frozenset(
    (
        *(f"__{name}__" for name in DECIDING),
        *("issubset", "issuperset", "isdisjoint", "union", "intersection", "difference", "symmetric_difference"),
    )
)
"""Names of the deciding operations, and of sets' methods that do the same."""


def _may_answer(thing: Value, made: set[int]) -> bool:
    """Return whether the program may decide about an operand: an object that the test made, or a plain value."""
    return id(thing) in made or not isinstance(thing, Proxy)


def _is_the_programs(thing: Value) -> bool:
    return isinstance(thing, (Proxy, StandIn)) or type(thing) is Placeholder


async def _run_coroutine(coroutine: Value) -> Value:
    """Return the result of a coroutine of the program, which runs to its end there when this function is awaited."""
    return ask_program("run", coroutine)


class _Derived(Exception):  # noqa: N818 - caught where it is raised for
    """An argument depends on a value that is not known yet."""
