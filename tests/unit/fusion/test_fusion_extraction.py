import pytest

from evalrun_sandbox.fusion.extraction import find_first_block, find_first_of_language

TWO = "```python\nfirst\n```\nand\n```python\nsecond\n```"


@pytest.mark.parametrize(
    ("completion", "language", "code"),
    [
        (TWO, "python", "first"),
        ("<think>\n```python\nthought\n```\n</think>\n```python\nanswer\n```", "python", "thought"),
        ("```\nuntagged\n```\n```python\ntagged\n```", "python", "tagged"),
        ("```java\nj\n```\n```py\np\n```", "python", "p"),
        ("```java\nj\n```\n```text\nt\n```", "python", "j"),
        ("```py3\nfirst of any\n```", "python", "first of any"),
        ("```Python3\na\n```", "python", "a"),
        ("```c++\nint main(){}\n```", "cpp", "int main(){}"),
        ("```python\r\na\r\nb\r\n```", "python", "a\r\nb\r"),
        ("  ```python\n  x = 1\n  ```", "python", "  x = 1"),
        ("```python\nunclosed()\n", "python", "unclosed()\n"),
        ("```python\nx = 1```", "python", "x = 1```"),
        ("```python\na\n```\n```python\nunclosed", "python", "a"),
        ("~~~python\nx\n~~~", "python", ""),
        ("print(1)", "python", ""),
        ("Sure.\nimport os\n\ndef f(x):\n\n    return x\n\ndef g():\n    pass\n", "python",
         "import os\ndef f(x):\n    return x\n"),
        ("int main() {\n  return 0;\n}\n", "cpp", ""),
        ("", "python", ""),
    ],
)  # fmt: skip
def test_the_first_block_of_the_language_wins(completion: str, language: str, code: str) -> None:
    assert find_first_of_language(completion, language) == code


@pytest.mark.parametrize(
    ("completion", "code"),
    [
        ("```java\nj\n```\n```python\np\n```", "j"),
        ("```python\r\na\r\n```", "a"),
        ('```python\ndef f(): pass\nif __name__ == "__main__":\n    f()\n```', "def f(): pass"),
        ("```python\ndef f(): pass\n# Example usage\nf()\n```", "def f(): pass"),
        ("def f(x):\n    return x\n", "def f(x):\n    return x\n"),
        ("nothing", ""),
    ],
)
def test_the_first_block_of_any_language_wins_without_its_main_guard(completion: str, code: str) -> None:
    assert find_first_block(completion) == code
