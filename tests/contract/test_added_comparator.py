"""A comparator works everywhere once it is in one file; a stricter one than all others is reported rightly."""

import re
from typing import Any

import pytest
from builders.changed_registry import copy_registry, run_with_packages

from evalrun_registry.comparators import COMPUTED

FUNCTION = '''
def _lines(expected: bytes, stdout: bytes, comparator: Comparator) -> bool:
    """Stricter than `verl`: one newline at the end may be missing, no more."""
    del comparator
    return expected.removesuffix(b"\\n") == stdout.removesuffix(b"\\n")


_DESCRIBED: Final = (
'''
RULE = """
    ComparatorRule(name="lines", text="same but for one newline at the end", passes=_lines, implies=("verl",)),
    ComparatorRule(name=CHECKER,"""
SHOW = """
import json

from click.testing import CliRunner

from evalrun_proto.judge.v1 import judge_pb2
from evalrun_api.crd import evalrun_crd
from evalrun_api.v1alpha1 import Comparator as Named
from evalrun_cli.commands import evalrun
from evalrun_data.formats.record import parse_comparator
from evalrun_data.rows import Row
from evalrun_judge.comparators import find_disagreeing_comparators, passes
from evalrun_judge.rpc.messages import request_from
from evalrun_registry.comparators import Comparator
from evalrun_reward.settings import RewardSettings

message = judge_pb2.JudgeRequest(comparator=judge_pb2.Comparator(name="lines"))
message.stdio.tests.add(input="", expected_output="1")
print(json.dumps({
    "record": parse_comparator(Row({"comparator": {"name": "lines"}}, "file", 1)).name,
    "spec": Named.model_validate({"name": "lines"}).name,
    "settings": RewardSettings(judge="grpc://h:1", comparator="lines").comparator,
    "crd": json.dumps(evalrun_crd()),
    "help": CliRunner().invoke(evalrun, ["judge", "--help"]).output,
    "request": request_from(message).comparator.name,
    "passes": [passes(b"1\\n", text, Comparator("lines")) for text in (b"1", b"1\\n\\n\\n")],
    "with_verl": find_disagreeing_comparators(b"1", b"1\\n\\n\\n", Comparator("verl"), True),
    "with_lines": find_disagreeing_comparators(b"1", b"1\\n\\n\\n", Comparator("lines"), False),
    "with_standard": find_disagreeing_comparators(b"1", b"1\\n", Comparator("standard"), True),
}))
"""


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the unchanged packages do once a copy of the registry describes another comparator."""
    packages = tmp_path_factory.mktemp("added")
    changed = copy_registry(packages) / "comparators.py"
    text = changed.read_text()
    text = text.replace("\n_DESCRIBED: Final = (\n", FUNCTION)
    changed.write_text(text.replace("\n    ComparatorRule(name=CHECKER,", RULE))
    return run_with_packages(packages, SHOW)


@pytest.mark.parametrize("place", ["record", "spec", "settings", "request"])
def test_added_comparator_is_accepted(seen: dict[str, Any], place: str) -> None:
    assert seen[place] == "lines"


def test_added_comparator_is_in_the_crd_and_in_the_flags(seen: dict[str, Any]) -> None:
    assert re.search(r'"standard", [^]]*"lines"\]|"standard", "lines"\]', seen["crd"])
    assert "lines: same but for one newline at the end. (A checker" in seen["crd"]
    assert "|lines]" in seen["help"]


def test_added_comparator_decides_verdicts(seen: dict[str, Any]) -> None:
    assert seen["passes"] == [True, False]


def test_added_stricter_comparator_is_reported_where_it_disagrees(seen: dict[str, Any]) -> None:
    """Other comparators that somebody has added do not matter here."""
    lenient = ["verl", "sandbox-fusion", "tokens", "standard"]
    others = {*COMPUTED} - {"exact", *lenient}
    assert [name for name in seen["with_verl"] if name not in others] == ["exact", "lines"]
    assert [name for name in seen["with_lines"] if name not in others] == [
        "verl",
        "sandbox-fusion",
        "tokens",
        "standard",
    ]
    assert [name for name in seen["with_standard"] if name not in others] == ["exact"]
