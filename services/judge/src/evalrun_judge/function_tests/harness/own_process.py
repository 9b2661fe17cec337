"""Uses of a test's own process, which cannot be judged: the program runs in another process.

Found in the text, before any answer runs, so for the whole problem: an answer cannot bring it about.
"""

from __future__ import annotations

from evalrun_executor.calls.originals import Value

TYPE_CHECKING = False  # as typing's, without its import
if TYPE_CHECKING:
    import ast
else:
    import _ast as ast

_MOCKS = ("mock", "unittest.mock")
_FROM = {
    **dict.fromkeys(_MOCKS, ("patch",)),
    "unittest": ("mock",),
    "warnings": ("catch_warnings",),
    "os": ("environ", "chdir", "putenv", "unsetenv"),
    "sys": ("setrecursionlimit", "settrace", "setprofile"),
    "logging": ("disable",),
    "locale": ("setlocale",),
    "signal": ("signal", "alarm", "setitimer"),
}
"""Names of modules by which a process is changed or watched; `mock.patch` of `unittest` is any."""
_METHODS = ("assertLogs", "assertNoLogs", "assertWarns", "assertWarnsRegex", "addHandler", "addFilter")
_FIXTURES = ("monkeypatch", "capsys", "capfd", "caplog", "recwarn", "tmp_path", "tmpdir", "mocker")
_CHANGES = ("clear", "pop", "setdefault", "update", "__setitem__")


def unshared(nodes: list[Value], implied: list[str]) -> str:
    """Return what of these nodes the program would have to see, as a reason; empty if there is nothing.

    Args:
        nodes: of a test and what comes before it.
        implied: modules that they use without importing them.
    """
    modules, names = _imported(nodes)
    modules.update((name, name) for name in implied)
    for node in nodes:
        found = _found(node, modules, names)
        if found:
            return f"the test {found}, which does not reach the program"
    return ""


def _found(node: Value, modules: dict[str, str], names: dict[str, str]) -> str:
    kind = type(node)
    if kind is ast.Name and node.id in names and names[node.id] != "os.environ":
        return f"uses {names[node.id]}"
    if kind is ast.arg and node.arg in _FIXTURES:
        return f"uses {node.arg}"
    if kind is ast.Attribute:
        return _of_attribute(node, modules)
    if kind is ast.Subscript and type(node.ctx) is not ast.Load and _is_environment(node.value, names):
        return "sets os.environ"
    return _of_call(node, modules, names) if kind is ast.Call else ""


def _of_attribute(node: ast.Attribute, modules: dict[str, str]) -> str:
    path = _path(node)
    module = modules.get(path[0], "") if path else ""
    if type(node.ctx) is not ast.Load:
        if not module:
            return "sets the decimal context" if _calls(node.value, "getcontext") else ""
        return "" if path == ["sys", "stdout"] else f"sets {'.'.join(path)}"
    if node.attr in _METHODS:
        return f"uses {node.attr}"
    if not module:
        return ""
    inside = ".".join([module, *path[1:-1]])
    return f"uses {inside}.{node.attr}" if node.attr in _FROM.get(inside, ()) and node.attr != "environ" else ""


def _of_call(node: ast.Call, modules: dict[str, str], names: dict[str, str]) -> str:
    called = node.func
    if type(called) is ast.Name:
        if called.id == "open":
            return "opens a file"
        path = _path(node.args[0]) if node.args else []
        if called.id in ("setattr", "delattr") and path and path[0] in modules:
            return f"sets an attribute of {'.'.join(path)}"
    if type(called) is ast.Attribute and called.attr in _CHANGES and _is_environment(called.value, names):
        return "sets os.environ"
    return ""


def _is_environment(node: Value, names: dict[str, str]) -> bool:
    if type(node) is ast.Attribute:
        return node.attr == "environ"
    return type(node) is ast.Name and names.get(node.id) == "os.environ"


def _calls(node: Value, name: str) -> bool:
    called = node.func if type(node) is ast.Call else None
    return type(called) in (ast.Name, ast.Attribute) and getattr(called, "id", getattr(called, "attr", "")) == name


def _path(node: Value) -> list[str]:
    """Return the names of `a.b.c`; empty for anything else."""
    if type(node) is ast.Name:
        return [node.id]
    if type(node) is ast.Attribute:
        before = _path(node.value)
        return [*before, node.attr] if before else []
    return []


def _imported(nodes: list[Value]) -> tuple[dict[str, str], dict[str, str]]:
    """Return the modules that these nodes import, by the names that they give them, and the names of `_FROM`."""
    modules = {
        (alias.asname or alias.name.partition(".")[0]): alias.name if alias.asname else alias.name.partition(".")[0]
        for node in nodes
        if type(node) is ast.Import
        for alias in node.names
    }
    names: dict[str, str] = {}
    for node in nodes:
        for alias in node.names if type(node) is ast.ImportFrom else ():
            name = f"{node.module}.{alias.name}"
            if alias.name in _FROM.get(node.module or "", ()) and name not in _MOCKS:
                names[alias.asname or alias.name] = name
            elif name in _MOCKS:
                modules[alias.asname or alias.name] = name
    return modules, names
