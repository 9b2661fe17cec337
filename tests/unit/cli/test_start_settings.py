"""What a resumed run is started with."""

from pathlib import Path

import pytest

from evalrun_cli.local.options import LocalOptions
from evalrun_cli.local.start_settings import StartSettings, read_start_settings
from evalrun_cli.local.workspace import START_SETTINGS
from evalrun_runtime.exits import BadInputError


def test_stored_settings_are_read_back_unchanged(tmp_path: Path) -> None:
    options = LocalOptions(2, True, None, [tmp_path / "packages"])  # noqa: FBT003 - as the flags stand
    stored = StartSettings.from_options(options, ("http://a/v1",), 30.0)
    stored.write(tmp_path)
    found = read_start_settings(tmp_path)
    assert found == stored
    assert (found.options.slots, found.options.packages) == (2, (tmp_path / "packages",))


def test_a_directory_of_an_earlier_version_has_none(tmp_path: Path) -> None:
    assert read_start_settings(tmp_path) == StartSettings()


def test_settings_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    (tmp_path / START_SETTINGS).write_text("{")
    with pytest.raises(BadInputError, match=f"{START_SETTINGS}: cannot be used: .*: delete it"):
        read_start_settings(tmp_path)
