"""What a model sees: the whole question, and never a hidden test."""

import hashlib
import json
from dataclasses import replace
from typing import get_args

import pytest
from builders.data import (
    assert_problem,
    check_problem,
    contests_with_submissions,
    humaneval_with_solutions,
    stdio_problem,
)

from evalrun_data.prompts import TEMPLATES_VERSION, PromptFormat, render
from evalrun_data.records import AssertTests, CheckTest, Language, Message, Problem, StdioTests

FORMATS: tuple[PromptFormat, ...] = get_args(PromptFormat)


def test_function_chat() -> None:
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
def test_stdio_chat_names_streams_and_language(language: Language, name: str) -> None:
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


def test_completions_of_the_other_families() -> None:
    assert render(assert_problem(), "Completion")[0].content == (
        '"""\nWrite a function add that adds two numbers.\n'
        'assert add(1, 2) == 3\nassert add(-1, 1) == 0\nassert add(0, 0) == 0\n"""\n'
    )
    assert render(stdio_problem(), "Completion")[0].content.startswith('"""\nAdd two numbers.\n')
    assert render(replace(stdio_problem(), language="c"), "Completion")[0].content.startswith("/*\nAdd two numbers.\n")


def test_a_published_chat_is_sent_as_it_is() -> None:
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
