"""A real API server for the tests of this folder, started once a session.

The binaries are found, or built, after collection and outside every test's time limit: a first build takes minutes.
Without them the tests are skipped with the reason; with CI=true they fail.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from builders.controlplane import ControlPlane, MissingBinariesError, find_binaries, running_control_plane

HERE = Path(__file__).parent
BINARIES = pytest.StashKey[dict[str, Path] | str]()
"""The binaries, or why there are none."""


def pytest_collection_finish(session: pytest.Session) -> None:
    """Find or build the binaries where a test of this folder is going to run."""
    wanted = any(HERE in item.path.parents for item in session.items)
    if not wanted or session.config.option.collectonly:
        return
    try:
        session.config.stash[BINARIES] = find_binaries()
    except MissingBinariesError as error:
        session.config.stash[BINARIES] = str(error)


@pytest.fixture(scope="session")
def control_plane(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A running API server, empty but for what Kubernetes itself makes."""
    binaries = pytestconfig.stash[BINARIES]
    if isinstance(binaries, str):
        if os.environ.get("CI") == "true":
            pytest.fail(f"in CI these tests must run: {binaries}")
        pytest.skip(binaries)
    with running_control_plane(binaries, tmp_path_factory.mktemp("control-plane")) as plane:
        yield plane
