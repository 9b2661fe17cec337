"""Converts logs of Inspect (inspect-ai) into our rows. A row of a log is a sample with its completion.

A log in JSON is read as it is. The format of `.eval` files belongs to the package, which is an extra: see
docs/decisions/0016-inspect-logs-by-their-package.md.
"""

import json
import zipfile
from collections.abc import Iterator
from typing import IO, Any, Final

from evalrun_data.rows import Row, describe_kind
from evalrun_runtime.distribution import describe_install
from evalrun_runtime.exits import BadInputError

EVAL_MAGIC: Final = b"PK\x03\x04"
"""First bytes of a `.eval` file, which is a zip."""

_CUT: Final = ("max_tokens", "model_length")
"""Inspect's stop reasons for a completion that reached a limit of tokens."""


def is_log(row: Row) -> bool:
    """Return whether a row is a whole log."""
    return row.has("eval") and row.has("status") and "samples" in row.values


def read_eval_file(stream: IO[bytes], source: str) -> Row:
    """Return a `.eval` file as the row that the same log in JSON is.

    Raises:
        BadInputError: the package is not installed, or it cannot read the file.
    """
    try:
        from inspect_ai.log import read_eval_log
    except ImportError as error:
        raise BadInputError(
            f"{source}: is a zip; where it is a log of Inspect (.eval), reading it takes the package inspect-ai: "
            f"{describe_install('inspect')}, or convert the log with Inspect's own command: "
            "inspect log convert --to json"
        ) from error
    try:
        log: Any = read_eval_log(stream, resolve_attachments=True)
        values = json.loads(log.model_dump_json(include={"version", "status", "eval", "samples"}))
    # Schema errors are ValueErrors.
    except (ValueError, KeyError, OSError, EOFError, zipfile.BadZipFile) as error:
        first = (str(error).splitlines() or [type(error).__name__])[0]
        raise BadInputError(f"{source}: inspect-ai cannot read it as a log: {first[:200]}") from error
    return Row(values, source, 1)


def log_rows(row: Row) -> Iterator[Row]:
    """Yield a row of our form for each sample of a log.

    Raises:
        BadInputError: a sample has no answer, because the log stops before it or its model failed.
    """
    samples = row.values["samples"]
    if not isinstance(samples, list) or not samples:
        raise row.error(
            "the log has no samples: take one that was written with them (not --no-log-samples), not its header alone"
        )
    for number, value in enumerate(samples):
        if not isinstance(value, dict):
            raise row.error(f"field 'samples[{number}]' should be an object, not {describe_kind(value)}")
        yield _answer(row.make_inner_row(f"samples[{number}]", value))


def _answer(sample: Row) -> Row:
    if sample.has("error"):
        message = sample.values["error"]
        said = message.get("message") if isinstance(message, dict) else message
        raise sample.error(
            f"sample '{sample.values.get('id')}' has no answer ({' '.join(str(said).split())[:200]}): "
            "run it again by Inspect's own command: inspect eval-retry"
        )
    output = sample.inside("output")
    fields: dict[str, object] = {
        "problem_id": sample.values.get("id"),
        "sample": (sample.optional_count("epoch", minimum=1) or 1) - 1,
        "response": _completion(output),
    }
    choice = _first_choice(output)
    if choice is not None and choice.optional_text("stop_reason") in _CUT:
        fields["finish_reason"] = "length"
    if output.has("usage"):
        usage = output.inside("usage")
        fields |= {
            "prompt_tokens": usage.values.get("input_tokens"),
            "output_tokens": usage.values.get("output_tokens"),
        }
    return Row(fields, sample.source, sample.number, sample.unit)


def _completion(output: Row) -> str:
    """Return the text of the answer: `completion`, which older logs lack, or the first choice's message."""
    if isinstance(completion := output.values.get("completion"), str):
        return completion
    choice = _first_choice(output)
    content = None if choice is None else choice.inside("message").values.get("content")
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "".join(part["text"] for part in content if isinstance(part, dict) and part.get("type") == "text")
    raise output.wrong("completion", "text")


def _first_choice(output: Row) -> Row | None:
    choices = output.values.get("choices")
    return output.make_inner_row("choices[0]", choices[0]) if isinstance(choices, list) and choices else None
