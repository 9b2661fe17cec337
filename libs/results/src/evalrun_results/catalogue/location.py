"""Finds the catalogue that a run belongs to. Does not import Parquet, because most runs have no catalogue."""

from dataclasses import dataclass
from typing import Final

from evalrun_results.outputs.destination import resolve_destination

FOLDER: Final = ".evalrun-catalogue"
LEVELS: Final = 3
"""Number of directories above a run in which its catalogue may lie: the runs of a schedule lie in a directory of their
own."""


@dataclass(frozen=True, slots=True)
class CataloguePlace:
    """A run of a catalogue."""

    catalogue: str
    """Directory or URL of the runs."""
    run: str
    """The run's place below it."""


def catalogue_above(place: str) -> CataloguePlace | None:
    """Return the nearest catalogue in the `LEVELS` directories above a run; None if there is no catalogue.

    Args:
        place: the run's directory or URL.

    Raises:
        BadInputError: the URL cannot be used.
        OSError: the store cannot be reached, or does not let us look.
    """
    files, path = resolve_destination(place)
    above, run = path.rstrip("/"), ""
    for _ in range(LEVELS):
        above, _, name = above.rpartition("/")
        if not above or not name:
            return None
        run = f"{name}/{run}" if run else name
        if files.exists(f"{above}/{FOLDER}/runs"):
            return CataloguePlace(place.rstrip("/").removesuffix(f"/{run}"), run)
    return None
