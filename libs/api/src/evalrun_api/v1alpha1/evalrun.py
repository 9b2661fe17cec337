"""The EvalRun object as a whole."""

from typing import Any, Final, Literal

from pydantic import AwareDatetime, ConfigDict, Field

from evalrun_api.api_model import ApiModel, Rule
from evalrun_api.v1alpha1.spec import EvalRunSpec
from evalrun_api.v1alpha1.status import EvalRunStatus

GROUP = "evalrun.dev"
VERSION = "v1alpha1"
API_VERSION: Final = "evalrun.dev/v1alpha1"
KIND: Final = "EvalRun"
HOST_NAME_RULE: Final = Rule(
    "self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",
    "metadata.name becomes part of host names: write a-z, 0-9 and '-', a letter first, no dots",
    ".metadata.name",
)
"""Applies to every object whose name is part of its pods' host names."""


class ObjectMeta(ApiModel):
    """The part of an object's metadata that evalrun reads; the API server owns its schema."""

    model_config = ConfigDict(extra="ignore")

    name: str = Field("", description="Unique in its namespace.")
    namespace: str | None = Field(None, description="The object's namespace.")
    uid: str | None = Field(None, description="Never used again for another object; set by the API server.")
    generation: int | None = Field(None, description="Counts changes of the spec; set by the API server.")
    resource_version: str | None = Field(None, description="Changes with every write; set by the API server.")
    creation_timestamp: AwareDatetime | None = Field(None, description="Set by the API server.")
    deletion_timestamp: AwareDatetime | None = Field(None, description="Set when deletion is requested.")
    labels: dict[str, str] = Field({}, description="For selection.")
    annotations: dict[str, str] = Field({}, description="Arbitrary notes by programs and people.")
    finalizers: list[str] = Field([], description="Cleanup steps that must finish before the object is removed.")


class EvalRun(ApiModel):
    """One evaluation of one model on one or more datasets, with verifiable verdicts."""

    api_version: Literal["evalrun.dev/v1alpha1"] = Field(API_VERSION, description="Group and version.")
    kind: Literal["EvalRun"] = Field(KIND, description="Kind of the object.")
    metadata: ObjectMeta = Field(description="The object's metadata.")
    spec: EvalRunSpec = Field(description="The model, the datasets, how they are evaluated, and where the results go.")
    status: EvalRunStatus | None = Field(None, description="What the operator observed; only the operator writes it.")

    RULES = (
        Rule(
            "size(self.metadata.name) <= 30",
            "metadata.name is too long for the names of the run's objects: write at most 30 characters",
            ".metadata.name",
        ),
        HOST_NAME_RULE,
    )

    @classmethod
    def from_wire(cls, manifest: dict[str, Any]) -> "EvalRun":
        """Read an object that the API server, or `manifest.load_manifest`, has validated.

        Raises:
            pydantic.ValidationError: it was not valid after all.
        """
        return cls.model_validate(manifest)
