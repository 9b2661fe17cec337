"""The model under evaluation."""

from typing import Annotated

from pydantic import Field

from evalrun_api.api_model import PLACE_RULES, ApiModel, Rule, SecretKeyReference


class Model(ApiModel):
    """The model under evaluation."""

    path: Annotated[
        str,
        Field(
            min_length=1,
            max_length=1024,
            description="A hub id (Qwen/Qwen2.5-Coder-7B-Instruct), or a directory with a model in Hugging Face's "
            "layout: "
            "pvc://CLAIM/DIR, s3://..., gs://...",
        ),
        *PLACE_RULES,
        Rule(
            "!self.startsWith('/') && !self.startsWith('.') && !self.startsWith('file:')",
            "a path of your machine means nothing in a pod: write a hub id, pvc://CLAIM/DIR, s3://... or gs://...",
            place="cluster",
        ),
    ]
    adapter: Annotated[
        str | None,
        Field(
            min_length=1,
            max_length=1024,
            description="A LoRA adapter that is evaluated on the model of path: a directory with adapter_config.json "
            "and "
            "adapter_model.safetensors, pvc://CLAIM/DIR, s3://... or gs://...",
        ),
        *PLACE_RULES,
        Rule(
            "self.contains('://') && !self.startsWith('file:')",
            "name a directory that a pod can read: write pvc://CLAIM/DIR, s3://... or gs://...",
            place="cluster",
        ),
    ] = None
    revision: str | None = Field(
        None, min_length=1, max_length=256, description="Commit, tag or branch of a hub id; unset: its main branch."
    )
    trust_remote_code: bool = Field(
        default=False, description="Run Python code that comes with the model. Only for models that you trust."
    )
    token_secret_ref: SecretKeyReference | None = Field(
        None, description="The hub's access token, for gated or private models."
    )

    RULES = (
        Rule(
            "!has(self.revision) || !self.path.contains('://')",
            "revision belongs to a hub id; a checkpoint URL names its version itself: remove revision",
            ".revision",
        ),
        Rule(
            "!has(self.adapter) || self.adapter != self.path",
            "adapter is the directory of the LoRA adapter alone: name its base model in path",
            ".adapter",
        ),
    )

    @property
    def evaluated(self) -> str:
        """Name of the evaluated weights: the adapter if the run has an adapter, else the model."""
        return self.adapter or self.path
