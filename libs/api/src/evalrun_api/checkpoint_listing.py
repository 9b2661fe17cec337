"""Request of a schedule to the Job that lists its checkpoints, and the Job's answer.

The answer is the pod's termination message, which Kubernetes cuts at 4,096 bytes: it holds the checkpoints that are to
be evaluated now and those in trouble, not the whole directory. So the operator needs no right to read pods' logs.
"""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from evalrun_api.v1alpha1.lineage import Step

MAX_ANSWER_BYTES = 4000
DIGEST_DIGITS = 10
"""Of a checkpoint's digest, in a run's name."""
MAX_TROUBLES = 8
"""Checkpoints in trouble that an answer names."""


class UnreadableAnswerError(Exception):
    """Raised when a Job's termination message holds no answer."""


class _Message(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ListingRequest(_Message):
    """Directory of the checkpoints, and the checkpoints that are already evaluated."""

    url: str = Field(min_length=1, description="The directory of the checkpoints: fsspec URL or path.")
    pattern: str = Field("*", description="Names of the checkpoints' directories.")
    policy: Literal["Latest", "EveryNew"] = Field("Latest", description="Which of the new ones are wanted.")
    limit: int = Field(4, ge=1, le=16, description="With EveryNew, how many at most.")
    ready_marker: str | None = Field(None, description="A file that the trainer writes last.")
    quiet_seconds: int = Field(300, ge=0, description="Without marker and tracker, how long nothing may be written.")
    from_step: int | None = Field(None, description="Checkpoints of lower steps are not looked at.")
    merge: bool = Field(default=False, description="Shards that verl's merger makes a model of count as ready.")
    base: str | None = Field(None, description="The model that LoRA adapters are served on.")
    serves_adapters: bool = Field(default=True, description="Whether the engine serves LoRA adapters.")
    known: list[str] = Field([], description="The first digits of the digests that have been evaluated.")
    known_steps: list[int] = Field([], description="The steps of `known`, in the same order.")


class ReadyCheckpoint(_Message):
    """A checkpoint that is to be evaluated: complete, whole, and new."""

    path: Annotated[str, Field(max_length=512)] = Field(description="The model's directory below `url`.")
    step: Step = Field(description="The training step.")
    digest: str = Field(min_length=DIGEST_DIGITS, max_length=64, pattern="^[0-9a-f]+$", description="Of its files.")
    merge: bool = Field(default=False, description="It holds shards that are to be merged.")
    adapter: bool = Field(default=False, description="It is a LoRA adapter, or shards of which the merger makes one.")


class Trouble(_Message):
    """A checkpoint that gets no run for now."""

    name: Annotated[str, Field(max_length=255)] = Field(description="Its directory's name.")
    broken: bool = Field(description="It is complete but lacks something; otherwise it is still being written.")
    reason: Annotated[str, Field(max_length=512)] = Field(description="What is missing.")


class ListingAnswer(_Message):
    """Result of listing checkpoints."""

    version: Literal[1] = Field(1, alias="schema")
    folders: int = Field(ge=0, description="Directories that match the pattern.")
    ready: list[ReadyCheckpoint] = Field([], description="By step.")
    troubles: list[Trouble] = Field([], description="By step, the newest last.")
    more: bool = Field(default=False, description="There are more than the answer, or the limit, holds.")
    newest: int | None = Field(None, description="The highest step in the directory, whatever was asked for.")
    note: Annotated[str, Field(max_length=512)] = Field(
        "", description="What else to know, e.g. that nothing is there."
    )
    question: Annotated[str, Field(max_length=512)] = Field(
        "", description="What only the user knows: whether a checkpoint's number is right. Empty: nothing is asked."
    )


def encode_answer(answer: ListingAnswer) -> str:
    """Return an answer as text that fits a termination message; `more` says if something was left out."""
    ready, troubles = list(answer.ready), list(answer.troubles[-MAX_TROUBLES:])
    while True:
        cut = len(ready) < len(answer.ready) or len(troubles) < len(answer.troubles)
        kept = answer.model_copy(update={"ready": ready, "troubles": troubles, "more": answer.more or cut})
        text = kept.model_dump_json(by_alias=True, exclude_defaults=True)
        if len(text.encode()) <= MAX_ANSWER_BYTES or not (troubles or ready):
            return text
        if troubles:
            troubles.pop(0)
        else:
            ready.pop()


def decode_answer(text: str) -> ListingAnswer:
    """Return the answer that a termination message holds.

    Raises:
        UnreadableAnswerError: the text holds no answer.
    """
    try:
        return ListingAnswer.model_validate_json(text)
    except ValidationError as error:
        raise UnreadableAnswerError(f"the Job's answer cannot be read: {' '.join(text.split())[:200]!r}") from error
