"""The programs of `verdicts` and `verdicts2` of the real data, each filed with the verdict that is right."""

import json
from pathlib import Path

import pytest
from builders.command_line import evalrun, results
from builders.data import ALL_DATA, data_file, write_jsonl

pytestmark = pytest.mark.timeout(900)

SLOW = {
    "verdicts": ("hostile-", "fa-huge-range"),
    "verdicts2": (
        *("stdin-containment", "time-a", "prompt-classes", "monkeypatching", "methods-and", "forging", "more-forging"),
        *("nondeterminism", "right-values", "wire-2", "surrogates"),
    ),
}
"""Programs that run to their limits of 10 s, again and again on a busy machine, and those that
`unit/function_tests/test_filed_programs.py` judges as well: part of `make test-all-data` only."""

ELSEWHERE = {"verdicts2": ("numpy",)}
"""Programs that need packages, which the unit test gives them."""

TOGETHER = ("fr-environ", "fr2-logging", "fr2-patch-time-sleep")
"""What these tests observe is no value: they run in the program's process, and say so."""


def as_problem(filed: dict[str, object], name: str) -> dict[str, object]:
    """Return a row's problem as a record under another name; one of them is as sanitized MBPP has it."""
    if "task_id" not in filed:
        return {**filed, "problem_id": name}
    imports, tests = filed["test_imports"], filed["test_list"]
    assert isinstance(imports, list)
    truth = {"test_list": tests, "test_setup_code": "\n".join(imports), "entry_point": "check_str"}
    return {"dataset": "rt", "problem_id": name, "prompt": str(filed["prompt"]), "ground_truth": truth}


@pytest.mark.parametrize(("directory", "programs"), [("verdicts", 149), ("verdicts2", 365)])
def test_every_program_gets_the_verdict_that_is_right(tmp_path: Path, directory: str, programs: int) -> None:
    problems, responses, expected = [], [], {}
    for file in sorted(data_file(directory).glob("*.jsonl")):
        if file.name.startswith(ELSEWHERE.get(directory, ())) or (
            file.name.startswith(SLOW[directory]) and not ALL_DATA
        ):
            continue
        for number, line in enumerate(file.read_text().splitlines()):
            row = json.loads(line)
            name = f"{file.stem}/{number}" if directory == "verdicts" else f"{row['problem']['problem_id']}/{number}"
            problems.append(as_problem(row["problem"], name))
            responses.append(
                {"problem_id": name, **{k: v for k, v in row["response"].items() if not k.endswith("_id")}}
            )
            expected[name] = row["expected"]
    run = evalrun(
        "judge", "--problems", write_jsonl(tmp_path / "problems.jsonl", problems),
        "--responses", write_jsonl(tmp_path / "responses.jsonl", responses), "--output", tmp_path / "out",
        "--samples", "as-given",
        timeout=800,
    )  # fmt: skip
    assert run.returncode == 0, run.stdout + run.stderr
    found = {row["problem_id"]: row for row in results(tmp_path / "out")}
    assert found.keys() == expected.keys()
    assert len(found) == programs or not ALL_DATA
    different = []
    for name, right in expected.items():
        row = found[name]
        said = {True: "accept", False: "reject", None: "not judged"}[row["accepted"]]
        as_filed = said == right or right == "any" or (right == "notjudged" and said == "accept")
        if name.startswith(TOGETHER):
            as_filed = as_filed and row["forgeable_cause"] == "process"
        if not as_filed:
            different.append(f"{name}: {right}, judged {said}: {row['final_status']} {row['not_judged_reason']}")
    assert not different, "\n".join(different)
