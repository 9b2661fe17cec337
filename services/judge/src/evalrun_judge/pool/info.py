"""Combines the capabilities that the sandboxes of a pool report. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from evalrun_executor.api import LEVELS, Level
from evalrun_judge.sandboxes import Backend


@dataclass(frozen=True, slots=True)
class PoolInfo:
    """Capabilities of a pool."""

    backend: str
    level: Level
    """Weakest level of all sandboxes."""
    slots: int
    languages: tuple[str, ...]
    """Languages that every sandbox supports."""
    python_version: str
    """Python's version; several, separated by commas, where the sandboxes differ."""
    versions: str = ""
    """Versions of the sandboxes' own code, separated by commas where they differ."""
    submits: bool = False
    """Whether every sandbox has datasets, and judges completions by their tests."""


def combine_info(backends: Sequence[Backend]) -> PoolInfo:
    """Combine the descriptions of sandboxes. Raises ValueError if there are none."""
    if not backends:
        raise ValueError("no sandbox, no pool")
    infos = [backend.info for backend in backends]
    spoken = set(infos[0].languages).intersection(*(info.languages for info in infos))
    return PoolInfo(
        backend=backends[0].name,
        level=min((info.level for info in infos), key=LEVELS.index),
        slots=sum(info.slots for info in infos),
        languages=tuple(language for language in infos[0].languages if language in spoken),
        python_version=", ".join(dict.fromkeys(info.python_version for info in infos)),
        versions=", ".join(dict.fromkeys(info.version for info in infos)),
        submits=all(backend.submits for backend in backends),
    )
