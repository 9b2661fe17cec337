"""A finished seccomp filter (see `seccomp`), as a process installs it."""

from __future__ import annotations

import _struct as struct
import os

from evalrun_executor.contained.c_types import Char, addressof
from evalrun_executor.contained.kernel import PR_SET_SECCOMP, prctl

ARCHITECTURES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
"""Machine name: column in `syscalls.NUMBERS`, AUDIT_ARCH value."""
MODE_FILTER = 2
EXECUTABLE_FD = 3
"""Descriptor of the compiled program, the only file that a process under its filter may execute."""


class Filter:
    """A BPF program, with the positions at which the process id of its user is inserted.

    Args:
        program: the instructions.
        self_offsets: offsets in bytes at which the process id of the program's user stands.
        ahead: the first part of the filter, which a process that forks the users installs for itself and so for them.
            `program` is then only the rest. Empty if `program` is the whole filter.
    """

    def __init__(self, program: bytes, self_offsets: list[int], ahead: bytes = b"") -> None:
        self._buffer = (Char * len(program)).from_buffer_copy(program)
        self.self_places = tuple(offset // 4 for offset in self_offsets)
        """Positions in `words` at which the process id of the filter's user stands."""
        self.words = memoryview(self._buffer).cast("B").cast("I")
        self.head = struct.pack("@HP", len(program) // 8, addressof(self._buffer))
        """struct sock_fprog: length in instructions, padding, pointer."""
        self.ahead = Filter(ahead, []) if ahead else None

    def install(self) -> None:
        """Confine this process for good. Needs no_new_privs, and `ahead` to be installed. Raises OSError."""
        own = os.getpid()
        for place in self.self_places:
            self.words[place] = own
        prctl(PR_SET_SECCOMP, MODE_FILTER, self.head)
