from pathlib import Path

import pytest

from evalrun_executor.oom_kills import OomKills

EVENTS = "low 0\nhigh 0\nmax 7\noom 3\noom_kill 2\noom_group_kill 0\n"


def test_first_file_with_a_count_is_read_each_time(tmp_path: Path) -> None:
    other, events = tmp_path / "other", tmp_path / "memory.events"
    other.write_text("oom_killed_tasks 9\n")
    events.write_text(EVENTS)
    kills = OomKills([tmp_path / "absent", other, events, tmp_path])
    assert kills.count() == 2
    events.write_text(EVENTS.replace("oom_kill 2", "oom_kill 4"))
    assert kills.count() == 4


@pytest.mark.parametrize("text", [None, "nr_free_pages 1\n"])
def test_oom_kill_count_is_zero_without_a_counter(tmp_path: Path, text: str | None) -> None:
    file = tmp_path / "vmstat"
    if text is not None:
        file.write_text(text)
    assert OomKills([file]).count() == 0
