"""Finds what a test changes or watches in its own process: such a test needs the program in the same process.

The decision rests on the test's text, is made before any completion runs, and holds for the whole problem, so a
completion cannot bring it about.
"""

from __future__ import annotations

from evalrun_executor.calls.originals import Value
from evalrun_judge.function_tests.harness.source import parse, walk

# The same as `typing.TYPE_CHECKING`, without the time that importing `typing` takes.
TYPE_CHECKING = False
if TYPE_CHECKING:
    import ast
else:
    import _ast as ast

_ALL = """_thread cProfile concurrent ctypes faulthandler fcntl filecmp fileinput gc getpass glob inspect linecache
    locale logging mmap mock multiprocessing pathlib pickle platform profile psutil pty resource select selectors shelve
    shutil signal site socket sqlite3 ssl subprocess tempfile termios threading time timeit trace traceback tracemalloc
    unittest.mock warnings weakref"""
_WATCHED = frozenset(_ALL.split())
"""Modules by which a test watches or changes a process, its machine or the program's own objects."""
_HARMLESS = {
    "asyncio": "run gather iscoroutine iscoroutinefunction sleep TimeoutError CancelledError",
    "builtins": "",
    "os": "path sep linesep altsep extsep curdir pardir pathsep devnull name fspath fsencode fsdecode PathLike",
    "os.path": "join basename dirname splitext split normpath commonprefix commonpath isabs sep splitdrive normcase",
    "sys": """maxsize maxunicode float_info int_info version version_info byteorder getsizeof stdout stdlib_module_names
        getrecursionlimit implementation hexversion""",
}
"""Names that watch or change nothing, of modules where other names do."""
_NAMES = {
    "random": "getstate setstate",
    "decimal": "getcontext setcontext localcontext",
    "contextlib": "redirect_stderr chdir",
    "dataclasses": "asdict astuple replace fields is_dataclass",
    "copyreg": "pickle",
    "unittest": "mock",
    "uuid": "getnode",
}
"""Names that watch or change a process, of modules where other names do not."""
_METHODS = ("assertLogs", "assertNoLogs", "assertWarns", "assertWarnsRegex", "addHandler", "addFilter")
_CLOCKS = ("now", "utcnow", "today")
_FIXTURES = ("monkeypatch", "capsys", "capfd", "caplog", "recwarn", "tmp_path", "tmpdir", "mocker")
_TEXT = ("eval", "exec", "compile", "__import__")
_FILES = ("open", "input", "breakpoint")

EVALUATION, PROCESS = "evaluation", "process"


def why_together(nodes: list[Value], implied: list[str]) -> tuple[str, str]:
    """Return the cause and a reason why these nodes need the program's own process; empty if nothing does.

    Args:
        nodes: the nodes of a test and of the text before it.
        implied: modules that the nodes use without importing them.
    """
    modules, names = _find_imports(nodes)
    modules.update((name, name) for name in implied)
    bound = {node.name for node in nodes if type(node) is ast.FunctionDef}
    own, inside = _find_own_texts(nodes)
    for node in nodes:
        if type(node) is ast.Name and node.id in _TEXT and node.id not in bound and node not in own:
            return EVALUATION, f"the test uses {node.id}"
    if inside:
        cause, reason = why_together(inside, implied)
        if cause:
            return cause, reason
    for node in nodes:
        found = _found(node, modules, names)
        if found:
            return PROCESS, f"the test {found}"
    return "", ""


def _find_own_texts(nodes: list[Value]) -> tuple[list[Value], list[Value]]:
    """Return the `exec` nodes of calls with a text of the test and a namespace for the text, and the texts' nodes.

    Such a text, as a published reference in EvalPlus' tests, sees nothing of the program and cannot be the program's.
    """
    own: list[Value] = []
    inside: list[Value] = []
    for node in nodes:
        if type(node) is ast.Call and type(node.func) is ast.Name and node.func.id == "exec" and len(node.args) == 2:
            text, space = node.args
            if type(text) is ast.Constant and type(text.value) is str and type(space) in (ast.Name, ast.Dict):
                try:
                    inside += walk(parse(text.value))
                except (SyntaxError, ValueError):
                    continue
                own.append(node.func)
    # Mbpp/644 calls a parameter `input`.
    parameters = {node.arg for node in inside if type(node) is ast.arg}
    return own, [node for node in inside if type(node) is not ast.Name or node.id not in parameters]


def _found(node: Value, modules: dict[str, str], names: dict[str, str]) -> str:
    kind = type(node)
    if kind is ast.Name:
        if node.id in _FILES and node.id not in names:
            return f"uses {node.id}"
        return f"uses {names[node.id]}" if names.get(node.id) else ""
    if kind is ast.arg and node.arg in _FIXTURES:
        return f"uses {node.arg}"
    if kind in (ast.AsyncFor, ast.AsyncWith) or (kind is ast.comprehension and node.is_async):
        return "iterates asynchronously"
    if kind is ast.Attribute:
        return _check_attribute(node, modules, names)
    if kind is ast.Call and type(node.func) is ast.Name and node.func.id in ("setattr", "delattr"):
        path = _path(node.args[0]) if node.args else []
        return f"sets an attribute of {'.'.join(path)}" if path and path[0] in modules else ""
    return ""


def _check_attribute(node: ast.Attribute, modules: dict[str, str], names: dict[str, str]) -> str:
    path = _path(node)
    module = modules.get(path[0], "") if path else ""
    if type(node.ctx) is not ast.Load:
        return f"sets {'.'.join(path)}" if module and path != ["sys", "stdout"] else ""
    if node.attr in _METHODS:
        return f"uses {node.attr}"
    if node.attr in _CLOCKS and (module == "datetime" or "datetime" in names):
        return f"uses {node.attr}"
    inside = ".".join([module, *path[1:-1]])
    return f"uses {inside}.{node.attr}" if module and _watches(inside, node.attr) else ""


def _watches(module: str, name: str) -> bool:
    if module in _WATCHED or module.partition(".")[0] in _WATCHED:
        # `time.sleep` needs no shared process: it watches nothing.
        return (module, name) != ("time", "sleep")
    harmless = _HARMLESS.get(module)
    if harmless is not None:
        return name not in harmless.split()
    return name in _NAMES.get(module, "").split()


def _path(node: Value) -> list[str]:
    """Return the names of `a.b.c`; empty for any other expression."""
    if type(node) is ast.Name:
        return [node.id]
    if type(node) is ast.Attribute:
        before = _path(node.value)
        return [*before, node.attr] if before else []
    return []


def _find_imports(nodes: list[Value]) -> tuple[dict[str, str], dict[str, str]]:
    """Return the modules that these nodes import, by their local names, and imported names that watch a process.

    `datetime` is among the names if one of its classes is imported.
    """
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
            if node.module == "datetime":
                names["datetime"] = ""
            elif name in _HARMLESS or name in _WATCHED:
                modules[alias.asname or alias.name] = name
            elif _watches(node.module or "", alias.name):
                names[alias.asname or alias.name] = name
    return modules, names
