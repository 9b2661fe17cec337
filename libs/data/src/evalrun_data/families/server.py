"""Tests that a SandboxFusion server has."""

from dataclasses import dataclass
from typing import ClassVar

from evalrun_data.families.ground_truth import GroundTruth, PromptParts


@dataclass(frozen=True, slots=True)
class ServerTests(GroundTruth):
    """A SandboxFusion server has the tests, in the row that the problem names; judgeMode: Submit only."""

    family: ClassVar[str] = "server"

    @property
    def count(self) -> int:
        """Number of tests that we hold: none, since the server holds them."""
        return 0

    def write_chat(self, parts: PromptParts) -> str:
        """Return the problem in the server's words."""
        return parts.published
