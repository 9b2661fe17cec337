"""Adds a run to the catalogue above its outputs, if somebody has begun one there."""

import time
import uuid

from evalrun_results.catalogue.location import catalogue_above
from evalrun_runtime.exits import BadInputError


def add_to_catalogue(output_dir: str, *, signed_by: str) -> str:
    """Add a run whose outputs are written. Blocking. The outputs are whole whatever becomes of it.

    Args:
        output_dir: the run's, a path or fsspec URL.
        signed_by: id of the key that signed it; empty if none did.

    Returns:
        why it could not be added, for people; empty where it was, or where there is no catalogue.
    """
    try:
        found = catalogue_above(output_dir)
    except PermissionError:  # who may write this run alone belongs to no catalogue
        return ""
    except OSError as error:
        return f"nobody can tell whether there is a catalogue above {output_dir}: {error}"
    if found is None:
        return ""
    import pyarrow as pa  # costs a third of a second

    from evalrun_results.catalogue.store import Catalogue

    catalogue = Catalogue(
        found.catalogue, now=time.time, new_name=lambda: uuid.uuid4().hex, signer_of=lambda _: signed_by
    )
    try:
        catalogue.add(found.run)
    except (BadInputError, OSError, pa.ArrowException) as error:
        return f"the run is not in the catalogue of {found.catalogue}: {error}. evalrun index {found.catalogue} adds it"
    return ""
