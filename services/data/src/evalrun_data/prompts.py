"""What a model is asked: every template of ours, in one place. Raise `TEMPLATES_VERSION` with any change of a text.

Hidden tests never appear: HumanEval's `test` and a contest's tests are not read here. MBPP's asserts do: showing them
is part of its published prompt convention (the task's text alone does not name the function), and every published
figure is measured so.
"""

from typing import Final, Literal

from evalrun_data.records import AssertTests, CheckTest, Language, Message, Problem, ServerTests, StdioTests

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


def render(problem: Problem, prompt_format: PromptFormat = DEFAULT_FORMAT) -> list[Message]:
    """What is sent for a problem: the chat, or for `Completion` one message whose content is the prompt.

    A problem that comes with a chat of its own (verl) is sent as it is; for `Completion` its contents are joined.
    """
    if prompt_format == "Completion":
        return [Message("user", _completion(problem))]
    return list(problem.messages) or [Message("user", _chat(problem))]


def _chat(problem: Problem) -> str:
    prompt = problem.prompt.strip("\n")
    match problem.ground_truth:
        case CheckTest():
            return _FUNCTION_CHAT.format(prompt=prompt)
        case AssertTests(test_list=asserts):
            return _ASSERTS_CHAT.format(prompt=prompt, asserts=_shown(asserts))
        case ServerTests():
            return problem.prompt  # as the server words it
        case StdioTests():
            return _STDIO_CHAT.format(prompt=prompt, language=_LANGUAGE_NAMES[problem.language], tag=problem.language)


def _completion(problem: Problem) -> str:
    if problem.messages or isinstance(problem.ground_truth, CheckTest | ServerTests):
        return problem.prompt
    prompt = problem.prompt.strip("\n")
    if isinstance(problem.ground_truth, AssertTests):
        return _ASSERTS_COMPLETION.format(prompt=prompt, asserts=_shown(problem.ground_truth.test_list))
    return _STDIO_COMPLETION[problem.language].format(prompt=prompt)


def _shown(asserts: tuple[str, ...]) -> str:
    """The first three asserts: all that any published MBPP task has; of a longer list the others stay hidden."""
    return "\n".join(text.strip() for text in asserts[:3])
