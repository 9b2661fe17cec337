"""Writes what a generator renders, or checks that it is up to date."""

from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def write_or_check(rendered: Mapping[Path, str], arguments: list[str], source: str) -> int:
    """Write the files that differ, or with `--check` name them; return the exit code, 1 if a checked file differs.

    Args:
        rendered: each file's text, by its path from the project's root.
        arguments: arguments of the command line.
        source: what the files are generated from, for the message.
    """
    differing = {path: text for path, text in rendered.items() if _read(ROOT / path) != text}
    for path, text in differing.items():
        if "--check" in arguments:
            print(f"{path} is not what {source} says: run `make generate`")
            continue
        (ROOT / path).parent.mkdir(parents=True, exist_ok=True)
        (ROOT / path).write_text(text, encoding="utf-8")
        print(f"wrote {path}")
    return 1 if differing and "--check" in arguments else 0


def _read(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.exists() else None
