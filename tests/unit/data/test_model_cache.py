"""The shared cache of models: what goes when it is full, what a damaged or half-fetched model becomes."""

import errno
import fcntl
import os
from collections.abc import Callable
from pathlib import Path

import fsspec
import pytest

from evalrun_data.checkpoint import fetch_checkpoint
from evalrun_data.model_cache import MIN_UNUSED_SECONDS, CachedModel, ModelCache, removable

NOW = 1_000_000_000.0
A, B, C = ("a" * 32, "b" * 32, "c" * 32)


@pytest.mark.parametrize(
    ("missing", "gone"),
    [(0, []), (1, [A]), (10, [A]), (11, [A, B]), (1000, [A, B])],
)
def test_least_recently_used_models_are_removed_and_none_used_today(missing: int, gone: list[str]) -> None:
    models = [
        CachedModel(B, NOW - 2 * MIN_UNUSED_SECONDS, 10),
        CachedModel(C, NOW - MIN_UNUSED_SECONDS + 1, 10),
        CachedModel(A, NOW - 3 * MIN_UNUSED_SECONDS, 10),
    ]
    assert removable(models, missing, NOW) == gone


class Volume:
    """A cache on a volume of so many bytes, with a clock of its own."""

    def __init__(self, directory: Path, size: int) -> None:
        self.directory, self.now = directory, NOW

        def free(volume: Path) -> int:
            return size - sum(path.stat().st_size for path in volume.rglob("*") if path.is_file())

        self.cache = ModelCache(directory, lambda: self.now, free)

    def use(self, digest: str, size: int = 300, name: str = "w") -> bool:
        """Ask for a model of one file; returns whether it was fetched."""
        model, fetched = self.cache.model(digest, {name: size}, writes(name, size))
        assert (model / name).stat().st_size == size
        return fetched

    def there(self) -> list[str]:
        return sorted(path.name for path in self.directory.iterdir() if path.suffix != ".lock")


def writes(name: str, size: int) -> Callable[[Path], None]:
    def fetch(directory: Path) -> None:
        directory.mkdir()
        (directory / name).write_bytes(b"w" * size)

    return fetch


def test_a_model_is_fetched_once(tmp_path: Path) -> None:
    volume = Volume(tmp_path / "claim" / "checkpoints", 10_000)
    assert volume.use(A)
    assert not volume.use(A)
    assert volume.there() == [A]


def test_full_volume_evicts_models_unused_for_a_day_then_names_a_remedy(tmp_path: Path) -> None:
    volume = Volume(tmp_path, 1000)
    volume.use(A)
    volume.now += MIN_UNUSED_SECONDS
    volume.use(B)
    volume.use(A)  # read again: now B is the older one
    volume.now += MIN_UNUSED_SECONDS / 2
    with pytest.raises(OSError, match=r"enlarge the claim \(runDefaults.modelCacheClaim\)") as raised:
        volume.use(C, 500)
    assert raised.value.errno == errno.ENOSPC
    volume.now += MIN_UNUSED_SECONDS / 2
    volume.use(C, 500)
    assert len(volume.there()) == 2  # one of the two made room
    assert C in volume.there()


def test_model_locked_by_another_pod_is_kept(tmp_path: Path) -> None:
    volume = Volume(tmp_path, 1000)
    volume.use(A)
    volume.now += 2 * MIN_UNUSED_SECONDS
    with (tmp_path / f"{A}.lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(OSError, match="needs"):
            volume.use(B, 900)
    assert volume.there() == [A]


def test_remains_of_a_killed_pod_are_removed_at_the_next_fetch(tmp_path: Path) -> None:
    volume = Volume(tmp_path, 1000)
    for leftover in (f"{A}.part", f"{B}.gone"):
        (tmp_path / leftover).mkdir()
        (tmp_path / leftover / "w").write_bytes(b"w" * 400)
    volume.use(C)
    assert volume.there() == [C]


def test_a_model_with_a_file_cut_short_is_fetched_again(tmp_path: Path) -> None:
    volume = Volume(tmp_path, 1000)
    volume.use(A)
    os.truncate(tmp_path / A / "w", 10)
    assert volume.use(A)


def test_a_fetch_that_fails_leaves_nothing(tmp_path: Path) -> None:
    volume = Volume(tmp_path, 1000)

    def fails(directory: Path) -> None:
        directory.mkdir()
        raise OSError("the store is away")

    with pytest.raises(OSError, match="away"):
        volume.cache.model(A, {"w": 1}, fails)
    assert volume.there() == []


def test_a_changed_model_is_another_one_and_a_link_to_a_deleted_one_is_renewed(tmp_path: Path) -> None:
    store = fsspec.filesystem("memory")
    store.pipe_file("/cached/coder/config.json", b"{}")
    cache, link = ModelCache(tmp_path / "claim"), tmp_path / "checkpoint"
    try:
        assert fetch_checkpoint("memory://cached/coder", link, cache=cache) == 2
        assert fetch_checkpoint("memory://cached/coder", tmp_path / "other", cache=cache) == 0
        first = link.resolve()
        store.pipe_file("/cached/coder/config.json", b"{ }")
        assert fetch_checkpoint("memory://cached/coder", tmp_path / "newer", cache=cache) == 3
        (first / "config.json").unlink()
        first.rmdir()
        assert not link.exists()
        assert fetch_checkpoint("memory://cached/coder", link, cache=cache) == 0
        assert (link / "config.json").read_bytes() == b"{ }"
    finally:
        store.rm("/cached", recursive=True)
