"""The description of a programming language. A language is a module beside this one and its name in `LANGUAGES`."""

from dataclasses import dataclass
from enum import StrEnum


class Driver(StrEnum):
    """The way in which the executor runs programs."""

    PYTHON = "python"
    """Forked from an interpreter that has compiled the program once."""
    EXECUTABLE = "executable"
    """Compiled once to a file, which is started for each test."""
    INTERPRETER = "interpreter"
    """The language's own program runs it; the program is started for each test, from its text or from a file compiled
    once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compilation:
    """The step in which a program becomes an executable file."""

    compiler: str
    """Program in /usr/bin or /bin. A sandbox without it does not offer the language."""
    source: str
    """Name of the file that holds the program's text."""
    commands: tuple[tuple[str, ...], ...]
    """Command lines to try in order; the next one is tried where the linker lacks static libraries.

    `{compiler}`, `{source}` and `{output}` are replaced where they are a word of their own. A compiler that needs an
    environment gets it by `/usr/bin/env NAME=VALUE {compiler} ...`.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Interpreter:
    """The program that reads a program's text and runs it."""

    program: str
    """Program in /usr/bin or /bin. A sandbox without it does not offer the language."""
    source: str
    """Name of the file that contains the program: its text, or the compiler's output."""
    arguments: tuple[str, ...]
    """`{source}` is replaced by the file's path, and `{memory_mib}` by the limit, anywhere in a word."""
    environment: tuple[str, ...] = ()
    """`NAME=VALUE` that its programs get beside PATH and LANG."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Footprint:
    """The memory of an idle program. The limit of a program is added to this memory."""

    resident_mib: int
    """Measured resident memory."""
    mapped_mib: int
    """What the kernel lets it map: wider than what it does, so that the resident memory decides when it has ended.

    A program may pass its limit by this much while it runs.
    """
    reserved_mib: int = 0
    """Addresses that its runtime may reserve without use. Native code could use them, so it is a bound for that too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Syntax:
    """The texts that the report colours, as regular expressions that take linear time."""

    keywords: str
    """Keywords of the language, with blanks between them."""
    comment: str
    string: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FusionNames:
    """A language's names in SandboxFusion's API."""

    name: str
    tags: frozenset[str]
    """Words after a fence by which SandboxFusion knows the language's blocks."""
    is_stock: bool = True
    """Whether every stock server runs it. Others are asked for it only where our harness has found a compiler."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Language:
    """A programming language."""

    name: str
    """Name of the language in records, requests and results."""
    title: str
    """Name of the language in prompts."""
    aliases: tuple[str, ...] = ()
    """Other names that records may use, in lower case."""
    tags: str
    """Words after a fence, or endings of a file's name there, in lower case, as a regular expression."""
    driver: Driver
    compilation: Compilation | None = None
    """How a program is compiled; None where nothing is compiled to a file before the tests."""
    interpreter: Interpreter | None = None
    """Program that runs a program of `Driver.INTERPRETER`; None for any other driver."""
    footprint: Footprint
    packages: tuple[str, ...] = ()
    """Debian packages of the sandbox's image."""
    comment: tuple[str, str]
    """Lines that begin and end a comment of several lines: a prompt for a base model is one."""
    line_starts: str = ""
    """A regular expression of line starts; a text without a fence that has such a line is taken for a program."""
    opening: str = ""
    """What a program has to begin with, or be text that is printed; its first two characters tell that it does."""
    syntax: Syntax
    checker: str = ""
    """Program around a checker's source; empty: checkers cannot be written in it.

    `str.format` fills in `source`, `arguments` (three file names), `length` (bytes of each file's length on stdin, low
    first) and `output_as_stdin`. It writes the files input, answer and output from stdin, makes the directory feedback,
    and runs the source with the arguments.
    """
    fusion: FusionNames | None = None
    """Names of the language in SandboxFusion; None where SandboxFusion does not have it."""

    @property
    def is_compiled(self) -> bool:
        """Whether a compiler writes an executable file before the tests."""
        return self.compilation is not None
