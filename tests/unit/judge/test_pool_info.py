"""What sandboxes that differ have in common is what their pool judges with."""

import pytest

from evalrun_executor.api import SandboxInfo
from evalrun_judge.pool.info import PoolInfo, combine_info
from evalrun_judge.sandboxes import Backend

STRONG = Backend("evalrun", SandboxInfo("0.2", "full", 4, ["python", "c", "cpp"], "3.11.2"), submits=True)
WEAK = Backend("evalrun", SandboxInfo("0.1", "seccomp", 2, ["cpp", "python"], "3.12.0"))


@pytest.mark.parametrize(
    ("backends", "info"),
    [
        ([STRONG], PoolInfo("evalrun", "full", 4, ("python", "c", "cpp"), "3.11.2", "0.2", submits=True)),
        ([STRONG, STRONG], PoolInfo("evalrun", "full", 8, ("python", "c", "cpp"), "3.11.2", "0.2", submits=True)),
        ([STRONG, WEAK], PoolInfo("evalrun", "seccomp", 6, ("python", "cpp"), "3.11.2, 3.12.0", "0.2, 0.1")),
    ],
)
def test_combine_info_keeps_what_every_sandbox_supports(backends: list[Backend], info: PoolInfo) -> None:
    assert combine_info(backends) == info


def test_combine_info_without_a_sandbox_raises() -> None:
    with pytest.raises(ValueError, match="no sandbox"):
        combine_info([])
