"""Seccomp filters: an allow-list as a classic BPF program, built once.

A candidate's filter has two parts, and a call passes if both let it. The parent, which forks many candidates, installs
the larger part, and each child the rest, which distinguishes the child from its parent (see `child_bootstrap`).

A refused call fails with EPERM, which ordinary programs see as an ordinary OSError. clone3 fails with ENOSYS, so that
libc falls back to clone, whose flags a filter can read: threads pass, processes do not. A call of another architecture
kills the process.
"""

from __future__ import annotations

import errno
import struct
from collections.abc import Mapping

from evalrun_executor.contained.filters import ARCHITECTURES, EXECUTABLE_FD, Filter
from evalrun_executor.contained.syscalls import COMPILERS, NUMBERS, PARENTS, PLAIN

ALLOW = 0x7FFF0000
KILL_PROCESS = 0x80000000
ERRNO = 0x00050000
X32_BIT = 0x40000000

_LOAD, _EQUAL, _AT_LEAST, _AND, _JUMP, _RETURN = 0x20, 0x15, 0x35, 0x54, 0x05, 0x06
_ANSWERS = {"allow": ALLOW, "refuse": ERRNO | errno.EPERM, "absent": ERRNO | errno.ENOSYS}
_SELF = object()
_NULL = object()
"""A pointer that is null: both halves are compared. Of every other argument the kernel reads the low half alone."""

# A condition is (argument, mask or None, value). An alternative is a list of conditions that must all hold.
# These are CLONE_VM, CLONE_FS, CLONE_FILES, CLONE_SIGHAND and CLONE_THREAD, which every C library asks for.
_THREAD = 0x00010F00
# These are every CLONE_NEW*, CLONE_PTRACE and CLONE_PARENT.
_NOT_A_THREAD = 0x7E02A000
_FCNTL = (0, 1, 2, 3, 4, 6, 7, 37, 38, 1030, 1032, 1034)
"""No F_SETOWN and F_SETSIG: they make the kernel send a signal to any process of the same user. Nor F_GETLK and
F_OFD_GETLK: they tell of another slot's lock on a file that both may only read."""
_LOCKS = (6, 7, 37, 38)
"""Of those: F_SETLK, F_SETLKW, and the same for open file descriptions."""
_MAP_TYPE, _MAP_SHARED, _MAP_PRIVATE, _MAP_SHARED_VALIDATE, _MAP_ANONYMOUS = 0x3, 0x1, 0x2, 0x3, 0x20
"""Shared mappings of files only: an anonymous one keeps all its pages while one of them is mapped, so a program that
unmaps the others escapes RLIMIT_AS."""
# These are TCGETS, FIONREAD, FIONBIO, FIONCLEX and FIOCLEX.
_IOCTL = (0x5401, 0x541B, 0x5421, 0x5450, 0x5451)
_CLOSE_RANGE = (0, 4)
"""Not CLOSE_RANGE_UNSHARE: with a table of its own, each thread could open as many files as the limit allows a process,
and fill as many pipes and sockets, whose memory no limit counts."""
_NO_SELF_SIGNALS = (9, 19)
"""SIGKILL and SIGSTOP: a SIGKILL that the runner did not send is then the out-of-memory killer's, never a verdict."""
_AT_EMPTY_PATH = 0x1000

Condition = tuple[int, "int | None", object]
Instruction = tuple[int, int, int, int]
"""Operation, jump if true, jump if false, constant."""
Rules = dict[str, list[list[Condition]]]

COMMON: Rules = {
    "fcntl": [[(1, None, command)] for command in _FCNTL],
    "ioctl": [[(1, None, command)] for command in _IOCTL],
    # A process may read its own limits, and set RLIMIT_STACK.
    "prlimit64": [[(0, None, 0), (2, None, _NULL)], [(0, None, 0), (1, None, 3)]],
    "setrlimit": [[(0, None, 3)]],
    # These are PR_SET_NAME and PR_GET_NAME.
    "prctl": [[(0, None, 15)], [(0, None, 16)]],
    "mmap": [
        [(3, _MAP_TYPE, _MAP_PRIVATE)],
        [(3, _MAP_TYPE | _MAP_ANONYMOUS, _MAP_SHARED)],
        [(3, _MAP_TYPE | _MAP_ANONYMOUS, _MAP_SHARED_VALIDATE)],
    ],
    "clone": [[(0, _THREAD | _NOT_A_THREAD, _THREAD)]],
    "close_range": [[(2, None, flags)] for flags in _CLOSE_RANGE],
    # Only AF_UNIX stream pairs are allowed: asyncio wakes itself by such a pair.
    "socketpair": [[(0, None, 1), (1, 0xFFFFF7FF & ~0x80000, 1)]],
    # Without an address the call sends into a connected pair only.
    "sendto": [[(4, None, _NULL), (5, None, 0)]],
}
"""Rules of everything but compilers."""


def build_program_filter(machine: str, *, executable: bool) -> Filter:
    """Return the filter of a candidate, see `assemble_program`."""
    return Filter(*assemble_program(machine, executable=executable))


def assemble_program(machine: str, *, executable: bool) -> tuple[bytes, list[int], bytes]:
    """Assemble the filter of a candidate; see `Filter`. With `executable` it may start, once, the file on descriptor 3.

    The descriptor closes with that start. Landlock lets no file be executed, and it does not see memory files, which
    come without the right to be executed (`frames.make_plain_memory`).
    """
    rules = {**COMMON, **make_own_rules(executable=executable)}
    ahead, _ = assemble(machine, PLAIN | PARENTS, {name: rule for name, rule in rules.items() if name not in PARENTS})
    own, places = _assemble_rest(machine, {name: rules.get(name) for name in PARENTS})
    return own, places, ahead


def make_own_rules(*, executable: bool) -> Rules:
    """Return the rules for each candidate by itself: it may signal only itself, and execute only its own program."""
    own_signal: list[Condition] = [(0, None, _SELF)]
    rules = {"kill": [own_signal], "tgkill": [own_signal]}
    return rules | {"execveat": [[(0, None, EXECUTABLE_FD), (4, None, _AT_EMPTY_PATH)]]} if executable else rules


def build_session_filter(machine: str) -> Filter:
    """Return the filter of a live session's interpreter."""
    return Filter(*assemble_session(machine))


def assemble_session(machine: str) -> tuple[bytes, list[int]]:
    """Assemble the filter of a session: a candidate's, without the calls whose effects outlast an execution unseen.

    A POSIX timer may send SIGCONT, which would let a stopped session run. File locks are kernel memory without a limit
    (630,000 locks in 10 s). A shared mapping of a removed file would keep its pages.
    """
    rules = {**COMMON, **make_own_rules(executable=False)}
    rules["fcntl"] = [[(1, None, command)] for command in _FCNTL if command not in _LOCKS]
    rules["mmap"] = [[(3, _MAP_TYPE, _MAP_PRIVATE)]]
    return assemble(machine, PLAIN - {"timer_create"}, rules)


def build_compiler_filter(machine: str) -> Filter:
    """Return the filter of a compiler driver and its stages."""
    return Filter(*assemble_compiler(machine))


def assemble_compiler(machine: str) -> tuple[bytes, list[int]]:
    """Assemble the filter of a compiler driver and its stages."""
    rules = {name: alternatives for name, alternatives in COMMON.items() if name not in COMPILERS}
    return assemble(machine, COMPILERS, rules)


def assemble(machine: str, allowed: frozenset[str], rules: Rules) -> tuple[bytes, list[int]]:
    """Return the program's bytes and the offsets of the constants that stand for the caller's process id.

    The call's number is found by binary search: at each installation the kernel walks the program for every existing
    number, to learn which calls are allowed whatever the arguments (400 us with a list of comparisons, 60 us with a
    tree).

    Raises:
        KeyError: `machine` is an unknown architecture.
    """
    column, audit_arch = ARCHITECTURES[machine]
    targets: dict[int, str] = {number: "allow" for name in allowed if (number := NUMBERS[name][column]) is not None}
    clone3 = NUMBERS["clone3"][column]
    if clone3 is not None:
        targets[clone3] = "absent"
    for name in rules:
        number = NUMBERS[name][column]
        if number is not None:
            targets[number] = name
    code: list[Instruction] = [(_LOAD, 0, 0, 4), (_EQUAL, 1, 0, audit_arch), (_RETURN, 0, 0, KILL_PROCESS)]
    code += [(_LOAD, 0, 0, 0), (_AT_LEAST, 0, 1, X32_BIT), (_RETURN, 0, 0, KILL_PROCESS)]
    return _assemble_search(code, _find_segments(targets, "refuse"), rules)


def _assemble_rest(machine: str, decided: Mapping[str, list[list[Condition]] | None]) -> tuple[bytes, list[int]]:
    """Assemble a filter that decides these calls (None: refuse it) and lets all others pass.

    It runs after a filter that has decided the other calls and the architecture.
    """
    column, _ = ARCHITECTURES[machine]
    numbers = {NUMBERS[name][column]: name if rule else "refuse" for name, rule in decided.items()}
    targets = {number: target for number, target in numbers.items() if number is not None}
    rules = {name: rule for name, rule in decided.items() if rule}
    return _assemble_search([(_LOAD, 0, 0, 0)], _find_segments(targets, "allow"), rules)


def _assemble_search(code: list[Instruction], segments: list[tuple[int, str]], rules: Rules) -> tuple[bytes, list[int]]:
    """Append a search for the loaded number's segment, and the rules. Return the same as `assemble`."""
    jumps: list[tuple[int, str]] = []
    _append_search(segments, code, jumps)
    self_offsets: list[int] = []
    places: dict[str, int] = {}
    for name, alternatives in sorted(rules.items()):
        places[name] = len(code)
        for instruction, is_self in _make_block(name, alternatives):
            if is_self:
                self_offsets.append(len(code) * 8 + 4)
            code.append(instruction)
    for index, name in jumps:
        code[index] = (_JUMP, 0, 0, places[name] - index - 1)
    return b"".join(struct.pack("<HBBI", *instruction) for instruction in code), self_offsets


def _find_segments(targets: dict[int, str], otherwise: str) -> list[tuple[int, str]]:
    """Return where each run of equal targets begins, from 0 on. A number without a target gets `otherwise`."""
    segments = [(0, otherwise)]
    for number in sorted(targets):
        if segments[-1][1] != targets[number]:
            segments.append((number, targets[number]))
        if number + 1 not in targets:
            segments.append((number + 1, otherwise))
    return segments[1:] if segments[1][0] == 0 else segments


def _append_search(segments: list[tuple[int, str]], code: list[Instruction], jumps: list[tuple[int, str]]) -> None:
    if len(segments) == 1:
        target = segments[0][1]
        if target in _ANSWERS:
            code.append((_RETURN, 0, 0, _ANSWERS[target]))
        else:
            jumps.append((len(code), target))
            code.append((_JUMP, 0, 0, 0))
        return
    middle = len(segments) // 2
    here = len(code)
    # The jump's distance is known once the lower half has been appended, so a placeholder keeps its place.
    code.append((_AT_LEAST, 0, 0, segments[middle][0]))
    _append_search(segments[:middle], code, jumps)
    code[here] = (_AT_LEAST, len(code) - here - 1, 0, segments[middle][0])
    _append_search(segments[middle:], code, jumps)


def _make_block(name: str, alternatives: list[list[Condition]]) -> list[tuple[Instruction, bool]]:
    """Return the instructions that decide one call by its arguments; the bool marks the caller's process id."""
    block: list[tuple[Instruction, bool]] = []
    if name in ("kill", "tgkill"):
        argument = 1 if name == "kill" else 2
        for number in _NO_SELF_SIGNALS:
            block += [((_LOAD, 0, 0, 16 + 8 * argument), False), ((_EQUAL, 0, 1, number), False)]
            block.append(((_RETURN, 0, 0, ERRNO | errno.EPERM), False))
    for alternative in alternatives:
        words = [word for condition in alternative for word in _words(condition)]
        # The final return is an instruction too.
        rest = sum(2 if mask is None else 3 for _, mask, _ in words) + 1
        for place, mask, value in words:
            block.append(((_LOAD, 0, 0, place), False))
            rest -= 1
            if mask is not None:
                block.append(((_AND, 0, 0, mask), False))
                rest -= 1
            rest -= 1
            is_self = value is _SELF
            block.append(((_EQUAL, 0, rest, 0 if is_self else int(str(value))), is_self))
        block.append(((_RETURN, 0, 0, ALLOW), False))
    block.append(((_RETURN, 0, 0, ERRNO | errno.EPERM), False))
    return block


def _words(condition: Condition) -> list[tuple[int, int | None, object]]:
    """Return the 32-bit words of seccomp_data that a condition compares: offset, mask, value."""
    argument, mask, value = condition
    # The offset is that of a little-endian machine, as each of ARCHITECTURES is.
    low = 16 + 8 * argument
    return [(low, None, 0), (low + 4, None, 0)] if value is _NULL else [(low, mask, value)]
