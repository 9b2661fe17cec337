"""Images for the tests of this directory: skipped with the reason where they cannot be built; with CI=true they
fail."""

from pathlib import Path

import pytest
from builders.cluster.images import Image, Images, MissingToolsError, find_images
from builders.tools import missing

HERE = Path(__file__).parent
STAGES = ("aggregator", "judge", "operator", "reward", "sandbox", "viewer")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Allow the tests that build more time: the first one waits for debootstrap, each stage for its requirements."""
    for item in items:
        if HERE in item.path.parents and {"image", "images"} & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.timeout(1800))


@pytest.fixture(scope="session")
def images() -> Images:
    try:
        return find_images()
    except MissingToolsError as error:
        missing(str(error))


@pytest.fixture(scope="session", params=STAGES)
def image(request: pytest.FixtureRequest, images: Images) -> tuple[str, Image]:
    return request.param, images.build(request.param)
