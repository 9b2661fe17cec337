"""Byte code of a zygote's modules is kept, and never outlives its source."""

import marshal
import os
from importlib.util import MAGIC_NUMBER
from pathlib import Path

import pytest

from evalrun_executor.byte_code import load_byte_code


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("sys.dont_write_bytecode", False)
    path = tmp_path / "module.py"
    path.write_text("value = 1\n")
    return path


def value_of(path: Path) -> object:
    namespace: dict[str, object] = {}
    exec(marshal.loads(load_byte_code(path)), namespace)
    return namespace["value"]


def kept(path: Path) -> list[Path]:
    return [*path.parent.glob("__pycache__/*")]


def test_byte_code_is_kept_and_read_again(module: Path) -> None:
    assert value_of(module) == 1
    (file,) = kept(module)
    assert file.name.endswith(".opt-2.pyc")
    head = file.read_bytes()[:16]
    file.write_bytes(head + marshal.dumps(compile("value = 'kept'", "x", "exec")))
    assert value_of(module) == "kept"


@pytest.mark.parametrize("text", ["value = 22\n", "value = 2\n"])
def test_a_changed_module_is_compiled_again(module: Path, text: str) -> None:
    assert value_of(module) == 1
    module.write_text(text)
    os.utime(module, (1, 1))
    assert value_of(module) == int(text.split()[-1])


@pytest.mark.parametrize("content", [b"", MAGIC_NUMBER, b"another version" + bytes(100)])
def test_a_damaged_file_is_replaced(module: Path, content: bytes) -> None:
    value_of(module)
    (file,) = kept(module)
    file.write_bytes(content)
    assert value_of(module) == 1
    assert file.read_bytes().startswith(MAGIC_NUMBER)


def test_byte_code_compiled_for_an_image_is_not_checked(module: Path) -> None:
    value_of(module)
    (file,) = kept(module)
    file.write_bytes(
        MAGIC_NUMBER + (1).to_bytes(4, "little") + bytes(8) + marshal.dumps(compile("value = 3", "x", "exec"))
    )
    assert value_of(module) == 3


def test_no_byte_code_is_written_if_python_writes_none(module: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.dont_write_bytecode", True)
    assert value_of(module) == 1
    assert kept(module) == []


def test_byte_code_directory_that_cannot_be_written_still_loads_the_module(module: Path) -> None:
    (module.parent / "__pycache__").write_text("no directory")
    assert value_of(module) == 1


def test_byte_code_has_neither_docstrings_nor_asserts(module: Path) -> None:
    module.write_text('"""Text."""\nassert False\nvalue = globals().get("__doc__")\n')
    assert value_of(module) is None
