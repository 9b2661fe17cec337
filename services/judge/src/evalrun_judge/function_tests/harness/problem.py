"""The state that the tests of a problem share, and the execution of a test."""

from __future__ import annotations

import builtins
import random
import sys

from evalrun_executor.calls import values
from evalrun_executor.calls.originals import Json, Value
from evalrun_judge.function_tests.harness.definitions import definitions, preambles
from evalrun_judge.function_tests.harness.findings import (
    attribute_owners,
    find_caught_names,
    find_shared_data_classes,
    find_shared_part,
    is_pure,
    is_shared_kind,
    shows_a_class,
)
from evalrun_judge.function_tests.harness.own_process import why_together
from evalrun_judge.function_tests.harness.source import (
    BEFORE,
    PROMPT,
    SETUP,
    TEST,
    bound_by,
    compile_source,
    defines,
    get_decorated_text,
    names_in,
    parse,
    segment,
    walk,
)
from evalrun_judge.function_tests.harness.stand_ins import StandIn

# The same as `typing.TYPE_CHECKING`, without the time that importing `typing` takes.
TYPE_CHECKING = False
if TYPE_CHECKING:
    import ast
    from collections.abc import Callable
    from types import CodeType

    from evalrun_judge.function_tests.harness.run import Run
else:
    import _ast as ast


class Problem:
    """The state that the tests of a problem share."""

    def __init__(self, header: Json) -> None:
        self.check = header["kind"] == "check"
        self.entry = str(header["entry"])
        self.names = [str(name) for name in header["names"]]
        self.modules = [str(name) for name in header["modules"]]
        self._prompt, self._setup, self._seed = header["prompt"], header["setup"], header["seed"]
        self._before: dict[str, str] = header.get("before", {})
        self._own = {str(index): source for index, source, _, _ in header["tests"]}
        self._tests = [self._before.get(index, "") + source for index, source in self._own.items()]
        self._preamble = ""
        self._entry_is_class = bool(header.get("entry_is_class"))
        """Whether the entry point is a class, decided from all tests. A replay may have only some of them."""
        self._random = "random" in self._prompt + self._setup + "".join(self._tests)
        self._numpy = "numpy" in self._prompt + self._setup + "".join(self._tests)
        self.iterates = any(
            name in self._setup + "".join(self._tests) for name in ("StopIteration", "StopAsyncIteration")
        )
        self._ahead: CodeType | None = None
        self.pure = bool(header.get("pure"))
        """Whether nothing outlasts a test; see `is_pure`."""
        self.exceptions = [str(name) for name in header.get("exceptions", ())]
        """Names of the program by which the tests catch exceptions."""
        self.classes = [str(name) for name in header.get("classes", ())]
        """Classes that the prompt or the setup gives to both sides."""
        self.hidden = frozenset(str(name) for name in header.get("hidden", ()))
        """Names that only the tests have."""
        self.spare: list[Json] = header.get("spare", [])
        """Definitions in the tests that are meant for the program; see `definitions`."""
        self._seeds = any("random.seed" in text for text in (self._setup, *self._tests))
        self._source = ""
        self._space: dict[str, Value] = {}

    def learn(self) -> Json:
        """Return the facts that the tests' text shows: the program's names that they use, and what both sides share."""
        walked = [walk(parse(source)) for source in [*self._tests, self._setup]]
        self._entry_is_class = self.entry[:1].isupper() and shows_a_class(self.entry, self._tests)
        bound: set[str] = {self.entry, *vars(builtins)}
        loaded: set[str] = set()
        for nodes in walked:
            loaded |= names_in(nodes, bound)
        setup = parse(self._setup)
        prompt = parse(self._prompt_that_compiles())
        prompt_nodes = walk(prompt)
        names_in(prompt_nodes, bound)
        # MBPP 596 calls `sys.getsizeof` without an import: the reference program had imported `sys`.
        modules = {name for nodes in walked for name in attribute_owners(nodes)} & sys.stdlib_module_names
        self.modules = sorted((loaded & modules) - bound)
        self.names = sorted(loaded - bound - modules)
        self.pure = not self.modules and is_pure([node for nodes in (*walked, prompt_nodes) for node in nodes])
        caught = {name for nodes in walked for name in find_caught_names(nodes)}
        self.exceptions = sorted(caught & {*self.names})
        given = prompt.body if self.check else find_shared_part(setup)
        shared = [] if self.check else [(self._setup, node) for node in given]
        shared += [(text, node) for text in self._own.values() for node in find_shared_data_classes(parse(text))]
        both_have = (*given, *(node for _, node in shared))
        self.classes = list(dict.fromkeys(node.name for node in both_have if type(node) is ast.ClassDef))
        taken = {self.entry, *(name for _, node in shared for name in bound_by(node))}
        if self.check:
            taken |= {"check", "candidate", *(name for node in prompt.body for name in bound_by(node))}
        else:
            self._before = preambles(self._own)
        self.spare, hidden = definitions([self._setup, *self._own.values()], taken)
        self.hidden = frozenset(hidden)
        self.names = sorted({*self.names} - caught)
        return {
            "names": self.names,
            "modules": self.modules,
            "imports": "\n".join(get_decorated_text(text, node) for text, node in shared),
            "pure": self.pure,
            "exceptions": self.exceptions,
            "classes": self.classes,
            "entry_is_class": self._entry_is_class,
            "hidden": sorted(self.hidden),
            "spare": self.spare,
            "before": self._before,
            "prints": any("stdout" in text for text in (self._setup, *self._tests)),
        }

    def is_class(self, name: str) -> bool:
        """Return whether the tests treat a name of the program as a class: it begins with a capital.

        25 of MBPP's functions begin with a capital too, so for the entry point the text has to show more.
        """
        return name[:1].isupper() and (name != self.entry or self._entry_is_class)

    def begin(self, index: Json) -> None:
        """Turn to another test: `execute` runs it after the earlier tests that it needs."""
        self._preamble = self._before.get(str(index), "")

    def why_together(self, source: str) -> tuple[str, str]:
        """Return the cause and a reason why a test needs the program in its own process; empty if nothing does."""
        nodes = walk(parse(source)) + walk(parse(self._setup))
        if self.check and not any(type(node) is ast.FunctionDef and node.name == "check" for node in nodes):
            return "cases", "the test is a file of test cases"
        cause, reason = why_together(nodes, self.modules)
        return (cause, reason) if cause or not self.check else self._why_the_prompt(nodes)

    def _why_the_prompt(self, nodes: list[Value]) -> tuple[str, str]:
        """Return the cause and a reason why a test shares more than values with the prompt's definitions."""
        prompt = parse(self._prompt_that_compiles()).body
        used = names_in(nodes, set())
        for node in prompt:
            if type(node) is ast.ClassDef:
                if node.name == self.entry:
                    return "prompt", f"the program continues the class {node.name}"
                if node.name in used and any(is_shared_kind(base) for base in node.bases):
                    return "prompt", f"the test uses the prompt's {node.name}"
            elif type(node) in (ast.Assign, ast.AnnAssign) and not bound_by(node).isdisjoint(used):
                return "prompt", f"the test uses the prompt's {', '.join(sorted(bound_by(node) & used))}"
        return "", ""

    def find_function_source(self, function: Value) -> tuple[str, list[str]]:
        """Return a source text that recreates a function of the test, and the names that the function uses.

        Raises:
            TypeRefusedError: the function cannot be told apart from another, or binds names outside itself.
        """
        code = function.__code__
        texts = {TEST: self._source, BEFORE: self._preamble, SETUP: self._setup, PROMPT: self._prompt_that_compiles()}
        text = texts.get(code.co_filename)
        found = [] if text is None else [node for node in walk(parse(text)) if defines(node, code)]
        # Two lambdas on a line may have the same position, and the wrong one would give wrong results.
        if len(found) != 1 or text is None:
            raise values.TypeRefusedError("value of type function")
        (node,) = found
        nodes = walk(node)
        if any(type(inner) in (ast.Nonlocal, ast.Global, ast.AsyncFunctionDef) for inner in nodes):
            raise values.TypeRefusedError("value of type function that binds names outside itself")
        names = sorted(names_in(nodes, set()) - {*vars(builtins)})
        if type(node) is ast.Lambda:
            return f"def evalrun_make(EVALRUN_NAMES):\n return ({segment(text, node)})\n", names
        body = " " * (node.col_offset + 1) + segment(text, node).replace("\n", "\n ")
        return f"def evalrun_make(EVALRUN_NAMES):\n{body}\n{' ' * (node.col_offset + 1)}return {node.name}\n", names

    def execute(self, source: str, run: Run, *, tolerant: bool) -> None:
        """Execute a test; raises whatever the test raises."""
        self._source = source
        if self._random:
            random.seed(self._seed)
        if self._numpy:
            try:
                # This is the test's import, not the judge's: the gateway's image may have no numpy.
                numpy: Value = __import__("numpy")
            except ImportError:
                # The test's own import reports the missing module.
                pass
            else:
                numpy.random.seed(self._seed % 2**32)
        space = self._space = self._namespace(run)
        entry = space[self.entry]
        seed = random.seed
        try:
            if self._seeds:
                random.seed = _make_seeder(run, seed)
            if not self.check:
                exec(compile_source(self._setup, SETUP), space)  # noqa: S102 - the problem's own setup
            # The asserts of the preamble are judged in tests of their own, so here they stop nothing.
            if self._preamble:
                exec(compile_source(self._preamble, BEFORE, tolerant=True), space)  # noqa: S102 - the problem's own tests
            exec(compile_source(source, tolerant=tolerant), space)  # noqa: S102 - the problem's own test
            if self.check:
                # Mbpp/56 asks for a function called `check`, and the test's own `check` takes that name.
                space["check"](entry if self.entry == "check" else space[self.entry])
        finally:
            random.seed = seed

    def update_known(self, known: dict[str, type]) -> None:
        """Add the classes that both sides have, as far as the test has defined them by now, to `known`."""
        for name in self.classes:
            kind = self._space.get(name)
            if isinstance(kind, type):
                known[name] = kind

    def _namespace(self, run: Run) -> dict[str, Value]:
        # Classes and functions of a test look their module up by name, so the module has to be registered.
        module = type(sys)("evalrun_test")
        sys.modules["evalrun_test"] = module
        space = vars(module)
        space["__builtins__"] = builtins
        # A test may rebind `Exception`. The tolerant asserts need the real class under a name that no test uses.
        space["_evalrun_Exception"] = Exception
        space.update((name, StandIn(name)) for name in self.names)
        for name in self.exceptions:
            space[name] = run.heap.classes[f"except {name}"] = type(name, (Exception,), {"__module__": "program"})
        space.update((name, __import__(name)) for name in self.modules)
        entry = StandIn(self.entry)
        if self.check:
            if self._ahead is None:
                self._ahead = compile_source(self._prompt_that_compiles(), PROMPT)
            exec(self._ahead, space)  # noqa: S102 - the problem's own prompt
            space["candidate"] = entry
        space[self.entry] = entry
        return space

    def _prompt_that_compiles(self) -> str:
        """Return the prompt, completed if it ends in a function's head; empty if it is no Python by itself."""
        for text in (self._prompt, self._prompt.rstrip() + "\n    pass\n"):
            try:
                parse(text)
            except SyntaxError:
                continue
            return text  # type: ignore[no-any-return]
        return ""


def _make_seeder(run: Run, seed: Callable[..., None]) -> Callable[..., None]:
    """Return a function that seeds `random` in the program and the test, as if both shared a process."""

    def seed_both(value: Value = None, version: int = 2) -> None:
        seed(value, version)
        run.call(".seed", (value,), {})

    return seed_both
