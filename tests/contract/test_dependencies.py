"""Each direct dependency is imported by what ships, and says in the decision about libraries why it is there."""

import re
import tomllib
from importlib.metadata import packages_distributions

import pytest
from builders.data import PROJECT_ROOT
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

PROJECT = tomllib.loads((PROJECT_ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = [*PROJECT["optional-dependencies"].values()]
DIRECT = {canonicalize_name(Requirement(each).name) for group in (PROJECT["dependencies"], *EXTRAS) for each in group}
DISTRIBUTIONS = packages_distributions()
USED_THROUGH_ANOTHER = {"wsproto", "tzdata", "gcsfs", "s3fs"}
"""httpx2 imports wsproto, zoneinfo reads tzdata, fsspec imports the file systems by the scheme of an address."""


def rows_of_the_decision() -> set[str]:
    text = (PROJECT_ROOT / "docs/decisions/0002-libraries.md").read_text()
    cells = re.findall(r"^\| [^|]+ \| ([^|]+) \|", text, re.MULTILINE)
    return {name for cell in cells for name in re.findall(r"`([a-z0-9-]+)`", cell)}


@pytest.fixture(scope="module")
def imported() -> set[str]:
    directories = [PROJECT_ROOT / name for name in ("libs", "services", "operator", "proto/gen")]
    text = "\n".join(path.read_text() for directory in directories for path in directory.rglob("*.py"))
    return set(re.findall(r"(?:^\s*(?:import|from) |find_spec\(\")(\w+)", text, re.MULTILINE))


def test_decision_names_each_direct_dependency_and_no_other() -> None:
    assert rows_of_the_decision() == DIRECT


@pytest.mark.parametrize("name", sorted(DIRECT - USED_THROUGH_ANOTHER))
def test_direct_dependency_is_imported(name: str, imported: set[str]) -> None:
    modules = {module for module, names in DISTRIBUTIONS.items() if name in {canonicalize_name(each) for each in names}}
    # A distribution that is not in the development environment is asked for by its own name.
    assert imported & (modules or {name.replace("-", "_")})
