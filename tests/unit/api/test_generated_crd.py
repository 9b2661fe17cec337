"""The CRD that is shipped is the one that the models say."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest
import yaml

from evalrun_operator.crd import evalrun_crd

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def generate_crd() -> ModuleType:
    """The tool, which is a script and in no package."""
    spec = importlib.util.spec_from_file_location("generate_crd", ROOT / "tools" / "generate_crd.py")
    if spec is None or spec.loader is None:
        raise FileNotFoundError("tools/generate_crd.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_files_are_up_to_date(generate_crd: ModuleType) -> None:
    for path, text in generate_crd.rendered().items():
        assert (ROOT / path).read_text(encoding="utf-8") == text, f"{path}: run `make generate`"


def test_the_plain_file_is_the_crd() -> None:
    assert yaml.safe_load((ROOT / "k8s" / "crd.yaml").read_text(encoding="utf-8")) == evalrun_crd()


def test_helm_keeps_the_crd_and_finds_no_action_in_it() -> None:
    text = (ROOT / "charts/evalrun/templates/crds/evalruns.yaml").read_text(encoding="utf-8")
    assert "{{" not in text
    crd = yaml.safe_load(text)
    assert crd["metadata"].pop("annotations") == {"helm.sh/resource-policy": "keep"}
    assert crd == evalrun_crd()


def test_braces_in_a_description_would_be_no_action(generate_crd: ModuleType) -> None:
    assert generate_crd.template_escaped("a {{b}} c") == 'a {{ "{{" }}b}} c'
