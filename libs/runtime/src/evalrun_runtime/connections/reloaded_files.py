"""Files that are read again when they change: tokens and certificates that are rotated while a process runs."""

import logging
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Generic, TypeVar

from evalrun_runtime.exits import BadInputError

logger = logging.getLogger(__name__)

CHECK_SECONDS = 1.0
"""Seconds between two looks at the files: Kubernetes itself takes up to a minute to bring a changed Secret to a pod."""

ParsedT = TypeVar("ParsedT")


class ReloadedFiles(Generic[ParsedT]):
    """Contents of some files, parsed together and read again when they change.

    Kubernetes exchanges all files of a Secret's volume at once, by a link. So they count as read only if none changed
    meanwhile: a certificate is never combined with another certificate's key. What cannot be parsed is logged, and the
    last that could is kept: a file that is being written must not stop a service.

    Args:
        paths: the files.
        parse: takes their contents, in that order. Raises ValueError where it cannot use them.
        clock: seconds that only grow.

    Raises:
        BadInputError: the files cannot be used now.
    """

    def __init__(
        self,
        paths: Sequence[Path],
        parse: Callable[[Sequence[bytes]], ParsedT],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._paths = tuple(paths)
        self._parse = parse
        self._clock = clock
        try:
            self._seen = self._signature()
            self._value = parse([path.read_bytes() for path in self._paths])
        except (OSError, ValueError) as error:
            raise BadInputError(self._message(error)) from error
        self._looked = clock()
        self._complaint = ""

    @property
    def current(self) -> ParsedT:
        """The current contents of the files, or the last contents that could be parsed."""
        if self._clock() - self._looked >= CHECK_SECONDS:
            self._looked = self._clock()
            self._look()
        return self._value

    def _look(self) -> None:
        try:
            seen = self._signature()
            if seen == self._seen:
                return
            contents = [path.read_bytes() for path in self._paths]
            if self._signature() != seen:
                # The files are being exchanged: the next look finds them whole.
                return
            self._seen = seen
            self._value = self._parse(contents)
        except (OSError, ValueError) as error:
            self._complain(self._message(error))
            return
        self._complaint = ""
        logger.info("%s: changed, and read again", ", ".join(map(str, self._paths)))

    def _complain(self, message: str) -> None:
        """Log an error once, not at every check."""
        if message != self._complaint:
            logger.warning("%s; the last that could be used stay in use", message)
        self._complaint = message

    def _signature(self) -> tuple[tuple[int, int, int], ...]:
        states = [path.stat() for path in self._paths]
        return tuple((state.st_ino, state.st_mtime_ns, state.st_size) for state in states)

    def _message(self, error: Exception) -> str:
        if isinstance(error, OSError):
            return f"{error.filename}: {error.strerror}"
        return f"{', '.join(map(str, self._paths))}: {error}"
