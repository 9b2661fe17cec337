"""Whether a stranger's distribution of our name is beside ours, looked for without reading any metadata."""

from pathlib import Path

import pytest

from evalrun_runtime.distribution import has_metadata


@pytest.mark.parametrize(
    ("entry", "found"),
    [
        ("evalrun-0.4.2.dist-info", True),
        ("Evalrun-0.4.2-py3.11.egg-info", True),
        ("evalrun.egg-info", True),
        ("kube_evalrun-0.1.0.dist-info", False),
        ("evalrun", False),
    ],
)
def test_has_metadata_finds_the_metadata_directories_of_pip(tmp_path: Path, entry: str, found: bool) -> None:
    (tmp_path / entry).mkdir()
    assert has_metadata("evalrun", [str(tmp_path / "absent"), str(tmp_path)]) is found
