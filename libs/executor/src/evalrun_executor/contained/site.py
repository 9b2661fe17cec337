"""Facts about the machine that the zygote knows, fixed before the first program runs."""

# ruff: noqa: PTH103, PTH120
# Why: pathlib and contextlib would make the zygote larger, and each fork dearer.
from __future__ import annotations

import os
import sys
from _collections_abc import Callable

from evalrun_executor.contained import landlock
from evalrun_executor.contained.filters import Filter

_SYSTEM_READABLE = (
    "/usr/lib", "/usr/lib64", "/lib", "/lib64", "/usr/local/lib", "/etc/ld.so.cache", "/etc/localtime",
    "/usr/share/zoneinfo", "/dev/urandom", "/dev/random", "/dev/zero",
)  # fmt: skip
_TOOLCHAIN = ("/usr/bin", "/usr/lib", "/usr/lib64", "/usr/libexec", "/usr/local/lib", "/lib", "/lib64", "/bin")
_HEADERS = ("/usr/include", "/usr/local/include", "/usr/share")
"""Directories that compilers read. Debian's Go has its standard library in the last of them."""
_INTERPRETERS_READ = (
    "/etc/ssl/openssl.cnf", "/usr/share/nodejs", "/usr/share/lua", "/etc/java-17-openjdk", "/etc/java-21-openjdk",
)  # fmt: skip
"""Node does not start without the first. Debian's Node and Lua keep parts of their libraries in the next two, and its
Java settings in the others."""
_LOADERS = ("/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1")


class Site:
    """Directories, filters and rulesets that runners and children confine themselves with."""

    def __init__(self, place: str, package_dirs: list[str]) -> None:
        self.place = place
        self.machine = os.uname().machine
        self.cpus = len(os.sched_getaffinity(0))
        self.landlock_abi = 0
        """0 without Landlock. The zygote sets it, and the filters below, if the machine has them."""
        self.program_filter: Filter | None = None
        self.executable_filter: Filter | None = None
        self.session_filter: Filter | None = None
        self.compiler_filter: Filter | None = None
        self.harnesses: dict[str, Callable[[str], None]] = {}
        self.package_dirs = package_dirs
        self.interpreters: list[str] = []
        """Paths of the programs that run the texts of other languages."""
        self._rulesets: dict[tuple[str, int], int] = {}

    def work_directory(self, slot: int) -> str:
        """Return the slot's private directory."""
        return f"{self.place}/slot-{slot}/work"

    def source_directory(self, slot: int) -> str:
        """Return the directory of the slot's program text: the program may read the text, not change it."""
        return f"{self.place}/slot-{slot}/source"

    def script_directory(self, slot: int) -> str:
        """Return the directory of the text that an interpreter reads.

        It differs from Python's directory, because programs of other languages may read their own text there.
        """
        return f"{self.place}/slot-{slot}/script"

    def make_directories(self, slot: int) -> None:
        """Create the slot's directories if they are missing."""
        for directory in (self.work_directory(slot), self.source_directory(slot), self.script_directory(slot)):
            os.makedirs(directory, mode=0o700, exist_ok=True)

    def open_ruleset(self, slot: int, purpose: str) -> int | None:
        """Return the descriptor of the Landlock ruleset for a runner of the slot, or None without Landlock.

        Args:
            slot: the slot whose directories the ruleset grants.
            purpose: `python`, `harness`, `executable`, `interpreted` or `compile`.
        """
        if self.landlock_abi == 0:
            return None
        key = (purpose, slot)
        if key not in self._rulesets:
            self._rulesets[key] = landlock.make_ruleset(self.landlock_abi, self._list_rules(slot, purpose))
        return self._rulesets[key]

    def forget_rulesets(self, but: int | None = None) -> None:
        """Close all rulesets except `but`."""
        for key, ruleset in [*self._rulesets.items()]:
            if ruleset != but:
                os.close(ruleset)
                del self._rulesets[key]

    def _list_rules(self, slot: int, purpose: str) -> list[tuple[str, int]]:
        rules = [(path, landlock.READ) for path in _SYSTEM_READABLE]
        rules.append((self.work_directory(slot), landlock.PRIVATE))
        rules.append(("/dev/null", landlock.READ_FILE | landlock.WRITE_FILE))
        if purpose == "compile":
            rules += [(path, landlock.READ | landlock.EXECUTE) for path in _TOOLCHAIN]
            rules += [(path, landlock.READ) for path in (*_HEADERS, *_INTERPRETERS_READ)]
            return rules
        if purpose == "python":
            # Other programs would find the text of the last Python program that ran in the slot there.
            rules.append((self.source_directory(slot), landlock.READ))
        if purpose in ("executable", "interpreted"):
            # A compiled program is a memory file, to which Landlock does not apply. Its loader is a file.
            rules += [(path, landlock.READ_FILE | landlock.EXECUTE) for path in _LOADERS]
            if purpose == "interpreted":
                rules += [(path, landlock.READ_FILE | landlock.EXECUTE) for path in self.interpreters]
                rules += [(path, landlock.READ) for path in _INTERPRETERS_READ]
                rules.append((self.script_directory(slot), landlock.READ))
            return rules
        interpreter = {os.path.dirname(os.__file__), *(path for path in sys.path if path.startswith("/"))}
        return rules + [(path, landlock.READ) for path in sorted(interpreter | set(self.package_dirs))]
