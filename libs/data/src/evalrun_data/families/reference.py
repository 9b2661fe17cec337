"""The reference that a grader compares an answer with, in place of tests."""

from dataclasses import dataclass
from typing import ClassVar

from evalrun_data.families.ground_truth import GroundTruth, PromptParts


@dataclass(frozen=True, slots=True)
class Reference(GroundTruth):
    """Arguments of a grader (a user's `compute_score`) besides the completion, for datasets that name a grader."""

    family: ClassVar[str] = "reference"

    ground_truth: str
    """Content of the row as JSON, usually a text."""
    extra_info: str = "{}"
    """The row's object of that name, as JSON."""

    @property
    def count(self) -> int:
        """Number of tests: the grader's run is a single test."""
        return 1

    def write_chat(self, parts: PromptParts) -> str:
        """Return the problem in the dataset's words."""
        return parts.published
