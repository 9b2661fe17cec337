"""An execution of a test: calls are replayed as long as they are known, then noted."""

from __future__ import annotations

import sys

from evalrun_executor.calls import values
from evalrun_executor.calls.originals import Json, Value
from evalrun_judge.function_tests.harness.current import Ended, ask_program
from evalrun_judge.function_tests.harness.placeholders import ARITHMETIC, MAX_STEPS, Placeholder, make_placeholder
from evalrun_judge.function_tests.harness.proxies import ORDER, Proxy, proxy_class
from evalrun_judge.function_tests.harness.source import TEST
from evalrun_judge.function_tests.harness.stand_ins import StandIn, name_of

TYPE_CHECKING = False  # as typing's, without its import
if TYPE_CHECKING:
    from evalrun_judge.function_tests.harness.problem import Problem

    Result = tuple[str, Json]
    Ending = dict[str, str]
    """Status and reason of a test, with the cause and the missing module where software acts on them."""

FORESEEN = 16
"""Steps of an iteration that are asked for at once, at least."""
MAX_CALLS = 20_000
"""Calls recorded of one test; more is a loop that waits for a value."""


class Run:
    """An execution of a test: which calls are known, and where it stands."""

    def __init__(self, problem: Problem, calls: list[Json], results: list[Result], *, recording: bool) -> None:
        self.calls: list[Json] = []
        """Made so far, as structures."""
        self.ending: Ending | None = None
        self.unknown = False
        self.valued = False
        """A value has come back."""
        self.raised: list[BaseException] = []
        """Exceptions that the stand-in raised for the program."""
        self.last: Value = None
        """The last returned value."""
        self.frozen = False
        """No call may be made: an assertion is being explained."""
        self.heap = values.Heap("a")
        self._problem = problem
        self._known = calls
        self._results = results
        self._recording = recording
        self._stopped = False
        self._decoding = False
        """Values of the program are being made: nothing may ask it meanwhile, not even for a hash."""
        self._steps = 0
        self._values: list[Value] = []
        self._held: list[Value] = []
        """Values known to the test that the program holds: if the test changes one, the next call reports it."""
        self._made: set[int] = set()
        """Objects that the test makes from a class of the program, and what operators between such objects give."""
        self._decisive: set[int] = set()
        """Methods of opaque objects that compare: nothing may call them."""
        self._told: dict[tuple[str, int], Value] = {}
        """Plain answers of objects, until the program is asked for anything else."""
        self.own_answer_line = 0
        """Line of the test at which an answer of the program's own operators first counted; 0: none did."""
        self._functions: dict[int, tuple[Value, Json]] = {}

    def end(self, status: str, reason: str, cause: str = "") -> Ended:
        """Fix the test's outcome; what the test does with the exception changes nothing."""
        if self.ending is None and not self.unknown and not self.frozen:
            self.ending = {"status": status, "reason": reason, "cause": cause}
        return Ended(self.frozen)

    def step(self) -> None:
        """Count the operations on placeholders: `while value: value = value[0]` would never end."""
        self._steps += 1
        if self._steps > MAX_STEPS:
            raise Ended

    def stop(self) -> None:
        """Record no further call: what comes next hangs on what is not known yet."""
        self._stopped = True

    def attribute(self, thing: Value, name: str) -> Value:
        """Return an attribute of a name or an object of the program."""
        found = self.call(".getattr", (thing, name), {})
        if name in DECISIVE_NAMES and isinstance(thing, Proxy):
            if id(thing) in self._made:
                self.rests_on_own_answer()
            elif isinstance(found, Proxy):
                self._decisive.add(id(found))
        return found

    def is_made(self, thing: Value) -> bool:
        """Return whether the test made an object from a class of the program: its operators are what is tested."""
        return id(thing) in self._made

    def ask_program(self, operation: str, thing: Value, args: tuple[Value, ...]) -> Value:
        """Return the program's answer to an operation, unless it would decide about a value of the test."""
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
        """Note that the program itself decides here: the verdict can be forged."""
        if self.own_answer_line or self._recording:
            return
        frame: Value = sys._getframe(1)
        while frame is not None and frame.f_code.co_filename != TEST:
            frame = frame.f_back
        self.own_answer_line = frame.f_lineno if frame is not None else 1

    def stands_for_a_value(self) -> Ended:
        """Fail the test: no object of the program is told a value of the test, or decides about it."""
        return self.end("wrong_answer", "an object of the program's own stands where a value is expected")

    def call(self, callee: str, args: tuple[Value, ...], kwargs: dict[str, Value]) -> Value:
        """Replay a call, record it, or end the test."""
        self._may_call()
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
            self._stopped = True  # what it is called with will be known once the calls so far are
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
        self._results = self._results[:number]
        self.calls.append(wanted)
        if callee == ".next":
            self._foresee(number, wanted)
        if number >= MAX_CALLS:
            self._stopped = True
        return Placeholder(number, object=likely)

    def _next_known(self, wanted: Json) -> tuple[int, bool]:
        """Return the next call's number and whether its result is known, past those asked for once too often."""
        same = False
        while len(self.calls) < len(self._results):
            number = len(self.calls)
            same = self._same(self._known[number], wanted)
            if same or self._results[number][0] != "S":
                break
            self.calls.append(self._known[number])  # nothing was done
            self._values.append(None)
        return len(self.calls), same and len(self.calls) < len(self._results)

    def _refuse_value(self, callee: str, error: values.ValueRefusedError) -> Ended:
        reason = f"the test calls {callee} with a {error}, which cannot cross"
        return self.needs_the_program("arguments", reason)

    def needs_the_program(self, cause: str, reason: str) -> Ended:
        """End the test, which has to run in the program's process.

        That is so before any answer has run; what an answer led to later fails it.
        """
        if self._results:
            return self.end("runtime_error", reason)
        ended = self.end("api_error", reason)
        if self.ending is not None:
            self.ending["together"] = cause
        return ended

    def _check_later(self, callee: str, args: tuple[Value, ...], kwargs: dict[str, Value]) -> None:
        """Find arguments that can never cross also after the point up to which calls are known."""
        if self._results:
            return
        try:
            self._encode_call(callee, args, kwargs)
        except values.TypeRefusedError as error:
            raise self._refuse_value(callee, error) from None
        except (_Derived, values.ValueRefusedError):
            pass

    def _may_call(self) -> None:
        if self._decoding:
            raise ValueError("a value whose hash is a call")
        if self.frozen or self.ending is not None or self.unknown:
            raise Ended

    def _encode_call(self, callee: str, args: tuple[Value, ...], kwargs: dict[str, Value]) -> Json:
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
        """Ask for more of an iteration ahead, twice as much each time; what the test does not take counts not."""
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
        """Return a function of the test as its text, with the values of the names that it uses."""
        made = self._functions.get(id(function))
        if made is not None:
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
        """Compare calls; a recorded `{"r": call}` stands for the value that the call gave by now."""
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
            # It may hold what is expected. And the program chose to need it: that must not take it out of the score.
            why = f"the program uses {error.name}, which only the test defines, and its assertions use"
            return self.end("runtime_error", why)
        if callee == ".getattr" and isinstance(error, AttributeError):
            self.raised.pop()  # what is asked for is the test's choice: `hasattr`, `getattr` with a default
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
    """Return the argument that an equal text or number came from: `f(x) is x` holds of what cannot change."""
    if type(value) in (str, bytes, int):
        return next((arg for arg in args if type(arg) is type(value) and arg == value), value)
    return value


_PLAIN_ANSWERS = frozenset(("bool", "len", "str", "repr", "hash"))
"""Operations by which an object gives a plain value, once."""
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
"""Their names, and those of sets' methods that do the same."""


def _may_answer(thing: Value, made: set[int]) -> bool:
    """Return whether an operand lets the program decide: what the test made of its class does, and plain operands
    beside it."""
    return id(thing) in made or not isinstance(thing, Proxy)


def _is_the_programs(thing: Value) -> bool:
    return isinstance(thing, (Proxy, StandIn)) or type(thing) is Placeholder


async def _run_coroutine(coroutine: Value) -> Value:
    """Stand for a coroutine of the program: it runs there, to its end, once it is awaited."""
    return ask_program("run", coroutine)


class _Derived(Exception):  # noqa: N818 - caught where it is raised for
    """An argument hangs on a value that is not known yet."""
