"""The reference pages that are made from the services' code name everything that there is."""

import re
from pathlib import Path

import pytest
from builders.data import PROJECT_ROOT
from reference_http import render_http
from reference_settings import HEADER, SERVICES

from evalrun_judge.settings import JudgeSettings
from evalrun_runtime.exits import BadInputError
from evalrun_runtime.settings import load_settings


def test_settings_page_examples_say_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flags, variable, file = (line for line in HEADER.splitlines() if "serve judge" in line)
    said = [load_settings(JudgeSettings, flags.split()[3:], program="x")]
    command, _, written = file.partition("#")
    (tmp_path / "judge.yaml").write_text(written)
    monkeypatch.chdir(tmp_path)
    said.append(load_settings(JudgeSettings, command.split()[3:], program="x"))
    name, value = variable.split()[0].split("=")
    monkeypatch.setenv(name, value)
    said.append(load_settings(JudgeSettings, variable.split()[4:], program="x"))
    listed = next(part for part in HEADER.split("`") if part.startswith("EVALRUN_JUDGE_SANDBOX="))
    monkeypatch.setenv("EVALRUN_JUDGE_SANDBOX", listed.partition("=")[2].strip("'"))
    said.append(load_settings(JudgeSettings, [], program="x"))
    assert [(each.sandbox, each.queue_limit) for each in said] == [(["http://127.0.0.1:8080"], 500)] * 4


def test_a_list_in_a_variable_that_is_no_json_is_refused_with_the_form(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVALRUN_JUDGE_SANDBOX", "http://127.0.0.1:8080")
    with pytest.raises(BadInputError, match="a list in a variable is JSON"):
        load_settings(JudgeSettings, [], program="x")


def test_settings_page_has_every_class_with_variables() -> None:
    sources = [path for name in ("libs", "services", "operator") for path in (PROJECT_ROOT / name).rglob("settings.py")]
    pattern = re.compile(r"^class (\w+)\(\w+\):(?:(?!^class ).)*?env_prefix=\"EVALRUN_\w+_\"", re.MULTILINE | re.DOTALL)
    written = {name for path in sources for name in pattern.findall(path.read_text())}
    assert written == {settings.__name__ for _, settings in SERVICES.values()}


def test_http_page_shows_routes_and_fields_with_type_default_and_unit() -> None:
    page = render_http()
    assert "| `POST /v1/rewards` | Judge a batch of answers. | `BatchRequest` | `BatchResponse` |" in page
    assert "- `DELETE /v1/sessions/{session}`" in page
    assert "| `shape` | `'dense' \\| 'sparse'` | `'dense'` |" in page  # an alias is shown as what it stands for
    assert "| `memory_limit_MB` | `int \\| None` | `-1` | MiB" in page  # and so is a constant
