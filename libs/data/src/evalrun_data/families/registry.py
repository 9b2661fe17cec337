"""The families whose tests a record may hold: every record class in the modules of this package."""

from typing import Final

from evalrun_data import families
from evalrun_data.families.ground_truth import GroundTruth
from evalrun_data.rows import Row
from evalrun_registry.discovery import classes_in

RECORDS: Final = sorted(
    classes_in(families, GroundTruth),  # type: ignore[type-abstract]  # what is found is not abstract
    key=lambda record: record.reading_order,
)
"""Families in the order in which they are tried."""


def parse_ground_truth(truth: Row) -> GroundTruth:
    """Return the tests by family, told apart by their fields. Raises BadInputError if there are none."""
    for record in RECORDS:
        if any(truth.has(field) for field in record.told_by):
            return record.parse(truth)
    wanted = ", or ".join(record.wanted for record in RECORDS if record.wanted)
    raise truth.error(f"field '{truth.path.rstrip('.')}' holds no tests: expected {wanted}")
