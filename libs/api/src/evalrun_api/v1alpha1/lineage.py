"""The origin of a model: the training and its checkpoint that a run evaluates."""

from typing import Annotated

from pydantic import Field

from evalrun_api.api_model import PRINTABLE_RULE, ApiModel, DnsName, Rule

MAX_STEP = 999_999_999_999_999
Step = Annotated[int, Field(ge=0, le=MAX_STEP)]
"""A training step, as in the name of the checkpoint's directory."""


class Lineage(ApiModel):
    """The checkpoint's place in its training, for labels, run_info, exports and the curve over steps."""

    schedule: DnsName | None = Field(
        None, description="The EvalSchedule that created the run, or any name for the curve."
    )
    step: Step | None = Field(None, description="The training step of the checkpoint.")
    phase: Annotated[
        str | None,
        Field(
            min_length=1,
            max_length=63,
            description='The phase of the training, e.g. "sft", "dpo" or "grpo".',
        ),
        Rule(
            "self.matches('^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$')",
            "becomes a label: write a-z, A-Z, 0-9, '-', '_' and '.', a letter or digit first and last",
        ),
    ] = None
    parent: Annotated[
        str | None,
        Field(
            min_length=1,
            max_length=1024,
            description="What it was trained from or is compared with: the name of an EvalRun, or a checkpoint's URL. "
            "A schedule writes the run of the previous checkpoint.",
        ),
        PRINTABLE_RULE,
    ] = None
