"""`evalrun view --export`: the page and the runs as static files, for any web server or bucket."""

import gzip
import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO, Final

from evalrun_api.names import EVAL_RUN_PREFIX
from evalrun_cli.viewer.prompt_file import PROMPT_INDEX, PROMPTS
from evalrun_cli.viewer.run_view import RunView
from evalrun_cli.viewer.server import encode_runs, web_files
from evalrun_cli.viewer.shown_runs import shown_runs
from evalrun_results.samples import JsonObject
from evalrun_runtime.exits import BadInputError

PACKED: Final = "texts.bin"
_LEVEL: Final = 5


def export_view(places: Sequence[str], site: Path) -> None:
    """Write the page of the ended runs in these places into a new directory.

    Raises:
        BadInputError: the directory is not empty or cannot be written, or a run has not ended or cannot be read.
    """
    if site.exists() and (not site.is_dir() or any(site.iterdir())):
        raise BadInputError(f"--export {site}: is not empty: name another directory")
    if any(place.startswith(EVAL_RUN_PREFIX) for place in places):
        raise BadInputError("--export: is of files on this machine: fetch them with evalrun results NAME --output DIR")
    with shown_runs(places) as runs:
        views = runs.require_runs()
        running = [view.place for view in views.values() if view.is_live]
        if running:
            raise BadInputError(f"{running[0]}: has not ended: wait for it, or look at it with evalrun view")
        try:
            _write_site(site, list(views.values()))
        except OSError as error:
            raise BadInputError(f"--export {error.filename or site}: {error.strerror or error}") from error


def _write_site(site: Path, views: Sequence[RunView]) -> None:
    (site / "app").mkdir(parents=True)
    for name, content in web_files().items():
        target = site / name if name == "index.html" else site / "app" / name
        target.write_bytes(content)
    (site / "data").mkdir()
    for view in views:
        _write_run(view, site / "data" / view.run_id)
    # Readers of the site must not learn the paths of this machine.
    listed = encode_runs({view.run_id: view for view in views}, are_places_shown=False)
    (site / "data" / "runs.json").write_bytes(listed)


def _write_run(view: RunView, directory: Path) -> None:
    directory.mkdir()
    description = view.export_description()
    segments: Any = description["segments"]
    with (directory / PACKED).open("wb") as packed:
        for segment in segments:
            for suffix in ("columns", "words"):
                _copy(view, f"{segment['name']}.{suffix}", directory)
            with _open(view, segment["texts"]["file"]) as lines:
                segment["texts"] = _pack_texts(segment["texts"], lines, packed)
    for name in (PROMPTS, PROMPT_INDEX) if description["prompts"] else ():
        _copy(view, name, directory)
    (directory / "run.json").write_text(json.dumps({**description, "place": ""}), encoding="utf-8")


def _pack_texts(texts: dict[str, Any], lines: BinaryIO, packed: BinaryIO) -> JsonObject:
    """Append a segment's groups of lines, each compressed by itself, and return where they lie."""
    start, before = packed.tell(), 0
    ends: list[int] = []
    lines.seek(texts["start"])
    for end in texts["ends"]:
        packed.write(gzip.compress(lines.read(end - before), _LEVEL, mtime=0))
        ends.append(packed.tell() - start)
        before = end
    return {"file": PACKED, "start": start, "rows": texts["rows"], "ends": [*ends], "packed": True}


def _copy(view: RunView, name: str, directory: Path) -> None:
    with _open(view, name) as content, (directory / name).open("wb") as copy:
        shutil.copyfileobj(content, copy)


def _open(view: RunView, name: str) -> BinaryIO:
    opened = view.open_file(name)
    if opened is None:
        raise BadInputError(f"{view.place}: {name} is missing from its index: try again")
    return opened
