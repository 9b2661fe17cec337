"""Adds a run to the catalogue above its outputs, if there is one."""

import time
import uuid

from evalrun_data.store_problems import Kind, store_problem
from evalrun_results.catalogue.location import catalogue_above


def add_to_catalogue(output_dir: str, *, signed_by: str) -> str:
    """Add a run whose outputs are written. Blocking. A failure leaves the outputs complete.

    Args:
        output_dir: directory of the run's outputs, a path or fsspec URL.
        signed_by: id of the key that signed it; empty if no key did.

    Returns:
        why the run could not be added, for people; empty if it was added, or if there is no catalogue.
    """
    try:
        found = catalogue_above(output_dir)
    except Exception as error:  # noqa: BLE001 - the stores' classes share no other base
        problem = store_problem(error)
        # An account that may write only this run's directory has no catalogue.
        if problem.kind is Kind.REFUSED:
            return ""
        return f"nobody can tell whether there is a catalogue above {output_dir}: {problem.text}"
    if found is None:
        return ""
    # The import loads pyarrow, which takes a third of a second.
    from evalrun_results.catalogue.store import Catalogue

    catalogue = Catalogue(
        found.catalogue, now=time.time, new_name=lambda: uuid.uuid4().hex, signer_of=lambda _: signed_by
    )
    try:
        catalogue.add(found.run)
    except Exception as error:  # noqa: BLE001 - Parquet's classes share no other base either
        return f"the run is not in the catalogue of {found.catalogue}: {error}. evalrun index {found.catalogue} adds it"
    return ""
