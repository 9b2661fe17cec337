"""Finds the shards of a dataset: Parquet as the Hugging Face hub publishes it, Arrow as `save_to_disk` writes it.

A source may be a directory (`NAME/data`), or a split in one: `NAME/data/test` is `test-00000-of-00002.parquet` and so
on, or `test-00000-of-00002-9c49eeff30aacaa8.parquet`, as older uploads are called.
"""

import logging
import re
from collections.abc import Iterable
from typing import Final

from evalrun_data.sources import Source
from evalrun_runtime.exits import BadInputError

logger = logging.getLogger(__name__)

_SHARD: Final = re.compile(
    r"^(?P<split>.+?)-(?P<number>\d{5,})-of-(?P<count>\d{5,})(?:-[0-9a-f]{8,})?\.(?:parquet|arrow)$"
)


SAVED_SPLITS: Final = "dataset_dict.json"
"""File that `save_to_disk` writes beside the directories of several splits."""


def list_files(source: Source) -> list[Source]:
    """Return the files of a source: itself, or the shards of a directory or split, in order.

    Raises:
        BadInputError: a shard is missing, or the directory holds several splits.
    """
    if source.is_builtin or source.name.lower().endswith((".parquet", ".arrow", ".json", ".jsonl", ".gz")):
        return [source]
    directory, split, names = _list_directory(source)
    if SAVED_SPLITS in names:
        raise BadInputError(f"{source.name}: holds the splits of save_to_disk: name one, e.g. {directory}/test")
    shards = choose_shards(source.name, names, split)
    return [source.make_sibling(f"{directory}/{name}") for name in shards] or [source]


def choose_shards(source: str, names: Iterable[str], split: str) -> list[str]:
    """Return the wanted files of a directory, by number; empty if there are no shards. Pure.

    Args:
        source: for complaints.
        names: of the directory's files.
        split: the requested split; empty if the source is the directory itself.

    Raises:
        BadInputError: a shard is missing, or no split is named where there are several.
    """
    found: dict[str, dict[int, str]] = {}
    counts: dict[str, int] = {}
    for name in names:
        if (shard := _SHARD.match(name)) and split in {"", shard["split"]}:
            held = found.setdefault(shard["split"], {})
            if (twin := held.setdefault(int(shard["number"]), name)) != name:
                raise BadInputError(f"{source}: {twin} and {name} are the same shard: remove one of them")
            counts[shard["split"]] = int(shard["count"])
    if len(found) > 1:
        example = f"{source.rstrip('/')}/{sorted(found)[0]}"
        raise BadInputError(f"{source}: holds the splits {', '.join(sorted(found))}: name one, e.g. {example}")
    for name, shards in found.items():
        missing = [number for number in range(counts[name]) if number not in shards]
        if missing:
            raise BadInputError(
                f"{source}: shard {missing[0]} of {counts[name]} is missing ({name}-{missing[0]:05d}-of-...): fetch "
                "the whole split"
            )
        return [shards[number] for number in sorted(shards)]
    return []


def _list_directory(source: Source) -> tuple[str, str, list[str]]:
    """Return a directory, the split that the source means in it, and the names of the directory's files."""
    path = source.path
    plain = source.name.rstrip("/")
    above, _, last = plain.rpartition("/")
    if path is None:
        return _list_remote(plain, above, last)
    if path.is_dir():
        return plain, "", [entry.name for entry in path.iterdir()]
    if not path.exists() and path.parent.is_dir():
        return above or ".", last, [entry.name for entry in path.parent.iterdir()]
    return plain, "", []


def _list_remote(plain: str, above: str, last: str) -> tuple[str, str, list[str]]:
    # Importing fsspec costs 0.2 s, and local files do without.
    import fsspec

    try:
        files, inside = fsspec.url_to_fs(plain)
        if files.isdir(inside):
            return plain, "", [str(name).rpartition("/")[2] for name in files.ls(inside, detail=False)]
        parent = inside.rpartition("/")[0]
        if not files.exists(inside) and files.isdir(parent):
            return above, last, [str(name).rpartition("/")[2] for name in files.ls(parent, detail=False)]
    # Each store's client has its own classes, without a common base.
    except Exception:
        # Reading the file reports the cause, in the user's terms.
        logger.debug("%s: cannot be listed", plain, exc_info=True)
    return plain, "", []
