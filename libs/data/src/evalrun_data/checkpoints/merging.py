"""Two steps of the merge Job: fetch a trainer's shards, and store the merged model in a bounded cache.

    python -m evalrun_data.checkpoints.merging fetch s3://training/grpo/global_step_120/actor /scratch/checkpoint
    python -m evalrun_data.checkpoints.merging store /scratch/merged s3://cache/nightly step-120-0123456789 --keep 3

Between them the Ray image runs verl's own merger, which has no credentials: it unpickles what the trainer wrote.
"""

import argparse
import re
import shutil
import sys
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from evalrun_data.checkpoint import fetch_checkpoint
from evalrun_data.checkpoints.layout import (
    ADAPTER_CONFIG,
    Unservable,
    examine,
    find_adapter,
    is_merged,
    list_needed_files,
)
from evalrun_runtime.exits import BadInputError, ExitCode
from evalrun_runtime.termination import end_with

CACHED = re.compile(r"step-(\d{1,13})-([0-9a-f]{10})")
MERGED_ADAPTER = "lora_adapter"
"""Directory, below that of its base, in which verl's merger puts an adapter."""
ADAPTER_ONLY = (
    "the checkpoint is of a LoRA training, but lora_train_meta.json is missing beside its shards, so the adapter's "
    "lora_alpha is unknown; the base model beside it is another model and is not evaluated. Write that file (r, "
    "lora_alpha, task_type), or have the trainer write the adapter itself"
)


def store_model(
    directory: Path, cache: str, name: str, keep: int, protect: Collection[str], *, adapter: bool = False
) -> list[str]:
    """Put a merged model into the cache and remove the oldest models. Return their names.

    Args:
        directory: output of the merger.
        cache: the schedule's directory: fsspec URL or path. Only directories named as ours are touched.
        name: of the model in the cache; the files of an earlier attempt are replaced.
        keep: number of models that stay: the new model, and those of the highest steps.
        protect: digests whose models stay in any case.
        adapter: put the LoRA adapter there; the base model beside it is left behind.

    Raises:
        BadInputError: the merger wrote no model that can be served.
        OSError: the store or the disk failed.
    """
    directory = directory / MERGED_ADAPTER if adapter else directory
    files = {str(path.relative_to(directory)): path.stat().st_size for path in directory.rglob("*") if path.is_file()}
    if not adapter and any(file.rpartition("/")[2] == ADAPTER_CONFIG for file in files):
        raise BadInputError(ADAPTER_ONLY)
    contents = {file: (directory / file).read_bytes() for file in list_needed_files(files)}
    found = find_adapter(files, contents, base="") if adapter else examine(files, contents)
    if found is None:
        raise BadInputError(
            "verl.model_merger wrote no LoRA adapter, though lora_train_meta.json lies beside the shards"
        )
    if isinstance(found, Unservable) or found.directory:
        reason = found.reason if isinstance(found, Unservable) else f"holds its model in {found.directory}"
        raise BadInputError(f"what verl.model_merger wrote {reason}")
    store, root = _open_store(cache)
    removed = []
    for old in find_outdated(_names(store, root), name, keep, protect):
        store.rm(f"{root}/{old}", recursive=True)
        removed.append(old)
    target = f"{root}/{name}"
    if store.exists(target):
        store.rm(target, recursive=True)
    for file in sorted(files):
        store.put_file(str(directory / file), f"{target}/{file}")
    return removed


def find_outdated(there: Collection[str], name: str, keep: int, protect: Collection[str]) -> list[str]:
    """Return the models that go before another is added, the lowest steps first. Pure."""
    ours = [(int(match[1]), match[2], one) for one in there if one != name and (match := CACHED.fullmatch(one))]
    ours.sort()
    beyond = len(ours) - (keep - 1)
    return [one for _, digest, one in ours[: max(0, beyond)] if digest not in protect]


def _open_store(url: str) -> tuple[Any, str]:
    # Importing fsspec costs 0.2 s.
    import fsspec

    options = {} if "://" in url else {"auto_mkdir": True}
    store, root = fsspec.core.url_to_fs(url.rstrip("/"), **options)
    return store, str(root).rstrip("/")


def _names(store: Any, root: str) -> list[str]:  # noqa: ANN401 - fsspec has no types
    try:
        found = store.ls(root, detail=True)
    except FileNotFoundError:
        return []
    return [str(item["name"]).rstrip("/").rpartition("/")[2] for item in found if item.get("type") == "directory"]


def main(argv: Sequence[str]) -> int:
    """Do a step, and return the exit code. If it is not 0, the last line on stderr names the reason."""
    parser = argparse.ArgumentParser(prog="python -m evalrun_data.checkpoints.merging")
    steps = parser.add_subparsers(dest="step", required=True)
    fetch = steps.add_parser("fetch", help="bring the shards to a directory")
    fetch.add_argument("url")
    fetch.add_argument("directory", type=Path)
    store = steps.add_parser("store", help="put a merged model into the cache")
    store.add_argument("directory", type=Path)
    store.add_argument("cache")
    store.add_argument("name")
    store.add_argument("--keep", type=int, required=True)
    store.add_argument("--protect", action="append", default=[])
    store.add_argument("--adapter", action="store_true", help="the merged LoRA adapter alone")
    arguments = parser.parse_args(argv)
    try:
        if arguments.step == "fetch":
            shutil.rmtree(arguments.directory, ignore_errors=True)
            fetch_checkpoint(arguments.url, arguments.directory, wanted=is_merged)
        else:
            removed = store_model(
                arguments.directory,
                arguments.cache,
                arguments.name,
                arguments.keep,
                arguments.protect,
                adapter=arguments.adapter,
            )
            sys.stdout.write("".join(f"removed {one}\n" for one in removed))
    except BadInputError as error:
        return end_with(error, ExitCode.BAD_INPUT)
    except Exception as error:  # noqa: BLE001 - stores raise errors of their own; the last line must say which
        return end_with(error, ExitCode.FAILED, text=f"{type(error).__name__}: {' '.join(str(error).split())}")
    return ExitCode.SUCCEEDED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
