"""Byte code of the modules that a zygote loads, stored where Python stores its own: `__pycache__/NAME.TAG.opt-2.pyc`.

Without stored byte code each start of a zygote compiles 5,000 lines, a third of the start's CPU time.
"""

import marshal
import os
import sys
from importlib.util import MAGIC_NUMBER, cache_from_source
from pathlib import Path
from typing import Final

OPTIMIZATION: Final = 2
"""Level at which byte code has no docstrings and asserts, because each fork copies everything that a zygote holds."""
_HEAD_BYTES: Final = 16
_BY_TIME: Final = bytes(4)
_UNCHECKED_HASH: Final = (1).to_bytes(4, "little")


def load_byte_code(path: Path) -> bytes:
    """Return a module's marshalled code for interpreters with our own magic number.

    The code is read from the stored file, or else compiled and stored if the directory is writable.

    Raises:
        OSError: the module cannot be read.
    """
    status = path.stat()
    fresh = b"".join(number.to_bytes(4, "little") for number in (int(status.st_mtime) & 0xFFFFFFFF, status.st_size))
    kept = Path(cache_from_source(str(path), optimization=OPTIMIZATION))
    found = _read(kept)
    head, code = found[:_HEAD_BYTES], found[_HEAD_BYTES:]
    if head == MAGIC_NUMBER + _BY_TIME + fresh or head[:8] == MAGIC_NUMBER + _UNCHECKED_HASH:
        return code
    code = marshal.dumps(compile(path.read_bytes(), str(path), "exec", dont_inherit=True, optimize=OPTIMIZATION))
    if not sys.dont_write_bytecode:
        _store(kept, MAGIC_NUMBER + _BY_TIME + fresh + code)
    return code


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError:
        return b""


def _store(file: Path, content: bytes) -> None:
    """Write a file atomically. Without the right to write, nothing is stored."""
    partial = file.with_name(f"{file.name}.{os.getpid()}")
    try:
        file.parent.mkdir(exist_ok=True)
        partial.write_bytes(content)
        partial.replace(file)
    except OSError:
        return
