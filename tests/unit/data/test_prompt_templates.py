"""What a model sees: the whole question, and never a hidden test."""

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest
from builders.data import (
    assert_problem,
    check_problem,
    contests_with_submissions,
    humaneval_with_solutions,
    stdio_problem,
)

from evalrun_data.prompts import TEMPLATES_VERSION, PromptFormat, read_template, render
from evalrun_data.records import AssertTests, CheckTest, Message, Problem, StdioTests
from evalrun_runtime.exits import BadInputError

FORMATS: tuple[PromptFormat, ...] = get_args(PromptFormat)


def test_function_chat_asks_for_the_complete_function() -> None:
    (message,) = render(check_problem())
    assert message.role == "user"
    assert message.content == (
        "Complete the following Python function. Answer with one Python code block that holds the complete function, "
        'with every import that it needs.\n\n```python\ndef add(a: int, b: int) -> int:\n    """The sum."""\n```\n'
    )


def test_asserts_chat_shows_the_asserts_as_mbpp_is_published() -> None:
    (message,) = render(assert_problem())
    assert "Write a function add that adds two numbers." in message.content
    assert "assert add(1, 2) == 3\nassert add(-1, 1) == 0\nassert add(0, 0) == 0\n" in message.content


@pytest.mark.parametrize(("language", "name"), [("python", "Python 3"), ("c", "C"), ("cpp", "C++")])
def test_stdio_chat_names_streams_and_language(language: str, name: str) -> None:
    problem = replace(stdio_problem(), language=language)
    content = render(problem)[0].content
    assert f"with a {name} program" in content
    assert f"one {language} code block" in content
    assert "standard input" in content
    assert "standard output" in content
    assert "Add two numbers." in content


def test_completion_of_humaneval_is_the_raw_prompt_byte_for_byte() -> None:
    problem = replace(check_problem(), prompt="\r\n def f(x):\n\t")
    assert render(problem, "Completion") == [Message("user", "\r\n def f(x):\n\t")]


def test_completion_of_asserts_and_stdio_is_a_comment_with_the_statement() -> None:
    assert render(assert_problem(), "Completion")[0].content == (
        '"""\nWrite a function add that adds two numbers.\n'
        'assert add(1, 2) == 3\nassert add(-1, 1) == 0\nassert add(0, 0) == 0\n"""\n'
    )
    assert render(stdio_problem(), "Completion")[0].content.startswith('"""\nAdd two numbers.\n')
    assert render(replace(stdio_problem(), language="c"), "Completion")[0].content.startswith("/*\nAdd two numbers.\n")


def test_published_chat_is_sent_unchanged() -> None:
    chat = (Message("system", "s"), Message("user", "u"))
    problem = replace(stdio_problem(), messages=chat, prompt="s\n\nu")
    assert render(problem) == list(chat)
    assert render(problem, "Completion") == [Message("user", "s\n\nu")]


def test_braces_in_a_prompt_stay() -> None:
    for problem in (check_problem(), assert_problem(), stdio_problem()):
        for form in FORMATS:
            assert "{x} {} {{prompt}}" in render(replace(problem, prompt="{x} {} {{prompt}}"), form)[0].content


@pytest.mark.parametrize("form", FORMATS)
def test_no_hidden_test_is_ever_shown(form: PromptFormat) -> None:
    """Changing everything hidden leaves the prompt as it was."""
    check, stdio, asserts = check_problem(), stdio_problem(), assert_problem()
    assert isinstance(check.ground_truth, CheckTest)
    assert isinstance(asserts.ground_truth, AssertTests)
    shown = asserts.ground_truth
    pairs: list[tuple[Problem, Problem]] = [
        (check, replace(check, ground_truth=replace(check.ground_truth, test="HIDDEN", entry_point="HIDDEN"))),
        (stdio, replace(stdio, ground_truth=StdioTests(("HIDDEN",), ("HIDDEN",), ("private",)))),
        (asserts, replace(asserts, ground_truth=AssertTests((*shown.test_list, "assert HIDDEN"), "HIDDEN", "HIDDEN"))),
    ]
    for problem, changed in pairs:
        assert render(problem, form) == render(changed, form)


@pytest.mark.parametrize("form", FORMATS)
def test_no_real_hidden_test_is_in_a_prompt(form: PromptFormat) -> None:
    for problem, _ in humaneval_with_solutions():
        content = render(problem, form)[0].content
        assert "def check(" not in content
        assert "METADATA" not in content
    for problem, _ in contests_with_submissions():
        assert isinstance(problem.ground_truth, StdioTests)
        long_inputs = [text for text in problem.ground_truth.inputs if len(text) > 300]
        assert not [text for text in long_inputs if text in render(problem, form)[0].content]


def test_a_changed_text_has_a_new_version() -> None:
    """When this fails, a template was changed: raise TEMPLATES_VERSION and note the new digest here."""
    problems = [
        check_problem(),
        assert_problem(),
        *(replace(stdio_problem(), language=x) for x in ("python", "c", "cpp")),
    ]
    texts = [render(problem, form)[0].content for problem in problems for form in FORMATS]
    digest = hashlib.sha256(json.dumps(texts).encode()).hexdigest()[:16]
    assert (TEMPLATES_VERSION, digest) == ("1", "34e45928762bde30")


def test_a_system_prompt_comes_before_a_chat_that_has_none() -> None:
    plain = Problem("d", "p", "Print one.", StdioTests(("",), ("1\n",)))
    own = replace(plain, messages=(Message("system", "own"), Message("user", "u")))
    first, second = render(plain, "Chat", "Be brief.")
    assert (first, second.role) == (Message("system", "Be brief."), "user")
    assert [second] == render(plain)
    assert render(own, "Chat", "Be brief.") == list(own.messages)
    assert render(plain, "Completion", "Be brief.") == render(plain, "Completion")


def test_a_template_of_the_users_own_replaces_the_prompt(tmp_path: Path) -> None:
    file = tmp_path / "mine.txt"
    file.write_text('{"task": "{prompt}", "in": "{language}"}\n{entry_point}\n{asserts}{other}')
    template = read_template("mine.txt", tmp_path)
    problem = replace(assert_problem(), prompt="Add {asserts}.")
    (message,) = render(problem, "Chat", template=template)
    assert message.content.startswith('{"task": "Add {asserts}.", "in": "Python 3"}\n')
    assert message.content.endswith("{other}")
    assert isinstance(problem.ground_truth, AssertTests)
    assert all(line in message.content for line in problem.ground_truth.test_list[:3])
    assert render(problem, "Completion", "Be brief.", template) == [message]
    assert render(problem, "Chat", "Be brief.", template) == [Message("system", "Be brief."), message]
    (stdio,) = render(stdio_problem(), "Chat", template=template)
    assert stdio.content.endswith("\n\n{other}")  # no test of such a problem is ever shown


def test_a_template_wins_over_a_problems_own_chat_but_for_its_system_message() -> None:
    own = Problem("d", "p", "Print one.", StdioTests(("",), ("1\n",)))
    own = replace(own, messages=(Message("system", "own"), Message("user", "u")))
    assert render(own, "Chat", "Be brief.", "Do: {prompt}") == [
        Message("system", "own"),
        Message("user", "Do: Print one."),
    ]


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"Solve it.", "write {prompt} where"), (b"{prompt} \xff", "not UTF-8"), (None, "mine.txt")],
)
def test_unusable_template_is_refused_with_the_cause(tmp_path: Path, content: bytes | None, message: str) -> None:
    if content is not None:
        (tmp_path / "mine.txt").write_bytes(content)
    with pytest.raises(BadInputError, match=message):
        read_template("mine.txt", tmp_path)
