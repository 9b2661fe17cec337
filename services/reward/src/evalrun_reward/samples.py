"""Finds the tests of a sample: those of a known problem, or those that the sample brings."""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from evalrun_api.v1alpha1 import Comparator, Dataset, TestLimits
from evalrun_client.judge_request import Answer, judge_request
from evalrun_data.formats.record import parse_language
from evalrun_data.formats.verl import parse_verl
from evalrun_data.readers import load_problem_files
from evalrun_data.records import Problem, ServerTests
from evalrun_data.rows import Row
from evalrun_proto.judge.v1 import judge_pb2
from evalrun_registry.limits import DEFAULT_LIMITS, PartialLimits
from evalrun_reward.judge_calls import ProblemRequest
from evalrun_reward.wire import Sample
from evalrun_runtime.exits import BadInputError
from evalrun_runtime.recently_used import RecentlyUsed
from evalrun_runtime.unicode_text import replace_surrogates

INLINE_LIMITS = PartialLimits(time_seconds=DEFAULT_LIMITS.time_seconds)
"""Limits of tests that a sample brings without limits: the same as in verl's client of SandboxFusion (0.9.1)."""
UNSAID_SOURCE = "unknown"
"""Data source of a sample that names none; verl's rows always name theirs."""
_ENTRY_BYTES = 2048
"""Bytes of a cache entry besides its tests."""


def make_judging(comparator: str | None, time_limit: float | None) -> Dataset:
    """Return the judging options in the form of an EvalRun's dataset."""
    return Dataset.model_validate(
        {
            "name": "rewards",
            # The source is never read, but the field is required.
            "source": "builtin:demo",
            **({} if comparator is None else {"comparator": Comparator.model_validate({"name": comparator})}),
            **(
                {}
                if time_limit is None
                else {"limits": TestLimits.model_validate({"timeMilliseconds": round(1000 * time_limit)})}
            ),
        }
    )


class SampleTests:
    """Finds or parses the tests of samples; those of a group of answers are parsed once.

    Args:
        problems: the problems that samples may name.
        judging: comparator and limits for problems that have none. Without limits in it, tests that a sample brings get
            `INLINE_LIMITS`, even a contest's: a loop in each of 1,000 answers must not take 30 s per test.
        cache_bytes: memory for tests.
    """

    def __init__(self, problems: Iterable[Problem], judging: Dataset, cache_bytes: int) -> None:
        self._known: dict[tuple[str, str], Problem] = {problem.key: problem for problem in problems}
        self._judging = judging
        self._parsed: RecentlyUsed[bytes, ProblemRequest] = RecentlyUsed(cache_bytes, lambda tests: tests.size)

    def of(self, sample: Sample, number: int) -> ProblemRequest:
        """Return the tests of a sample.

        Args:
            sample: a sample of a request.
            number: the sample's index in the request, for messages.

        Raises:
            BadInputError: the sample names no known problem, or its tests cannot be used.
        """
        key = _make_key(sample)
        found = self._parsed.get(key)
        if found is None:
            found = self.make_problem_tests(self.find_problem(sample, number))
            self._parsed.put(key, found)
        return found

    @property
    def judging(self) -> Dataset:
        """Rules by which samples are judged."""
        return self._judging

    def find_problem(self, sample: Sample, number: int) -> Problem:
        """Return the problem that a sample names or brings; arguments and errors as of `of`."""
        row = Row({}, "samples", number, "sample")
        if sample.problem_id:
            return self._find(sample.dataset, sample.problem_id, row)
        truth = read_ground_truth(sample, number)
        if truth is None:
            raise row.error("it names no problem_id and holds no ground_truth: write one of the two")
        if isinstance(truth, dict) and "problem_id" in truth:
            return self._find(str(truth.get("dataset") or sample.dataset), str(truth["problem_id"]), row)
        values: dict[str, object] = {
            "data_source": sample.data_source or sample.dataset or UNSAID_SOURCE,
            "prompt": sample.prompt,
            "reward_model": {"ground_truth": truth},
            "language": sample.language or None,
        }
        problem = parse_verl(row.replace_fields(**values), None)
        if self._judging.limits is None:
            return replace(problem, limits=problem.limits.or_else(INLINE_LIMITS))
        return problem

    def _find(self, dataset: str, problem_id: str, row: Row) -> Problem:
        if dataset:
            found = [problem for problem in (self._known.get((dataset, problem_id)),) if problem is not None]
        else:
            found = [problem for (_, known), problem in self._known.items() if known == problem_id]
        if len(found) == 1:
            return found[0]
        if found:
            names = ", ".join(problem.dataset for problem in found)
            raise row.error(f"problem '{problem_id}' is in several datasets ({names}): name its dataset")
        where = f" of dataset '{dataset}'" if dataset else ""
        raise row.error(f"unknown problem '{problem_id}'{where}: name its file with --problems, or send its tests")

    def make_problem_tests(self, problem: Problem) -> ProblemRequest:
        """Return a problem's tests. Raises BadInputError if it has none of its own."""
        if isinstance(problem.ground_truth, ServerTests):
            raise BadInputError(
                f"problem '{problem.problem_id}' has no tests of its own: a SandboxFusion server has them"
            )
        return tests_of_request(judge_request("", self._judging, problem, Answer("")))


def tests_of_request(whole: judge_pb2.JudgeRequest) -> ProblemRequest:
    """Return the tests of a request without an answer."""
    named = None
    if whole.suite_digest:
        named = judge_pb2.JudgeRequest()
        named.CopyFrom(whole)
        named.ClearField("stdio")
    return ProblemRequest(whole, named, whole.ByteSize() + _ENTRY_BYTES)


def make_submission(sample: Sample, number: int) -> judge_pb2.Submission:
    """Return the submission of a completion. Raises BadInputError if its language is unknown."""
    submission = judge_pb2.Submission(text=replace_surrogates(sample.response), truncated=sample.truncated)
    if sample.language:
        submission.language = parse_language(Row({"language": sample.language}, "samples", number, "sample"))
    return submission


def load_known(sources: Sequence[str]) -> list[Problem]:
    """Read the problems that samples may name. Raises BadInputError."""
    return load_problem_files(list(dict.fromkeys(sources))) if sources else []


def _raw(sample: Sample) -> bytes:
    return b"" if sample.ground_truth is msgspec.UNSET else bytes(sample.ground_truth)


def read_ground_truth(sample: Sample, number: int, *, parsed: bool = True) -> Any:  # noqa: ANN401 - JSON
    """Return a sample's ground truth, or None. Raises BadInputError if it is malformed.

    Args:
        sample: a sample of a request.
        number: the sample's index in the request, for messages.
        parsed: whether a text that holds a JSON object is parsed too.
    """
    row = Row({}, "samples", number, "sample")
    raw = _raw(sample)
    if not raw:
        return None
    try:
        value = msgspec.json.decode(raw)
    # The request's own decoder did not parse this field.
    except (msgspec.DecodeError, RecursionError) as error:
        raise row.error(f"field 'ground_truth' cannot be read: {error}") from error
    if not parsed:
        return value
    if isinstance(value, str) and value.lstrip().startswith("{"):
        try:
            return msgspec.json.decode(value)
        except (msgspec.DecodeError, RecursionError) as error:
            raise row.error(f"field 'ground_truth' is neither an object nor JSON: {error}") from error
    return value


def _make_key(sample: Sample) -> bytes:
    digest = hashlib.sha256(_raw(sample))
    for text in (sample.dataset, sample.problem_id, sample.data_source, sample.prompt, sample.language):
        data = text.encode("utf-8", "surrogatepass")
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.digest()
