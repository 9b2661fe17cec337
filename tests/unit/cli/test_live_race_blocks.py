"""How many problems a race takes at a time."""

import pytest

from evalrun_cli.local.live_race import next_block


@pytest.mark.parametrize(
    ("drawn", "size", "wanted"),
    [
        (0, None, 32),
        (32, 1055, 40),
        (700, 1055, 875),
        (800, 1200, 1000),
        (100, 137, 137),
        (100, 138, 125),
        (32, 35, 35),
    ],
)
def test_race_block_adds_a_quarter_of_the_drawn_problems_and_last_block_the_rest(
    drawn: int, size: int | None, wanted: int
) -> None:
    assert next_block(drawn, size) == wanted
