"""`python -m evalrun_results.outputs.sender URL [NAME...]`: a run's outputs, or some of them, as a tar on stdout.

What `evalrun results` has run in the aggregator's pod: volume and credentials are there, and nowhere else.
"""

import sys
import tarfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import BinaryIO

from evalrun_data.store_problems import name_read_errors
from evalrun_results.outputs.destination import SUMMARY, resolve_destination
from evalrun_runtime.exits import BadInputError, ExitCode

OpenFile = Callable[[], AbstractContextManager[BinaryIO]]


def list_files(url: str, names: Sequence[str] = ()) -> Iterator[tuple[str, int, OpenFile]]:
    """Return name, size in bytes and a way to open each file of a run's outputs, summary.json last.

    Raises:
        BadInputError: the directory holds no finished run, a file is missing, or the store cannot be reached.
    """
    files, path = resolve_destination(url)
    root = path.rstrip("/")
    with name_read_errors(url):
        found = {str(file).removeprefix(root).lstrip("/"): file for file in files.find(root)}
        if SUMMARY not in found:
            raise BadInputError(f"{url}: no finished run there: {SUMMARY} is missing")
        missing = [name for name in names if name not in found]
        if missing:
            raise BadInputError(f"{url}: {', '.join(missing)} not found")
        for name in sorted(names or found, key=lambda name: (name == SUMMARY, name)):
            yield name, int(files.size(found[name])), partial(files.open, found[name], "rb")


def send(url: str, names: Sequence[str], output: BinaryIO) -> None:
    """Write the files as a tar. Raises as `list_files` does."""
    with tarfile.open(fileobj=output, mode="w|") as tar:
        for name, size, open_file in list_files(url, names):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = size, 0o644
            with open_file() as file:
                tar.addfile(entry, file)


def main(arguments: Sequence[str]) -> int:
    """Send, and return the exit code."""
    if not arguments:
        sys.stderr.write("evalrun: name the URL of the outputs\n")
        return ExitCode.BAD_INPUT
    try:
        send(arguments[0], arguments[1:], sys.stdout.buffer)
    except BadInputError as error:
        sys.stderr.write(f"evalrun: {error}\n")
        return ExitCode.BAD_INPUT
    return ExitCode.SUCCEEDED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
