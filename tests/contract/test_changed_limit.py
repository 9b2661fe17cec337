"""A limit's default is changed in one file."""

from typing import Any

import pytest
from builders.changed_registry import copy_registry, run_with_packages

SHOW = """
import json

from evalrun_proto.judge.v1 import judge_pb2
from evalrun_api.crd import evalrun_crd
from evalrun_api.v1alpha1 import Dataset
from evalrun_client.judge_request import Answer, judge_request
from evalrun_data.records import CheckTest, Problem
from evalrun_executor.api import Limits
from evalrun_judge.rpc.messages import request_from
from evalrun_sandbox.fusion.demand import make_run_request
from evalrun_sandbox.fusion.schemas import RunCodeRequest

problem = Problem("d", "p", "def f():", CheckTest("def f():", "def check(c): pass", "f"))
sent = judge_request("run", Dataset.model_validate({"name": "d", "source": "builtin:demo"}), problem, Answer(""))
bare = judge_pb2.JudgeRequest()
bare.stdio.tests.add(input="", expected_output="1")
print(json.dumps({
    "sent": sent.limits.memory_mib,
    "judged": request_from(bare).limits.memory_mib,
    "run": Limits().memory_mib,
    "fusion": make_run_request(RunCodeRequest(code="", language="python", memory_limit_MB=None)).limits.memory_mib,
    "crd": json.dumps(evalrun_crd()),
}))
"""


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the unchanged packages do once a copy of the registry has another default."""
    packages = tmp_path_factory.mktemp("changed")
    changed = copy_registry(packages) / "limits.py"
    changed.write_text(changed.read_text().replace("memory_mib: int = 1024", "memory_mib: int = 777"))
    return run_with_packages(packages, SHOW)


@pytest.mark.parametrize("place", ["sent", "judged", "run", "fusion"])
def test_changed_default_is_the_effective_limit(seen: dict[str, Any], place: str) -> None:
    assert seen[place] == 777


def test_changed_default_is_in_the_crd(seen: dict[str, Any]) -> None:
    assert "Memory per test, in MiB; unset: 777." in seen["crd"]
