"""What tests of several directories share: a judge, and the environment that `make setup-gen-cpu` installs."""

import importlib.util
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from builders.judge.services import services

HERE = Path(__file__).parent
TOOL = Path(__file__).resolve().parents[2] / "tools" / "gen_cpu.py"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Allow a test of processes ten minutes, unless it says otherwise: others run beside it on the same cores."""
    for item in items:
        if HERE in item.path.parents and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(600))


@pytest.fixture(scope="session")
def gen_cpu() -> Path:
    """The environment's interpreter; skips where it is not installed, unless `make test-rollout` asked for it."""
    specification = importlib.util.spec_from_file_location("gen_cpu", TOOL)
    if specification is None or specification.loader is None:
        raise RuntimeError(f"no {TOOL}")
    tool = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(tool)
    found: Path | None = tool.interpreter()
    if found is None:
        if os.environ.get("EVALRUN_TEST_ROLLOUT") in {"required", "all"}:
            pytest.fail("the gen-cpu environment is not installed: make setup-gen-cpu")
        pytest.skip("verl and vLLM are not installed: make setup-gen-cpu (6 GB), or make test-rollout")
    return found


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def judge_of_languages(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[str]:
    """A gateway before a sandbox that refuses to run at any level but full.

    One for all, since a sandbox takes seconds of CPU for the first program of Go or Java.
    """
    async with services(tmp_path_factory.mktemp("services")) as (gateway, _):
        yield gateway.address
