"""HumanEval's form: a function that is called by `check`."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Self

from evalrun_data.families.ground_truth import GroundTruth, PromptParts
from evalrun_data.rows import Row

_CHAT = """\
Complete the following Python function. Answer with one Python code block that holds the complete function, with \
every import that it needs.

```python
{prompt}
```
"""


@dataclass(frozen=True, slots=True)
class CheckTest(GroundTruth):
    """HumanEval's form: a single test, whose `test` defines `check`, which is called with the function."""

    family: ClassVar[str] = "check"
    form: ClassVar[str] = "check"
    told_by: ClassVar[tuple[str, ...]] = ("test", "entry_point")
    # Records of other families have an entry point, too.
    reading_order: ClassVar[int] = 3
    wanted: ClassVar[str] = "prompt, test and entry_point"

    prompt: str
    """The raw prompt: assertions of 32, 38 and 50 call helpers that it defines."""
    test: str
    entry_point: str

    @classmethod
    def parse(cls, truth: Row) -> Self:
        """Read the check; see `GroundTruth.parse`."""
        return cls(truth.text("prompt"), truth.name("test"), truth.name("entry_point"))

    @property
    def count(self) -> int:
        """Number of tests: the whole check is a single test."""
        return 1

    def write_chat(self, parts: PromptParts) -> str:
        """Ask for the function; see `GroundTruth.write_chat`."""
        return _CHAT.format(prompt=parts.text)

    def template_words(self) -> Mapping[str, str]:
        """Return the function's name."""
        return {"entry_point": self.entry_point}
