"""Downloads the outputs of a run in a cluster: from its aggregator while it exists, then from their destination; a
volume is read through a temporary pod.

The aggregator sends them as a tar over the API server's exec. It alone can reach the run's volume and has the bucket's
credentials; the cluster decides who may run commands in pods (the right `create` on `pods/exec`).
"""

import logging
import shutil
import tarfile
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import BinaryIO

from evalrun_api import names
from evalrun_api.v1alpha1 import EvalRun
from evalrun_runtime.exits import BadInputError

logger = logging.getLogger(__name__)

CHUNK = 1 << 20
SENDER = ("python", "-m", "evalrun_results.outputs.sender")
"""Program for the aggregator's pod. Arguments: URL, then the names of single files, or nothing for all."""

SendFrom = Callable[[Sequence[str], BinaryIO], Awaitable[None]]
"""Runs a command beside the aggregator, with its stdout in a file. Raises BadInputError, UnreachableError."""


Reader = Callable[[str], AbstractAsyncContextManager[SendFrom]]
"""Runs a pod that mounts a claim, and yields a function that runs commands there. Raises BadInputError,
UnreachableError."""


async def bring_outputs(
    run: EvalRun, directory: Path, only: Sequence[str], send: SendFrom | None, reader: Reader
) -> str:
    """Copy a run's outputs into a directory, and return their origin.

    Args:
        run: the run with its status.
        directory: an empty directory.
        only: names of the wanted files; empty: all.
        send: runs a command beside the aggregator; None if the aggregator is gone. If the cluster refuses the command,
            an output in a bucket is read from here.
        reader: runs a pod for outputs on a volume if the aggregator is gone.

    Raises:
        BadInputError: the outputs cannot be reached from here; the message names their place.
        UnreachableError: the connection broke.
    """
    url = None if run.status is None else run.status.output_url
    if not url:
        raise BadInputError(f"EvalRun {run.metadata.name} has no outputs")
    path = names.aggregator_path(url, names.ledger_claim(run.metadata.name, str(run.metadata.uid)))
    if send is not None:
        try:
            await _receive(send, path, directory, only)
        except BadInputError as error:
            if url.startswith("pvc://"):
                raise
            logger.warning("%s; reading %s from here instead", error, url)
        else:
            return "its aggregator"
    if url.startswith("pvc://"):
        try:
            async with reader(str(names.parse_claim(url))) as send_from_volume:
                await _receive(send_from_volume, path, directory, only)
        except BadInputError as error:
            raise BadInputError(
                f"{_on_volume(url)}: mount it in a pod to read them (docs/install.md): {error}"
            ) from error
        return f"{url}, through a pod"
    # The import loads fsspec, which `evalrun status` does not need.
    from evalrun_results.outputs.sender import list_files

    for name, _, open_file in list_files(url, only):
        target = directory / name
        target.parent.mkdir(parents=True, exist_ok=True)
        with open_file() as source, target.open("wb") as file:
            shutil.copyfileobj(source, file, CHUNK)
    return url


async def _receive(send: SendFrom, url: str, directory: Path, only: Sequence[str]) -> None:
    with TemporaryDirectory(prefix="evalrun-outputs-", dir=directory.parent) as scratch:
        archive = Path(scratch) / "outputs.tar"
        with archive.open("wb") as file:
            await send([*SENDER, url, *only], file)
        _unpack(archive, directory, url)


def _unpack(archive: Path, directory: Path, url: str) -> None:
    try:
        with tarfile.open(archive) as tar:
            tar.extractall(directory, filter="data")
    except tarfile.TarError as error:
        raise BadInputError(f"{url}: the download cannot be unpacked: try again ({error})") from error


def _on_volume(url: str) -> str:
    claim, _, path = url.removeprefix("pvc://").partition("/")
    return f"the outputs are {path} on the volume of PersistentVolumeClaim {claim}"
