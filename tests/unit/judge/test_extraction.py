"""From answers to programs: docs/verdicts.md, section 1, case by case."""

import time

import pytest

from evalrun_judge.extraction import Extraction, ExtractionMethod, Guardrail, SubmissionMode, extract

TAGGED, UNTAGGED = ExtractionMethod.TAGGED_BLOCK, ExtractionMethod.UNTAGGED_BLOCK
UNCLOSED, WHOLE = ExtractionMethod.UNCLOSED_BLOCK, ExtractionMethod.WHOLE_TEXT


def auto(text: str, language: str = "python") -> Extraction:
    return extract(text, language=language, mode=SubmissionMode.AUTO)


USES_IT = "```python\nprint(double(2))\n```"

# what, answer, program, where it was found
ANSWERS: list[tuple[str, str, str, ExtractionMethod]] = [
    ("one block", "Here:\n```python\nprint(1)\n```\nDone.", "print(1)\n", TAGGED),
    ("the last tagged block", "```python\na\n```\nbetter:\n```python\nb\n```", "b\n", TAGGED),
    ("a tagged one before an untagged one", "```python\na\n```\nOutput:\n```\n1\n```", "a\n", TAGGED),
    ("untagged where nothing is tagged", "```\na\n```\n```\nb\n```", "b\n", UNTAGGED),
    ("another language is passed over", "```bash\nls\n```\n```\na\n```\n```json\n{}\n```", "a\n", UNTAGGED),
    ("an unclosed last block", "```python\nprint(1)", "print(1)\n", UNCLOSED),
    ("a closed block before an unclosed one", "```python\na\n```\n```python\nb", "a\n", TAGGED),
    ("an unclosed one without a tag", "Sure:\n```\na\n", "a\n\n", UNCLOSED),
    ("no block", "print(1)\n", "print(1)\n", WHOLE),
    ("a thought is dropped", "<think>\n```python\na\n```\n</think>\n```python\nb\n```", "b\n", TAGGED),
    ("a thought without its start", "hm\n```python\na\n```\n</think>print(1)", "print(1)", WHOLE),
    ("CRLF", "```python\r\na\r\nb\r\n```\r\n", "a\nb\n", TAGGED),
    ("tildes", "~~~python\na\n~~~", "a\n", TAGGED),
    ("a longer fence holds a shorter one", "````python\ns = '''\n```\n'''\n````", "s = '''\n```\n'''\n", TAGGED),
    ("tildes hold backticks", "~~~python\n# ```\n```\n~~~", "# ```\n```\n", TAGGED),
    ("the closing fence may be longer", "```python\na\n`````", "a\n", TAGGED),
    ("blanks after the closing fence", "```python\na\n```  \nb", "a\n", TAGGED),
    ("an indented block in a list", "1. Do\n   ```python\n   if x:\n       a\n   ```", "if x:\n    a\n", TAGGED),
    ("a deeper one", "- a\n  - b\n\n      ```python\n      a\n      ```\n", "a\n", TAGGED),
    ("a block in Markdown in a block", "```markdown\n# Solution\n```python\na\n```\n```", "a\n", TAGGED),
    ("a fence at the end of the code", "```python\nprint(1)```", "print(1)\n", TAGGED),
    ("the same, and prose after it", "```python\nprint(1)```\nThis prints 1.", "print(1)\n", TAGGED),
    ("an empty block is no answer", "```python\na\n```\n```python\n\n```", "a\n", TAGGED),
    (
        "a docstring's own fences",
        'Here:\n```python\ndef f():\n    """\n    ```\n    f()\n    ```\n    """\n```',
        'def f():\n    """\n    ```\n    f()\n    ```\n    """\n',
        TAGGED,
    ),
    (
        "the same without a block around it",
        'def f():\n    """\n    ```\n    f()\n    ```\n    """\n',
        'def f():\n    """\n    ```\n    f()\n    ```\n    """\n',
        WHOLE,
    ),
    ("the end of a thought in code", "```python\ns = '</think>'\n```", "s = '</think>'\n", TAGGED),
    ("the same without a block", "print(s.split('</think>')[1])", "print(s.split('</think>')[1])", WHOLE),
    ("a line of a block", "```python\n# a\n</think>\n# b\n```", "# a\n</think>\n# b\n", TAGGED),
    ("after a thought", "<think>a</think>\n```python\ns = '</think>'\n```", "s = '</think>'\n", TAGGED),
    ("a thought without its start, in a line", "so it is b.</think>\nprint(1)", "\nprint(1)", WHOLE),
    ("an inline code span is no fence", "Use ```print```:\nprint(1)", "Use ```print```:\nprint(1)", WHOLE),
    ("bytes that Unicode calls line ends", "```python\ns = 'a\x0b\u2028b'\n```", "s = 'a\x0b\u2028b'\n", TAGGED),
]


@pytest.mark.parametrize(("what", "answer", "code", "method"), ANSWERS, ids=[row[0] for row in ANSWERS])
def test_extract_finds_the_program_in_the_answer(what: str, answer: str, code: str, method: ExtractionMethod) -> None:
    found = auto(answer)
    assert (found.code, found.method) == (code, method), what
    assert found.must_compile is (method is WHOLE)
    assert found.guardrails == ()


@pytest.mark.parametrize(
    ("tag", "language"),
    [
        *((tag, "python") for tag in ("python", "Python", "PY", "py", "py3", "python3", "python3.11", "{.python}")),
        *((tag, "python") for tag in ("python:main.py", "main.py", "python title=main.py", "pypy3")),
        *((tag, "cpp") for tag in ("cpp", "c++", "C++", "cc", "cxx", "c++17", "cpp20", "main.cpp")),
        *((tag, "c") for tag in ("c", "C", "c99", "c11", "gnu11")),
        ("rust", "rust"),
    ],
)
def test_extract_knows_each_spelling_of_a_language(tag: str, language: str) -> None:
    found = auto(f"```{tag}\ncode\n```\n```\noutput\n```", language)
    assert (found.code, found.method) == ("code\n", TAGGED)


@pytest.mark.parametrize(("tag", "language"), [("c", "cpp"), ("cpp", "c"), ("java", "python"), ("pycon", "python")])
def test_another_language_is_not_taken(tag: str, language: str) -> None:
    found = auto(f"```{tag}\ncode\n```", language)
    assert found.method is WHOLE  # for its compiler to refuse: then there was no code


@pytest.mark.parametrize("mode", [SubmissionMode.APPEND, SubmissionMode.STANDALONE])
def test_verbatim_modes_return_the_text_unchanged(mode: SubmissionMode) -> None:
    text = "<think></think>\n```python\na\n```\r\n"
    found = extract(text, language="python", mode=mode)
    assert (found.code, found.method) == (text, ExtractionMethod.VERBATIM)


@pytest.mark.parametrize("text", ["", " \n\t\n", "<think>I give up</think>\n"])
def test_extract_of_an_empty_answer_finds_nothing_to_run(text: str) -> None:
    found = auto(text)
    assert (found.code, found.method) == ("", ExtractionMethod.NONE)
    assert found.guardrails == (Guardrail.NOTHING_TO_RUN,)


def test_a_text_that_does_not_compile_was_no_code() -> None:
    found = auto("I am sorry.").drop_code()
    assert (found.code, found.method, found.guardrails) == ("", ExtractionMethod.NONE, (Guardrail.NO_CODE_FOUND,))


def test_an_answer_is_cut_before_anything_else() -> None:
    found = extract(
        "```python\na\n```\n```python\nb\n```", language="python", mode=SubmissionMode.AUTO, max_characters=16
    )
    assert found.code == "a\n"
    assert found.guardrails == (Guardrail.ANSWER_CUT,)


def test_a_truncated_generation_is_recorded_and_still_judged() -> None:
    found = extract("```python\nprint(1)", language="python", mode=SubmissionMode.AUTO, truncated=True)
    assert (found.code, found.guardrails) == ("print(1)\n", (Guardrail.TRUNCATED_GENERATION,))


CODE = "def double(x):\n    return 2 * x\n"
FENCED, TAGGED_ONE = (
    f'def double(x):\n    """Double it.\n{fence}\ndouble(1)\n```\n    """\n    return 2 * x\n'
    for fence in ("```", "```python")
)
BROKEN_OFF = '```python\ndef double(x):\n    """Dou\n```\nAgain:\n'
DRAFT = "```python\ndef double(x): return x\n```"
FINAL = "<|start|>assistant<|channel|>final"

# what, answer, program, where it was found
OF_FUNCTIONS: list[tuple[str, str, str, ExtractionMethod]] = [
    ("a fence in a docstring", f"```python\n{FENCED}```\n", FENCED, TAGGED),
    ("a tagged one", f"```python\n{TAGGED_ONE}```\nDone.", TAGGED_ONE, TAGGED),
    ("a fence in a string", f'```python\nS = """\n```\n"""\n{CODE}```\n', f'S = """\n```\n"""\n{CODE}', TAGGED),
    ("a draft that breaks off in a docstring", f"{BROKEN_OFF}```python\n{CODE}```", CODE, TAGGED),
    ("a special token after the fence", f"```python\n{CODE}```<|im_end|>", CODE, TAGGED),
    ("another one, and a next turn", f"```python\n{CODE}```</s>\n<|im_start|>user\nThanks", CODE, TAGGED),
    ("a byte order mark", f"\ufeff```python\n{CODE}```", CODE, TAGGED),
    ("one in the block", f"```python\n\ufeff{CODE}```", CODE, TAGGED),
    ("an unclosed block after a draft", f"{DRAFT}\nBetter:\n```python\n{CODE}", CODE + "\n", UNCLOSED),
    ("one that breaks off", f"```python\n{CODE}```\nBetter:\n```python\ndef double(x):\n    return (2 *", CODE, TAGGED),
    ("a closing fence of two backticks", f"```python\n{CODE}``", CODE, TAGGED),
    ("prose after the closing fence", f"```python\n{CODE}``` This doubles it.\n", CODE, TAGGED),
    ("words before the opening fence", f"Solution: ```python\n{CODE}```\n", CODE, TAGGED),
    ("a quoted block", "> ```python\n> def double(x):\n>     return 2 * x\n> ```\n", CODE, TAGGED),
    ("a block in a longer one", f"````markdown\n# Solution\n```python\n{CODE}```\n````", CODE, TAGGED),
    ("a block in tildes", f"~~~\n```python\n{CODE}```\n~~~", CODE, TAGGED),
    ("channels", f"<|channel|>analysis<|message|>{DRAFT}<|end|>{FINAL}<|message|>```python\n{CODE}```<|return|>",
     CODE, TAGGED),
    ("a definition under if", f"```python\nif True:\n    def double(x): ...\n```\n{USES_IT}",
     "if True:\n    def double(x): ...\n", TAGGED),
    ("a method is none", "```python\nif True:\n    class A:\n        def double(self): ...\n```\n```python\nx\n```",
     "x\n", TAGGED),
    ("marks that are no fences", f"[PYTHON]\n{CODE}[/PYTHON]", CODE, WHOLE),
    ("no opening fence", f"{CODE}```\nThis works.", CODE.rstrip("\n"), WHOLE),
    ("a special token without a fence", f"{CODE}<|endoftext|>\n", CODE, WHOLE),
]  # fmt: skip


@pytest.mark.parametrize(("what", "answer", "code", "method"), OF_FUNCTIONS, ids=[row[0] for row in OF_FUNCTIONS])
def test_extract_finds_a_function_in_each_form_that_models_write(
    what: str, answer: str, code: str, method: ExtractionMethod
) -> None:
    found = extract(answer, language="python", mode=SubmissionMode.AUTO, entry_point="double")
    assert (found.code, found.method) == (code, method), what


@pytest.mark.parametrize(
    ("answer", "otherwise"),
    [
        (f"The solution:\n\nimport math\n\n{CODE}\nIt doubles.\n", f"import math\n\n{CODE}"),
        (f"```python\n{CODE}\ndef test():\n    assert double(2) ==", CODE),
        (f"```python\n{CODE}\n@cache\ndef more(x):\n    return {{", CODE),
        ("```python\ndef double(x):\n    return (2 *", ""),
        (f"```python\n{CODE}```", ""),
        (CODE, ""),
        ("I cannot double it.", ""),
    ],
)
def test_extract_of_a_text_that_may_not_compile_offers_its_definitions(answer: str, otherwise: str) -> None:
    found = extract(answer, language="python", mode=SubmissionMode.AUTO, entry_point="double")
    assert found.otherwise == otherwise
    assert found.fall_back().code == otherwise


@pytest.mark.parametrize(
    "text",
    [
        '"""\n```\n' * 300_000,
        "> ```\n" * 200_000,
        "a ```b\n" * 200_000,
        "def f(\n" * 200_000,
        "```python\n" + "    def f(x): pass\n" * 100_000,
        "<|a|>" * 300_000,
        "[PYTHON]\n" * 100_000,
        "x = '\\" * 200_000,
        "`" * 2_000_000,
        "```python\n" * 200_000,
        "```\n" * 500_000,
        ("x" * 10 + "``\n") * 150_000,
        "```python\n" + "a```b\n" * 300_000,
        " " * 2_000_000 + "```",
        "(" * 2_000_000,
    ],
)
def test_hostile_texts_take_linear_time(text: str) -> None:
    started = time.process_time()
    extract(text, language="python", mode=SubmissionMode.AUTO, entry_point="f")
    assert time.process_time() - started < 30.0  # a second or two; minutes where it is the square


SOLUTION = "```python\ndef double(x):\n    return 2 * x\n```\n"
USES = [
    "```python\nassert double(2) == 4\n```",
    "```python\nprint(double(2))\n```",
    "```python\ndef test_double():\n    assert double(2) == 4\n```",
    "```python\ndouble(2) == 4\n```",
    "```python\ndouble_all = [double(x) for x in (1, 2)]\n```",
    "```\n>>> double(2)\n4\n```",
    "```bash\npython a.py\n```",
    "```python\nfrom solution import double\n```",
    "```python\nclass TestDouble:\n    def double(self): ...\n```",
    "```python\nif __name__ == '__main__':\n    double(3)\n```",
]
"""What models write after their solution."""


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("definition", [SOLUTION, "```py\ndouble = lambda x: 2 * x\n```\n",
                                        "```\nasync def double(x):\n    return 2 * x\n```\n",
                                        "```python\nclass double:\n    pass\n```\n"])  # fmt: skip
def test_block_that_defines_the_entry_point_is_preferred_to_examples_of_its_use(definition: str, use: str) -> None:
    answer = f"Here:\n{definition}\nFor example:\n{use}\n"
    found = extract(answer, language="python", mode=SubmissionMode.AUTO, entry_point="double")
    assert found.code == definition.partition("\n")[2].removesuffix("```\n")


def test_last_block_that_defines_the_entry_point_is_taken_else_the_last_block() -> None:
    better = SOLUTION.replace("2 * x", "x + x")
    for answer, code in ((SOLUTION + better + USES[0], "x + x"), ("```python\na\n```\n```python\nb\n```", "b")):
        found = extract(answer, language="python", mode=SubmissionMode.AUTO, entry_point="double")
        assert code in found.code


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("```php\n<?php\necho 1;\n```", "<?php\necho 1;\n"),
        ("```php\n\n<?php\ndeclare(strict_types=1);\n```", "<?php\ndeclare(strict_types=1);\n"),
        ("```php\necho 1;\n```", "<?php\necho 1;\n"),
        ("```\n<?= 1 ?>\n```", "<?= 1 ?>\n"),
        ("<think>one</think>\n\n<?php\necho 1;", "<?php\necho 1;"),
        ("Here it is:\n\n<?php\necho 1;", "<?php\necho 1;"),
    ],
)
def test_a_php_program_begins_with_its_tag(text: str, code: str) -> None:
    assert extract(text, language="php", mode=SubmissionMode.AUTO).code == code


def test_a_text_without_phps_tag_is_no_program_though_php_would_print_it() -> None:
    found = extract("42", language="php", mode=SubmissionMode.AUTO)
    assert (found.code, found.guardrails) == ("", (Guardrail.NO_CODE_FOUND,))
