"""Rows of training data without tests: texts, chats, and prompts with answers. They can be audited, and not judged."""

from collections.abc import Mapping, Sequence
from typing import Final

from evalrun_data.records import Message, Problem, ServerTests
from evalrun_data.rows import Row

CHATS: Final = ("messages", "conversations")
TEXTS: Final[Sequence[Sequence[str]]] = (
    ("instruction", "input", "output"),
    ("prompt", "completion"),
    ("prompt", "response"),
    ("question", "answer"),
    ("text",),
    ("content",),
    ("prompt",),
)
"""Columns that together are a row's text; the first set that a row has counts."""
IDS: Final = ("problem_id", "id", "task_id", "uuid")


def is_plain_text(row: Row) -> bool:
    """Return whether a row of no other format holds a text or a chat for training."""
    return _chat(row) is not None or _columns(row) is not None


def parse_plain_text(row: Row, dataset: str | None) -> Problem:
    """Return a row as a problem whose prompt is all of its text. Raises BadInputError if the row has no text."""
    chat = _chat(row)
    columns = _columns(row)
    if chat is None and columns is None:
        raise row.wrong("text", "text; messages, prompt and completion, instruction and output serve too")
    texts = (
        [message.content for message in chat] if chat else [row.text(name) for name in columns or () if row.has(name)]
    )
    named = next((name for name in IDS if row.has(name)), None)
    return Problem(
        dataset=dataset or "text",
        problem_id=str(row.number) if named is None else row.text_or_number(named),
        prompt="\n".join(text for text in texts if text),
        ground_truth=ServerTests(),
        data_source=dataset or "text",
        messages=chat or (),
    )


def is_untested(problem: Problem) -> bool:
    """Return whether a problem comes from a row without tests, here or at a server."""
    return isinstance(problem.ground_truth, ServerTests) and not problem.sandbox_id


def _chat(row: Row) -> tuple[Message, ...] | None:
    """Return the chat of a row, with `role` and `content` or with `from` and `value`; None without a chat."""
    for name in CHATS:
        turns = row.values.get(name)
        if isinstance(turns, list) and turns and all(isinstance(turn, Mapping) for turn in turns):
            found = [(turn.get("role", turn.get("from")), turn.get("content", turn.get("value"))) for turn in turns]
            if all(isinstance(role, str) and isinstance(content, str) for role, content in found):
                return tuple(Message(role, row.encodable(name, content)) for role, content in found)
    return None


def _columns(row: Row) -> Sequence[str] | None:
    for columns in TEXTS:
        if isinstance(row.values.get(columns[0]), str) and isinstance(row.values.get(columns[-1]), str):
            return columns
    return None
