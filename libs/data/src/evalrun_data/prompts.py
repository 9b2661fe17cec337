"""Prompts. Each family of tests writes its own (`families`). Raise `TEMPLATES_VERSION` with any change of a text.

Hidden tests never appear: no family shows HumanEval's `test` or a contest's tests. MBPP's asserts appear: showing them
is part of its published prompt convention (the task's text alone does not name the function), and every published
figure is measured so.
"""

import re
from pathlib import Path
from typing import Final, Literal

from evalrun_data.families.ground_truth import PromptParts
from evalrun_data.records import Message, Problem
from evalrun_data.sources import read_bytes
from evalrun_registry.languages import LANGUAGES
from evalrun_runtime.exits import BadInputError

TEMPLATES_VERSION: Final = "1"
"""Stored in run_info.json: metrics compare only if the version is equal."""

PromptFormat = Literal["Chat", "Completion"]

DEFAULT_FORMAT: Final[PromptFormat] = "Chat"
"""Default of every family: instruction-tuned models are evaluated. A base model needs `Completion`."""

_PLACES: Final = re.compile(r"\{(prompt|asserts|entry_point|language)\}")
MAX_TEMPLATE_BYTES: Final = 1 << 20


def read_template(place: str, base_dir: Path = Path()) -> str:
    """Read a template of the user's own.

    Raises:
        BadInputError: the file cannot be read, is not UTF-8, or has no placeholder for the problem's prompt.
    """
    content = read_bytes(place, base_dir, max_bytes=MAX_TEMPLATE_BYTES)
    try:
        template = content.decode()
    except UnicodeDecodeError as error:
        raise BadInputError(f"{place}: is not UTF-8 (byte {error.start}): save the file as UTF-8") from error
    if "{prompt}" not in template:
        raise BadInputError(f"{place}: no model would see the problem: write {{prompt}} where its text belongs")
    return template


def render(
    problem: Problem,
    prompt_format: PromptFormat = DEFAULT_FORMAT,
    system_prompt: str | None = None,
    template: str | None = None,
) -> list[Message]:
    """Return the messages for a problem: the chat, or for `Completion` one message whose content is the prompt.

    A problem that comes with a chat of its own (verl) is sent as it is; for `Completion` its contents are joined. The
    system prompt comes first, unless the chat begins with a system message. A template of the user's own
    (`read_template`) wins over ours and over a problem's chat, of which a system message stays.
    """
    if template is not None:
        text = _fill_template(template, problem)
        own = [message for message in problem.messages if message.role == "system"] if prompt_format == "Chat" else []
        chat = [*own, Message("user", text)]
    elif prompt_format == "Completion":
        chat = [Message("user", _completion(problem))]
    else:
        chat = list(problem.messages) or [Message("user", problem.ground_truth.write_chat(_parts(problem)))]
    if prompt_format == "Completion":
        return chat
    if system_prompt is None or chat[0].role == "system":
        return chat
    return [Message("system", system_prompt), *chat]


def _fill_template(template: str, problem: Problem) -> str:
    """Return the template with the problem's texts inserted. Other braces belong to the template."""
    texts = {
        "prompt": problem.prompt,
        "asserts": "",
        "entry_point": "",
        "language": LANGUAGES[problem.language].title,
        **problem.ground_truth.template_words(),
    }
    return _PLACES.sub(lambda place: texts[place[1]], template)


def _parts(problem: Problem) -> PromptParts:
    return PromptParts(problem.prompt, LANGUAGES[problem.language].title, problem.language)


def _completion(problem: Problem) -> str:
    return problem.prompt if problem.messages else problem.ground_truth.write_completion(_parts(problem))
