"""The bundle's container: an uncompressed tar of compressed members, with a single possible spelling.

Every byte is checked: headers equal those of `write_archive`, padding is zero, nothing follows the end, and the
members' digests are in the signed statement. A reader writes at most as many bytes as the statement says.
"""

import gzip
import hashlib
import shutil
import tarfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

CHUNK: Final = 1 << 20
_BLOCK: Final = tarfile.BLOCKSIZE
_END: Final = bytes(2 * _BLOCK)


class ArchiveError(Exception):
    """The file is no archive of this kind; the message says why."""


@dataclass(frozen=True, slots=True)
class Member:
    """A file of an archive."""

    name: str
    start: int
    """Offset of its content in the archive, in bytes."""
    size: int
    """Size of the member in the archive, in bytes."""


def _header(name: str, size: int) -> bytes:
    entry = tarfile.TarInfo(name)
    entry.size = size
    return entry.tobuf(tarfile.GNU_FORMAT)


def pack(source: Path, target: Path) -> str:
    """Compress a file and return the hexadecimal SHA-256 of the result. Equal files give equal results."""
    with (
        source.open("rb") as plain,
        target.open("wb") as packed,
        gzip.GzipFile(filename="", mode="wb", fileobj=packed, compresslevel=6, mtime=0) as compressed,
    ):
        shutil.copyfileobj(plain, compressed, CHUNK)
    return digest_file(target)


def digest_file(path: Path) -> str:
    """Return the hexadecimal SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_archive(target: BinaryIO, members: Iterator[tuple[str, Path]]) -> None:
    """Write files, each by its name, into an archive. Raises OSError."""
    for name, path in members:
        size = path.stat().st_size
        target.write(_header(name, size))
        with path.open("rb") as file:
            while chunk := file.read(CHUNK):
                target.write(chunk)
        target.write(bytes(-size % _BLOCK))
    target.write(_END)


def read_members(archive: BinaryIO) -> Iterator[Member]:
    """Yield the members of an archive, in order.

    Raises:
        ArchiveError: a byte beside the members' contents is not what `write_archive` writes.
    """
    while True:
        block = archive.read(_BLOCK)
        if block == bytes(_BLOCK):
            if archive.read(_BLOCK + 1) != bytes(_BLOCK):
                raise ArchiveError("something follows its end")
            return
        try:
            entry = tarfile.TarInfo.frombuf(block, "utf-8", "strict")
        except (tarfile.HeaderError, UnicodeDecodeError, ValueError) as error:
            raise ArchiveError("it is no archive, or is cut") from error
        if not is_plain_name(entry.name) or block != _header(entry.name, entry.size):
            raise ArchiveError(f"the header of {entry.name!r} was changed")
        start = archive.tell()
        archive.seek(start + entry.size)
        padding = -entry.size % _BLOCK
        if archive.read(padding) != bytes(padding):
            raise ArchiveError(f"{entry.name} is cut, or followed by something")
        yield Member(entry.name, start, entry.size)


def is_plain_name(name: str) -> bool:
    """Return whether a name stays inside the folder that it is unpacked into."""
    parts = name.split("/")
    return len(name) < 100 and name.isascii() and name.isprintable() and not {"", ".", ".."} & {*parts}


def unpack(archive: BinaryIO, member: Member, target: Path, length: int) -> tuple[str, str]:
    """Write the plain content of a member to a file.

    Args:
        archive: the archive.
        member: a member of the archive.
        target: the file; its folder exists.
        length: bytes that the content has.

    Returns:
        SHA-256 of the member as it is packed, and of its content; both hexadecimal.

    Raises:
        ArchiveError: the content is longer or shorter, or is not compressed as `pack` does.
        OSError: the file cannot be written.
    """
    packed, plain = hashlib.sha256(), hashlib.sha256()
    inflate = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
    archive.seek(member.start)
    left, written = member.size, 0
    with target.open("wb") as file:
        try:
            while left and (chunk := archive.read(min(left, CHUNK))):
                left -= len(chunk)
                packed.update(chunk)
                for content in _inflate_chunk(inflate, chunk):
                    written += len(content)
                    if written > length:
                        raise ArchiveError(f"{member.name} is longer than its statement says")
                    plain.update(content)
                    file.write(content)
                if inflate.unused_data:
                    raise ArchiveError(f"{member.name} is followed by something")
        except zlib.error as error:
            raise ArchiveError(f"{member.name} is broken: {error}") from error
    if left or not inflate.eof or written != length:
        raise ArchiveError(f"{member.name} is cut")
    return packed.hexdigest(), plain.hexdigest()


def _inflate_chunk(inflate: "zlib._Decompress", chunk: bytes) -> Iterator[bytes]:
    """Yield the inflated content of a chunk in parts of bounded size: a small file may expand to a large one."""
    while True:
        content = inflate.decompress(chunk, CHUNK)
        yield content
        chunk = inflate.unconsumed_tail
        if not chunk and len(content) < CHUNK:
            return
