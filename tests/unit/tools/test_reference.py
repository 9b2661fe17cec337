"""The reference pages that are made from the services' code name everything that there is."""

import re

from builders.data import PROJECT_ROOT
from reference_http import render_http
from reference_settings import SERVICES


def test_settings_page_has_every_class_with_variables() -> None:
    sources = [path for name in ("libs", "services", "operator") for path in (PROJECT_ROOT / name).rglob("settings.py")]
    pattern = re.compile(r"^class (\w+)\(\w+\):(?:(?!^class ).)*?env_prefix=\"EVALRUN_\w+_\"", re.MULTILINE | re.DOTALL)
    written = {name for path in sources for name in pattern.findall(path.read_text())}
    assert written == {settings.__name__ for _, settings in SERVICES.values()}


def test_http_page_shows_routes_and_fields_with_what_a_caller_may_send() -> None:
    page = render_http()
    assert "| `POST /v1/rewards` | Judge a batch of answers. | `BatchRequest` | `BatchResponse` |" in page
    assert "- `DELETE /v1/sessions/{session}`" in page
    assert "| `shape` | `'dense' \\| 'sparse'` | `'dense'` |" in page  # an alias is shown as what it stands for
    assert "| `memory_limit_MB` | `int \\| None` | `-1` | MiB" in page  # and so is a constant
