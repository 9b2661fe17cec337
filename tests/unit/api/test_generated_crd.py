"""The CRD that is shipped is the one that the models say."""

from pathlib import Path

import generate_crd
import pytest
import yaml

from evalrun_api.crd import crds

ROOT = Path(__file__).parents[3]


def test_the_files_are_up_to_date() -> None:
    for path, text in generate_crd.rendered().items():
        assert (ROOT / path).read_text(encoding="utf-8") == text, f"{path}: run `make generate`"


def test_plain_crd_file_equals_the_generated_crds() -> None:
    text = (ROOT / "k8s" / "crd.yaml").read_text(encoding="utf-8")
    assert list(yaml.safe_load_all(text)) == list(crds().values())


CONDITION = '{{- if include "evalrun.makesCrd" (dict "root" . "name" "%s.evalrun.dev") }}'


@pytest.mark.parametrize("plural", ["evalruns", "evalschedules"])
def test_crd_template_has_one_helm_condition_and_the_keep_annotation(plural: str) -> None:
    text = (ROOT / "charts/evalrun/templates/crds" / f"{plural}.yaml").read_text(encoding="utf-8")
    header, switch, *lines, end = text.splitlines()
    assert (header[0], switch, end) == ("#", CONDITION % plural, "{{- end }}")
    assert not [line for line in lines if "{{" in line]
    crd = yaml.safe_load("\n".join(lines))
    assert crd["metadata"].pop("annotations") == {"helm.sh/resource-policy": "keep"}
    assert crd == crds()[plural]


def test_template_escaped_keeps_braces_from_being_a_helm_action() -> None:
    assert generate_crd.template_escaped("a {{b}} c") == 'a {{ "{{" }}b}} c'
