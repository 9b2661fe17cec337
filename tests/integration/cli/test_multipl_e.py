"""MultiPL-E's rows through the command: right, wrong and cheating programs."""

import json
from pathlib import Path
from typing import Any

import pytest
from builders.command_line import evalrun, results
from builders.judge.sandbox import require_compiler

ROWS: dict[str, dict[str, Any]] = {
    "g++": {
        "name": "HumanEval_0_twice", "language": "cpp", "stop_tokens": ["\n}"],
        "prompt": "#include<assert.h>\n#include<cstdlib>\n// Twice x.\nlong twice(long x) {\n",
        "tests": "}\nint main() {\n    auto candidate = twice;\n    assert(candidate((2)) == (4));\n}\n",
    },
    "node": {
        "name": "HumanEval_0_twice", "language": "js", "stop_tokens": ["\nfunction ", "\n/*", "\n//", "\nconsole.log"],
        "prompt": "//Twice x.\nfunction twice(x){\n",
        "tests": "const assert = require('node:assert');\n\n\nfunction test() {\n  let candidate = twice;\n"
        "  assert.deepEqual(candidate(2),4);\n}\n\ntest();",
    },
    "rustc": {
        "name": "HumanEval_0_twice", "language": "rs", "stop_tokens": ["\n}"],
        "prompt": "/// Twice x.\nfn twice(x: isize) -> isize {\n",
        "tests": "}\n\nfn main() {\n    let candidate = twice;\n    assert_eq!(candidate(2), 4);\n}\n",
    },
}  # fmt: skip
ANSWERS = {
    "g++": [
        ("```cpp\nlong twice(long x) {\n    return 2 * x;\n}\n```", "auto", "success"),
        ("    return 2 * x;", "append", "success"),
        ("    return 3 * x;", "append", "wrong_answer"),
        ("    std::exit(0);", "append", "wrong_answer"),
        ("    return 2 * y;", "append", "syntax_error"),
    ],
    "node": [
        ("```js\nconst assert = require('assert');\nfunction twice(x) {\n  return 2 * x;\n}\n```", "auto", "success"),
        ("```javascript\nconst twice = (x) => 2 * x;\nconsole.log(twice(3));\n```", "auto", "success"),
        ("    return 2 * x;\n}\n\nfunction broken(", "append", "success"),
        ("    return 3 * x;\n}", "append", "wrong_answer"),
        ("    process.exit(0);\n}", "append", "wrong_answer"),
        ("    return y;\n}", "append", "runtime_error"),
    ],
    "rustc": [
        ("```rust\nfn twice(x: isize) -> isize {\n    2 * x\n}\n\nfn main() {}\n```", "auto", "success"),
        ("    2 * x\n}\nfn broken(", "append", "success"),
        ("    3 * x", "append", "wrong_answer"),
        ("    std::process::exit(0)", "append", "wrong_answer"),
        ('    panic!("{}", x)', "append", "runtime_error"),
        ("    2 * y", "append", "syntax_error"),
    ],
}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("compiler", ROWS)
def test_each_program_gets_its_verdict_and_each_verdict_says_that_it_can_be_forged(
    compiler: str, tmp_path: Path
) -> None:
    require_compiler(compiler)
    row, wanted = ROWS[compiler], ANSWERS[compiler]
    problems, answers = tmp_path / "multipl_e.jsonl", tmp_path / "answers.jsonl"
    problems.write_text(json.dumps(row))
    rows = [{"problem_id": row["name"], "response": text, "mode": mode} for text, mode, _ in wanted]
    answers.write_text("".join(json.dumps(each) + "\n" for each in rows))
    done = evalrun("judge", "--problems", problems, "--responses", answers, "--output", tmp_path / "out", timeout=280)
    assert done.returncode == 0, done.stdout + done.stderr
    found = sorted(results(tmp_path / "out"), key=lambda each: each["sample"])
    assert [each["final_status"] for each in found] == [status for _, _, status in wanted]
    assert all(each["forgeable"] for each in found)
