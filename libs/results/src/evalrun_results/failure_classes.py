r"""Sorts failed completions into classes that people can act on: empty, cut, literal

, a forgotten import. Pure.

A class is a count for people: it changes no verdict and no metric.
"""

import re
from bisect import insort
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from evalrun_proto.judge.v1 import judge_pb2 as pb
from evalrun_results.run_warnings import find_missing_package
from evalrun_results.samples import JsonValue, SampleResult

EXAMPLES: Final = 5
"""Maximum examples per class: the first by problem and sample, whatever the stream's order."""
MIN_ESCAPES: Final = 2
"""Literal line breaks from which a program was escaped; a single one may stand in a text that it prints."""

_UNDEFINED: Final = re.compile(r"NameError: name '(\w+)' is not defined")
_OFTEN_IMPORTED: Final = frozenset({
    "List", "Dict", "Tuple", "Set", "Optional", "Any", "Union", "Callable", "Iterable", "math", "re", "os", "sys",
    "itertools", "functools", "collections", "heapq", "bisect", "random", "string", "copy", "json", "time",
    "datetime", "defaultdict", "Counter", "deque", "namedtuple", "lru_cache", "reduce", "combinations",
    "permutations", "product", "accumulate", "heappush", "heappop", "heapify", "gcd", "sqrt", "ceil", "floor",
    "inf", "pi", "np", "pd",
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class FailureClass:
    """Completions that failed for the same recognizable reason."""

    name: str
    says: str
    """Text about the completions, after their number."""
    advice: str
    holds: Callable[[SampleResult], bool]


def _is_cut(result: SampleResult) -> bool:
    guardrails = () if result.verdict is None else result.verdict.guardrails[:]
    return result.finish_reason == "length" or pb.GUARDRAIL_TRUNCATED_GENERATION in guardrails


def _is_escaped(result: SampleResult) -> bool:
    if result.final_status not in {"syntax_error", "empty_output"}:
        return False
    code = (result.verdict.code if result.verdict is not None else "") or result.response
    return code.count("\\n") >= MIN_ESCAPES and code.strip().count("\n") <= 1


def _lacks_package(result: SampleResult) -> bool:
    return result.verdict is not None and find_missing_package(result.verdict) is not None


def _lacks_import(result: SampleResult) -> bool:
    if result.final_status not in {"runtime_error", "wrong_answer"}:
        return False
    found = (_UNDEFINED.search(text) for test in result.tests for text in (test.stderr.text, test.reason))
    return any(match is not None and match[1] in _OFTEN_IMPORTED for match in found)


FAILURE_CLASSES: Final = (
    FailureClass(
        "empty",
        "empty",
        "look whether the text stands elsewhere in what the server or the file holds (reasoning_content, tool_calls)",
        lambda result: result.final_status == "empty_output" and not result.response.strip(),
    ),
    FailureClass("cut", "cut at the token limit", "raise maxNewTokens", _is_cut),
    FailureClass(
        "escaped",
        r"with literal \n in place of line breaks",
        "unescape the answers: they were encoded twice",
        _is_escaped,
    ),
    FailureClass(
        "prose",
        "without a program",
        "ask for a code block in the prompt, or name the mode of answers that are bare code",
        lambda result: result.final_status == "empty_output",
    ),
    FailureClass(
        "package", "importing a package that the sandbox lacks", "give it the package: --packages DIR", _lacks_package
    ),
    FailureClass(
        "import", "using a module that they do not import", "nothing: the model forgot the import", _lacks_import
    ),
)
"""The first class that applies to a completion counts."""


@dataclass(slots=True)
class _Found:
    answers: int = 0
    examples: list[tuple[str, int]] = field(default_factory=list)


@dataclass(slots=True)
class FailureLog:
    """Collects failures from results."""

    _datasets: dict[str, dict[str, _Found]] = field(default_factory=dict)

    def add(self, result: SampleResult) -> None:
        """Add a result. Accepted completions, noise-floor repeats and later turns are ignored."""
        if not result.judged or result.accepted or result.repeat or result.turn:
            return
        named = next((each.name for each in FAILURE_CLASSES if each.holds(result)), None)
        if named is None:
            return
        found = self._datasets.setdefault(result.dataset, {}).setdefault(named, _Found())
        found.answers += 1
        insort(found.examples, (result.problem_id, result.sample))
        del found.examples[EXAMPLES:]

    def as_json(self, dataset: str) -> list[JsonValue]:
        """Return a dataset's `failures` of summary.json, the most frequent class first."""
        found = self._datasets.get(dataset, {})
        classes = [each for each in FAILURE_CLASSES if each.name in found]
        return [
            {
                "class": each.name,
                "answers": found[each.name].answers,
                "says": each.says,
                "advice": each.advice,
                "examples": [{"problem_id": name, "sample": sample} for name, sample in found[each.name].examples],
            }
            for each in sorted(classes, key=lambda each: -found[each.name].answers)
        ]
