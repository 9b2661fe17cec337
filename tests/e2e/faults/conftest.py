"""Servers that answer the demo set, and what the long tests of this directory ask for: `make test-e2e-faults`."""

import os
from collections.abc import Iterator

import pytest
from builders.cluster.cluster import Cluster
from builders.cluster.faults import enough_volumes
from builders.cluster.install import Installed
from builders.cluster.tasks import DEMO

ASKED = "EVALRUN_TEST_E2E_FAULTS"
MAX_CLAIMS = 45
"""Of all tests of this directory together: a claim's volume is not used again where nothing provisions any."""


@pytest.fixture(scope="session")
def all_faults(cluster: Cluster, images: dict[str, str]) -> Iterator[None]:
    """Volumes for all tests; skips unless the target asked for them."""
    if os.environ.get(ASKED) != "required":
        pytest.skip("takes 10 minutes: make test-e2e-faults")
    with enough_volumes(cluster, images["aggregator"], MAX_CLAIMS):
        yield


@pytest.fixture(scope="session")
def quick(install: Installed) -> dict[str, object]:
    """The endpoint of a server that answers the demo set at once."""
    install.serve_answers("demo-answers", DEMO)
    return install.endpoint("demo-answers")


@pytest.fixture(scope="session")
def slow(install: Installed) -> dict[str, object]:
    """The endpoint of a server that takes 112 s for the demo set: a busy machine upgrades and rolls back meanwhile."""
    install.serve_answers("slow-demo-answers", DEMO, "--latency-seconds=7", "--max-concurrency=2")
    return install.endpoint("slow-demo-answers")
