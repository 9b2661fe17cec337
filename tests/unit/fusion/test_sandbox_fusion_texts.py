"""The texts of a stock SandboxFusion that are read, held to the image that the chart runs."""

from pathlib import Path

import pytest
import yaml

from evalrun_judge.sandboxes.sandbox_fusion_texts import VERSION, says_no_rows, says_no_such_row, says_not_decoded

VALUES = Path(__file__).parents[3] / "charts" / "evalrun" / "values.yaml"


def test_sandbox_fusion_texts_image_of_the_chart_is_the_one_read() -> None:
    tag = yaml.safe_load(VALUES.read_text())["images"]["sandboxFusion"]["tag"]
    assert tag == VERSION, "read the server's texts again, then raise VERSION"


@pytest.mark.parametrize(
    ("detail", "no_row", "no_rows"),
    [
        ("'NoneType' object is not iterable", True, False),
        ("failed to request database with query SELECT 1: 'NoneType' object has no attribute 'fetch_one'", False, True),
        ("'labels'", False, False),
    ],
)
def test_detail_of_a_500_is_classified_by_its_text(detail: str, no_row: bool, no_rows: bool) -> None:
    assert (says_no_such_row(detail), says_no_rows(detail)) == (no_row, no_rows)


def test_output_that_is_not_utf8_is_recognized_by_its_text() -> None:
    assert says_not_decoded(b"[DecodeError] 'utf-8' codec can't decode byte 0xff in position 1: invalid start byte")
    assert not says_not_decoded(b"1\n")
