"""The trainers that can be checked, and how each asks for rewards. Every command imports it, so it imports little."""

from collections.abc import Mapping, Sequence

OWN = "own"
"""The trainer's own client of SandboxFusion."""
EVALRUN = "evalrun"
"""The reward service."""

WAYS: Mapping[str, Sequence[str]] = {
    "verl": (OWN, EVALRUN),
    "trl": (EVALRUN,),
    "openrlhf": (EVALRUN,),
    "none": (EVALRUN,),
}
"""The ways of each trainer that `evalrun_trainers.check_process` knows."""
