"""Converts completions published by other tools into our rows (`problem_id`, `response`, `mode`, ...).

If the file contains the program that the tool extracted, that program is judged as it is, so that the verdicts stay
comparable with the tool's.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from evalrun_data.inspect_logs import is_log, log_rows
from evalrun_data.rows import Row, describe_kind

_DOC_IDS: Final = ("problem_id", "task_id", "question_id", "name", "id")


def our_rows(row: Row) -> Iterator[Row]:
    """Yield the completions of a row in our form. Rows in our form are returned unchanged.

    Raises:
        BadInputError: the row has a known tool's format, but holds no valid answer.
    """
    has = row.has
    if is_log(row):
        yield from log_rows(row)
    elif has("custom_id") and (has("response") or has("error")):
        yield _openai_batch(row)
    elif has("doc") and (has("resps") or has("filtered_resps")):
        yield _lm_eval(row)
    elif has("question_id") and (has("code_list") or has("output_list")):
        yield _livecodebench(row)
    elif has("solution") and not any(has(name) for name in ("response", "responses", "completion", "completions")):
        yield _evalplus(row)
    else:
        yield row


def read_filter(row: Row) -> str | None:
    """Return the filter of a row of lm-evaluation-harness, which repeats each completion per filter; None for other
    rows."""
    return row.optional_text("filter", "none") if row.has("doc") and row.has("filtered_resps") else None


def _evalplus(row: Row) -> Row:
    """EvalPlus: `solution` is a whole program."""
    return _ours(row, mode="standalone", response=_text(row, "solution"))


def _livecodebench(row: Row) -> Row:
    """Convert LiveCodeBench's row: `code_list` has the judged programs, `output_list` the model's texts."""
    field = "code_list" if row.has("code_list") else "output_list"
    texts = row.values[field]
    if not isinstance(texts, list):
        raise row.wrong(field, "a list of texts")
    if not texts:
        raise row.error(f"field '{field}' is an empty list: it should hold at least one answer")
    mode = "standalone" if field == "code_list" else "auto"
    return _ours(row, problem_id=row.name("question_id"), responses=texts, mode=mode)


def _lm_eval(row: Row) -> Row:
    """lm-evaluation-harness with `--log_samples`: the filtered texts are the programs that it judged.

    The filter `none` leaves the text as it is; the program is then extracted, as from any other answer.
    """
    doc = row.inside("doc")
    known = next((name for name in _DOC_IDS if doc.has(name)), None)
    if known is None and not row.has("problem_id"):
        raise row.error(
            f"field 'doc' has none of {', '.join(_DOC_IDS)}, so the problem is not known: add the field 'problem_id'"
        )
    problem_id = row.values["problem_id"] if row.has("problem_id") else doc.values[str(known)]
    field = "filtered_resps" if row.has("filtered_resps") else "resps"
    texts = _flat(row, field)
    filtered = field == "filtered_resps" and read_filter(row) != "none"
    return _ours(row, problem_id=problem_id, responses=texts, mode="standalone" if filtered else "auto")


def _flat(row: Row, field: str) -> list[str]:
    """Return one text per sample. Some filters return a list of texts per request, others a text."""
    value = row.values[field]
    texts: list[str] = []
    for item in value if isinstance(value, list) else [value]:
        for text in item if isinstance(item, list) else [item]:
            if not isinstance(text, str):
                raise row.error(
                    f"field '{field}' should hold texts, not {describe_kind(text)}: is this a code task's file?"
                )
            texts.append(text)
    return texts


def _openai_batch(row: Row) -> Row:
    """Parse a line of a batch's output file. `custom_id` is the problem's id, with `#3` behind it for sample 3."""
    problem_id, mark, number = row.name("custom_id").rpartition("#")
    ours = {"problem_id": problem_id, "sample": int(number)} if mark and number.isdecimal() else {}
    response = row.inside("response") if row.has("response") else None
    if response is None or row.has("error") or response.values.get("status_code") not in (None, 200):
        name = row.values["custom_id"]
        raise row.error(f"the request '{name}' has no answer ({_failure(row)}): send it again, or remove the line")
    body = response.inside("body")
    choices = body.values.get("choices")
    if not isinstance(choices, list) or not all(isinstance(choice, dict) for choice in choices) or not choices:
        raise body.wrong("choices", "a list of answers (of /v1/chat/completions or /v1/completions)")
    if ours and len(choices) > 1:
        raise row.error(f"custom_id names one sample, but there are {len(choices)} choices: leave the '#{number}' away")
    fields: dict[str, object] = {"problem_id": row.values["custom_id"], **ours, **_tokens(body, len(choices))}
    parsed = [body.make_inner_row(f"choices[{index}]", choice) for index, choice in enumerate(choices)]
    if len(parsed) == 1:
        fields.update(response=_content(parsed[0]), finish_reason=parsed[0].optional_text("finish_reason"))
    else:
        fields.update(
            responses=[_content(choice) for choice in parsed],
            finish_reason=[choice.optional_text("finish_reason") for choice in parsed],
        )
    return _ours(row, **fields)


def _content(choice: Row) -> str:
    """Return a choice's text, or "" without a text (a refusal, or the limit was reached while the model was
    thinking)."""
    if not choice.has("message"):
        return _text(choice, "text")
    message = choice.inside("message")
    return _text(message, "content") if message.has("content") else ""


def _text(row: Row, field: str) -> str:
    """Return a text unchanged, because a completion may contain anything."""
    value = row.values.get(field)
    if not isinstance(value, str):
        raise row.wrong(field, "text")
    return value


def _tokens(body: Row, choices: int) -> dict[str, object]:
    """Return the server's token counts. For several choices it reports only their sum, which is no choice's count."""
    if not body.has("usage") or choices != 1:
        return {}
    usage = body.inside("usage")
    return {
        "completion_tokens": usage.values.get("completion_tokens"),
        "prompt_tokens": usage.values.get("prompt_tokens"),
    }


def _failure(row: Row) -> str:
    """Return the batch's reason for a request without a reply, in one line."""
    response = row.values.get("response")
    status = response.get("status_code") if isinstance(response, dict) else None
    body = response.get("body") if isinstance(response, dict) else None
    for place in (row.values.get("error"), body.get("error") if isinstance(body, dict) else None):
        if isinstance(place, Mapping) and (place.get("message") or place.get("code")):
            return " ".join(str(place.get("message") or place.get("code")).split())[:200]
    return f"status {status}"


def _ours(row: Row, **fields: object) -> Row:
    """Replace the tool's fields by ours, because its `response` or `mode` may mean something else."""
    kept = {name: row.values[name] for name in ("dataset", "problem_id", "task_id", "language") if row.has(name)}
    return Row({**kept, **fields}, row.source, row.number, row.unit)
