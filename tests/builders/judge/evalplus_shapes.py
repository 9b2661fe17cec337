"""Problems as EvalPlus publishes them, with a right and a wrong program each: one for each kind of input and oracle."""

from dataclasses import dataclass

from evalrun_data.formats.evalplus import parse_evalplus
from evalrun_data.records import CheckTest
from evalrun_data.rows import Row


@dataclass(frozen=True)
class Published:
    """A row of `MbppPlus.jsonl` or `HumanEvalPlus.jsonl`, and programs for it."""

    task: str
    shows: str
    reference: str
    base: list[object]
    plus: list[object]
    programs: tuple[str, str]
    """A right one, and a wrong one that the base inputs alone may not find."""
    atol: float = 0
    contract: str = ""
    """What EvalPlus asserts of inputs: never run here."""
    entry: str = "f"

    def test(self) -> CheckTest:
        humaneval = self.task.startswith("HumanEval/")
        head, _, body = self.reference.partition("\n")
        row = {
            "task_id": self.task,
            "prompt": f"{head}\n" if humaneval else '"""\nWhat is asked.\n"""\n',
            "entry_point": self.entry,
            "canonical_solution": f"{body}\n" if humaneval else f"\n{self.reference}\n",
            "contract": self.contract,
            "base_input": self.base,
            "plus_input": self.plus,
            "atol": self.atol,
        }
        truth = parse_evalplus(Row(row, "file", 1), None).ground_truth
        assert isinstance(truth, CheckTest)
        return truth


SETS = "def f(a, b): return tuple(set(a) & set(b))"
DISTANCE = "def f(a, b): return sum(abs(int(x) - int(y)) for x, y in zip(str(a), str(b)))"
SIEVE = "def f(t): return tuple(f(x) if isinstance(x, tuple) else x for x in t if isinstance(x, tuple) or not x % 2)"
SIEVED = (
    "def f(t):\n  out = []\n  for x in t:\n    if type(x) is tuple: out.append(f(x))\n"
    "    elif x % 2 == 0: out.append(x)\n  return tuple(out)"
)
SURFACE = "def f(b, s): return 2 * b * s + b ** 2"

PUBLISHED = (
    Published(
        "Mbpp/12",
        "lists",
        "def f(m): return sorted(m, key=sum)",
        [[[[2], [1]]]],
        [[[[1, 1], [1, 0]]], [[]]],
        ("def f(m): return sorted(m, key=lambda r: sum(r))", "def f(m): return sorted(m)[:2] or [[0]]"),
    ),
    Published(
        "Mbpp/116",
        "tuples",
        "def f(t): return int(''.join(map(str, t)))",
        [[[1, 2]]],
        [[[0, 3]], [[9]]],
        ("def f(t):\n  n = 0\n  for d in t: n = 10 * n + d\n  return n", "def f(t): return t[0] * 10 + t[-1]"),
    ),
    Published(
        "Mbpp/63",
        "lists of tuples",
        "def f(xs): return max(abs(a - b) for a, b in xs)",
        [[[[1, 4]]]],
        [[[[3, 5], [1, 7], [10, 3]]]],
        ("def f(xs): return max(map(lambda t: abs(t[0] - t[1]), xs))", "def f(xs): return abs(xs[0][0] - xs[0][1])"),
    ),
    Published(
        "Mbpp/75",
        "a list of tuples first",
        "def f(xs, k): return [t for t in xs if all(x % k == 0 for x in t)]",
        [[[[6, 24], [7, 9]], 6]],
        [[[[5, 10]], 5]],
        (
            "def f(xs, k): return [t for t in xs if not any(x % k for x in t)]",
            "def f(xs, k): return [list(t) for t in xs if all(x % k == 0 for x in t)]",
        ),
    ),
    Published(
        "Mbpp/106",
        "a tuple second",
        "def f(xs, t): return t + tuple(xs)",
        [[[5], [9, 10]]],
        [[[], []]],
        ("def f(xs, t): return (*t, *xs)", "def f(xs, t): return list(t) + xs"),
    ),
    Published(
        "Mbpp/115",
        "a list of sets",
        "def f(xs): return all(not x for x in xs)",
        [[[[1], [2]]]],
        [[[[]]], [[]]],
        ("def f(xs): return not any(xs)", "def f(xs): return len(xs) == 0"),
    ),
    Published(
        "Mbpp/124",
        "a float and a complex",
        "import cmath\ndef f(a, b): return cmath.phase(complex(a, 0) + b)",
        [["1", "1+2j"]],
        [["0", "1j"]],
        ("import cmath\ndef f(a, b): return cmath.phase(a + b)", "import cmath\ndef f(a, b): return abs(a + b)"),
    ),
    Published(
        "Mbpp/250",
        "a tuple first",
        "def f(t, x): return t.count(x)",
        [[[1, 2, 1], 1]],
        [[[], 0]],
        ("def f(t, x): return sum(y == x for y in t)", "def f(t, x): return int(x in t)"),
    ),
    Published(
        "Mbpp/259",
        "tuples of tuples",
        "def f(a, b): return tuple(tuple(map(max, x, y)) for x, y in zip(a, b))",
        [[[[1, 3]], [[6, 2]]]],
        [[[[0, 0], [1, 1]], [[2, -1], [1, 3]]]],
        (
            "def f(a, b): return tuple((max(x[0], y[0]), max(x[1], y[1])) for x, y in zip(a, b))",
            "def f(a, b): return [[max(x, y) for x, y in zip(p, q)] for p, q in zip(a, b)]",
        ),
    ),
    Published(
        "Mbpp/278",
        "tuples or values",
        "def f(t):\n  n = 0\n  for x in t:\n    if isinstance(x, tuple): break\n    n += 1\n  return n",
        [[[1, [2], 3]]],
        [[[1, 2]]],
        (
            "def f(t): return next((i for i, x in enumerate(t) if type(x) is tuple), len(t))",
            "def f(t): return next((i for i, x in enumerate(t) if type(x) is list), len(t))",
        ),
    ),
    Published(
        "Mbpp/722",
        "a dict of tuples",
        "def f(d, h, w): return {k: s for k, s in d.items() if s[0] >= h and s[1] >= w}",
        [[{"A": [6.2, 70], "B": [5.9, 65]}, 6.0, 70]],
        [[{}, 1, 1]],
        (
            "def f(d, h, w): return dict((k, s) for k, s in d.items() if s[0] >= h and s[1] >= w)",
            "def f(d, h, w): return {k: list(s) for k, s in d.items() if s[0] >= h and s[1] >= w}",
        ),
    ),
    Published(
        "Mbpp/252",
        "complex numbers",
        "import cmath\ndef f(z): return cmath.polar(z)",
        [["1"]],
        [["4+5j"]],
        ("def f(z):\n  import math\n  return (abs(z), math.atan2(z.imag, z.real))", "def f(z): return (abs(z), 0.0)"),
    ),
    Published(
        "Mbpp/580",
        "tuples all the way",
        SIEVE,
        [[[4, 5, [7, 6]]]],
        [[[[[2]]]]],
        (SIEVED, "def f(t): return tuple(x for x in t if isinstance(x, tuple) or x % 2 == 0)"),
    ),
    Published(
        "Mbpp/2",
        "a set as any collection",
        SETS,
        [[[3, 4], [4, 5]]],
        [[[1, 2], [1, 2]]],
        ("def f(a, b): return [x for x in b if x in a][::-1]", "def f(a, b): return [x for x in b if x in a][:1]"),
    ),
    Published(
        "Mbpp/140",
        "a set of what tuples hold",
        "def f(xs): return list(set(x for t in xs for x in t))",
        [[[[3, 4], [4]]]],
        [[[[1, 3], [2]]]],
        ("def f(xs): return sorted({x for t in xs for x in t})", "def f(xs): return [xs[0][0], xs[-1][-1]]"),
    ),
    Published(
        "Mbpp/902",
        "found or not",
        "import re\ndef check_str(s): return re.search('a', s)",
        [["a"], ["b"]],
        [["ba"]],
        ("def check_str(s): return 'a' in s", "def check_str(s): return s[:1] == 'a'"),
        entry="check_str",
    ),
    Published(
        "Mbpp/295",
        "zero for what is none",
        "def f(n): return sum(d for d in range(1, n) if n % d == 0)",
        [[8]],
        [[12], [7]],
        ("def f(n): return sum(d for d in range(1, n // 2 + 1) if n % d == 0)", "def f(n): return n - 1"),
    ),
    Published(
        "Mbpp/558",
        "digits from either end",
        DISTANCE,
        [[1, 2]],
        [[23, 56]],
        (
            "def f(a, b): return sum(abs(int(x) - int(y)) for x, y in zip(str(a).zfill(99), str(b).zfill(99)))",
            "def f(a, b): return abs(a - b)",
        ),
    ),
    Published(
        "Mbpp/581",
        "either surface",
        SURFACE,
        [[3, 4]],
        [[4, 5]],
        ("def f(b, s): return b * b + 2 * b * s", "def f(b, s): return b * b * s"),
    ),
    Published(
        "Mbpp/98",
        "floats within 1e-6",
        "def f(xs): return sum(xs) / len(xs)",
        [[[1, 2]]],
        [[[1.5, 2, 7]], [[1, 1, 2]]],
        ("def f(xs): return sum(xs) / len(xs) + 1e-8", "def f(xs): return round(sum(xs) / len(xs), 3)"),
    ),
    Published(
        "Mbpp/80",
        "a tolerance of its own",
        "def f(n): return n * (n + 1) * (n + 2) / 6",
        [[5]],
        [[6], [10**3]],
        ("def f(n): return n * (n + 1) * (n + 2) / 6 + 1e-5", "def f(n): return n * (n + 1) * (n + 2) / 6 + 1e-2"),
        atol=1e-4,
    ),
    Published(
        "Mbpp/19",
        "a contract",
        "def f(xs): return len(xs) != len(set(xs))",
        [[[1, 1]]],
        [[[1, 2]]],
        ("def f(xs): return any(xs.count(x) > 1 for x in xs)", "def f(xs): return True"),
        contract="assert isinstance(xs, list), 'invalid inputs'",
    ),
    Published(
        "HumanEval/32",
        "any root",
        "def f(xs):\n    return -xs[0] / xs[1]",
        [[[1, 2]]],
        [[[-6, 11]]],
        ("def f(xs): return -xs[0] / xs[1] + 1e-7", "def f(xs): return -0.5"),
        atol=1e-4,
    ),
    Published(
        "HumanEval/4",
        "arguments that are changed",
        "def f(xs):\n    return [x * 2 for x in xs]",
        [[[1]]],
        [[[], [2]][:1]],
        (
            "def f(xs):\n  out = []\n  while xs: out.append(2 * xs.pop(0))\n  return out",
            "def f(xs):\n  for i in range(len(xs)): xs[i] *= 2\n  return tuple(xs)",
        ),
    ),
)
