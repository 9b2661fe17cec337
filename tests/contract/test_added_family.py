"""A family of tests is added in three files: its record, its message, and how it is judged."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from builders.data import PROJECT_ROOT
from generate_stubs import PACKAGE, generate

RECORD = '''
"""A program that ends with an exit code."""

from dataclasses import dataclass
from typing import ClassVar, Self

from evalrun_data.families.ground_truth import GroundTruth, PromptParts
from evalrun_data.rows import Row


@dataclass(frozen=True, slots=True)
class ExitTest(GroundTruth):
    family: ClassVar[str] = "exit"
    form: ClassVar[str] = "exit"
    told_by: ClassVar[tuple[str, ...]] = ("exit_code",)
    wanted: ClassVar[str] = "exit_code"

    exit_code: int

    @classmethod
    def parse(cls, truth: Row) -> Self:
        return cls(truth.optional_count("exit_code", minimum=0) or 0)

    @property
    def count(self) -> int:
        return 1

    def write_chat(self, parts: PromptParts) -> str:
        return f"{parts.text} The program ends with {self.exit_code}."
'''
MESSAGE = """
message ExitTest {
  int32 exit_code = 1;
}
"""
FIELD = "    ExitTest exit = 99;\n"
FAMILY = '''
"""Programs that are judged by their exit code."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar, cast

from evalrun_executor.api import Limits, RunRequest
from evalrun_judge.cache.verdict_cache import Judged
from evalrun_judge.families.family import Family, FormReader
from evalrun_judge.records import records_of_runs
from evalrun_judge.status import TestStatus
from evalrun_judge.submission import Tests
from evalrun_judge.verdict import TestOutcome


@dataclass(frozen=True, slots=True)
class ExitTest(Tests):
    exit_code: int

    def texts(self):
        return [(b"", b"")]


class ExitFamily(Family[str]):
    FORMS: ClassVar[Mapping[str, FormReader]] = {"exit": lambda message, _: ExitTest(message.exit.exit_code)}
    TESTS: ClassVar[tuple[type, ...]] = (ExitTest,)
    FORGEABLE: ClassVar[bool] = True

    def __init__(self, runners):
        self._pool = runners.pool

    def check(self, request, sandboxes):
        pass

    def plan(self, request, extraction):
        return extraction.code

    def key(self, plan, request):
        return None

    async def judge(self, plan, request, on_begin: Callable[[], None]) -> Judged:
        run = RunRequest("python", plan, [b""], Limits())
        reply = await self._pool.run(run, run=request.run, on_slot=on_begin)
        wanted = cast(ExitTest, request.tests).exit_code
        statuses = {True: TestStatus.SUCCESS, False: TestStatus.WRONG_ANSWER}
        outcomes = [TestOutcome(statuses[each.exit_code == wanted]) for each in reply.runs]
        return Judged(tuple(records_of_runs([b""], [b""], reply, outcomes)), reply.level, stable=True)
'''
SHOW = """
import asyncio
import json
import sys

from builders.judge.gateway import Time, make_judge, make_pool

from evalrun_api.v1alpha1 import Dataset
from evalrun_client.judge_request import Answer, judge_request
from evalrun_data.formats.record import parse_record, make_problem_record
from evalrun_data.prompts import render
from evalrun_data.rows import Row
from evalrun_judge.rpc.messages import request_from
from evalrun_judge.sandboxes.fake import FakeSandbox, ended, reply
from evalrun_runtime.exits import BadInputError

record = {"dataset": "d", "problem_id": "p", "prompt": "Give up.", "ground_truth": {"exit_code": 3}}
problem = parse_record(Row(record, "file", 1), None)
try:
    parse_record(Row({**record, "ground_truth": {}}, "file", 1), None)
except BadInputError as error:
    refusal = str(error)
message = judge_request("run", Dataset.model_validate({"name": "d", "source": "builtin:demo"}), problem,
                        Answer("```python\\nraise SystemExit(3)\\n```"))


async def judged(exit_code: int) -> bool:
    time = Time()
    pool = make_pool([FakeSandbox(lambda _: reply(ended(exit_code=exit_code)))], time)
    pool.start()
    try:
        return (await make_judge(pool, time)[0].judge(request_from(message))).accepted
    finally:
        await pool.close()


print(json.dumps({
    "family": problem.family,
    "tests": problem.test_count,
    "restored": parse_record(Row(make_problem_record(problem), "file", 1), None) == problem,
    "refusal": refusal,
    "prompt": render(problem)[0].content,
    "form": message.WhichOneof("tests"),
    "accepted": [asyncio.run(judged(exit_code)) for exit_code in (3, 0)],
}))
"""


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a copy of the packages does with the family once its three files are there."""
    directory = tmp_path_factory.mktemp("added")
    packages, protos = directory / "packages", directory / "proto"
    for package in ("libs/data/src/evalrun_data", "services/judge/src/evalrun_judge"):
        shutil.copytree(PROJECT_ROOT / package, packages / Path(package).name)
    shutil.copytree(PROJECT_ROOT / "proto" / "evalrun", protos / "evalrun")

    (packages / "evalrun_data" / "families" / "exit.py").write_text(RECORD)
    (packages / "evalrun_judge" / "families" / "exit.py").write_text(FAMILY)
    contract = protos / "evalrun" / "judge" / "v1" / "judge.proto"
    contract.write_text(contract.read_text().replace("  oneof tests {\n", f"  oneof tests {{\n{FIELD}") + MESSAGE)

    stubs = directory / "stubs"
    stubs.mkdir()
    generate(protos, stubs)
    (stubs / PACKAGE).rename(packages / PACKAGE)
    done = subprocess.run(
        [sys.executable, "-c", SHOW],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (packages, PROJECT_ROOT / "tests")))},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_added_family_is_read_and_written_back(seen: dict[str, Any]) -> None:
    assert (seen["family"], seen["tests"], seen["restored"]) == ("exit", 1, True)


def test_added_family_is_named_in_the_refusal_of_a_record_without_tests(seen: dict[str, Any]) -> None:
    assert ", or exit_code" in seen["refusal"]


def test_added_family_writes_its_prompt(seen: dict[str, Any]) -> None:
    assert seen["prompt"] == "Give up. The program ends with 3."


def test_added_family_is_sent_and_judged(seen: dict[str, Any]) -> None:
    assert (seen["form"], seen["accepted"]) == ("exit", [True, False])
