"""Brings a model, a LoRA adapter or both from a store to directories, since engines read directories.

    python -m evalrun_data.checkpoint s3://models/coder /scratch/checkpoint
    python -m evalrun_data.checkpoint --adapter s3://training/grpo/step_120 /scratch/adapter
    python -m evalrun_data.checkpoint --cache /model-cache/checkpoints s3://models/coder /scratch/checkpoint

An init container of the Ray workers runs it, where `model.path` or `model.adapter` is an fsspec URL. A directory
appears only when it is complete, so a restarted container finds a complete directory or no directory. With a cache the
directory is a link into the cache.
"""

import errno
import hashlib
import logging
import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path, PurePosixPath
from typing import Any

from evalrun_data.checkpoints.layout import ADAPTER_CONFIG
from evalrun_data.checkpoints.store import make_file_fact
from evalrun_data.model_cache import ModelCache
from evalrun_data.store_problems import Kind, store_problem
from evalrun_runtime.backoff import backoff_seconds
from evalrun_runtime.exits import BadInputError, ExitCode
from evalrun_runtime.logs import configure_logging
from evalrun_runtime.termination import end_with

logger = logging.getLogger(__name__)

FILES_AT_ONCE = 8
ATTEMPTS = 5
FIRST_WAIT_SECONDS = 1.0
PERMANENT = frozenset({Kind.MISSING, Kind.REFUSED})
"""Kinds of a store's problems that another attempt does not solve."""
CONFIG = "config.json"
"""File that every Hugging Face model directory has."""


def fetch_checkpoint(
    source: str,
    directory: Path,
    wait: Callable[[float], None] = time.sleep,
    wanted: Callable[[str], bool] | None = None,
    *,
    adapter: bool = False,
    cache: ModelCache | None = None,
) -> int:
    """Copy every file under `source`. Return their bytes, or 0 if the directory or the cached model exists already.

    Args:
        source: an fsspec URL of a directory in Hugging Face's layout.
        directory: where it is to be.
        wait: between two attempts at a file, in seconds.
        wanted: selects files by path in a directory that is no model yet; None fetches all files of a model.
        adapter: whether it is a LoRA adapter instead of a model.
        cache: where the files go instead; the directory becomes a link.

    Raises:
        BadInputError: `source` is missing or empty, may not be read, or is not a directory of a model or an adapter.
        OSError: the store or the disk failed, also after some attempts.
    """
    if directory.exists():
        return 0
    # Importing fsspec costs 0.2 s.
    import fsspec

    field = f"model.{'adapter' if adapter else 'path'}"
    try:
        store, root = fsspec.core.url_to_fs(source)
        found = {_relative(name, root, source): info for name, info in store.find(root, detail=True).items()}
    except (ValueError, ImportError) as error:
        raise BadInputError(f"{field} {source}: {' '.join(str(error).split())}") from error
    except Exception as error:
        raise _make_store_error(error, f"{field} {source}") from error
    if wanted is None:
        _check_layout(f"{field} {source}", found, ADAPTER_CONFIG if adapter else CONFIG)
    else:
        found = {name: info for name, info in found.items() if wanted(name)}

    def copy_all(target: Path) -> int:
        with ThreadPoolExecutor(FILES_AT_ONCE) as pool:
            try:
                return sum(pool.map(lambda name: _copy_file(store, found[name], target / name, wait), sorted(found)))
            except Exception as error:
                raise _make_store_error(error, f"{field} {source}") from error

    if cache is not None:
        return _link_model(directory, cache, source, found, copy_all)
    part = directory.with_name(f"{directory.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    copied = copy_all(part)
    part.rename(directory)
    return copied


def _link_model(
    directory: Path, cache: ModelCache, source: str, found: Mapping[str, Any], copy_all: Callable[[Path], int]
) -> int:
    """Link the directory to the model in the cache. Return the bytes that were downloaded for it."""
    facts = {name: make_file_fact(info) for name, info in sorted(found.items())}
    listed = "".join(f"{name}\0{fact.size}\0{fact.etag or fact.modified}\n" for name, fact in facts.items())
    digest = hashlib.sha256(f"{source}\n{listed}".encode()).hexdigest()[:32]
    sizes = {name: fact.size for name, fact in facts.items()}
    model, fetched = cache.model(digest, sizes, copy_all)
    link = directory.with_name(f"{directory.name}.link")
    link.unlink(missing_ok=True)
    link.symlink_to(model)
    # The rename also replaces a link to a model that was deleted since.
    link.rename(directory)
    return sum(sizes.values()) if fetched else 0


def _make_store_error(error: Exception, place: str) -> BadInputError | OSError:
    """Return a store's error in the user's terms. The stores' clients have unrelated error classes."""
    if isinstance(error, BadInputError):
        return error
    problem = store_problem(error)
    if problem.kind in PERMANENT:
        return BadInputError(f"{place}: {problem.text}")
    return OSError(errno.EIO, problem.text, place)


def _relative(name: str, root: str, source: str) -> str:
    """Return a file's path relative to the fetched directory."""
    relative = PurePosixPath(name.removeprefix(root).lstrip("/"))
    if relative.is_absolute() or ".." in relative.parts:
        raise BadInputError(f"model.path {source}: the name {name!r} leads out of its directory")
    return str(relative)


def _check_layout(place: str, found: dict[str, Any], config: str) -> None:
    if not found:
        raise BadInputError(f"{place}: nothing is there")
    if config in found:
        return
    below = sorted(str(PurePosixPath(name).parent) for name in found if name.endswith(f"/{config}"))
    advice = f"; there is one in {', '.join(below[:3])}: name that directory" if below else ""
    what = "LoRA adapter" if config == ADAPTER_CONFIG else "model"
    raise BadInputError(f"{place}: no {what} is there, {config} is missing{advice}")


def _copy_file(store: Any, info: dict[str, Any], target: Path, wait: Callable[[float], None]) -> int:  # noqa: ANN401 - fsspec has no types
    target.parent.mkdir(parents=True, exist_ok=True)
    for attempt in range(1, ATTEMPTS + 1):
        try:
            store.get_file(info["name"], str(target))
            size = target.stat().st_size
            if info.get("size") not in {None, size}:
                raise OSError(f"{info['name']}: {size} of {info['size']} bytes came")
        # Each store's client has its own classes.
        except Exception as error:
            if attempt == ATTEMPTS or store_problem(error).kind in PERMANENT:
                raise
            logger.warning("%s; again", error)
            wait(backoff_seconds(attempt, FIRST_WAIT_SECONDS))
        else:
            return size
    raise OSError(f"{info['name']}: not tried")


def main(arguments: Sequence[str]) -> int:
    """Fetch, and return the exit code. If it is not 0, the last line on stderr says why."""
    configure_logging("json", "info")
    cache = None
    if len(arguments) > 1 and arguments[0] == "--cache":
        cache, arguments = ModelCache(Path(arguments[1])), arguments[2:]
    places = _places(arguments)
    if not places:
        usage = "write python -m evalrun_data.checkpoint [--cache DIRECTORY] [URL FOLDER] [--adapter URL FOLDER]"
        return end_with(BadInputError(usage), ExitCode.BAD_INPUT)
    for source, directory, adapter in places:
        started = time.monotonic()
        try:
            copied = fetch_checkpoint(source, Path(directory), adapter=adapter, cache=cache)
        except BadInputError as error:
            return end_with(error, ExitCode.BAD_INPUT)
        except OSError as error:
            return end_with(error, ExitCode.FAILED, text=f"{source}: {' '.join(str(error).split())}")
        logger.info("%s: %.1f GB in %.0f s", source, copied / 1e9, time.monotonic() - started)
    return ExitCode.SUCCEEDED


def _places(arguments: Sequence[str]) -> list[tuple[str, str, bool]]:
    """Return source and directory of the model and of the adapter (True); empty if the arguments are invalid."""
    match list(arguments):
        case ["--adapter", source, directory]:
            return [(source, directory, True)]
        case [source, directory]:
            return [(source, directory, False)]
        case [source, directory, "--adapter", adapter, adapter_folder]:
            return [(source, directory, False), (adapter, adapter_folder, True)]
    return []


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
