"""An S3 server for the tests of this directory, found or built after collection: a first build takes minutes."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from builders.cluster.controlplane import MissingBinariesError, find_binaries
from builders.s3_server import PROGRAM, S3Server, find_program

HERE = Path(__file__).parent


def pytest_collection_finish(session: pytest.Session) -> None:
    """Build the server outside any test's time limit."""
    if not session.config.option.collectonly and any(HERE in item.path.parents for item in session.items):
        try:
            find_binaries([PROGRAM])
        except MissingBinariesError:
            return  # each test says so


@pytest.fixture
async def s3(tmp_path: Path) -> AsyncIterator[S3Server]:
    """A server that runs, with the bucket `results`."""
    directory = tmp_path / "buckets"
    (directory / "results").mkdir(parents=True)
    server = S3Server(find_program(), directory, tmp_path / "s3.log")
    await server.start()
    yield server
    await server.stop()
