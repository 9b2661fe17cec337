"""MultiPL-E's rows in C++ through the command: right, wrong and cheating programs."""

import json
from pathlib import Path

import pytest
from builders.command_line import evalrun, results

ROW = {
    "name": "HumanEval_0_twice", "language": "cpp", "stop_tokens": ["\n}"],
    "prompt": "#include<assert.h>\n#include<cstdlib>\n// Twice x.\nlong twice(long x) {\n",
    "tests": "}\nint main() {\n    auto candidate = twice;\n    assert(candidate((2)) == (4));\n}\n",
}  # fmt: skip
ANSWERS = [
    ("```cpp\nlong twice(long x) {\n    return 2 * x;\n}\n```", "auto", "success"),
    ("    return 2 * x;", "append", "success"),
    ("    return 3 * x;", "append", "wrong_answer"),
    ("    std::exit(0);", "append", "wrong_answer"),
    ("    return 2 * y;", "append", "syntax_error"),
]


@pytest.mark.timeout(300)
def test_each_program_gets_its_verdict_and_each_verdict_says_that_it_can_be_forged(tmp_path: Path) -> None:
    problems, answers = tmp_path / "multipl_e.jsonl", tmp_path / "answers.jsonl"
    problems.write_text(json.dumps(ROW))
    rows = [{"problem_id": ROW["name"], "response": text, "mode": mode} for text, mode, _ in ANSWERS]
    answers.write_text("".join(json.dumps(row) + "\n" for row in rows))
    done = evalrun("judge", "--problems", problems, "--responses", answers, "--output", tmp_path / "out", timeout=280)
    assert done.returncode == 0, done.stdout + done.stderr
    found = sorted(results(tmp_path / "out"), key=lambda row: row["sample"])
    assert [row["final_status"] for row in found] == [status for _, _, status in ANSWERS]
    assert all(row["forgeable"] for row in found)
