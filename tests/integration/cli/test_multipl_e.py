"""MultiPL-E's rows through the command: right, wrong and cheating programs."""

import json
from pathlib import Path

import pytest
from builders.command_line import evalrun, results
from builders.judge.sandbox import require_compiler
from builders.multipl_e import ROWS

GO_PROGRAM = """```go
package main

import (
\t"fmt"
\tm "math" // for Abs
)

func twice(x int) int {
\treturn 2 * int(m.Abs(float64(x)))
}

func main() {
\tfmt.Println(twice(3))
}
```"""
GO_FUNCTION = """```go
import "strconv"

func twice(x int) int {
\ty, _ := strconv.Atoi("2")
\treturn y * x
}
```"""
JAVA_PROGRAM = """```java
import java.util.*;

public final class Solution {
    private Solution() {}
    @SuppressWarnings("unchecked") private static Pair<Long, Long> twice(long x) { return new Pair<>(x, 2 * x); }

    public static void main(String[] args) { System.out.println(twice(3)); }
}

class Unused {}
```"""
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
    "tsc": [
        ("```ts\nfunction twice(x: number): number {\n  return 2 * x;\n}\n```", "auto", "success"),
        (
            "```typescript\nexport const twice = (x: number): number => 2 * x;\nconsole.log(twice(3));\n```",
            "auto",
            "success",
        ),
        ("    return 2 * x;\n}\n\nfunction broken(", "append", "success"),
        ("    return 3 * x;\n}", "append", "wrong_answer"),
        ("    process.exit(0);\n}", "append", "wrong_answer"),
        ("    return y;\n}", "append", "runtime_error"),
        ("    return 2 * ;\n}", "append", "syntax_error"),
    ],
    "go": [
        (GO_PROGRAM, "auto", "success"),
        (GO_FUNCTION, "auto", "success"),
        ("    return 2 * x\n}\n\nfunc main() {\n    broken", "append", "success"),
        ("    return 3 * x\n}", "append", "wrong_answer"),
        ("    return []int{}[x]\n}", "append", "runtime_error"),
        ("    return 2 * y\n}", "append", "syntax_error"),
    ],
    "javac": [
        (
            JAVA_PROGRAM,
            "auto",
            "success",
        ),
        (
            "```java\npublic static Pair<Long, Long> twice(long x) {\n  return Pair.with(x, 2 * x);\n}\n```",
            "auto",
            "success",
        ),
        ("        return Pair.with(x, 2 * x);\n    }\n    int broken(", "append", "success"),
        ("        return Pair.with(x, 3 * x);", "append", "wrong_answer"),
        ("        System.exit(0); return null;", "append", "wrong_answer"),
        ("        return List.<Pair<Long, Long>>of().get(0);", "append", "runtime_error"),
        ("        return 2 * x;", "append", "syntax_error"),
    ],
    "lua5.4": [
        ("```lua\nlocal function twice(x)\n  return 2 * x\nend\nprint(twice(3))\n```", "auto", "success"),
        ("```lua\ntwice = function(x)\n  return x + x\nend\n```", "auto", "success"),
        ("    return 2 * x\nend\n\nlocal broken = (", "append", "success"),
        ("    return 3 * x\nend", "append", "wrong_answer"),
        ("    os.exit(0)\nend", "append", "runtime_error"),  # LuaUnit takes it for an error
        ("    return x.y.z\nend", "append", "runtime_error"),
        ("    return 2 *\nend", "append", "runtime_error"),
    ],
    "php": [
        ("```php\n<?php\nfunction twice($x) {\n  return 2 * $x;\n}\necho twice(3);\n?>\n```", "auto", "success"),
        ("```php\nfunction twice(int $x): int {\n  return $x + $x;\n}\n```", "auto", "success"),
        ("    return 2 * $x;\n}\n\nfunction broken(", "append", "success"),
        ("    return 3 * $x;\n}", "append", "wrong_answer"),
        ("    exit(0);\n}", "append", "wrong_answer"),
        ("    return nothing($x);\n}", "append", "runtime_error"),
    ],
    "ruby": [
        ("```ruby\ndef twice(x)\n  2 * x\nend\n\nputs twice(3)\n```", "auto", "success"),
        ("```rb\nrequire 'set'\n\ndef twice(x) = x + x\n```", "auto", "success"),
        ("  2 * x\nend\n\ndef broken(", "append", "success"),
        ("  3 * x\nend", "append", "wrong_answer"),
        ("  exit(0)\nend", "append", "wrong_answer"),
        ("  nothing(x)\nend", "append", "runtime_error"),
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
def test_each_program_gets_its_verdict_and_each_verdict_is_marked_forgeable(compiler: str, tmp_path: Path) -> None:
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
