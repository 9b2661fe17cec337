"""Reads the duration of the steps of an engine's start from vLLM's log, the only source for it.

Texts of vLLM 0.24 and 0.28. They are figures for people and decide nothing; one that is not found is left out.
"""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

TEXTS: Final[Mapping[str, re.Pattern[str]]] = {
    "weights_seconds": re.compile(r"Model loading took \S+ GiB(?: memory)? and ([0-9.]+) seconds"),
    "compile_seconds": re.compile(r"torch\.compile took ([0-9.]+) s in total"),
    "graphs_seconds": re.compile(r"Graph capturing finished in ([0-9.]+) secs"),
}
MAX_BYTES: Final = 4 << 20
"""Of a log, from its beginning: an engine starts before it answers."""


def start_times(text: str) -> dict[str, str]:
    """Return the seconds of each part, of the slowest process where several tell them. Pure."""
    found = {name: [float(value) for value in pattern.findall(text)] for name, pattern in TEXTS.items()}
    return {name: f"{max(values):.1f}" for name, values in found.items() if values}


def read_own_start_times() -> dict[str, str]:
    """Return the seconds that the files say which this process's stdout and stderr go to."""
    texts = []
    for place in {os.path.realpath(f"/proc/self/fd/{descriptor}") for descriptor in (1, 2)}:
        if Path(place).is_file():
            with Path(place).open("rb") as file:
                texts.append(file.read(MAX_BYTES).decode(errors="replace"))
    return start_times("\n".join(texts))
