"""The files of others that the page of samples holds are those of the version that is named."""

import base64
import hashlib
import json
from pathlib import Path

WEB = Path(__file__).parents[2] / "services/cli/src/evalrun_cli/viewer/web"
FILES: dict[str, str] = json.loads((WEB / "vendored.json").read_text(encoding="utf-8"))["files"]


def test_vendored_files_have_the_recorded_digests() -> None:
    found = {
        name: "sha512-" + base64.b64encode(hashlib.sha512((WEB / name).read_bytes()).digest()).decode()
        for name in FILES
    }
    assert found == FILES
    assert len(found) == 9
