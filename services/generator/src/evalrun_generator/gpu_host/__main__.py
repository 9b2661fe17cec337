"""`python -m evalrun_generator.gpu_host`: run a rollout on this machine's GPUs, and leave nothing behind."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from evalrun_api.run_config import read_run_config
from evalrun_generator.gpu_host.host import GpuHost, HostPlan
from evalrun_generator.gpu_host.kept_ray import read_kept_ray
from evalrun_generator.gpu_host.processes import StopRequests, adopt_orphans
from evalrun_generator.outcomes import GenerationStoppedError
from evalrun_runtime.exits import BadInputError, ExitCode
from evalrun_runtime.late_arguments import complete
from evalrun_runtime.logs import configure_logging
from evalrun_runtime.termination import end_with


def parse(argv: Sequence[str]) -> HostPlan:
    """Return the plan of a command line. Unknown arguments go to the generator. Raises BadInputError."""
    parser = argparse.ArgumentParser("evalrun-gpu-host", description=__doc__, allow_abbrev=False)
    parser.add_argument("--gpu-python", type=Path, required=True, help="Interpreter with Ray, verl and the engine.")
    parser.add_argument("--gpus", default="", help="GPUs as CUDA_VISIBLE_DEVICES names them, with commas between them.")
    parser.add_argument("--pretended-gpus", type=int, default=0, help="GPUs that Ray pretends to have: the CPU build.")
    parser.add_argument(
        "--join-ray",
        metavar="ADDRESS",
        help="Ray cluster to join instead of starting one: HOST:PORT, or kept:FILE of kept_ray.",
    )
    parser.add_argument("--work-order", type=Path, required=True, help="File with the run's work order.")
    parser.add_argument("--logs", type=Path, required=True, help="Directory for logs.")
    parser.add_argument("--exit-with-parent", action="store_true", help="Always so: it ends with its parent.")
    known, flags = parser.parse_known_args(argv)
    return HostPlan(
        python=known.gpu_python,
        config_file=known.work_order,
        config=read_run_config(known.work_order),
        logs=known.logs,
        gpus=[gpu for gpu in known.gpus.split(",") if gpu],
        pretended_gpus=known.pretended_gpus,
        ray_address=known.join_ray,
        kept_ray=None if known.join_ray is None else read_kept_ray(known.join_ray),
        generator_flags=flags,
    )


def main(argv: Sequence[str]) -> int:
    """Run the rollout and return its exit code. If that is not 0, the last line on stderr says why."""
    stops = StopRequests()
    adopt_orphans()
    configure_logging("text", "info")
    try:
        return GpuHost(parse(argv), stops).run()
    except BadInputError as error:
        return end_with(error, ExitCode.BAD_INPUT)
    except GenerationStoppedError as error:
        return end_with(error, ExitCode.FAILED)


if __name__ == "__main__":
    sys.exit(main(complete(sys.argv[1:])))
