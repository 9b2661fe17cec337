"""MBPP's form: asserts, each of which is a test."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Self

from evalrun_data.families.ground_truth import GroundTruth, PromptParts
from evalrun_data.rows import Row

SHOWN_ASSERTS: Final = 3
"""No published MBPP task has more asserts; further asserts of a longer list stay hidden."""

_CHAT = """\
{prompt}

Your code should pass these tests:

```python
{asserts}
```

Answer with one Python code block that holds the complete code, with every import that it needs, and without the tests.
"""

_COMPLETION = '''\
"""
{prompt}
{asserts}
"""
'''


@dataclass(frozen=True, slots=True)
class AssertTests(GroundTruth):
    """MBPP's form: the program runs, then the setup code, then each assert, which is a test of its own."""

    family: ClassVar[str] = "asserts"
    form: ClassVar[str] = "asserts"
    told_by: ClassVar[tuple[str, ...]] = ("test_list",)
    reading_order: ClassVar[int] = 1
    wanted: ClassVar[str] = "test_list, test_setup_code and entry_point"

    test_list: tuple[str, ...]
    test_setup_code: str
    entry_point: str
    prelude: str = ""
    """Code before the program: the imports that a benchmark's own harness offers to programs."""

    @classmethod
    def parse(cls, truth: Row) -> Self:
        """Read the asserts; see `GroundTruth.parse`."""
        asserts = truth.texts("test_list")
        if not asserts:
            raise truth.error(f"field '{truth.path}test_list' is empty: a problem needs at least one test")
        setup, prelude = truth.optional_text("test_setup_code"), truth.optional_text("prelude")
        return cls(asserts, setup, truth.name("entry_point"), prelude)

    @property
    def count(self) -> int:
        """Number of tests: one per assert."""
        return len(self.test_list)

    def write_chat(self, parts: PromptParts) -> str:
        """Ask for code that passes the asserts; see `GroundTruth.write_chat`."""
        return _CHAT.format(prompt=parts.text, asserts=self._shown)

    def write_completion(self, parts: PromptParts) -> str:
        """Put the task with its asserts into a docstring; see `GroundTruth.write_completion`."""
        return _COMPLETION.format(prompt=parts.text, asserts=self._shown)

    def template_words(self) -> Mapping[str, str]:
        """Return the asserts that a prompt shows, and the function's name."""
        return {"asserts": self._shown, "entry_point": self.entry_point}

    def to_message(self) -> dict[str, Any]:
        """Return the message's fields. Two of them have other names than in the record."""
        return {
            "asserts": self.test_list,
            "setup_code": self.test_setup_code,
            "entry_point": self.entry_point,
            "prelude": self.prelude,
        }

    @property
    def _shown(self) -> str:
        return "\n".join(text.strip() for text in self.test_list[:SHOWN_ASSERTS])
