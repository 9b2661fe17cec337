"""Published datasets: their names, sources and roles. Contains only data."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from evalrun_data.records import Role

_HUB: Final = "https://huggingface.co/datasets"
_MBPP: Final = "https://raw.githubusercontent.com/google-research/google-research/master/mbpp/mbpp.jsonl"


@dataclass(frozen=True, slots=True)
class FusionTable:
    """A dataset in a SandboxFusion server."""

    name: str
    split: str = ""
    """Value of `config.extra.split`; empty: the server's dataset has no splits."""
    language: str = ""
    """Sent as `config.language`, without which a stock server refuses CodeContests."""


@dataclass(frozen=True, slots=True)
class PublishedDataset:
    """A dataset that users name without saying where it is."""

    source: str
    """Place of publication by its authors; mbpp_reg is read from MBPP's file by its ids."""
    role: Role | Literal[""] = ""
    """Permitted use in the evaluation protocol; empty: the user decides."""
    split: str = ""
    licence: str = ""
    source_url: str = ""
    fusion: FusionTable | None = None


def _codecontests(split: str, role: Role) -> PublishedDataset:
    return PublishedDataset(
        f"hf://datasets/deepmind/code_contests/data/{split}",
        role,
        split,
        "CC-BY-4.0",
        f"{_HUB}/deepmind/code_contests",
        FusionTable("code_contests", split, "python"),
    )


PUBLISHED: Final[Mapping[str, PublishedDataset]] = {
    "demo": PublishedDataset("builtin:demo"),
    "humaneval": PublishedDataset(
        "https://github.com/openai/human-eval/raw/master/data/HumanEval.jsonl.gz", "test", "test", "MIT",
        f"{_HUB}/openai_humaneval", FusionTable("humaneval_python"),
    ),
    "mbpp": PublishedDataset(_MBPP, fusion=FusionTable("mbpp")),
    "mbpp_reg": PublishedDataset(
        _MBPP, "dev", "test", "CC-BY-4.0", f"{_HUB}/google-research-datasets/mbpp", FusionTable("mbpp")
    ),
    "codecontests_train": _codecontests("train", "train"),
    "codecontests_valid": _codecontests("valid", "dev"),
    "codecontests_test": _codecontests("test", "test"),
}  # fmt: skip
"""Datasets by the name that evaluations use."""

EVALUATED: Final = tuple(name for name, dataset in PUBLISHED.items() if dataset.role != "train")
"""Names that `--dataset` takes: no training data."""


def known_role(name: str) -> Role | Literal[""]:
    """Return the role of a well-known dataset; empty for other names."""
    return PUBLISHED[name].role if name in PUBLISHED else ""
