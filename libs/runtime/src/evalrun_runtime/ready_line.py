"""The line by which a service says that it can serve, and where."""

import re


def ready_line(name: str, address: str) -> str:
    """Return the line that a service prints on stdout once it can serve."""
    return f"evalrun {name} ready on {address}"


def parse_ready_line(line: str) -> str | None:
    """Return the address that a ready line names; None for any other line."""
    found = re.fullmatch(r"evalrun \S+ ready on (\S+)", line.strip())
    return found.group(1) if found else None
