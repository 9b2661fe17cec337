"""Result of an audit: plain data, as stored in `audit.json`."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Literal

from evalrun_data.governance.allow_file import AllowedOverlap, OverlapKind
from evalrun_data.governance.intra_dataset_duplicates import IntraDatasetDuplicate
from evalrun_data.governance.prepared import PreparedDataset

AuditState = Literal["passed", "failed"]
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
    """By which it was found: statement, solution or tests; whole, of all of them together."""

    @property
    def datasets(self) -> tuple[str, str]:
        """Return the names of both datasets."""
        return self.first.partition("/")[0], self.second.partition("/")[0]


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

    @property
    def state(self) -> AuditState:
        """Return `failed` if any overlap is not allowed."""
        return "failed" if any(overlap.allowed is None for overlap in self.overlaps) else "passed"

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
        }
