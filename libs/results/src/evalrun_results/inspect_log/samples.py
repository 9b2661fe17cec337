"""The samples of a log: one per completion, from its row in the run's outputs. Pure.

The fields follow `inspect log schema`. Texts of tests are left out unless they are asked for: a log is made to be
shown.
"""

import hashlib
import json
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from evalrun_results.samples import JsonObject, JsonValue

Row = Mapping[str, Any]
"""A row of `results.parquet` (docs/outputs.md)."""

ACCEPTED: Final = "accepted"
PASS_RATIO: Final = "pass_ratio"  # noqa: S105 - a name, no password
GRADE: Final = "score"
"""Names of the scores: the verdict as C or I, the share of passed tests, and a grader's score."""

COLUMNS: Final = (
    "dataset", "problem_id", "sample", "turn", "repeat", "judged", "accepted", "pass_ratio", "score", "final_status",
    "not_judged_reason", "difficulty", "data_source", "model", "mode", "language", "response", "code", "extraction",
    "guardrails", "containment_level", "forgeable", "forgeable_cause", "cached", "finish_reason", "prompt_tokens",
    "output_tokens", "gen_time", "total_judge_time", "queue_time", "started_at", "judged_at", "tests",
)  # fmt: skip
"""Columns of a row that a sample is made of."""

_KEPT: Final = (
    "dataset", "problem_id", "sample", "final_status", "pass_ratio", "not_judged_reason", "difficulty", "data_source",
    "mode", "language", "extraction", "guardrails", "containment_level", "forgeable", "forgeable_cause", "cached",
    "finish_reason", "prompt_tokens", "output_tokens", "gen_time", "total_judge_time", "queue_time",
)  # fmt: skip
"""Columns that become metadata under their own names."""

_TEST_TEXTS: Final = ("reason", "input", "expected_output", "stdout", "stderr", "compile_stderr")
_STOP_REASONS: Final = {"stop": "stop", "length": "max_tokens", "content_filter": "content_filter"}
_NOT_IN_SUMMARIES: Final = frozenset({"failed_test", "later_turns"})
_INPUT_CHARACTERS: Final = 5120
_TEXT_CHARACTERS: Final = 1024
"""Length to which Inspect cuts the texts of a summary."""
_ID_CHARACTERS: Final = 22
"""Length of Inspect's own identifiers."""


@dataclass(frozen=True, slots=True)
class AskedProblem:
    """What the run's data contains about a problem."""

    prompt: str = ""
    """The prompt as published, for completions that were made elsewhere."""
    messages: tuple[Mapping[str, str], ...] = ()
    """The chat as it was sent; empty for a completion prompt."""
    sent: str = ""
    """The prompt as it was sent, as one text."""
    difficulty: str = ""
    tags: tuple[str, ...] = ()
    reference: str = ""
    """The reference of a grader; empty if tests decide, or if it is withheld."""


def stable_id(*parts: object) -> str:
    """Return an identifier that depends only on the parts."""
    return hashlib.sha256(json.dumps(parts, default=str).encode()).hexdigest()[:_ID_CHARACTERS]


def make_sample(
    turns: Sequence[Row], asked: AskedProblem, run_id: str, *, with_tests: bool, has_ended: bool
) -> JsonObject:
    """Return the sample of a completion.

    Args:
        turns: the rows of a completion, its first turn first. The first turn is what `pass@1` counts.
        asked: of the problem.
        run_id: of the log.
        with_tests: whether the texts of the failed test go into the log.
        has_ended: whether the run has ended, so that a missing answer or verdict will not come.
    """
    row, later = turns[0], turns[1:]
    epoch = (row["sample"] or 0) + 1
    messages, output = _messages(row, asked), _output(row)
    usage = output.get("usage")
    sample: dict[str, JsonValue] = {
        # The name of a zip's member ends at a NUL.
        "id": row["problem_id"].replace("\0", "\ufffd"),
        "epoch": epoch,
        "input": messages[0]["content"] if _is_one_question(messages) else [*messages],
        "target": asked.reference,
        "messages": [*messages, _answer(row)],
        "output": output,
        "scores": _scores(row),
        "metadata": _metadata(row, later, asked, with_tests=with_tests),
        "store": {},
        "events": [],
        "model_usage": {row["model"] or "": usage} if usage else {},
        "role_usage": {},
        "attachments": {},
        "uuid": stable_id(run_id, row["dataset"], row["problem_id"], epoch),
        **_times(row),
    }
    was_given = bool(row["response"]) or row["started_at"] is not None
    if has_ended and not row["judged"] and not was_given:
        said = row["not_judged_reason"] or "no answer"
        sample["error"] = {"message": said, "traceback": said, "traceback_ansi": said}
    return sample


def make_summary(sample: JsonObject) -> JsonObject:
    """Return a sample's entry in lists of samples, with long texts cut as Inspect cuts them."""
    copied = ("id", "epoch", "model_usage", "role_usage", "started_at", "completed_at", "total_time", "working_time",
              "uuid")  # fmt: skip
    found: JsonObject = {name: sample[name] for name in copied if name in sample}
    given, metadata, scores, messages = sample["input"], sample["metadata"], sample["scores"], sample["messages"]
    found["input"] = _cut_input(given)
    found["target"] = _cut(str(sample["target"]))
    found["completed"] = True
    if isinstance(metadata, dict):
        found["metadata"] = {name: _thin(value) for name, value in metadata.items() if name not in _NOT_IN_SUMMARIES}
    if isinstance(scores, dict):
        found["scores"] = {
            name: {field: value if field == "value" else _thin(value) for field, value in score.items()}
            for name, score in scores.items()
            if isinstance(score, dict)
        }
    if isinstance(messages, list):
        found["message_count"] = len(messages)
    if isinstance(error := sample.get("error"), dict):
        found["error"] = error["message"]
    return found


def _messages(row: Row, asked: AskedProblem) -> list[JsonObject]:
    is_made_elsewhere = row["started_at"] is None
    if asked.messages and not is_made_elsewhere:
        return [{"role": each["role"], "content": each["content"]} for each in asked.messages]
    return [{"role": "user", "content": asked.prompt if is_made_elsewhere else asked.sent}]


def _is_one_question(messages: Sequence[JsonObject]) -> bool:
    return len(messages) == 1 and messages[0]["role"] == "user"


def _answer(row: Row) -> dict[str, JsonValue]:
    return {"role": "assistant", "content": row["response"], "source": "generate", "model": row["model"] or ""}


def _output(row: Row) -> dict[str, JsonValue]:
    reason = _STOP_REASONS.get(row["finish_reason"] or "", "unknown")
    output: dict[str, JsonValue] = {
        "model": row["model"] or "",
        "choices": [{"message": _answer(row), "stop_reason": reason}],
        "completion": row["response"],
    }
    given, made = row["prompt_tokens"], row["output_tokens"]
    # Inspect has no value for "unknown": a 0 would be a count.
    if given is not None and made is not None:
        output["usage"] = {"input_tokens": given, "output_tokens": made, "total_tokens": given + made}
    if row["gen_time"] is not None:
        output["time"] = row["gen_time"]
    return output


def _scores(row: Row) -> dict[str, JsonValue]:
    """Return the scores; none for an answer that was not judged, so that nothing counts it as wrong."""
    if not row["judged"] or row["accepted"] is None:
        return {}
    said = {"answer": row["code"] or "", "explanation": _explanation(row)}
    scores: dict[str, JsonValue] = {ACCEPTED: {"value": "C" if row["accepted"] else "I", **said}}
    for name in (PASS_RATIO, GRADE):
        if row[name] is not None:
            scores[name] = {"value": row[name]}
    return scores


def _explanation(row: Row) -> str:
    tests = row["tests"] or ()
    failed = _first_failed(row)
    if failed is None:
        return str(row["final_status"])
    return f"{row['final_status']}: test {(failed['case_index'] or 0) + 1} of {len(tests)} ended as {failed['status']}"


def _first_failed(row: Row) -> Row | None:
    failed = [test for test in row["tests"] or () if test["status"] != "success"]
    return min(failed, key=lambda test: test["case_index"] or 0, default=None)


def _metadata(row: Row, later: Sequence[Row], asked: AskedProblem, *, with_tests: bool) -> dict[str, JsonValue]:
    found: dict[str, JsonValue] = {name: row[name] for name in _KEPT if row[name] not in (None, "", [])}
    if difficulty := row["difficulty"] or asked.difficulty:
        found["difficulty"] = difficulty
    if asked.tags:
        found["tags"] = list(asked.tags)
    if tests := row["tests"]:
        found["tests"] = len(tests)
        found["tests_passed"] = sum(test["status"] == "success" for test in tests)
    if (failed := _first_failed(row)) is not None:
        texts = {name: failed[name] for name in _TEST_TEXTS if with_tests and failed[name]}
        found["failed_test"] = {"case_index": failed["case_index"] or 0, "status": failed["status"], **texts}
    if later:
        found["later_turns"] = [
            {name: turn[name] for name in ("turn", "response", "judged", "accepted", "final_status")} for turn in later
        ]
    return found


def _times(row: Row) -> dict[str, JsonValue]:
    started, judged = row["started_at"], row["judged_at"]
    found: dict[str, JsonValue] = {}
    if started is not None:
        found["started_at"] = utc_time(started)
    if judged is not None:
        found["completed_at"] = utc_time(judged)
    if started is not None and judged is not None:
        found["total_time"] = max(0.0, judged - started)
    if row["gen_time"] is not None:
        found["working_time"] = row["gen_time"]
    return found


def utc_time(seconds: float) -> str:
    """Return a time as logs have it. `seconds`: Unix."""
    return datetime.fromtimestamp(seconds, UTC).isoformat()


def _cut_input(given: JsonValue) -> JsonValue:
    if not isinstance(given, list):
        return _cut(str(given))
    return [{**each, "content": _cut(str(each["content"]))} for each in given if isinstance(each, dict)]


def _cut(text: str) -> str:
    return text if len(text) <= _INPUT_CHARACTERS else text[:_INPUT_CHARACTERS] + "...\n(content truncated)"


def _thin(value: JsonValue) -> JsonValue:
    if not isinstance(value, str):
        return value
    return textwrap.shorten(value[: 8 * _TEXT_CHARACTERS], width=_TEXT_CHARACTERS, placeholder="...")
