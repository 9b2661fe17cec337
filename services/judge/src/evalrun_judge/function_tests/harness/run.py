"""One execution of one test: calls are replayed as long as they are known, then noted."""

from __future__ import annotations

import sys
from enum import Enum

from evalrun_executor.calls import values
from evalrun_executor.calls.originals import Json, Value
from evalrun_judge.function_tests.harness.current import Ended, asked
from evalrun_judge.function_tests.harness.placeholders import ARITHMETIC, MAX_STEPS, Placeholder, derived
from evalrun_judge.function_tests.harness.proxies import CONVERSIONS, ORDER, Proxy, proxy_class
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


class Maker(Enum):
    """Origin of a program's object: it decides whether the object may define its own comparison."""

    FUNCTION = "a function"
    ENTRY_POINT = "the entry point, whose name is a class's, but which no test shows to be one"
    CLASS = "a class, or an object that one made"


class Run:
    """One execution of one test: which calls are known, and where it stands."""

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
        self._trusted: set[int] = set()
        self._of_entry: set[int] = set()
        """Trusted objects that the entry point made."""
        self._tainted: set[int] = set()
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
        return self.call(".getattr", (thing, name), {})

    def answers_for_itself(self, thing: Value) -> bool:
        """Return whether an object may decide how it compares with the test's values.

        What the test makes by a name that it treats as a class may: its operators are what is tested. What a function
        returned may not: an object that agrees with everything would pass any test. Nor may what the entry point
        made, unless the test's text shows a class: 25 of MBPP's functions have names with a capital.
        """
        return id(thing) in self._trusted and id(thing) not in self._of_entry

    def asked(self, operation: str, thing: Value, args: tuple[Value, ...]) -> Value:
        """Return the program's answer to an operation, and check that it decides nothing that only the tests may
        decide."""
        own = next((one for one in (thing, *args) if id(one) in self._trusted), None)
        if own is None and id(thing) in self._tainted and operation in CONVERSIONS | ORDER:
            raise self._forbidden(thing)
        found = self.call(f".{operation}", (thing, *args), {})
        mixed = not all(_is_the_programs(one) for one in (thing, *args))
        if type(found) is Placeholder or not mixed or operation in CONVERSIONS or operation not in _DECIDING:
            return found
        if own is not None and (operation not in ORDER or self.answers_for_itself(own)):
            return found
        if operation in ORDER:
            if found is (operation == "ne"):
                return found
        elif isinstance(found, Proxy) or found is NotImplemented:
            self._tainted.add(id(found))
            return found
        raise self._forbidden(thing if _is_the_programs(thing) else args[0])

    def _forbidden(self, thing: Value) -> Ended:
        return self.end(
            "wrong_answer",
            f"a {type(thing).__name__} of the program itself decides how it compares with the test's value",
        )

    def call(self, callee: str, args: tuple[Value, ...], kwargs: dict[str, Value]) -> Value:
        """Replay a call, record it, or end the test."""
        self._may_call()
        likely = callee[0] == "." or callee[0].isupper()
        if self._stopped:
            if len(self.calls) >= MAX_CALLS:
                raise Ended
            return Placeholder()
        try:
            wanted = self._wanted(callee, args, kwargs)
        except _Derived:
            self._stopped = True  # what it is called with will be known once the calls so far are
            return Placeholder()
        except values.ValueRefusedError as error:
            # Too large or too deep by what the program returned: its own doing, and no way out of being judged.
            own_doing = self.valued and not isinstance(error, values.TypeRefusedError)
            status = "runtime_error" if own_doing else "api_error"
            raise self.end(status, f"the test calls {callee} with a {error}, which cannot cross") from None
        while len(self.calls) < len(self._results):
            number = len(self.calls)
            same = self._same(self._known[number], wanted)
            if same or self._results[number][0] != "S":
                break
            self.calls.append(self._known[number])  # it was asked for once too often, and nothing was done
            self._values.append(None)
        number = len(self.calls)
        if number < len(self._results) and same:
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

    def _may_call(self) -> None:
        if self._decoding:
            raise ValueError("a value whose hash is a call")
        if self.frozen or self.ending is not None or self.unknown:
            raise Ended

    def _wanted(self, callee: str, args: tuple[Value, ...], kwargs: dict[str, Value]) -> Json:
        self._problem.update_known(self.heap.known)
        changed = None
        if self._held or self.heap.places:
            known = {id(thing): thing for thing in (*self._held, *self.heap.reached([*args, *kwargs.values()]))}
            changed = values.changes(self.heap, list(known.values()), self._mark) or None
        encoder = values.Encoder(self.heap, self._mark)
        wanted = [callee, [encoder.encode(arg) for arg in args]]
        named = {"d": [part for name, arg in kwargs.items() for part in (name, encoder.encode(arg))]}
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
        if kind is type(derived):
            return self._function(thing)
        raise values.TypeRefusedError(f"value of type {values.type_name(thing)}")

    def _function(self, function: Value) -> Json:
        """Return a function of the test as its text, with the values of the names that it uses."""
        made = self._functions.get(id(function))
        if made is not None:
            return {"L": [made[1]]}
        number = len(self._functions)
        self._functions[id(function)] = function, number
        source, names = self._problem.text_of(function)
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
                given.append(values.Encoder(self.heap, self._mark).encode(value))
        return {"L": [number, source.replace("EVALRUN_NAMES", ", ".join(free), 1), given, modules]}

    def _same(self, known: Json, wanted: Json) -> bool:
        """Compare calls; a recorded `{"r": call}` stands for the value that the call gave by now."""
        return known == wanted or bool(self._values and self._filled(known) == wanted)

    def _filled(self, structure: Json) -> Json:
        if type(structure) is list:
            return [self._filled(item) for item in structure]
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
            return {tag: self._filled(payload) for tag, payload in structure.items()}
        return structure

    def _replay(self, number: int, callee: str, args: tuple[Value, ...]) -> Value:
        kind, payload = self._results[number]
        if kind == "D":
            raise self.end(*payload)
        if kind == "S":
            self._values.append(None)
            raise StopIteration
        maker = self._maker(callee, args)
        decoder = values.Decoder(self.heap, None, lambda told, content: self._object(told, content, maker))
        value: Value = None
        self._decoding = True
        try:
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
        self._values.append(value)
        if kind == "E":
            raise self._raised(error, callee)
        self.valued = True
        self.last = value
        if callee == ".run" or type(value).__name__ != "coroutine" or not isinstance(value, Proxy):
            return value
        return _awaited(value)

    def _raised(self, error: BaseException, callee: str) -> BaseException:
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

    def _maker(self, callee: str, args: tuple[Value, ...]) -> Maker:
        """Return what makes the objects that a call gives."""
        if callee[0] != ".":
            return self._named_maker(callee)
        first = args[0] if args else None
        if id(first) in self._trusted:
            return Maker.ENTRY_POINT if id(first) in self._of_entry else Maker.CLASS
        return self._named_maker(name_of(first)) if type(first) is StandIn else Maker.FUNCTION

    def _named_maker(self, name: str) -> Maker:
        if not name[0].isupper():
            return Maker.FUNCTION
        return Maker.ENTRY_POINT if name == self._problem.entry and not self._problem.entry_is_class else Maker.CLASS

    def _object(self, description: Json, content: Value, maker: Maker) -> Value:
        """Return a proxy of an object of the program."""
        base: Value = None if content is None else type(content)
        if content is None:
            made: Value = object.__new__(proxy_class(description, None))
        elif base in (list, dict, set, bytearray):
            made = base.__new__(proxy_class(description, base))
        else:
            made = base.__new__(proxy_class(description, base), content)
        if maker is not Maker.FUNCTION:
            self._trusted.add(id(made))
        if maker is Maker.ENTRY_POINT:
            self._of_entry.add(id(made))
        return made


_DECIDING = ORDER | {prefix + name for name in ARITHMETIC.split() for prefix in ("", "r", "i")}


def _is_the_programs(thing: Value) -> bool:
    return isinstance(thing, (Proxy, StandIn)) or type(thing) is Placeholder


async def _awaited(coroutine: Value) -> Value:
    """Stand for a coroutine of the program: it runs there, to its end, once it is awaited."""
    return asked("run", coroutine)


class _Derived(Exception):  # noqa: N818 - caught where it is raised for
    """An argument hangs on a value that is not known yet."""
