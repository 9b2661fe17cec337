# ruff: noqa: E501
# Why: a row reads best where each field is a line.
"""A row of HumanEval-X's in each language. Written anew, in the published shapes."""

from typing import Any

_GO_TEST = """func TestTwice(t *testing.T) {
    assert := assert.New(t)
    assert.Equal([]int{4, 0}, Twice([]int{2, 0}))
    assert.Equal(true, math.Abs(float64(Twice([]int{3})[0])-6.0) < 1e-9)
}
"""
ROWS: dict[str, dict[str, Any]] = {
    "cpp": {
        "task_id": "CPP/0",
        "prompt": "/*\nTwice each.\n>>> twice({2})\n{4}\n*/\n#include<vector>\nusing namespace std;\n"
        "vector<int> twice(vector<int> xs){\n",
        "declaration": "#include<vector>\nusing namespace std;\n#include<algorithm>\nvector<int> twice(vector<int> xs){\n",
        "canonical_solution": "    for (auto& x : xs) { x *= 2; }\n    return xs;\n}\n",
        "test": "#undef NDEBUG\n#include<assert.h>\nbool issame(vector<int> a,vector<int>b){\n"
        "    return a == b;\n}\nint main(){\n    assert (issame(twice({2, 0}), {4, 0}));\n}\n",
        "example_test": "#undef NDEBUG\n#include<assert.h>\nint main(){\n    assert (twice({2})[0] == 4);\n}\n",
    },
    "go": {
        "task_id": "Go/0",
        "prompt": "import (\n    \"sort\"\n)\n\n// Twice each.\nfunc Twice(xs []int) []int {\n",
        "import": "import (\n    \"sort\"\n)\n",
        "docstring": "// Twice each.\n",
        "declaration": "\nfunc Twice(xs []int) []int {\n",
        "canonical_solution": "    out := make([]int, 0)\n    for _, x := range xs {\n        out = append(out, 2 * x)\n    }\n"
        "    return out\n}\n",
        "test": _GO_TEST,
        "test_setup": "package main\n\nimport (\n    \"testing\"\n    \"math\"\n    \"github.com/stretchr/testify/assert\"\n)\n",
        "example_test": _GO_TEST,
    },
    "java": {
        "task_id": "Java/0",
        "prompt": "import java.util.*;\n\nclass Solution {\n    /**\n    Twice each.\n     */\n"
        "    public List<Integer> twice(List<Integer> xs) {\n",
        "text": "    Twice each.",
        "declaration": "import java.util.*;\n\nclass Solution {\n    public List<Integer> twice(List<Integer> xs) {\n",
        "canonical_solution": "        List<Integer> out = new ArrayList<>();\n        for (int x : xs) {\n"
        "            out.add(2 * x);\n        }\n        return out;\n    }\n}",
        "test": "public class Main {\n    public static void main(String[] args) {\n        Solution s = new Solution();\n"
        "        List<Boolean> correct = Arrays.asList(\n"
        "                s.twice(new ArrayList<>(Arrays.asList(2, 0))).equals(Arrays.asList(4, 0))\n        );\n"
        "        if (correct.contains(false)) {\n            throw new AssertionError();\n        }\n    }\n}",
        "example_test": "",
    },
    "javascript": {
        "task_id": "JavaScript/0",
        "prompt": "/* Twice each.\n  */\nconst twice = (xs) => {\n",
        "declaration": "\nconst twice = (xs) => {\n",
        "canonical_solution": "  return xs.map((x) => { return 2 * x });\n}\n\n",
        "test": "const testTwice = () => {\n  console.assert(\n    JSON.stringify(twice([2, 0])) === JSON.stringify([4, 0])\n"
        "  )\n}\n\ntestTwice()\n",
        "example_test": "const testTwice = () => {\n}\ntestTwice()\n",
    },
    "python": {
        "task_id": "Python/0",
        "prompt": "from typing import List\n\n\ndef twice(xs: List[int]) -> List[int]:\n    \"\"\" Twice each.\n    \"\"\"\n",
        "text": "    Twice each.",
        "declaration": "from typing import List\n\n\ndef twice(xs: List[int]) -> List[int]:\n",
        "canonical_solution": "    return [2 * x for x in xs]\n",
        "test": "\n\nMETADATA = {\n    'author': 'us',\n}\n\n\ndef check(twice):\n    assert twice([2, 0]) == [4, 0]\n\n"
        "check(twice)",
        "example_test": "def check(twice):\n    assert twice([2]) == [4]\ncheck(twice)\n",
    },
    "rust": {
        "task_id": "Rust/0",
        "prompt": "\n/*\nTwice each.\n\n*/\n",
        "declaration": "\nuse std::{cmp::{max, self}, collections::{HashSet, HashMap}};\nuse rand::Rng;\nuse regex::Regex;\n"
        "use md5;\nuse std::any::{Any, TypeId};\n\nfn twice(xs:Vec<i32>) -> Vec<i32>{\n",
        "canonical_solution": "\n    return xs.iter().map(|x| { 2 * x }).collect();\n\n}\n",
        "test": "\n#[cfg(test)]\nmod tests {\n    use super::*;\n\n    #[test]\n    fn test_twice() {\n"
        "        assert_eq!(twice(vec![2, 0]), vec![4, 0]);\n    }\n\n}\n",
        "example_test": "None",
    },
}  # fmt: skip
WHOLE: dict[str, str] = {
    "cpp": "#include <vector>\nstd::vector<int> twice(std::vector<int> xs) { for (auto& x : xs) x *= 2; return xs; }\n"
    "int main() { return 3; }",
    "go": "package main\n\nimport \"fmt\"\n\nfunc Twice(xs []int) []int {\n\tfor i := range xs {\n\t\txs[i] *= 2\n\t}\n\treturn xs\n}\n\n"
    "func main() { fmt.Println(Twice([]int{1})) }",
    "java": "import java.util.*;\npublic class Solution {\n public List<Integer> twice(List<Integer> xs) {\n"
    "  List<Integer> out = new ArrayList<>();\n  for (int x : xs) out.add(x + x);\n  return out;\n }\n"
    " public static void main(String[] args) { }\n}",
    "javascript": "function twice(xs) { return xs.map((x) => x + x); }\nconst assert = 1, console2 = console;\nconsole.log(twice([1]));",
    "python": "def twice(xs):\n    return [x + x for x in xs]\n",
    "rust": "fn twice(xs: Vec<i32>) -> Vec<i32> { xs.iter().map(|x| x + x).collect() }\nfn main() {}\n"
    "#[cfg(test)]\nmod tests { #[test] fn mine() { panic!(); } }",
}  # fmt: skip
"""The answer of a chat model: a whole program, with a `main` or tests of its own."""
