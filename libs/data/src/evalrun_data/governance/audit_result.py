"""Result of an audit: plain data, as stored in `audit.json`."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Literal

from evalrun_data.governance.allow_file import AllowedOverlap, OverlapKind
from evalrun_data.governance.intra_dataset_duplicates import IntraDatasetDuplicate
from evalrun_data.governance.meaning.meaning_result import FoundBy, MeaningResult, WhyOpen
from evalrun_data.governance.prepared import PreparedDataset

AuditState = Literal["passed", "failed", "incomplete"]
"""Incomplete: nothing was found that is not allowed, and a pair is undecided."""
SCHEMA: Final = 1


@dataclass(frozen=True, slots=True)
class Overlap:
    """A problem that two datasets share."""

    kind: OverlapKind
    first: str
    """`DATASET/PROBLEM_ID`."""
    second: str
    jaccard: float
    containment: float
    allowed: str | None
    """The allow file's reason; None: not allowed, so the audit fails."""
    part: str
    """Part that matched: statement, solution or tests; whole, of all of them together."""
    found_by: Literal["text"] | FoundBy = "text"
    """The stage that found it."""
    cosine: float | None = None
    """Cosine of the statements' vectors, if an embedding model made them."""

    @property
    def datasets(self) -> tuple[str, str]:
        """Return the names of both datasets."""
        return _parse_datasets(self.first, self.second)


@dataclass(frozen=True, slots=True)
class UndecidedPair:
    """A pair that may be the same problem: it was to be judged, and was not."""

    first: str
    second: str
    cosine: float
    why: WhyOpen
    allowed: str | None
    """The allow file's reason; None: not allowed, so the audit is incomplete."""

    @property
    def datasets(self) -> tuple[str, str]:
        """Return the names of both datasets."""
        return _parse_datasets(self.first, self.second)


@dataclass(frozen=True, slots=True)
class MeaningAudit:
    """The stage that compares by meaning."""

    result: MeaningResult
    undecided: tuple[UndecidedPair, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the stage's part of audit.json."""
        result = self.result
        return {
            "embedder": {
                "sha256": dict(result.model_sha256),
                "min_cosine": result.min_cosine,
                "max_tokens": result.max_tokens,
                "texts": result.texts,
                "cut": result.cut,
            },
            "judge": None if result.judge is None else asdict(result.judge),
            "undecided": [asdict(pair) for pair in self.undecided],
        }


@dataclass(frozen=True, slots=True)
class NgramCount:
    """Number of rows of a dataset that share thirteen consecutive words with a problem of another dataset."""

    first: str
    second: str
    rows: int


@dataclass(frozen=True, slots=True)
class AuditedDataset:
    """A dataset with its manifest's hash and its state."""

    dataset: PreparedDataset
    manifest_sha256: str
    state: AuditState
    licences: Mapping[str, int] = field(default_factory=dict)
    """Records by licence, as the manifest has them; empty for manifests that were written without."""


@dataclass(frozen=True, slots=True)
class AuditResult:
    """The whole audit."""

    datasets: tuple[AuditedDataset, ...]
    overlaps: tuple[Overlap, ...]
    ngrams: tuple[NgramCount, ...]
    intra_dataset_duplicates: tuple[IntraDatasetDuplicate, ...]
    """Problems that nearly equal an earlier one of their own dataset; they stay, and fail nothing."""
    unused: tuple[AllowedOverlap, ...]
    """Entries of the allow file that cover nothing."""
    meaning: MeaningAudit | None = None
    """None: the audit compared only texts."""

    @property
    def state(self) -> AuditState:
        """Return the state of all datasets together."""
        return decide_state(self.overlaps, self.meaning.undecided if self.meaning else ())

    def to_json(self) -> dict[str, Any]:
        """Return the content of audit.json: the same for the same data, so that its hash names the audit."""
        return {
            "schema": SCHEMA,
            "state": self.state,
            "datasets": {
                audited.dataset.name: {
                    "state": audited.state,
                    "role": audited.dataset.role,
                    "split": audited.dataset.split,
                    "records": audited.dataset.kept,
                    "removed": audited.dataset.removed,
                    "manifest_sha256": audited.manifest_sha256,
                    "version": audited.dataset.version,
                    "licence": audited.dataset.licence,
                    "licences": dict(audited.licences),
                    "source_url": audited.dataset.source_url,
                }
                for audited in self.datasets
            },
            "overlaps": [asdict(overlap) for overlap in self.overlaps],
            "near_inside": [asdict(near) for near in self.intra_dataset_duplicates],
            "ngram_13": [asdict(count) for count in self.ngrams],
            "unused_allowances": [asdict(entry) for entry in self.unused],
            "meaning": None if self.meaning is None else self.meaning.to_json(),
        }


def decide_state(overlaps: Sequence[Overlap], undecided: Sequence[UndecidedPair]) -> AuditState:
    """Return the state that overlaps and undecided pairs make; those that the allow file lists count for nothing."""
    if any(overlap.allowed is None for overlap in overlaps):
        return "failed"
    return "incomplete" if any(pair.allowed is None for pair in undecided) else "passed"


def _parse_datasets(first: str, second: str) -> tuple[str, str]:
    return first.partition("/")[0], second.partition("/")[0]
