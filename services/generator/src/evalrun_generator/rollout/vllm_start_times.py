"""Reads the duration of the steps of an engine's start from vLLM's log, their only source.

The texts are those of vLLM 0.24 and 0.28. The numbers are for people and decide nothing; a missing number is left out.
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
"""Maximum bytes read of a log, from its beginning: an engine starts before it serves."""


def start_times(text: str) -> dict[str, str]:
    """Return the seconds of each part, of the slowest process if several report them. Pure."""
    found = {name: [float(value) for value in pattern.findall(text)] for name, pattern in TEXTS.items()}
    return {name: f"{max(values):.1f}" for name, values in found.items() if values}


def read_own_start_times() -> dict[str, str]:
    """Return the times in the files to which this process's stdout and stderr go."""
    texts = []
    for place in {os.path.realpath(f"/proc/self/fd/{descriptor}") for descriptor in (1, 2)}:
        if Path(place).is_file():
            with Path(place).open("rb") as file:
                texts.append(file.read(MAX_BYTES).decode(errors="replace"))
    return start_times("\n".join(texts))
