"""Logs of Inspect as answers: the JSON form of our own making, and what its package writes where that is installed.

`EVALRUN_TEST_INSPECT` names an interpreter with the extra `inspect`.
"""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from builders.data import PROJECT_ROOT

from evalrun_data.records import CheckTest, Problem
from evalrun_data.responses import Response, load_responses
from evalrun_runtime.exits import BadInputError

PYTHON = os.environ.get("EVALRUN_TEST_INSPECT")
PROBLEMS = [
    Problem(dataset, name, "def f():\n", CheckTest("def f():\n", "def check(f): pass", "f"))
    for dataset, name in (("ours", "one"), ("mbpp", "MBPP/11"))
]

WRITES = """
import sys
from inspect_ai.log import EvalConfig, EvalDataset, EvalLog, EvalSample, EvalSpec, write_eval_log
from inspect_ai.model import ChatCompletionChoice, ChatMessageAssistant, ModelOutput, ModelUsage
from evalrun_data.responses import load_responses
from evalrun_data.records import CheckTest, Problem

def sample(name, epoch, text, stop):
    choice = ChatCompletionChoice(message=ChatMessageAssistant(content=text), stop_reason=stop)
    output = ModelOutput(model="m", choices=[choice], usage=ModelUsage(input_tokens=3, output_tokens=5, total_tokens=8))
    return EvalSample(id=name, epoch=epoch, input="write f", target="", output=output)

spec = EvalSpec(created="2026-01-01T00:00:00+00:00", task="t", dataset=EvalDataset(), model="m", config=EvalConfig())
log = EvalLog(status="success", eval=spec, samples=[
    sample("one", 1, "def f(): pass", "stop"), sample("one", 2, "def f", "max_tokens"),
    sample(11, 1, "long " * 100, "stop"),
])
problems = [Problem(d, n, "def f():", CheckTest("", "t", "f")) for d, n in (("ours", "one"), ("mbpp", "MBPP/11"))]
for form in ("json", "eval"):
    path = sys.argv[1] + "/log." + form
    write_eval_log(log, path)
    print("FOUND", load_responses([path], problems))
"""


def log(*samples: object, **more: object) -> dict[str, object]:
    return {"version": 2, "status": "success", "eval": {"task": "t"}, "samples": list(samples), **more}


def sample(name: object = "one", **output: Any) -> dict[str, object]:
    return {"id": name, "epoch": 1, "output": output or {"completion": "def f(): pass"}}


def read(directory: Path, content: object) -> list[Response]:
    (directory / "log.json").write_text(json.dumps(content, indent=2))
    return load_responses(["log.json"], PROBLEMS, directory)


def test_each_sample_is_an_answer_and_each_epoch_a_sample_of_its_problem(tmp_path: Path) -> None:
    cut = {"choices": [{"stop_reason": "model_length"}], "usage": {"input_tokens": 7, "output_tokens": 9}}
    first, second, third = read(tmp_path, log(sample(), {**sample(completion="def", **cut), "epoch": 2}, sample(11)))
    assert (first.key, first.text, first.mode, first.truncated) == (("ours", "one", 0), "def f(): pass", "auto", False)
    assert (second.key, second.truncated, second.prompt_tokens, second.output_tokens) == (
        ("ours", "one", 1),
        True,
        7,
        9,
    )
    assert third.key == ("mbpp", "MBPP/11", 0)


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("def f(): pass", "def f(): pass"),
        ([{"type": "reasoning", "reasoning": "so"}, {"type": "text", "text": "x"}], "x"),
    ],
)
def test_a_log_without_completion_has_its_first_choice(tmp_path: Path, content: object, text: str) -> None:
    (answer,) = read(tmp_path, log(sample(choices=[{"message": {"role": "assistant", "content": content}}])))
    assert answer.text == text


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (log(), "log.json:1: the log has no samples: take one that was written with them"),
        (log(samples=None), "the log has no samples"),
        (log({**sample(), "error": {"message": "no\nquota"}}), "sample 'one' has no answer (no quota): run it again"),
        (log(sample(model="m")), "field 'samples[0].output.completion' is missing (expected text)"),
        (log(sample("two")), "unknown problem 'two'"),
        (log(sample(), sample()), "sample 0 of problem 'one' is there twice"),
        (log("text"), "field 'samples[0]' should be an object, not text"),
    ],
)
def test_a_log_that_holds_no_answers_is_refused(tmp_path: Path, content: object, message: str) -> None:
    with pytest.raises(BadInputError, match=r"log\.json:1: ") as refused:
        read(tmp_path, content)
    assert message in str(refused.value)


def test_an_eval_file_needs_the_extra_and_the_message_says_how(tmp_path: Path) -> None:
    (tmp_path / "log.eval").write_bytes(b"PK\x03\x04 and more")
    with pytest.raises(BadInputError) as refused:
        load_responses(["log.eval"], PROBLEMS, tmp_path)
    assert "log.eval" in str(refused.value)
    try:
        import inspect_ai  # noqa: F401
    except ImportError:
        assert "pip install '.[inspect]'" in str(refused.value)
        assert "inspect log convert --to json" in str(refused.value)
    else:
        assert "cannot read it as a log" in str(refused.value)


@pytest.mark.timeout(180)
def test_logs_of_the_inspect_package_in_both_forms_give_the_same_answers(tmp_path: Path) -> None:
    if not PYTHON:
        pytest.skip("EVALRUN_TEST_INSPECT names no interpreter with the extra inspect")
    paths = os.pathsep.join(str(PROJECT_ROOT / "libs" / name / "src") for name in ("data", "runtime", "api"))
    done = subprocess.run(
        [PYTHON, "-c", WRITES, str(tmp_path)],
        capture_output=True, text=True, timeout=170, check=False, env={**os.environ, "PYTHONPATH": paths},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = [line for line in done.stdout.splitlines() if line.startswith("FOUND")]
    assert len(found) == 2
    assert found[0] == found[1]
    assert found[0].count("Response(") == 3
    assert "finish_reason='length'" in found[0]
    assert "output_tokens=5" in found[0]
