import os
from pathlib import Path

import pytest

from evalrun_executor.cpus import usable_cpus

HAS = len(os.sched_getaffinity(0))


@pytest.mark.parametrize(("group", "quotas", "cpus"), [
    ("0::/", {}, HAS),
    ("0::/", {"": "max 100000\n"}, HAS),
    ("0::/", {"": "100000 100000\n"}, 1),
    ("0::/", {"": "150000 100000\n"}, 1),
    ("0::/", {"": "20000 100000\n"}, 1),
    ("0::/", {"": f"{HAS + 7}00000 100000\n"}, HAS),
    ("0::/pods/one", {"pods/one": "max 100000\n", "pods": "100000 100000\n"}, 1),
    ("0::/pods/one", {"": "100000 100000\n"}, 1),
    ("2:cpu:/\n0::/", {"": "100000 100000\n"}, 1),
    ("2:cpu:/", {"": "nonsense\n"}, HAS),
])  # fmt: skip
def test_a_quota_leaves_fewer_cpus_than_the_machine_has(
    tmp_path: Path, group: str, quotas: dict[str, str], cpus: int
) -> None:
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text(f"{group}\n")
    for directory, text in quotas.items():
        (tmp_path / "sys/fs/cgroup" / directory).mkdir(parents=True, exist_ok=True)
        (tmp_path / "sys/fs/cgroup" / directory / "cpu.max").write_text(text)
    assert usable_cpus(tmp_path) == cpus


def test_a_machine_without_control_groups_has_the_cpus_it_is_bound_to(tmp_path: Path) -> None:
    assert usable_cpus(tmp_path) == HAS
