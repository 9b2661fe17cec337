"""The run configuration: the instructions to a run's processes, as a JSON or YAML file.

The operator writes it into a ConfigMap, the command line into the run's directory; both hold the spec as resolved.
Aggregator and generator import no other module of this package.
"""

import json
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError

from evalrun_api.replica_count import count_wanted_replicas
from evalrun_api.v1alpha1 import Dataset, EvalRunSpec, Gate, Protocol, Rollout
from evalrun_runtime.exits import BadInputError

__all__ = [
    "Dataset",
    "EvalRunSpec",
    "Gate",
    "Protocol",
    "Rollout",
    "RunConfig",
    "count_wanted_replicas",
    "parse_run_config",
    "read_run_config",
]


class RunConfig(BaseModel):
    """A run of a spec."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    schema_version: Literal[1] = Field(1, alias="schema")
    run: str = Field(min_length=1, max_length=253, description="The run's name: a label of every metric.")
    namespace: str = Field("default", max_length=253, description="The namespace: a label of every metric.")
    uid: str = Field("", max_length=64, description="The EvalRun's uid; empty on one machine.")
    created: AwareDatetime = Field(description="When it was asked for, with its time zone (UTC).")
    spec: EvalRunSpec
    responses: list[str] | None = Field(
        None, description="Files of answers made elsewhere, which are judged; nothing is generated then."
    )
    answers_per_problem: Annotated[int, Field(ge=1)] | Literal["AsGiven"] | None = Field(
        None,
        description="With responses: how many answers each problem should have; one that lacks is not judged. Default: "
        "the most that a problem of its dataset has. AsGiven: as many as there are; no gate takes such a run.",
    )
    k: list[Annotated[int, Field(ge=1, le=1000)]] = Field(
        default_factory=list,
        max_length=16,
        description="With responses: the k of pass@k. Default: 1, 10 and 100, as far as the answers per problem reach.",
    )
    sources: dict[str, list[str]] = Field(
        default_factory=dict,
        description="Further sources of a dataset, by its name, beside the one that the spec names. A problem in two "
        "of them must be the same in both.",
    )
    rejudge: str | None = Field(
        None,
        min_length=1,
        description="A name for judging everything again. At the first start with a name that the ledger does not know "
        "the verdicts are set aside; a later start with the same name continues.",
    )
    race_problems: int | None = Field(
        None,
        ge=0,
        description="Draw the problems by chance and end after so many of each dataset: a race gives a run more of "
        "them while it stays in it. 0: all of them, in that order.",
    )
    images: dict[str, str] = Field(
        default_factory=dict, description="The image of each part in a cluster, with its digest at best: for the audit."
    )
    base_dir: Path = Field(Path(), description="What relative sources and responses are relative to.")
    output_dir: str = Field(description="Directory of the outputs: a path or an fsspec URL.")

    def to_wire(self) -> dict[str, Any]:
        """Return the order as its file holds it; fields that were never set are left out."""
        fields = self.model_dump(mode="json", by_alias=True, exclude_unset=True, exclude={"spec"})
        return {"schema": self.schema_version, **fields, "spec": self.spec.to_wire()}


def read_run_config(path: Path) -> RunConfig:
    """Read a run configuration.

    Raises:
        BadInputError: the file cannot be read, or its content cannot be used; the message names the field.
    """
    try:
        content = _json_or_yaml(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BadInputError(f"run configuration {path}: {' '.join(str(error).split())}") from error
    return parse_run_config(content, f"run configuration {path}")


def _json_or_yaml(text: str) -> object:
    """Return what the text holds. Raises ValueError if it is neither."""
    try:
        return json.loads(text)
    except ValueError:
        import yaml  # costs 0.05 s; the operator and the command line write JSON

        try:
            return yaml.safe_load(text)
        except yaml.YAMLError as error:
            raise ValueError(str(error)) from error


def parse_run_config(content: object, where: str) -> RunConfig:
    """Return the run configuration that a document holds.

    Args:
        content: as JSON.
        where: what the document is, for the message.

    Raises:
        BadInputError: it cannot be used; the message names the field.
    """
    if not isinstance(content, dict):
        raise BadInputError(f"{where}: write a mapping with schema, run, created, spec and output_dir")
    version = content.get("schema", 1)
    if isinstance(version, int) and version > 1:
        raise BadInputError(f"{where}: schema {version} is of a newer evalrun; this one knows 1")
    try:
        return RunConfig.model_validate(_upgrade_gate_field(content))
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"])
        raise BadInputError(f"{where}: {field}: {first['msg']}") from error


def _upgrade_gate_field(content: dict[str, Any]) -> dict[str, Any]:
    """Return a configuration whose `gate`, a field of earlier releases, is the only item of `gates`."""
    spec = content.get("spec")
    if not isinstance(spec, dict) or "gate" not in spec:
        return content
    others = {name: value for name, value in spec.items() if name not in {"gate", "gates"}}
    return {**content, "spec": {**others, "gates": [] if spec["gate"] is None else [spec["gate"]]}}
