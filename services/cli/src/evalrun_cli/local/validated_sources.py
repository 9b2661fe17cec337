"""Reads the problem files that a spec names on this machine, before anything is generated."""

from pathlib import Path

from evalrun_api.v1alpha1 import EvalRunSpec
from evalrun_data.readers import load_problems


def check_sources(spec: EvalRunSpec, directory: Path) -> list[str]:
    """Check each source that is a file on this machine. Return a line for each such file that is missing.

    Args:
        spec: spec of a run on one machine.
        directory: directory of its manifest.

    Raises:
        BadInputError: a file has mistakes; the message lists all of them with their lines.
    """
    missing = []
    for dataset in spec.datasets:
        if "://" in dataset.source or dataset.source.startswith("builtin:"):
            continue
        if (directory / dataset.source).exists():
            load_problems(dataset.source, dataset.name, base_dir=directory)
        else:
            missing.append(f"{dataset.name}: source {dataset.source}: no such file")
    return missing
