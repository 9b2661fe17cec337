"""Benchmarks start by the commands of benchmarks/README.md: nothing sets PYTHONPATH for them."""

import ast
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
ADDS_TESTS = (
    'sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))',
    'sys.path.insert(0, str(ROOT / "tests"))',
)


def import_lines(tree: ast.Module) -> list[int]:
    """Return the lines at which a module imports `builders`."""
    modules = {node.lineno: node.module for node in tree.body if isinstance(node, ast.ImportFrom) and node.module}
    return [line for line, module in modules.items() if module.split(".")[0] == "builders"]


@pytest.mark.parametrize("path", sorted(BENCHMARKS.glob("*.py")), ids=lambda path: path.stem)
def test_a_benchmark_that_imports_builders_adds_their_directory_first(path: Path) -> None:
    text = path.read_text()
    for line in import_lines(ast.parse(text)):
        assert set(ADDS_TESTS) & set(text.splitlines()[: line - 1])
