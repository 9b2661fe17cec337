"""Files around a run: placed in the private directory, and taken out of it whatever the program has made of it."""

import os
from pathlib import Path

import pytest

from evalrun_executor.api import RunRequest
from evalrun_executor.contained import frames
from evalrun_executor.contained.exchange import Exchange
from evalrun_executor.errors import ExecutorLost
from evalrun_executor.private_files import RequestWithFiles, list_contents, list_job_fields, read_files


def asking(*fetch: str, **files: bytes) -> RequestWithFiles:
    return RequestWithFiles("python", "", [b""], files={name.replace("__", "/"): text for name, text in files.items()},
                            fetch=list(fetch))  # fmt: skip


def exchange(directory: Path, request: RunRequest, before: bytes = b"") -> Exchange:
    blob = os.memfd_create("job")
    os.write(blob, b"".join([before, *list_contents(request)]))
    placed, wanted = list_job_fields(request)
    job = frames.Job("stdio", "", b"", 1.0, 64, 1024, [0], placed, wanted)
    return Exchange(str(directory), job, blob, len(before))


def gathered(directory: Path, request: RunRequest) -> dict[str, bytes] | None:
    found = exchange(directory, request).gather_files()
    assert found is not None
    fd, payload = found
    read = read_files(payload, [fd], request)
    return None if read is None else dict(read)


def test_files_are_placed_at_their_paths(tmp_path: Path) -> None:
    request = asking(a=b"1", empty=b"", d__e__b=b"x" * 100_000)
    exchange(tmp_path, request, before=b"the inputs").place_files()
    found = {str(path.relative_to(tmp_path)): path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert found == request.files


def test_program_file_gets_a_free_name_beside_the_callers_files(tmp_path: Path) -> None:
    files = exchange(tmp_path, asking(**{"tmp_main.py": b"theirs"}))
    name = files.add("main.py", b"ours")
    files.place_files()
    assert (name, (tmp_path / name).read_bytes()) == ("_tmp_main.py", b"ours")
    assert (tmp_path / "tmp_main.py").read_bytes() == b"theirs"


def test_existing_symlink_is_not_written_through(tmp_path: Path) -> None:
    outside, inside = tmp_path / "outside", tmp_path / "inside"
    outside.mkdir()
    inside.mkdir()
    (inside / "d").symlink_to(outside)
    (inside / "f").symlink_to(outside / "f")
    for name in ("d__x", "f"):
        with pytest.raises(OSError, match=r"d|f"):
            exchange(inside, asking(**{name: b"1"})).place_files()
    assert list(outside.iterdir()) == []


def test_requested_files_that_exist_are_returned(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    for name in ("a", "d/b", "not wanted"):
        (tmp_path / name).write_bytes(name.encode())
    (tmp_path / "empty").touch()
    found = gathered(tmp_path, asking("d/b", "missing", "empty", "a", "no/such/directory"))
    assert found == {"d/b": b"d/b", "empty": b"", "a": b"a"}
    assert exchange(tmp_path, asking(a=b"1")).gather_files() is None


def test_only_regular_files_inside_the_directory_are_returned(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "key").write_text("host's")
    inside = tmp_path / "inside"
    inside.mkdir()
    (inside / "link").symlink_to(secret / "key")
    (inside / "directory link").symlink_to(secret)
    (inside / "directory").mkdir()
    os.mkfifo(inside / "pipe")
    (inside / "good").write_text("good")
    found = gathered(inside, asking("link", "directory link/key", "directory", "pipe", "good", "good/x"))
    assert found == {"good": b"good"}


def test_files_above_the_limit_return_nothing(tmp_path: Path) -> None:
    for name in ("a", "b"):
        with (tmp_path / name).open("wb") as file:
            file.truncate(frames.FILES_BYTES // 2 + 1)
    assert gathered(tmp_path, asking("a", "b", "c")) is None
    one = gathered(tmp_path, asking("a", "c"))
    assert one is not None
    assert len(one["a"]) == frames.FILES_BYTES // 2 + 1


def memory_file(text: bytes) -> int:
    fd = os.memfd_create("files")
    os.write(fd, text)
    return fd


@pytest.mark.parametrize(
    ("sizes", "text"),
    [([3], b"abc"), ([3, 1, 0], b"abcd"), ([9, 0], b"abc"), ([frames.FILES_BYTES, 1], b""), ([frames.ABSENT], b"")],
)
def test_files_that_cannot_be_are_an_infra_error(sizes: list[int], text: bytes) -> None:
    descriptors = [memory_file(text)]
    with pytest.raises(ExecutorLost):
        read_files(b"".join(map(frames.INDEX.pack, sizes)), descriptors, asking("a", "b"))
    for fd in descriptors:  # the frame reader closes what was not taken
        os.close(fd)


def test_a_frame_that_brings_no_memory_file_is_an_infra_error() -> None:
    with pytest.raises(ExecutorLost):
        read_files(frames.INDEX.pack(0), [], asking("a"))
    with pytest.raises(ExecutorLost):
        read_files(frames.INDEX.pack(0), [], RunRequest("python", "", [b""]))
    reading, writing = os.pipe()  # reading that would never end
    with pytest.raises(ExecutorLost):
        read_files(frames.INDEX.pack(1), [reading], asking("a"))
    os.close(writing)
