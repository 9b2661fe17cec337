"""The real helm for the tests of this directory: found, or built with Go, after collection and outside their time
limit.

Without it they are skipped with the reason; with CI=true they fail.
"""

from pathlib import Path

import pytest
from builders.cluster.chart import Chart
from builders.cluster.controlplane import MissingBinariesError, find_binaries
from builders.tools import missing

HERE = Path(__file__).parent
HELM = pytest.StashKey[Path | str]()
"""The binary, or why there is none."""


def pytest_collection_finish(session: pytest.Session) -> None:
    """Find or build helm where a test of this directory asks for it."""
    wanted = any(
        HERE in item.path.parents and isinstance(item, pytest.Function) and "chart" in item.fixturenames
        for item in session.items
    )
    if session.config.option.collectonly or not wanted:
        return
    try:
        session.config.stash[HELM] = find_binaries(["helm"])["helm"]
    except MissingBinariesError as error:
        session.config.stash[HELM] = str(error)


@pytest.fixture(scope="session")
def chart(pytestconfig: pytest.Config) -> Chart:
    helm = pytestconfig.stash[HELM]
    if isinstance(helm, str):
        missing(helm)
    return Chart(helm)
