"""The page of all fields is what the models say, and its example is one that they take."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import generate_reference
import pytest
import yaml

from evalrun_api.crd import crds
from evalrun_api.manifest import Place, load_manifest
from evalrun_api.v1alpha1 import EvalSchedule

ROOT = Path(__file__).parents[3]
PAGES = ROOT / "docs" / "reference"
CRDS = {crd["spec"]["names"]["singular"]: crd for crd in crds().values()}


def test_the_pages_are_up_to_date() -> None:
    for path, text in generate_reference.rendered().items():
        assert (ROOT / path).read_text(encoding="utf-8") == text, f"{path}: run `make generate`"


@pytest.mark.parametrize("kind", CRDS)
def test_every_field_of_the_crd_has_a_line_under_its_object(kind: str) -> None:
    page = (PAGES / f"{kind}.md").read_text(encoding="utf-8")
    sections = dict(re.findall(r"^## `([^`]+)`\n(.*?)(?=^## |\Z)", page, re.DOTALL | re.MULTILINE))
    properties = CRDS[kind]["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
    expected = set(fields("spec", properties["spec"])) | set(fields("status", properties["status"]))
    assert expected
    missing = {f"{path}.{name}" for path, name in expected if f"\n| `{name}` |" not in sections.get(path, "")}
    assert missing == set()


def fields(path: str, schema: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield each field with the path of the object that holds it; the template of a schedule is EvalRun's own page."""
    for name, field in schema.get("properties", {}).items():
        yield path, name
        inner, suffix = generate_reference.unwrap_item(field)
        if f"{path}.{name}" != generate_reference.TEMPLATE:
            yield from fields(f"{path}.{name}{suffix}", dict(inner))


def example(kind: str) -> str:
    found = re.search(r"```yaml\n(.*?)```", (PAGES / f"{kind}.md").read_text(encoding="utf-8"), re.DOTALL)
    if found is None:
        raise ValueError(f"{kind}.md has no example")
    return found.group(1)


@pytest.mark.parametrize("place", ["cluster", "machine"])
def test_the_example_of_a_run_is_valid(place: Place, tmp_path: Path) -> None:
    file = tmp_path / "first.yaml"
    file.write_text(example("evalrun"), encoding="utf-8")
    assert load_manifest(file, place=place).metadata.name == "first"


def test_the_example_of_a_schedule_is_valid() -> None:
    schedule = EvalSchedule.model_validate(yaml.safe_load(example("evalschedule")))
    assert schedule.metadata.name == "nightly"


def test_cell_escapes_pipes_and_line_breaks() -> None:
    assert generate_reference.cell("a | b\nc") == "a \\| b c"
