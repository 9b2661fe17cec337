"""The filter's program, run by a small interpreter of classic BPF: what it answers to which call."""

import errno
import struct
from functools import cache

import pytest

from evalrun_executor.contained import seccomp
from evalrun_executor.contained.filters import ARCHITECTURES, Filter
from evalrun_executor.contained.seccomp import ALLOW, ERRNO, KILL_PROCESS, assemble
from evalrun_executor.contained.syscalls import COMPILERS, NUMBERS, PARENTS, PLAIN

OWN_PID = 4321
REFUSED = ERRNO | errno.EPERM


@cache
def instructions(program: bytes) -> list[tuple[int, int, int, int]]:
    return list(struct.iter_unpack("<HBBI", program))


def answer(program: bytes, arch: int, number: int, *arguments: int) -> int:
    data = struct.pack("<IIQ6Q", number, arch, 0, *(arguments + (0,) * (6 - len(arguments))))
    code = instructions(program)
    at = accumulator = 0
    while True:
        operation, if_true, if_false, constant = code[at]
        at += 1
        if operation == 0x20:
            accumulator = struct.unpack_from("<I", data, constant)[0]
        elif operation == 0x54:
            accumulator &= constant
        elif operation == 0x05:
            at += constant
        elif operation == 0x06:
            return int(constant)
        else:
            holds = accumulator == constant if operation == 0x15 else accumulator >= constant
            at += if_true if holds else if_false


def candidate(machine: str, *, executable: bool = False) -> Filter:
    return seccomp.build_program_filter(machine, executable=executable)


def for_own(found: Filter) -> bytes:
    """The program as the process `OWN_PID` installs it."""
    for place in found.self_places:
        found.words[place] = OWN_PID
    return found.words.tobytes()


def answer_of_both(found: Filter, arch: int, number: int, *arguments: int) -> int:
    """What the kernel makes of a candidate's two programs: the one that lets through less decides."""
    if found.ahead is None:
        raise ValueError("there is only one program")
    answers = [answer(for_own(part), arch, number, *arguments) for part in (found.ahead, found)]
    return next((one for one in (KILL_PROCESS, *answers) if one in answers and one != ALLOW), ALLOW)


@pytest.mark.parametrize("machine", ARCHITECTURES)
def test_every_call_number_is_answered_as_the_lists_define(machine: str) -> None:
    column, arch = ARCHITECTURES[machine]
    program, _ = assemble(machine, PLAIN, {})
    allowed = {NUMBERS[name][column] for name in PLAIN}
    clone3 = NUMBERS["clone3"][column]
    for number in range(600):
        expected = ALLOW if number in allowed else ERRNO | errno.ENOSYS if number == clone3 else REFUSED
        assert answer(program, arch, number) == expected, number


@pytest.mark.parametrize("machine", ARCHITECTURES)
def test_a_call_of_another_architecture_kills(machine: str) -> None:
    program = candidate(machine)
    for arch in (0x40000003, 0x40000028, 0xC000003E, 0xC00000B7):
        if arch != ARCHITECTURES[machine][1]:
            assert answer_of_both(program, arch, 0) == KILL_PROCESS


def test_calls_of_the_x32_numbering_kill() -> None:
    assert answer_of_both(candidate("x86_64"), 0xC000003E, 0x40000000) == KILL_PROCESS


THREAD_FLAGS = 0x3D0F00  # what glibc's pthread_create passes
CASES = [
    ("clone", (THREAD_FLAGS,), ALLOW),
    ("clone", (17,), REFUSED),  # fork: SIGCHLD
    ("clone", (0x4100 | 17,), REFUSED),  # vfork: CLONE_VM | CLONE_VFORK
    ("clone", (THREAD_FLAGS | 0x10000000,), REFUSED),  # CLONE_NEWUSER
    ("kill", (OWN_PID, 6), ALLOW),
    ("kill", (OWN_PID, 9), REFUSED),
    ("kill", (OWN_PID, 19), REFUSED),
    ("kill", (OWN_PID - 1, 0), REFUSED),
    ("kill", (2**32 - 1, 9), REFUSED),
    ("kill", (0, 15), REFUSED),
    ("tgkill", (OWN_PID, OWN_PID + 1, 6), ALLOW),
    ("tgkill", (OWN_PID + 1, OWN_PID + 1, 6), REFUSED),
    ("fcntl", (3, 4, 0), ALLOW),  # F_SETFL
    ("fcntl", (3, 8, 1), REFUSED),  # F_SETOWN: the kernel would signal another for us
    ("fcntl", (3, 10, 9), REFUSED),  # F_SETSIG
    ("fcntl", (3, 15, 0), REFUSED),  # F_SETOWN_EX
    ("ioctl", (0, 0x5401), ALLOW),  # TCGETS: isatty
    ("ioctl", (0, 0x5412), REFUSED),  # TIOCSTI
    ("prlimit64", (0, 7, 0, 1), ALLOW),
    ("prlimit64", (0, 3, 1, 0), ALLOW),
    ("prlimit64", (0, 0, 0x700000000, 0), REFUSED),  # a pointer whose low half is null
    ("prlimit64", (0, 9, 1, 0), REFUSED),
    ("prlimit64", (1, 3, 0, 1), REFUSED),
    ("setrlimit", (3, 1), ALLOW),
    ("setrlimit", (0, 1), REFUSED),
    ("prctl", (15, 0), ALLOW),  # PR_SET_NAME
    ("prctl", (1, 0), REFUSED),  # PR_SET_PDEATHSIG
    ("prctl", (4, 1), REFUSED),  # PR_SET_DUMPABLE
    ("socketpair", (1, 1 | 0o2000000, 0), ALLOW),
    ("socketpair", (1, 1 | 0o4000, 0), ALLOW),
    ("socketpair", (1, 2, 0), REFUSED),  # datagrams can be sent to any name
    ("socketpair", (2, 1, 0), REFUSED),
    ("sendto", (3, 0, 1, 0, 0, 0), ALLOW),
    ("sendto", (3, 0, 1, 0, 12345, 16), REFUSED),
    ("sendto", (3, 0, 1, 0, 0x700000000, 0), REFUSED),
    ("execveat", (3, 1, 1, 1, 0x1000), REFUSED),
    ("execve", (1, 1, 1), REFUSED),
]


@pytest.mark.parametrize(("name", "arguments", "expected"), CASES)
@pytest.mark.parametrize("machine", ARCHITECTURES)
def test_seccomp_answer_depends_on_the_arguments_of_the_call(
    machine: str, name: str, arguments: tuple[int, ...], expected: int
) -> None:
    column, arch = ARCHITECTURES[machine]
    number = NUMBERS[name][column]
    assert number is not None
    assert answer_of_both(candidate(machine), arch, number, *arguments) == expected


@pytest.mark.parametrize(("arguments", "expected"), [
    ((3, 1, 1, 1, 0x1000), ALLOW), ((4, 1, 1, 1, 0x1000), REFUSED), ((3, 1, 1, 1, 0), REFUSED),
])  # fmt: skip
def test_a_compiled_program_may_execute_descriptor_three_only(arguments: tuple[int, ...], expected: int) -> None:
    program = candidate("x86_64", executable=True)
    assert answer_of_both(program, 0xC000003E, 322, *arguments) == expected
    assert answer_of_both(program, 0xC000003E, 59, 1, 1, 1) == REFUSED


@pytest.mark.parametrize("executable", [False, True])
@pytest.mark.parametrize("machine", ARCHITECTURES)
def test_both_filters_together_answer_like_one_filter_of_all_rules(machine: str, *, executable: bool) -> None:
    _, arch = ARCHITECTURES[machine]
    rules = {**seccomp.COMMON, **seccomp.make_own_rules(executable=executable)}
    whole = Filter(*assemble(machine, PLAIN, rules))
    parts = candidate(machine, executable=executable)
    asked = [arguments for _, arguments, _ in CASES] + [(), (3, 1, 1, 1, 0x1000), (0, 0, 0, 0x22), (1, 1, 1, 0x21)]
    for number in range(600):
        for arguments in asked:
            expected = answer(for_own(whole), arch, number, *arguments)
            assert answer_of_both(parts, arch, number, *arguments) == expected, (number, arguments)


@pytest.mark.parametrize("machine", ARCHITECTURES)
def test_filter_of_the_parent_allows_only_its_lists(machine: str) -> None:
    column, arch = ARCHITECTURES[machine]
    ahead = candidate(machine).ahead
    assert ahead is not None
    for name in (*PLAIN, *PARENTS):
        number = NUMBERS[name][column]
        assert number is None or answer(for_own(ahead), arch, number) == ALLOW, name
    for name in ("execve", "symlink", "link", "setpgid", "flock"):
        number = NUMBERS[name][column]
        assert number is None or answer(for_own(ahead), arch, number) == REFUSED, name


DANGEROUS = """
socket connect bind sendmsg memfd_create shmget ptrace process_vm_readv io_uring_setup userfaultfd bpf perf_event_open
keyctl mount unshare setns open_by_handle_at chmod chown setpriority sched_setaffinity
"""


@pytest.mark.parametrize("name", DANGEROUS.split())
def test_dangerous_calls_are_on_no_list(name: str) -> None:
    assert name not in PLAIN
    assert name == "chmod" or name not in COMPILERS


@pytest.mark.parametrize("machine", ARCHITECTURES)
def test_session_is_refused_calls_whose_effect_outlasts_an_execution(machine: str) -> None:
    column, arch = ARCHITECTURES[machine]
    program = for_own(seccomp.build_session_filter(machine))

    def asked(name: str, *arguments: int) -> int:
        number = NUMBERS[name][column]
        assert number is not None
        return answer(program, arch, number, *arguments)

    assert asked("timer_create") == REFUSED
    for command in (6, 7, 37, 38):  # file locks
        assert asked("fcntl", 1, command) == REFUSED
    assert asked("fcntl", 1, 3) == ALLOW
    for flags, expected in ((0x22, ALLOW), (0x02, ALLOW), (0x21, REFUSED), (0x01, REFUSED), (0x03, REFUSED)):
        assert asked("mmap", 0, 4096, 3, flags) == expected, flags
    assert asked("kill", OWN_PID, 10) == ALLOW
    assert asked("kill", OWN_PID + 1, 10) == REFUSED
    assert asked("kill", OWN_PID, 19) == REFUSED


@pytest.mark.parametrize("machine", ARCHITECTURES)
@pytest.mark.parametrize("executable", [False, True])
def test_memory_is_shared_through_files_only(machine: str, *, executable: bool) -> None:
    column, arch = ARCHITECTURES[machine]
    number = NUMBERS["mmap"][column]
    assert number is not None
    program = candidate(machine, executable=executable)
    expected = {0x22: ALLOW, 0x02: ALLOW, 0x4022: ALLOW, 0x01: ALLOW, 0x03: ALLOW, 0x21: REFUSED, 0x23: REFUSED}
    for flags, wanted in expected.items():
        assert answer_of_both(program, arch, number, 0, 4096, 3, flags) == wanted, hex(flags)
    compiler = for_own(seccomp.build_compiler_filter(machine))
    assert answer(compiler, arch, number, 0, 4096, 3, 0x21) == ALLOW
