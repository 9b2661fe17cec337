"""What services tell gRPC and NumPy by their environment, against the gRPC that is locked."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from evalrun_runtime.service_environment import SERVICE_ENVIRONMENT

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("experiments", "complaint"), [(SERVICE_ENVIRONMENT["GRPC_EXPERIMENTS"], ""), ("-no_such_thing", "no_such_thing")]
)
def test_grpc_complains_only_about_unknown_experiments(experiments: str, complaint: str) -> None:
    """A release that no longer knows it says so on stderr, in every service's log: take the switch away then."""
    environment = {**os.environ, **SERVICE_ENVIRONMENT, "GRPC_EXPERIMENTS": experiments}
    done = subprocess.run(
        [sys.executable, "-c", "import grpc"], env=environment, capture_output=True, text=True, check=True
    )
    assert complaint in done.stderr if complaint else not done.stderr


def test_images_set_the_service_environment() -> None:
    words = (ROOT / "Dockerfile.judge").read_text(encoding="utf-8").split()
    assert {f"{name}={value}" for name, value in SERVICE_ENVIRONMENT.items()} <= set(words)
