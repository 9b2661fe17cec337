"""A program worker: a long-lived process per slot that forks a child for each Python program with a single input.

A runner for such a program would cost twice as much: a fork, and the preparations that a runner makes for many tests.
As with harnesses the child compiles its program, and the worker holds neither the text nor the output.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable
from types import CodeType

from evalrun_executor.contained import frames, program, python_source
from evalrun_executor.contained.harness_worker import HarnessWorker
from evalrun_executor.contained.site import Site

Next = Callable[[], "object"]


class ProgramWorker(HarnessWorker):
    """Runs programs with a single input in a slot."""

    PURPOSE = "python"
    CODE_NAME = program.SCRIPT

    def __init__(self, site: Site, slot: int, service: int) -> None:
        super().__init__(site, slot, service)
        self._folder = site.source_directory(slot)
        self._main_path = f"{self._folder}/{program.SCRIPT}"
        self._source = -1

    def _open(self) -> None:
        """Open the file of the program's text. Once the ruleset holds, nobody can open it for writing."""
        self._source = os.open(self._main_path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def _prepare(self) -> None:
        sys.path.insert(0, self._folder)
        program.forget_own_modules()

    def _take_program(self) -> bool:
        """Copy the text to the place where the program and its tracebacks find it."""
        # The text passes through no memory of this process, where a later program could find it.
        os.ftruncate(self._source, 0)
        os.lseek(self._source, 0, os.SEEK_SET)
        frames.copy(self._source, self._blob, self._code, self._job.code_size)
        return True

    def _make_step(self, code: CodeType) -> Next:
        """Import the modules that the program names ahead, and return the step that runs it."""
        # The child imports before it reports its compilation: the program's clock counts only its own imports.
        python_source.import_ahead(code)
        gc.freeze()
        namespace, thorough = self._namespace, python_source.needs_teardown(code)
        return lambda: program.run_program(code, namespace, thorough=thorough)
