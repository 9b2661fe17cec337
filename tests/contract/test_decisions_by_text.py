"""No decision hangs on the wording of a message: types and codes decide, so that rewording is always safe.

Found are comparisons of texts that are for people: of an exception, of a field such as `reason`, of gRPC's details, and
of what is derived from these in the same function. Texts of foreign programs, where nothing else tells what happened,
are read in one module per program.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DIRECTORIES = ("libs/*/src", "services/*/src", "operator/src")

FOREIGN_TEXTS = {
    "libs/data/src/evalrun_data/gcsfs_texts.py": "test_gcsfs_texts",
    "libs/runtime/src/evalrun_runtime/connections/tls_remedies.py": "test_tls",
    "operator/src/evalrun_operator/policies/kube_apiserver_texts.py": "test_kubernetes_texts",
    "operator/src/evalrun_operator/policies/kube_scheduler_texts.py": "test_kubernetes_texts",
    "services/generator/src/evalrun_generator/endpoints/vllm_texts.py": "test_vllm_texts",
    "services/judge/src/evalrun_judge/cpython_texts.py": "test_cpython_texts",
    "services/judge/src/evalrun_judge/sandboxes/sandbox_fusion_texts.py": "test_sandbox_fusion_texts",
}
"""Modules that may read texts of a foreign program, each with the test that holds the texts to that program."""

FIELDS = {"message", "reason", "detail", "details", "trouble"}
"""Names of fields, keys and parameters that hold a text for people."""
COMPARING = {
    "startswith", "endswith", "find", "rfind", "index", "rindex", "partition", "rpartition", "removeprefix",
    "removesuffix", "count", "__contains__",
}  # fmt: skip
CUTTING = {"split", "rsplit"}
"""They compare only with an argument: without one they cut at blanks, which one-line messages need."""
DERIVING = COMPARING | CUTTING | {
    "strip", "lstrip", "rstrip", "lower", "upper", "casefold", "encode", "decode", "join", "format", "replace",
    "splitlines",
}  # fmt: skip
PATTERNS = {"match", "search", "fullmatch", "findall", "finditer"}
TEXT_OF = {"str", "repr", "ascii", "format"}

Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


class Scope:
    """One function, or a module's own statements: which of its names hold exceptions and texts."""

    def __init__(self, node: ast.AST, constants: dict[str, ast.expr]) -> None:
        self.nodes = list(own_nodes(node))
        self.constants = constants
        self.exceptions: set[str] = set()
        self.texts: set[str] = set()
        if isinstance(node, Function):
            for argument in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs):
                if argument.arg in FIELDS:
                    self.texts.add(argument.arg)
                if argument.annotation is not None and names_exception(argument.annotation):
                    self.exceptions.add(argument.arg)
        for each in self.nodes:
            if isinstance(each, ast.ExceptHandler) and each.name:
                self.exceptions.add(each.name)
        while self._follow_assignments():
            pass

    def _follow_assignments(self) -> bool:
        before = len(self.texts) + len(self.exceptions)
        for node in self.nodes:
            for name, value in assignments(node):
                if self.is_text(value):
                    self.texts.add(name)
                if self.is_exception(value):
                    self.exceptions.add(name)
        return len(self.texts) + len(self.exceptions) > before

    def is_exception(self, node: ast.expr) -> bool:
        match node:
            case ast.Name(id=name):
                return name in self.exceptions
            case ast.Attribute(attr=name):
                return name in {"__cause__", "__context__"}
            case ast.Call(func=ast.Attribute(attr="exception")):
                return True
        return False

    def is_text(self, node: ast.expr) -> bool:
        match node:
            case ast.Name(id=name):
                return name in self.texts
            case ast.Attribute(value=value, attr=name):
                return name in FIELDS or (name == "args" and self.is_exception(value))
            case ast.Subscript(value=value, slice=ast.Constant(value=str() as key)):
                return key in FIELDS or self.is_text(value)
            case ast.Subscript(value=value):
                return self.is_text(value)
            case ast.Call():
                return self._calls_text(node)
            case ast.JoinedStr(values=values) | ast.BoolOp(values=values):
                return any(map(self.is_text, values))
            case ast.FormattedValue(value=value):
                return self.is_text(value) or self.is_exception(value)
            case ast.BinOp(left=left, right=right):
                return self.is_text(left) or self.is_text(right)
            case ast.IfExp(body=body, orelse=other):
                return self.is_text(body) or self.is_text(other)
            case ast.NamedExpr(value=value) | ast.Await(value=value) | ast.Starred(value=value):
                return self.is_text(value)
            case ast.GeneratorExp(elt=element) | ast.ListComp(elt=element):
                return self.is_text(element)
        return False

    def _calls_text(self, call: ast.Call) -> bool:
        match call.func:
            case ast.Name(id=name) if name in TEXT_OF:
                return any(self.is_text(given) or self.is_exception(given) for given in call.args)
            case ast.Attribute(attr="details"):
                return True
            case ast.Attribute(attr="get"):
                return bool(call.args) and isinstance(call.args[0], ast.Constant) and call.args[0].value in FIELDS
            case ast.Attribute(value=value, attr=name) if name in DERIVING:
                return self.is_text(value) or any(map(self.is_text, call.args))
        return False

    def decisions(self) -> Iterator[ast.expr | ast.Match]:
        for node in self.nodes:
            match node:
                case ast.Compare():
                    sides = [node.left, *node.comparators]
                    pairs = zip(sides, node.ops, sides[1:], strict=False)
                    if any(self._compares(left, operator, right) for left, operator, right in pairs):
                        yield node
                case ast.Call(func=ast.Attribute(value=value, attr=name), args=given):
                    reads = name in COMPARING or (name in CUTTING and bool(given))
                    if (reads and self.is_text(value)) or (name in PATTERNS and any(map(self.is_text, given))):
                        yield node
                case ast.Match(subject=subject, cases=cases) if self.is_text(subject):
                    literals = [each for case in cases for each in ast.walk(case.pattern)]
                    if any(isinstance(each, ast.MatchValue) and self._is_sentence(each.value) for each in literals):
                        yield node

    def _compares(self, left: ast.expr, operator: ast.cmpop, right: ast.expr) -> bool:
        match operator:
            case ast.In() | ast.NotIn():
                is_known = isinstance(left, ast.Constant) and left.value is None
                return (self.is_text(right) and not is_known) or (self.is_text(left) and not self._holds_codes(right))
            case ast.Eq() | ast.NotEq():
                return (self.is_text(left) and self._is_sentence(right)) or (
                    self.is_text(right) and self._is_sentence(left)
                )
        return False

    def _holds_codes(self, node: ast.expr) -> bool:
        """Return whether a collection holds nothing but codes: members of an enum, or texts without a blank."""
        match self._resolved(node):
            case ast.Set(elts=items) | ast.Tuple(elts=items) | ast.List(elts=items):
                return all(self._is_code(item) for item in items)
            case ast.Call(func=ast.Name(id="frozenset" | "set" | "tuple"), args=[items]):
                return self._holds_codes(items)
            case ast.BinOp(left=left, op=ast.BitOr(), right=right):
                return self._holds_codes(left) and self._holds_codes(right)
        return False

    def _is_code(self, node: ast.expr) -> bool:
        match self._resolved(node):
            case ast.Attribute(value=ast.Name(id=owner)):
                return owner[:1].isupper()
            case ast.Constant(value=value):
                return not isinstance(value, str) or " " not in value
        return False

    def _is_sentence(self, node: ast.expr) -> bool:
        match self._resolved(node):
            case ast.Constant(value=str() as value):
                return " " in value
            case ast.JoinedStr():
                return True
        return False

    def _resolved(self, node: ast.expr) -> ast.expr:
        return self.constants.get(node.id, node) if isinstance(node, ast.Name) else node


def own_nodes(scope: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(scope):
        yield child
        if not isinstance(child, Function):
            yield from own_nodes(child)


def names_exception(annotation: ast.expr) -> bool:
    names = {getattr(each, "id", "") or getattr(each, "attr", "") for each in ast.walk(annotation)}
    return any(name.endswith(("Error", "Exception")) for name in names)


def assignments(node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    match node:
        case ast.Assign(targets=targets, value=value):
            for target in targets:
                yield from pairs_of(target, value)
        case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
            yield name, value
        case ast.NamedExpr(target=ast.Name(id=name), value=value):
            yield name, value
        case ast.For(target=target, iter=value) | ast.comprehension(target=target, iter=value):
            yield from pairs_of(target, value)


def pairs_of(target: ast.expr, value: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    """Yield the names of a target, each with the part of the value that it gets."""
    match target, value:
        case ast.Name(id=name), _:
            yield name, value
        case ast.Tuple(elts=targets), ast.Tuple(elts=values) if len(targets) == len(values):
            for each, given in zip(targets, values, strict=True):
                yield from pairs_of(each, given)
        case ast.Tuple(elts=targets), _:
            for each in targets:
                yield from pairs_of(each, value)


def found_in(source: str) -> list[str]:
    """Return the decisions by text in a module's source, each with its line."""
    tree = ast.parse(source)
    constants = {name: value for node in tree.body for name, value in assignments(node) if name.isupper()}
    scopes = [tree, *(node for node in ast.walk(tree) if isinstance(node, Function))]
    decisions = {node for scope in scopes for node in Scope(scope, constants).decisions()}
    return [f"{node.lineno}: {ast.unparse(node)}" for node in sorted(decisions, key=lambda node: node.lineno)]


@pytest.mark.parametrize("directory", DIRECTORIES)
def test_no_decision_depends_on_the_wording_of_a_message(directory: str) -> None:
    paths = {path.relative_to(ROOT).as_posix(): path for path in sorted(ROOT.glob(f"{directory}/**/*.py"))}
    assert paths
    own = {name: path for name, path in paths.items() if name not in FOREIGN_TEXTS}
    found = [f"{name}:{each}" for name, path in own.items() for each in found_in(path.read_text())]
    assert found == [], "give the error a class, or the answer a code, and decide by that"


@pytest.mark.parametrize(("module", "test"), FOREIGN_TEXTS.items())
def test_module_of_foreign_texts_has_its_test(module: str, test: str) -> None:
    assert (ROOT / module).is_file()
    (path,) = ROOT.glob(f"tests/**/{test}.py")
    assert Path(module).stem in path.read_text()


@pytest.mark.parametrize(
    "decision",
    [
        "try:\n    f()\nexcept ValueError as error:\n    if 'no such table' in str(error): pass",
        "try:\n    f()\nexcept ValueError as error:\n    said = f'{error}'.lower()\n    if 'busy' in said: pass",
        "try:\n    f()\nexcept ValueError as error:\n    caught = error\n    if caught.args[0] == 'is gone': pass",
        "def f(error: OSError) -> bool:\n    return repr(error).endswith('gone')",
        "def f(error: OSError) -> bool:\n    match str(error):\n        case 'is gone': return True",
        "def f(test): return test.reason.startswith(BROKEN)",
        "def f(test):\n    name, _, rest = test.message.partition(': ')",
        "def f(test): return PATTERN.search(test.detail)",
        "def f(pod): return re.match('a.c', pod.trouble)",
        "def f(pod): return [word for word in WORDS if word in pod.trouble]",
        "def f(reason): return reason in PASSING\nPASSING = ('it was late', 'it was gone')",
        "def f(reason): return reason in imported",
        "def f(call): return 'expired' in (call.details() or '')",
        "def f(answer): return answer['detail'] == 'no such row'",
        "def f(answer): return answer.get('message', '').split(': ')[0]",
        "def f(error: Exception): return lambda message: 'gone' in message",
    ],
)
def test_decision_by_text_is_found(decision: str) -> None:
    assert len(found_in(decision)) == 1


@pytest.mark.parametrize(
    "source",
    [
        "try:\n    f()\nexcept ValueError as error:\n    print(' '.join(str(error).split())[:200])",
        "try:\n    f()\nexcept OSError as error:\n    if error.errno in (1, 2): pass",
        "def f(condition): return condition.reason == Reason.GONE",
        "def f(condition): return condition.reason in {Reason.GONE, Reason.LOST}",
        "def f(condition): return condition.reason in ENDS\nENDS = frozenset({Reason.GONE, 'OOMKilled'})",
        "def f(condition, before): return condition.message != before.message",
        "def f(test): return test.reason or 'none'",
        "def f(text): return text.startswith('#')",
    ],
)
def test_other_comparison_is_not_found(source: str) -> None:
    assert found_in(source) == []
