"""A language is added in two files, a module that describes it and its name in the list, and its packages."""

import re
from typing import Any

import pytest
from builders.changed_registry import copy_registry, run_with_packages
from builders.data import PROJECT_ROOT

from evalrun_registry.languages import LANGUAGES

MODULE = '''
"""A C whose programs begin without a word."""

from typing import Final

from evalrun_registry.languages.c_family import FOOTPRINT, SYNTAX, checker_around
from evalrun_registry.languages.language import Compilation, Driver, FusionNames, Language

QUIET: Final = Language(
    name="quiet",
    title="Quiet C",
    aliases=("qc",),
    tags="quiet(?:c)?",
    driver=Driver.EXECUTABLE,
    compilation=Compilation(
        compiler="gcc",
        source="main.quiet",
        commands=(
            ("/usr/bin/env", "QUIET=yes", "{compiler}", "-x", "c", "-DMAIN=main", "{source}", "-o", "{output}"),
        ),
    ),
    footprint=FOOTPRINT,
    packages=("gcc",),
    comment=("/*", "*/"),
    line_starts="int MAIN",
    syntax=SYNTAX,
    checker=checker_around("#define evalrun_call(checker, count, arguments) checker(count, arguments)"),
    fusion=FusionNames(name="racket", tags=frozenset({"racket"})),
)
'''
SHOW = """
import asyncio
import json
import shutil
from dataclasses import asdict

from evalrun_proto.judge.v1 import judge_pb2
from evalrun_data.formats.record import parse_record, make_problem_record
from evalrun_data.prompts import render
from evalrun_data.rows import Row
from evalrun_executor.api import Limits, RunRequest
from evalrun_executor.executor import Executor, ExecutorPlan
from evalrun_executor.toolchain import Toolchain
from evalrun_judge.extraction import SubmissionMode, extract
from evalrun_judge.families.checker import checker_run
from evalrun_judge.rpc.messages import request_from
from evalrun_judge.submission import CheckerProgram, check_request
from evalrun_results.report.highlighter import answer, guess_language
from evalrun_sandbox.fusion.demand import make_run_request
from evalrun_sandbox.fusion.schemas import RunCodeRequest

CODE = '#include <stdio.h>\\nint MAIN(void) { int n; scanf("%d", &n); printf("%d", 2 * n); }\\n'


async def run() -> str:
    executor = Executor(ExecutorPlan(slots=1, allow_uncontained=True))
    await executor.start()
    try:
        reply = await executor.run(RunRequest("quiet", CODE, [b"21"], Limits()))
        return reply.compile.stderr.decode() + reply.runs[0].stdout.decode()
    finally:
        await executor.close()


record = {"dataset": "d", "problem_id": "p", "prompt": "Double it.", "language": "QC",
          "ground_truth": {"inputs": ["21"], "outputs": ["42"]}}
problem = parse_record(Row(record, "file", 1), None)
message = judge_pb2.JudgeRequest(submission=judge_pb2.Submission(text="x", language="quiet"))
message.stdio.tests.add(input="", expected_output="1")
check_request(request_from(message), ["quiet"])
print(json.dumps({
    "record": make_problem_record(problem)["language"],
    "chat": render(problem)[0].content,
    "completion": render(problem, "Completion")[0].content,
    "code": extract("```python\\n1\\n```\\n```quietc\\nmine\\n```", language="quiet", mode=SubmissionMode.AUTO).code,
    "checker": checker_run(CheckerProgram("testlib", "quiet", "int x;"), [], Limits()).code,
    "guess": guess_language(CODE.partition("\\n")[2]),
    "report": str(answer("```quiet\\nint x;\\n```")),
    "fusion": make_run_request(RunCodeRequest(code="", language="racket")).language,
    "offered": "quiet" in Toolchain().languages,
    "printed": asyncio.run(run()) if shutil.which("gcc", path="/usr/bin:/bin") else None,
}))
"""


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the unchanged packages do once a copy of the registry describes another language."""
    packages = tmp_path_factory.mktemp("added")
    directory = copy_registry(packages) / "languages"
    (directory / "quiet.py").write_text(MODULE)
    text = (directory / "__init__.py").read_text()
    text = text.replace("import PYTHON\n", "import PYTHON\nfrom evalrun_registry.languages.quiet import QUIET\n")
    (directory / "__init__.py").write_text(text.replace("RUST, TYPESCRIPT)", "RUST, TYPESCRIPT, QUIET)"))
    return run_with_packages(packages, SHOW)


def test_added_language_is_read_by_its_alias_and_written_by_its_name(seen: dict[str, Any]) -> None:
    assert seen["record"] == "quiet"


def test_added_language_is_named_in_its_prompts(seen: dict[str, Any]) -> None:
    assert "with a Quiet C program" in seen["chat"]
    assert "one quiet code block" in seen["chat"]
    assert seen["completion"].startswith("/*\nDouble it.\n")


def test_added_language_is_extracted_by_its_tags(seen: dict[str, Any]) -> None:
    assert seen["code"] == "mine\n"


def test_added_language_takes_checkers(seen: dict[str, Any]) -> None:
    assert "#define evalrun_call" in seen["checker"]


def test_added_language_is_guessed_and_coloured_in_the_report(seen: dict[str, Any]) -> None:
    assert seen["guess"] == "quiet"
    assert '<span class="k">int</span>' in seen["report"]


def test_added_language_is_asked_for_by_its_fusion_name(seen: dict[str, Any]) -> None:
    assert seen["fusion"] == "quiet"


def test_added_language_is_compiled_and_run(seen: dict[str, Any]) -> None:
    if not seen["offered"]:
        pytest.skip("no gcc in /usr/bin or /bin")
    assert seen["printed"] == "42"


def test_sandbox_images_install_the_packages_of_every_language() -> None:
    stages = (PROJECT_ROOT / "Dockerfile.judge").read_text()
    (always,) = re.findall(r"--no-install-recommends (gcc [^\n]*?) *\\?\n", stages)
    (more,) = re.findall(r'ARG MORE_LANGUAGES="(.*)"', stages)
    packages = {package for language in LANGUAGES.values() for package in language.packages}
    assert {*always.split(), *more.split()} == packages
