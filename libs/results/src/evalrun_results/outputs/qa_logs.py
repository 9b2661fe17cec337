"""The QA logs: a record per sampled result, for people to read, and a summary of the sampling. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from evalrun_proto.judge.v1 import judge_pb2 as pb
from evalrun_results.outputs.stratified_sample import API_ERROR, DatasetSample, StratifiedSampler
from evalrun_results.samples import TEST_STATUS_NAMES, JsonObject, JsonValue, SampleResult

SEED: Final = 20_240_229
KEPT_CHARACTERS: Final = 4096
"""Maximum characters of each text of a ground truth: a contest's tests reach tens of MB."""

_COUNTED_AS: Final = {
    "success": ("passed",),
    "wrong_answer": ("wrong_answer",),
    "timeout": ("timeout",),
    "assumed_timeout": ("timeout",),
    "runtime_error": ("runtime_error",),
    "memory_limit": ("runtime_error", "memory_limit"),
    "compile_error": ("syntax_error",),
    "compile_timeout": ("syntax_error",),
    "api_error": ("api_error",),
}
_BREAKDOWN: Final = (
    "passed", "wrong_answer", "timeout", "runtime_error", "syntax_error", "memory_limit", "empty_output", "api_error",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class QaOptions:
    """Facts about the run for the records, and the seed of the sample."""

    temperature: float | None
    """None if unknown, because the completions were made elsewhere."""
    max_new_tokens: int | None
    seed: int = SEED


@dataclass(slots=True)
class QaLogs:
    """Collects the records of sampled results.

    Samples come in any order, but the turns of a sample follow each other. Only the last answer of a sample may be
    chosen; the chat that led to it shows the earlier ones.
    """

    options: QaOptions
    _last: SampleResult | None = None
    _sampler: StratifiedSampler[JsonObject] = field(init=False)

    def __post_init__(self) -> None:
        self._sampler = StratifiedSampler(self.options.seed)

    def add(self, result: SampleResult) -> None:
        """Offer a result. Noise-floor repeats are not sampled."""
        if result.repeat == 0:
            if result.turn == 0:
                self._offer_last()
            self._last = result

    def _offer_last(self) -> None:
        result = self._last
        if result is not None:
            key = (result.problem_id, result.sample)
            self._sampler.offer(result.dataset, result.final_status, key, lambda: qa_record(result, self.options))

    def finish(self) -> tuple[dict[str, list[JsonObject]], JsonObject]:
        """Return the records of each dataset, and the summary."""
        self._offer_last()
        self._last = None
        samples = self._sampler.finish()
        records = {
            name: [record for stratum in sample.taken.values() for record in sorted(stratum, key=_place)]
            for name, sample in samples.items()
        }
        summary: JsonObject = {
            "schema": 1,
            "seed": self.options.seed,
            "total": sum(len(lines) for lines in records.values()),
            "datasets": {name: _summarize_sample(sample) for name, sample in samples.items()},
        }
        return records, summary


def qa_record(result: SampleResult, options: QaOptions) -> JsonObject:
    """Return the record of a result (docs/outputs.md), with `sample` and `not_judged_reason` beside it."""
    return {
        "problem_id": result.problem_id,
        "dataset": result.dataset,
        "sample": result.sample,
        "turn": result.turn,
        "prompt": result.prompt,
        "messages": [dict(message) for message in result.messages],
        "response": result.response,
        "ground_truth": _shorten_texts(result.ground_truth),
        "pass_ratio": result.pass_ratio,
        "accepted": result.accepted,
        "final_status": result.final_status,
        "not_judged_reason": result.not_judged_reason,
        "output_tokens": result.output_tokens,
        "gen_time": result.gen_seconds,
        "total_judge_time": result.total_judge_time,
        "error_breakdown": error_breakdown(result.verdict),
        "execution_output": {"first_failed_case": first_failed_case(result.verdict)},
        "metadata": {
            "model": result.model,
            "temperature": options.temperature,
            "max_new_tokens": options.max_new_tokens,
            "timestamp": None
            if result.judged_at is None
            else datetime.fromtimestamp(result.judged_at, UTC).isoformat(),
        },
    }


def error_breakdown(verdict: pb.Verdict | None) -> JsonObject:
    """Count the tests by their outcome.

    `memory_limit` are also in `runtime_error`; without a program, every test is in `empty_output` and in
    `syntax_error`. The other counts add up to the number of tests.
    """
    counts = dict.fromkeys(_BREAKDOWN, 0)
    if verdict is not None:
        empty = verdict.judged and verdict.final_status == pb.FINAL_STATUS_EMPTY_OUTPUT
        for test in verdict.tests:
            names = ("empty_output", "syntax_error") if empty else _COUNTED_AS[TEST_STATUS_NAMES[test.status]]
            for name in names:
                counts[name] += 1
    return dict(counts)


def first_failed_case(verdict: pb.Verdict | None) -> JsonObject | None:
    """Return the first test that the program failed, or else the first test that could not be judged."""
    tests = [] if verdict is None else [test for test in verdict.tests if test.status != pb.TEST_STATUS_SUCCESS]
    tests.sort(key=lambda test: test.status == pb.TEST_STATUS_API_ERROR)
    if not tests:
        return None
    test = tests[0]
    return {
        "case_index": test.case_index,
        "status": TEST_STATUS_NAMES[test.status],
        "input": test.input.text,
        "expected": test.expected_output.text,
        "actual": test.stdout.text,
        "stderr": test.stderr.text or test.compile_stderr.text,
        "reason": test.reason,
    }


def _place(record: JsonObject) -> tuple[str, int]:
    return str(record["problem_id"]), int(str(record["sample"]))


def _shorten_texts(value: object) -> JsonValue:
    """Copy plain values, with long texts cut and marked."""
    match value:
        case str():
            cut = len(value) - KEPT_CHARACTERS
            return value if cut <= 0 else f"{value[:KEPT_CHARACTERS]}... [{cut} more characters]"
        case Mapping():
            return {str(key): _shorten_texts(item) for key, item in value.items()}
        case list() | tuple():
            return [_shorten_texts(item) for item in value]
        case None | bool() | int() | float():
            return value
    raise TypeError(f"a ground truth holds a {type(value).__name__}: only JSON's types can be written")


def _summarize_sample(sample: DatasetSample[JsonObject]) -> JsonObject:
    taken = {stratum: len(records) for stratum, records in sample.taken.items()}
    short = {name: quota - taken[name] for name, quota in sample.quotas.items() if taken[name] < quota}
    # This is an extra, not a quota that other strata fill.
    short.pop(API_ERROR, None)
    notes: list[JsonValue] = []
    for stratum, quota in sample.quotas.items():
        if stratum in short:
            notes.append(f"{stratum}: {sample.available[stratum]} of {quota} wanted; its places went to the others")
        elif taken[stratum] > quota:
            notes.append(f"{stratum}: {taken[stratum]} instead of {quota}, for strata that had too few")
    missing = sum(quota for name, quota in sample.quotas.items() if name != API_ERROR) - sum(
        count for name, count in taken.items() if name != API_ERROR
    )
    if missing:
        notes.append(f"{missing} places stayed empty: the dataset has no more results")
    return {
        "total": sum(taken.values()),
        "strata": {
            name: {"wanted": quota, "available": sample.available[name], "taken": taken[name]}
            for name, quota in sample.quotas.items()
        },
        "notes": notes,
    }
