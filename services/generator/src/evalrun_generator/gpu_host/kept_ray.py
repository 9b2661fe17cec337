"""`python -m evalrun_generator.gpu_host.kept_ray`: a Ray cluster of this machine that several runs use in turn.

Their replicas live in it, and end with it: it kills everything that was started in it, whatever the outcome.
"""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from evalrun_generator.gpu_host.processes import Descendants, StopRequests, adopt_orphans
from evalrun_generator.gpu_host.ray_head import start_ray
from evalrun_generator.gpu_host.session_directory import own_session
from evalrun_generator.outcomes import GenerationStoppedError
from evalrun_runtime.atomic_files import write_atomically
from evalrun_runtime.exits import BadInputError, ExitCode
from evalrun_runtime.logs import configure_logging
from evalrun_runtime.termination import end_with

KEPT: Final = "kept:"
"""Prefix of an address that names the cluster's file, instead of HOST:PORT."""
REPLICAS: Final = "kept"
"""Name of the replicas; each cluster has a single set of them."""
OF_CLUSTER: Final = ("PYTHONPATH", "TMPDIR", "RAY_AUTH_MODE", "RAY_AUTH_TOKEN")
WATCH_SECONDS: Final = 1.0


@dataclass(frozen=True)
class KeptRay:
    """A running Ray cluster, as its file describes it to the runs that join it."""

    address: str
    environment: Mapping[str, str]
    """Special environment variables of the cluster's drivers, among them the cluster's token."""
    pretended_gpus: int

    def write(self, file: Path) -> None:
        """Store the description. The directory must be readable by this user only."""
        write_atomically(file, json.dumps(asdict(self)).encode() + b"\n")


def read_kept_ray(address: str) -> KeptRay | None:
    """Return the cluster of an address; None: the address is HOST:PORT.

    Raises BadInputError if the cluster has ended.
    """
    if not address.startswith(KEPT):
        return None
    file = Path(address.removeprefix(KEPT))
    try:
        return KeptRay(**json.loads(file.read_bytes()))
    except (OSError, ValueError, TypeError) as error:
        raise BadInputError(f"{file}: no Ray cluster was started there, or it has ended: {error}") from error


def hold(python: Path, file: Path, gpus: Sequence[str], pretended: int, logs: Path, stops: StopRequests) -> ExitCode:
    """Start Ray, write `file` once it may be joined, and end everything on request.

    Raises:
        GenerationStoppedError: Ray does not start.
    """
    seen = Descendants()
    with own_session(seen) as directory:
        try:
            head = start_ray(python, directory, gpus, pretended, logs / "ray.log", stops)
            if head is not None:
                needed = {name: head.environment[name] for name in OF_CLUSTER}
                KeptRay(head.address, needed, pretended).write(file)
            while not stops.is_asked:
                seen.look()
                stops.wait(WATCH_SECONDS)
            return ExitCode.STOPPED
        finally:
            file.unlink(missing_ok=True)


def main(argv: Sequence[str]) -> int:
    """Hold a cluster until SIGTERM."""
    parser = argparse.ArgumentParser("evalrun-kept-ray", description=__doc__, allow_abbrev=False)
    parser.add_argument("--gpu-python", type=Path, required=True, help="Interpreter with Ray, verl and the engine.")
    parser.add_argument("--gpus", default="", help="GPUs as CUDA_VISIBLE_DEVICES names them, with commas between them.")
    parser.add_argument("--pretended-gpus", type=int, default=0, help="GPUs that Ray pretends to have: the CPU build.")
    parser.add_argument("--file", type=Path, required=True, help="Gets address and token once Ray may be joined.")
    parser.add_argument("--logs", type=Path, required=True, help="Directory for logs.")
    known = parser.parse_args(argv)
    stops = StopRequests()
    adopt_orphans()
    configure_logging("text", "info")
    gpus = [gpu for gpu in known.gpus.split(",") if gpu]
    try:
        return hold(known.gpu_python, known.file, gpus, known.pretended_gpus, known.logs, stops)
    except GenerationStoppedError as error:
        return end_with(error, ExitCode.FAILED)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
