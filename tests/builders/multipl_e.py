"""A row of MultiPL-E's in each language, by the program that it needs. Written anew, in the published shapes."""

from typing import Any

GO_TESTS = """func TestTwice(t *testing.T) {
  candidate := twice
\ttype test struct {
\t\tactual   interface{}
\t\texpected interface{}
\t}
   tests := []test{
     { actual: candidate(2), expected: 4 },
   }

\tfor i, tc := range tests {
\t\tt.Run(fmt.Sprintf("test num % d", i), func(t *testing.T) {
\t\t\tif fmt.Sprintf("%v", tc.actual) != fmt.Sprintf("%v", tc.expected) {
\t\t\t\tt.Errorf("expected '%s', got '%s'", tc.expected, tc.actual)
\t\t\t}
\t\t})
\t}
}
"""
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
    "tsc": {
        "name": "HumanEval_0_twice", "language": "ts", "stop_tokens": ["\nfunction ", "\n/*", "\n//", "\nclass"],
        "prompt": "//Twice x.\nfunction twice(x: number): number {\n",
        "tests": "declare var require: any;\nconst assert = require('node:assert');\n\n\nfunction test() {\n"
        "  let candidate = twice;\n  assert.deepEqual(candidate(2),4);\n}\n\ntest();",
    },
    "go": {
        "name": "HumanEval_0_twice", "language": "go_test.go", "stop_tokens": ["\nfunc", "struct", "\n// "],
        "prompt": "package twice_test\n\nimport (\n    \"testing\"\n    \"fmt\"\n)\n\n// Twice x.\n"
        "func twice(x int) int {\n",
        "tests": GO_TESTS,
    },
    "javac": {
        "name": "HumanEval_0_twice", "language": "java", "stop_tokens": ["\n    }\n"],
        "prompt": "import java.util.*;\nimport org.javatuples.*;\nimport java.math.*;\nclass Problem {\n"
        "    // Twice x.\n    public static Pair<Long, Long> twice(long x) {\n",
        "tests": "    }\n    public static void main(String[] args) {\n"
        "    assert(twice((2l)).equals((Pair.with(2l, 4l))));\n    }\n\n}\n",
    },
    "lua5.4": {
        "name": "HumanEval_0_twice", "language": "lua", "stop_tokens": ["\nlocal", "\nfunction", "\n--", "\n\n"],
        "prompt": "-- Twice x.\nlocal function twice(x)\n",
        "tests": "lu = require('luaunit')\n\nfunction test_humaneval()\nlocal candidate = twice\n"
        "    lu.assertEquals(candidate(2), 4)\nend\n\nos.exit(lu.LuaUnit.run())",
    },
    "php": {
        "name": "HumanEval_0_twice", "language": "php", "stop_tokens": ["\nfunction", "\n?>", "\n//", "\n#"],
        "prompt": "<?php\n// Twice x.\nfunction twice($x) {\n",
        "tests": "function candidate(...$args) {\n    return twice(...$args);\n}\n\nfunction test(): void {\n"
        "    if (candidate(2) !== 4) { throw new Exception(\"Test failed!\"); }\n}\n\ntest();",
    },
    "ruby": {
        "name": "HumanEval_0_twice", "language": "rb", "stop_tokens": ["\nclass", "\ndef", "\n#", "\n\n"],
        "prompt": "# Twice x.\ndef twice(x)\n",
        "tests": "require 'test/unit'\nclass TestHumanEval < Test::Unit::TestCase\n  def test_twice\n"
        "    candidate = method(:twice)\n    assert_equal(4, candidate.call(2))\n  end\nend\n",
    },
    "rustc": {
        "name": "HumanEval_0_twice", "language": "rs", "stop_tokens": ["\n}"],
        "prompt": "/// Twice x.\nfn twice(x: isize) -> isize {\n",
        "tests": "}\n\nfn main() {\n    let candidate = twice;\n    assert_eq!(candidate(2), 4);\n}\n",
    },
}  # fmt: skip
