"""Prompts: every template, in one place. Raise `TEMPLATES_VERSION` with any change of a text.

Hidden tests never appear: HumanEval's `test` and a contest's tests are not read here. MBPP's asserts do: showing them
is part of its published prompt convention (the task's text alone does not name the function), and every published
figure is measured so.
"""

import re
from pathlib import Path
from typing import Final, Literal

from evalrun_data.records import (
    AssertTests,
    CheckTest,
    Language,
    MainTest,
    Message,
    Problem,
    Reference,
    ServerTests,
    StdioTests,
)
from evalrun_data.sources import read_bytes
from evalrun_runtime.exits import BadInputError

TEMPLATES_VERSION: Final = "1"
"""Goes into run_info.json: figures compare only where it is equal."""

PromptFormat = Literal["Chat", "Completion"]

DEFAULT_FORMAT: Final[PromptFormat] = "Chat"
"""For every family: instruction-tuned models are what is evaluated. A base model wants `Completion`."""

_LANGUAGE_NAMES: Final[dict[Language, str]] = {"python": "Python 3", "c": "C", "cpp": "C++"}

_FUNCTION_CHAT = """\
Complete the following Python function. Answer with one Python code block that holds the complete function, with \
every import that it needs.

```python
{prompt}
```
"""

_MAIN_CHAT = """\
Complete the following {language} function. Answer with one {tag} code block that holds the complete function, with \
every include that it needs, and without a main function.

```{tag}
{prompt}
```
"""

_ASSERTS_CHAT = """\
{prompt}

Your code should pass these tests:

```python
{asserts}
```

Answer with one Python code block that holds the complete code, with every import that it needs, and without the tests.
"""

_STDIO_CHAT = """\
Solve the following problem with a {language} program. The program reads its input from standard input and writes its \
answer to standard output, and nothing else. Answer with one {tag} code block that holds the complete program.

{prompt}
"""

# For models without a chat: text that code follows naturally.
_ASSERTS_COMPLETION = '''\
"""
{prompt}
{asserts}
"""
'''

_STDIO_COMPLETION: Final[dict[Language, str]] = {
    "python": '"""\n{prompt}\n\nRead from standard input, write to standard output.\n"""\n',
    "c": "/*\n{prompt}\n\nRead from standard input, write to standard output.\n*/\n",
    "cpp": "/*\n{prompt}\n\nRead from standard input, write to standard output.\n*/\n",
}


_PLACES: Final = re.compile(r"\{(prompt|asserts|entry_point|language)\}")
MAX_TEMPLATE_BYTES: Final = 1 << 20


def read_template(place: str, base_dir: Path = Path()) -> str:
    """Read a template of the user's own.

    Raises:
        BadInputError: it cannot be read, is no UTF-8, or has no place for the problem's prompt.
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
    system prompt comes before a chat that has none of its own. A template of the user's own (`read_template`) wins
    over ours and over a problem's chat, of which a system message stays.
    """
    if template is not None:
        text = _filled(template, problem)
        own = [message for message in problem.messages if message.role == "system"] if prompt_format == "Chat" else []
        chat = [*own, Message("user", text)]
    elif prompt_format == "Completion":
        chat = [Message("user", _completion(problem))]
    else:
        chat = list(problem.messages) or [Message("user", _chat(problem))]
    if prompt_format == "Completion":
        return chat
    if system_prompt is None or chat[0].role == "system":
        return chat
    return [Message("system", system_prompt), *chat]


def _filled(template: str, problem: Problem) -> str:
    """Return the template with the problem's texts in their places; other braces are the template's own."""
    truth = problem.ground_truth
    texts = {
        "prompt": problem.prompt,
        "asserts": _shown(truth.test_list) if isinstance(truth, AssertTests) else "",
        "entry_point": truth.entry_point if isinstance(truth, AssertTests | CheckTest | MainTest) else "",
        "language": _LANGUAGE_NAMES[problem.language],
    }
    return _PLACES.sub(lambda place: texts[place[1]], template)


def _chat(problem: Problem) -> str:
    prompt = problem.prompt.strip("\n")
    match problem.ground_truth:
        case CheckTest():
            return _FUNCTION_CHAT.format(prompt=prompt)
        case MainTest():
            return _MAIN_CHAT.format(prompt=prompt, language=_LANGUAGE_NAMES[problem.language], tag=problem.language)
        case AssertTests(test_list=asserts):
            return _ASSERTS_CHAT.format(prompt=prompt, asserts=_shown(asserts))
        case ServerTests() | Reference():
            return problem.prompt  # as the server, or the data set, words it
        case StdioTests():
            return _STDIO_CHAT.format(prompt=prompt, language=_LANGUAGE_NAMES[problem.language], tag=problem.language)


def _completion(problem: Problem) -> str:
    if problem.messages or isinstance(problem.ground_truth, CheckTest | MainTest | ServerTests | Reference):
        return problem.prompt
    prompt = problem.prompt.strip("\n")
    if isinstance(problem.ground_truth, AssertTests):
        return _ASSERTS_COMPLETION.format(prompt=prompt, asserts=_shown(problem.ground_truth.test_list))
    return _STDIO_COMPLETION[problem.language].format(prompt=prompt)


def _shown(asserts: tuple[str, ...]) -> str:
    """Return the first three asserts: no published MBPP task has more; the others of a longer list stay hidden."""
    return "\n".join(text.strip() for text in asserts[:3])
