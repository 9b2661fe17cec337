"""What a rollout reads of a run's work order. The rest of it is the aggregator's.

The spec in it is the resolved one, with every default written out; the defaults here are for orders written by hand,
and a test holds them against the EvalRun's.
"""

import hashlib
from pathlib import Path
from typing import Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from evalrun_runtime.exits import BadInputError


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", alias_generator=to_camel, populate_by_name=True)


class ModelOrder(_Part):
    """Which model is served."""

    path: str = Field(min_length=1)
    revision: str | None = None
    trust_remote_code: bool = False


class ProtocolOrder(_Part):
    """What of the protocol reaches the engine itself rather than each request."""

    max_new_tokens: int = Field(2048, ge=1)
    seed: int = Field(0, ge=0)
    deterministic: bool = False


class RolloutOrder(_Part):
    """The replicas that are asked for; fields as in the EvalRun's `rollout`."""

    engine: Literal["vllm", "sglang"] = "vllm"
    replicas: int | None = Field(None, ge=1)
    min_replicas: int | None = Field(None, ge=1)
    max_replicas: int | None = Field(None, ge=1)
    tensor_parallel: int = Field(2, ge=1)
    pipeline_parallel: int = Field(1, ge=1)
    data_parallel: int = Field(1, ge=1)
    gpus_per_node: int = Field(8, ge=1)
    dtype: str = "bfloat16"
    load_format: str = "auto"
    allow_dummy_weights: bool = False
    gpu_memory_utilization: float = Field(0.8, gt=0, le=1)
    enforce_eager: bool = False
    enable_prefix_caching: bool = True
    enable_chunked_prefill: bool = True
    max_num_seqs: int = Field(256, ge=1)
    max_num_batched_tokens: int = Field(8192, ge=1)
    prompt_length: int = Field(4096, ge=1)

    @property
    def gpus(self) -> int:
        """GPUs of one replica."""
        return self.tensor_parallel * self.pipeline_parallel * self.data_parallel

    @property
    def nodes(self) -> int:
        """Worker pods that one replica spans."""
        return -(-self.gpus // self.gpus_per_node)

    @property
    def gpus_a_node(self) -> int:
        """GPUs that one replica takes of each of its pods."""
        return min(self.gpus, self.gpus_per_node)

    @property
    def elastic(self) -> bool:
        """Whether the number of replicas follows the pending work."""
        return self.min_replicas is not None and self.max_replicas is not None


class SpecOrder(_Part):
    """What of the spec matters here."""

    model: ModelOrder
    protocol: ProtocolOrder = ProtocolOrder()
    rollout: RolloutOrder


class RunOrder(_Part):
    """One run, as the work order names it."""

    run: str = Field(min_length=1)
    namespace: str = "default"
    created: str = Field("", coerce_numbers_to_str=True)
    spec: SpecOrder

    @property
    def identity(self) -> str:
        """Tells the run from every other, also from an earlier one of its name."""
        return hashlib.sha256(f"{self.namespace}/{self.run}/{self.created}".encode()).hexdigest()[:12]


def read_run_order(path: Path) -> RunOrder:
    """Read a work order.

    Raises:
        BadInputError: the file cannot be read, or what it says cannot be used; the message names the field.
    """
    try:
        # BaseLoader leaves every scalar a string, so that `created` is not taken apart; pydantic reads the others.
        content = yaml.load(path.read_text(encoding="utf-8"), Loader=yaml.BaseLoader)  # noqa: S506 - it makes no objects
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise BadInputError(f"work order {path}: {' '.join(str(error).split())}") from error
    if not isinstance(content, dict):
        raise BadInputError(f"work order {path}: write a mapping with run, created and spec")
    if "rollout" not in (content.get("spec") or {}):
        raise BadInputError(f"work order {path}: spec.rollout is missing: this run's endpoints serve already")
    try:
        return RunOrder.model_validate(_without_nulls(content))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise BadInputError(f"work order {path}: {where}: {first['msg']}") from error


def _without_nulls(value: object) -> object:
    """Leave out fields that are null, which BaseLoader gives as a word."""
    if isinstance(value, dict):
        return {key: _without_nulls(entry) for key, entry in value.items() if entry != "null"}
    return value
