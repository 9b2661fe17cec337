"""Roles of a finished run's datasets, which tables show and gates check. Pure."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from evalrun_data.published import known_role

if TYPE_CHECKING:
    # The import takes a third of the time of `evalrun show`, which checks no gate.
    from evalrun_api.v1alpha1 import Gate


def role_in(run_info: Mapping[str, object], dataset: str) -> str:
    """Return `train`, `dev` or `test` as the run recorded it; empty if it recorded that it does not know.

    A run that recorded no role at all is older than roles: then the datasets' well-known names decide.
    """
    datasets = run_info.get("datasets")
    recorded = datasets.get(dataset) if isinstance(datasets, Mapping) else None
    if isinstance(recorded, Mapping) and isinstance(role := recorded.get("role"), str):
        return role
    return known_role(dataset)


def render_dataset_name(dataset: str, role: str) -> str:
    """Return a dataset's name for a heading, with its role if it is known."""
    return f"{dataset} (role: {role})" if role else dataset


def refusal_for_role(gate: "Gate", dataset: str, role: str) -> str | None:
    """Return why a gate may not use a dataset, or None if it may. Test data is not for tuning."""
    if role != "test" or dataset in gate.allow_test_role:
        return None
    return (
        f"'{dataset}' is test data, for the end of a phase and not for tuning: gate a dev dataset, or write "
        f"allowTestRole: [{dataset}]"
    )
