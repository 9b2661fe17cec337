"""The wheel holds every module and data file of its packages, types included, and what the help names."""

import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from click import Context, Group
from click.testing import CliRunner

from evalrun_cli.commands import evalrun

PROJECT = Path(__file__).resolve().parents[2]
PACKAGES = tomllib.loads((PROJECT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"][
    "packages"
]


@pytest.fixture(scope="module")
def in_wheel(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    directory = tmp_path_factory.mktemp("dist")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(directory)]
    subprocess.run(build, cwd=PROJECT, check=True, capture_output=True, timeout=50)
    (wheel,) = directory.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


@pytest.mark.parametrize("package", PACKAGES)
def test_each_file_of_a_package_is_in_the_wheel(package: str, in_wheel: set[str]) -> None:
    root = PROJECT / package
    files = {path for path in root.rglob("*") if path.is_file() and "__pycache__" not in path.parts}
    names = {path.relative_to(root.parent).as_posix() for path in files}
    assert len(names) > 2
    assert names - in_wheel == set()


@pytest.mark.parametrize("package", PACKAGES)
def test_each_package_in_the_wheel_has_a_py_typed_marker(package: str, in_wheel: set[str]) -> None:
    name = Path(package).name
    stubs = {f"{Path(stub).parent.as_posix()}/py.typed" for stub in in_wheel if re.match(rf"{name}/.*\.pyi$", stub)}
    assert (stubs or {f"{name}/py.typed"}) <= in_wheel


def test_help_names_no_file_outside_of_the_wheel() -> None:
    def helps(command: Group) -> list[str]:
        texts = [CliRunner().invoke(command, ["--help"]).output]
        for name in command.list_commands(Context(command)):
            child = command.get_command(Context(command), name)
            if isinstance(child, Group):
                texts += helps(child)
            elif child is not None and not child.ignore_unknown_options:
                texts.append(CliRunner().invoke(child, ["--help"]).output)
        return texts

    found = helps(evalrun)
    assert len(found) > 8
    assert [text for text in found if re.search(r"\b(k8s|docs|tests|services)/", text)] == []


def test_no_text_installs_the_index_package_called_evalrun() -> None:
    listed = subprocess.run(["git", "ls-files", "*.md", "*.py", "*.yaml"], cwd=PROJECT, capture_output=True, text=True)
    texts = {name: (PROJECT / name).read_text(encoding="utf-8") for name in listed.stdout.split()}
    assert len(texts) > 100
    hint = re.compile(r"(?:install\s+['\"`]?|[\s'\"`(])evalrun\[[a-z]|pip install ['\"]?evalrun\b")
    assert [name for name, text in texts.items() if hint.search(text)] == [], "evalrun is another project's name there"
