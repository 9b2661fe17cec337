"""Restricts which files a process may touch by Landlock, without privileges (Linux 5.13 and newer)."""

from __future__ import annotations

import _struct as struct
import os
import stat

from evalrun_executor.contained.c_types import Int, ULong
from evalrun_executor.contained.kernel import syscall

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_VERSION_FLAG = 1
_RULE_PATH_BENEATH = 1

EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = 1, 2, 4, 8
REMOVE_DIR, REMOVE_FILE, MAKE_DIR, MAKE_REG = 16, 32, 128, 256
REFER, TRUNCATE, IOCTL_DEV = 1 << 13, 1 << 14, 1 << 15
_FILE_RIGHTS = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV

READ = READ_FILE | READ_DIR
PRIVATE = READ | WRITE_FILE | REMOVE_DIR | REMOVE_FILE | MAKE_DIR | MAKE_REG | REFER | TRUNCATE
"""No sockets, pipes, links or devices in the private directory."""

_TCP = 0b11
_SCOPES = 0b11
"""Abstract unix sockets, signals."""


def abi() -> int:
    """Return the Landlock version of this kernel, or 0 if it has none."""
    try:
        return syscall(_CREATE_RULESET, None, ULong(0), ULong(_VERSION_FLAG))
    except OSError:
        return 0


def compute_handled_rights(version: int) -> int:
    """Return the file rights that this version can refuse; all of them are refused unless a rule grants them."""
    if version >= 5:
        return (1 << 16) - 1
    return (1 << {1: 13, 2: 14}.get(version, 15)) - 1


def make_ruleset(version: int, rules: list[tuple[str, int]]) -> int:
    """Return a ruleset's descriptor that grants only `rules`: no other files, no TCP, no signals to outsiders.

    Paths that do not exist are left out. Raises OSError.
    """
    handled = compute_handled_rights(version)
    attributes = struct.pack("<Q", handled)
    if version >= 4:
        attributes += struct.pack("<Q", _TCP)
    if version >= 6:
        attributes += struct.pack("<Q", _SCOPES)
    ruleset = syscall(_CREATE_RULESET, attributes, ULong(len(attributes)), ULong(0))
    for path, rights in rules:
        try:
            parent = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except OSError:
            continue
        is_directory = stat.S_ISDIR(os.fstat(parent).st_mode)
        # The kernel refuses a rule with rights that it does not handle, or with rights of directories on a file.
        granted = rights & handled & (-1 if is_directory else _FILE_RIGHTS)
        rule = struct.pack("<Qi", granted, parent)
        try:
            syscall(_ADD_RULE, Int(ruleset), Int(_RULE_PATH_BENEATH), rule, Int(0))
        finally:
            os.close(parent)
    return ruleset


def restrict_self(ruleset: int) -> None:
    """Confine this process and its future children for good. Needs no_new_privs. Raises OSError."""
    syscall(_RESTRICT_SELF, Int(ruleset), Int(0))
