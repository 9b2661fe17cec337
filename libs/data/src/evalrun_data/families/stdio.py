"""Programs that read stdin and print."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Literal, Self

from evalrun_data.families.ground_truth import GroundTruth, PromptParts
from evalrun_data.rows import Row
from evalrun_registry.languages import LANGUAGES

TestGroup = Literal["public", "private", "generated"]
TEST_GROUPS: Final[tuple[TestGroup, ...]] = ("public", "private", "generated")

_CHAT = """\
Solve the following problem with a {language} program. The program reads its input from standard input and writes its \
answer to standard output, and nothing else. Answer with one {tag} code block that holds the complete program.

{prompt}
"""

_COMPLETION: Final = """\
{start}
{prompt}

Read from standard input, write to standard output.
{end}
"""


@dataclass(frozen=True, slots=True)
class StdioTests(GroundTruth):
    """A test per pair: the program reads `inputs[i]` on stdin and should print `outputs[i]`."""

    family: ClassVar[str] = "stdio"
    form: ClassVar[str] = "stdio"
    told_by: ClassVar[tuple[str, ...]] = ("inputs", "outputs")
    reading_order: ClassVar[int] = 0
    wanted: ClassVar[str] = "inputs and outputs"

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    groups: tuple[TestGroup, ...] = ()
    """Group of each test; empty if the source names none."""
    prelude: str = ""
    """Python code before the program, where that is Python: the imports that a benchmark's own harness offers."""

    @classmethod
    def parse(cls, truth: Row) -> Self:
        """Read the pairs; see `GroundTruth.parse`."""
        inputs, outputs = truth.texts("inputs"), truth.texts("outputs")
        if len(inputs) != len(outputs):
            raise truth.error(f"field '{truth.path.rstrip('.')}' has {len(inputs)} inputs but {len(outputs)} outputs")
        if not inputs:
            raise truth.error(f"field '{truth.path}inputs' is empty: a problem needs at least one test")
        groups: list[TestGroup] = []
        for name in truth.texts("groups") if truth.has("groups") else ():
            group = next((known for known in TEST_GROUPS if known == name), None)
            if group is None:
                raise truth.error(f"field '{truth.path}groups' has '{name}' (known: {', '.join(TEST_GROUPS)})")
            groups.append(group)
        if groups and len(groups) != len(inputs):
            raise truth.error(f"field '{truth.path.rstrip('.')}' has {len(inputs)} inputs but {len(groups)} groups")
        return cls(inputs, outputs, tuple(groups), truth.optional_text("prelude"))

    @property
    def count(self) -> int:
        """Number of tests."""
        return len(self.inputs)

    def select_groups(self, wanted: Collection[str]) -> "StdioTests":
        """Return the tests of these groups, in order. Meaningful only if `groups` is not empty."""
        kept = [i for i, group in enumerate(self.groups) if group in wanted]
        return StdioTests(
            tuple(self.inputs[i] for i in kept),
            tuple(self.outputs[i] for i in kept),
            tuple(self.groups[i] for i in kept),
            self.prelude,
        )

    def write_chat(self, parts: PromptParts) -> str:
        """Ask for a whole program; see `GroundTruth.write_chat`."""
        return _CHAT.format(prompt=parts.text, language=parts.language_name, tag=parts.language)

    def write_completion(self, parts: PromptParts) -> str:
        """Put the problem into a comment; see `GroundTruth.write_completion`."""
        start, end = LANGUAGES[parts.language].comment
        return _COMPLETION.format(start=start, prompt=parts.text, end=end)

    def to_message(self) -> dict[str, Any]:
        """Return the pairs: groups are not sent, and the prelude goes with the submission."""
        pairs = zip(self.inputs, self.outputs, strict=True)
        return {"tests": [{"input": given, "expected_output": expected} for given, expected in pairs]}
