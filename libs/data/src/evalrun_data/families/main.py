"""MultiPL-E's form and HumanEval-X's: a `main` that asserts."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Self

from evalrun_data.families.ground_truth import GroundTruth, PromptParts
from evalrun_data.rows import Row

_CHAT = """\
Complete the following {language} function. Answer with one {tag} code block that holds the complete function, with \
every {import_word} that it needs, and without {left_out}.

```{tag}
{prompt}
```
"""

_WORDS = {
    "go": {"import_word": "import", "left_out": "a main function"},
    "java": {"import_word": "import", "left_out": "a main method"},
    "javascript": {"import_word": "require", "left_out": "tests"},
    "lua": {"import_word": "require", "left_out": "tests"},
    "php": {"import_word": "use", "left_out": "tests"},
    "ruby": {"import_word": "require", "left_out": "tests"},
    "typescript": {"import_word": "import", "left_out": "tests"},
    "rust": {"import_word": "use", "left_out": "a main function"},
}
_OTHER_WORDS = {"import_word": "include", "left_out": "a main function"}


@dataclass(frozen=True, slots=True)
class MainTest(GroundTruth):
    """MultiPL-E's form and HumanEval-X's: a single test, a `main` with assertions that follows the program."""

    family: ClassVar[str] = "main"
    form: ClassVar[str] = "main"
    told_by: ClassVar[tuple[str, ...]] = ("main",)
    wanted: ClassVar[str] = "prompt, main and entry_point"

    prompt: str
    """Prompt that ends within the function that the completion continues."""
    main: str
    """All asserting code of the dataset: a `main` in C++ and Rust, and elsewhere code that calls the tests."""
    entry_point: str

    @classmethod
    def parse(cls, truth: Row) -> Self:
        """Parse the asserting function; see `GroundTruth.parse`."""
        return cls(truth.text("prompt"), truth.name("main"), truth.name("entry_point"))

    @property
    def count(self) -> int:
        """Number of tests: all asserts together are a single test."""
        return 1

    def write_chat(self, parts: PromptParts) -> str:
        """Ask for the function; see `GroundTruth.write_chat`."""
        words = _WORDS.get(parts.language, _OTHER_WORDS)
        return _CHAT.format(prompt=parts.text, language=parts.language_name, tag=parts.language, **words)

    def explain_refusal(self, language: str) -> str:
        """Return why no completion can be judged; see `GroundTruth.explain_refusal`. So it is with HumanEval-X's
        Rust/32."""
        return "its tests are a comment" if self.main.lstrip().startswith("/*") else ""

    def template_words(self) -> Mapping[str, str]:
        """Return the function's name."""
        return {"entry_point": self.entry_point}
