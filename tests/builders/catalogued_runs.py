"""Runs in one directory, and the catalogue over them."""

import itertools
from collections.abc import Callable, Iterable
from pathlib import Path

from builders.results.stored_runs import verdicts_of, write_run

from evalrun_results.catalogue.store import Catalogue


def write_checkpoint(root: Path, step: int, accepted: Iterable[bool | None], *, model: str = "org/model") -> Path:
    """Write a run of a checkpoint, named after its step."""
    lineage = {"schedule": "nightly", "step": step, "phase": "grpo"}
    return write_run(
        root / f"run-{step}",
        verdicts_of(accepted),
        run=f"run-{step}",
        created=f"2026-11-{step:02}T00:00:00+00:00",
        spec={"model": {"path": model}, "lineage": lineage},
        versions={"evalrun": "0.1.0"},
        gpu_seconds=10.0,
    )


def catalogue_of(root: Path, *, writer: str = "a", now: Callable[[], float] | None = None) -> Catalogue:
    """Open the catalogue of a directory, as a writer with names of its own."""
    numbers, seconds = itertools.count(), itertools.count(1000.0)
    return Catalogue(str(root), now=now or (lambda: next(seconds)), new_name=lambda: f"{writer}{next(numbers):04}")
