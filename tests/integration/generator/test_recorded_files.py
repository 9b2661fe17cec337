"""Problem and response files, served, asked for by the real generator, and stored as they were."""

import gzip
import json
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path

import pytest
from builders.generator.work import Processes, ledger_server, processes, work_item

from evalrun_data.prompts import render
from evalrun_data.readers import load_problem_files
from evalrun_data.records import Problem
from evalrun_proto.ledger.v1 import ledger_pb2 as ledger

DATA = Path(os.environ.get("EVALRUN_TEST_DATA", Path(__file__).parents[3] / "../shared/data"))


@pytest.fixture
async def started(tmp_path: Path) -> AsyncIterator[Processes]:
    async with processes(tmp_path) as running:
        yield running


def write_files(
    directory: Path, problems: int, responses: Sequence[Mapping[str, object]]
) -> tuple[list[str], list[Problem]]:
    """Write stdio problems t/0, t/1, ... and responses; gives the flags that serve them, and the problems."""
    problem_file, response_file = directory / "problems.jsonl", directory / "responses.jsonl"
    rows = [
        {"dataset": "tiny", "problem_id": f"t/{index}", "prompt": f"Print {index}.",
         "ground_truth": {"inputs": [""], "outputs": [str(index)]}}
        for index in range(problems)
    ]  # fmt: skip
    problem_file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    response_file.write_text("".join(json.dumps(response) + "\n" for response in responses))
    flags = ["--problems", str(problem_file), "--responses", str(response_file)]
    return flags, load_problem_files([str(problem_file)])


def item(problem: Problem, *, sample: int = 0, seed: int | None = None, chat: bool = True) -> ledger.WorkItem:
    prompt = render(problem, "Chat" if chat else "Completion")[0].content
    return work_item(problem.problem_id, prompt=prompt, sample=sample, seed=seed, chat=chat)


async def test_recorded_samples_are_chosen_by_seed_with_their_recorded_facts(
    started: Processes, tmp_path: Path
) -> None:
    responses: list[dict[str, object]] = [
        {"problem_id": "t/0", "sample": 0, "response": "first", "output_tokens": 21, "prompt_tokens": 12},
        {"problem_id": "t/0", "sample": 1, "response": "second", "finish_reason": "length"},
        {"problem_id": "t/1", "response": "print(1)", "mode": "standalone"},
    ]
    flags, (zero, one) = write_files(tmp_path, 2, responses)
    endpoint = await started.recorded_here(*flags, "--base-seed", "42")
    items = [
        *(item(zero, sample=sample, seed=42 + sample) for sample in range(3)),
        item(one),
        item(one, sample=1, chat=False),
    ]
    async with ledger_server(items) as server:
        generator = await started.generator(server, [endpoint])
        assert await generator.wait() == 0, generator.errors
        stored = {(done.key.problem_id, done.key.sample): done for done in server.fake.completions.values()}
    assert [stored["t/0", sample].text for sample in range(3)] == ["first", "second", "first"]
    assert (stored["t/0", 0].prompt_tokens, stored["t/0", 0].output_tokens) == (12, 21)
    assert [stored["t/0", sample].finish_reason for sample in range(2)] == ["stop", "length"]
    assert stored["t/1", 0].text == "```python\nprint(1)\n```"  # asked by chat, a model answers with a block
    assert stored["t/1", 1].text == "print(1)"


async def test_problem_without_a_recorded_answer_is_named_and_stops_no_other(
    started: Processes, tmp_path: Path
) -> None:
    flags, problems = write_files(tmp_path, 3, [{"problem_id": f"t/{index}", "response": "x"} for index in (0, 2)])
    endpoint = await started.recorded_here(*flags)
    async with ledger_server([item(problem) for problem in problems]) as server:
        generator = await started.generator(server, [endpoint])
        assert await generator.wait() == 1
        assert len(server.fake.completions) == 2
        last = generator.errors.splitlines()[-1]
        assert last.startswith("evalrun: no completion for ds t/1 sample 0: ")
        assert "no completion is recorded for problem tiny/t/1" in last


async def test_a_malformed_response_names_file_and_line(started: Processes, tmp_path: Path) -> None:
    flags, _ = write_files(
        tmp_path, 1, [{"problem_id": "t/0", "response": "x"}, {"problem_id": "t/9", "response": "x"}]
    )
    process = await started.start("evalrun_generator.recorded", flags)
    assert await process.wait() == 2
    assert "responses.jsonl:2: unknown problem 't/9'" in process.errors.splitlines()[-1]


async def test_all_of_humaneval_comes_back_byte_for_byte(started: Processes) -> None:
    problem_file = DATA / "humaneval" / "HumanEval.jsonl.gz"
    response_file = DATA / "completions" / "humaneval_ollama-qwen2.5-coder_7b.jsonl.gz"
    if not response_file.exists():
        pytest.skip(f"no test data at {DATA}: set EVALRUN_TEST_DATA")
    with gzip.open(response_file, "rt") as lines:
        recorded = {row["task_id"]: row["completion"] for row in map(json.loads, lines)}
    endpoint = await started.recorded_here("--problems", str(problem_file), "--responses", str(response_file))
    problems = load_problem_files([str(problem_file)])
    async with ledger_server([item(problem, chat=False) for problem in problems]) as server:
        generator = await started.generator(server, [endpoint])
        assert await generator.wait() == 0, generator.errors
        assert {done.key.problem_id: done.text for done in server.fake.completions.values()} == recorded
