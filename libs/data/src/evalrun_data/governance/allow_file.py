"""The allow file: overlaps that people have looked at and accept, each with the reason.

```yaml
- {first: codecontests_train/1575_A. Another Sorting Problem, second: humaneval/HumanEval/33, reason: same title only}
- {first: mbpp, second: mbpp_reg, reason: mbpp_reg is a part of mbpp by design}
```
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from evalrun_data.governance.yaml_rows import parse_entries, read_yaml
from evalrun_data.rows import Row

OverlapKind = Literal["exact", "near", "meaning"]
KINDS: Final[tuple[OverlapKind, ...]] = ("exact", "near", "meaning")


@dataclass(frozen=True, slots=True)
class AllowedOverlap:
    """An entry: a pair of problems (`DATASET/PROBLEM_ID`) or of whole datasets, in either order."""

    first: str
    second: str
    reason: str
    kind: OverlapKind | None = None
    """None allows every kind."""

    def allows(self, kind: OverlapKind, one: str, other: str) -> bool:
        """Return whether the entry covers an overlap of two problems."""
        if self.kind not in {None, kind}:
            return False
        return (_names(self.first, one) and _names(self.second, other)) or (
            _names(self.first, other) and _names(self.second, one)
        )


def read_allow_file(file: Path) -> tuple[AllowedOverlap, ...]:
    """Read an allow file. Raises BadInputError if it cannot be read or an entry is not complete."""
    return tuple(_entry(row) for row in parse_entries(read_yaml(file), file, "a list of allowed overlaps"))


def _entry(row: Row) -> AllowedOverlap:
    row.refuse_other_fields("first", "second", "reason", "kind")
    kind = next((known for known in KINDS if known == row.values.get("kind")), None)
    if row.has("kind") and kind is None:
        raise row.error(f"field 'kind' is '{row.values['kind']}': write one of {', '.join(KINDS)}, or leave it out")
    return AllowedOverlap(row.name("first"), row.name("second"), row.name("reason"), kind)


def _names(pattern: str, key: str) -> bool:
    return key == pattern or ("/" not in pattern and key.startswith(f"{pattern}/"))
