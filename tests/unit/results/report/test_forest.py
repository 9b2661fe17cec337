"""The plot of differences: one line each, to scale, with its words for those who cannot see it."""

import re

from evalrun_results.report.forest import WIDTH, Shift, forest


def test_each_difference_is_a_line_to_scale() -> None:
    drawn = str(forest([Shift("pass@1", 0.1, 0.02, 0.2), Shift("a <b>", -0.05, -0.2, 0.1)], "differences"))
    assert 'aria-label="differences"' in drawn
    assert "pass@1: +10.0 points, +2.0 to +20.0" in drawn
    assert "a &lt;b&gt;" in drawn
    zero = float(re.findall(r'x1="([0-9.]+)"', drawn)[0])
    starts = [float(x) for x in re.findall(r'<rect x="([0-9.]+)"[^>]*class="range"', drawn)]
    assert starts[0] > zero > starts[1]
    assert all(0 <= float(x) <= WIDTH for x in re.findall(r'x="([0-9.]+)"', drawn))


def test_small_differences_are_drawn_small() -> None:
    drawn = str(forest([Shift("x", 0.0, -0.001, 0.001)], "differences"))
    (width,) = (
        float(x) for x in re.findall(r'<rect x="[0-9.]+" y="[0-9.]+" width="([0-9.]+)"[^>]*class="range"', drawn)
    )
    assert width < 0.06 * WIDTH


def test_forest_without_differences_is_not_drawn() -> None:
    assert forest([], "differences") is None
