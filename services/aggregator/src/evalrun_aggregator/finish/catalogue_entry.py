"""Adds a run to the catalogue above its outputs, if somebody has begun one there."""

import time
import uuid

from evalrun_data.store_problems import Kind, store_problem
from evalrun_results.catalogue.location import catalogue_above


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
    except Exception as error:  # noqa: BLE001 - the stores' classes share no other base
        problem = store_problem(error)
        if problem.kind is Kind.REFUSED:  # who may write this run alone belongs to no catalogue
            return ""
        return f"nobody can tell whether there is a catalogue above {output_dir}: {problem.text}"
    if found is None:
        return ""
    from evalrun_results.catalogue.store import Catalogue  # imports pyarrow: a third of a second

    catalogue = Catalogue(
        found.catalogue, now=time.time, new_name=lambda: uuid.uuid4().hex, signer_of=lambda _: signed_by
    )
    try:
        catalogue.add(found.run)
    except Exception as error:  # noqa: BLE001 - nor those of Parquet
        return f"the run is not in the catalogue of {found.catalogue}: {error}. evalrun index {found.catalogue} adds it"
    return ""
