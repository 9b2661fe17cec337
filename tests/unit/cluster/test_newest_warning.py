"""Which of an object's warnings is told as what keeps it from starting."""

from typing import Any

import pytest

from evalrun_cluster.objects import StatusEvent, newest_warning


def warning(reason: str, message: str, **times: str | None) -> dict[str, Any]:
    return {"reason": reason, "message": message, **times}


NO_VOLUME = warning("FailedMount", "no such\n  volume", lastTimestamp="2026-05-03T03:00:00Z")
NO_VOLUME_TOLD = StatusEvent(warning=True, reason="FailedMount", message="no such\n  volume")
SHARED = warning(
    "AlreadyMountedVolume", "The requested fsGroup is 1000, but the volume local-4 has GID 10001",
    lastTimestamp="2026-05-03T03:00:05Z",
)  # fmt: skip
NO_NODE = warning("FailedScheduling", "no GPU", lastTimestamp=None, eventTime="2026-05-03T03:00:01.000000Z")


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ([], None),
        ([NO_VOLUME], NO_VOLUME_TOLD),
        ([NO_NODE, NO_VOLUME], StatusEvent(warning=True, reason="FailedScheduling", message="no GPU")),
        ([SHARED], None),
        ([NO_VOLUME, SHARED], NO_VOLUME_TOLD),
    ],
)
def test_newest_warning_returns_the_latest_event_that_matters(
    events: list[dict[str, Any]], expected: StatusEvent | None
) -> None:
    assert newest_warning(events) == expected
