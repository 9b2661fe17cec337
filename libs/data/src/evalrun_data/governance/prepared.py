"""Record of a preparation, as stored in `data_manifests/datasets.json`."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from evalrun_runtime.exits import BadInputError

MANIFESTS: Final = "data_manifests"
DATASETS: Final = "datasets.json"
PREPARED: Final = "prepared.json"
"""Written last: the directory is complete as soon as this file exists."""
AUDIT: Final = "audit.json"
REPORT: Final = "audit_report.md"


@dataclass(frozen=True, slots=True)
class PreparedSource:
    """A raw file of a dataset."""

    name: str
    source: str
    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class PreparedDataset:
    """A dataset of a prepared directory."""

    name: str
    role: str
    split: str
    version: str
    licence: str
    source_url: str
    sources: tuple[PreparedSource, ...]
    kept: int
    removed: int
    """Removed duplicates: records whose canonical text an earlier record has."""

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> "PreparedDataset":
        """Create it from its JSON."""
        return cls(**{**value, "sources": tuple(PreparedSource(**source) for source in value["sources"])})

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON."""
        return asdict(self)


def read_prepared(directory: Path) -> list[PreparedDataset]:
    """Read a prepared directory. Raises BadInputError if it is not a finished prepared directory."""
    manifests = directory / MANIFESTS
    if not (manifests / PREPARED).exists():
        hint = "the preparation was interrupted: run `evalrun data prepare` again, it goes on"
        if not (directory / ".preparing").exists():
            hint = "name the directory that `evalrun data prepare --output` wrote"
        raise BadInputError(f"{directory}: is no prepared directory ({manifests / PREPARED} is missing): {hint}")
    try:
        return [
            PreparedDataset.from_json(item) for item in json.loads((manifests / DATASETS).read_text(encoding="utf-8"))
        ]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BadInputError(f"{manifests / DATASETS}: is damaged ({error}): prepare the data again") from error
