"""The page about data governance: its commands, manifest and allow file work as they stand there."""

import gzip
import json
import re
import shlex
from pathlib import Path

import pytest
from builders.data import PROJECT_ROOT
from builders.governance import contest_row, write_rows
from builders.tiny_embedder import write_tiny_embedder

from evalrun_data.governance.__main__ import main
from evalrun_data.governance.allow_file import read_allow_file
from evalrun_data.governance.manifest import read_manifest
from evalrun_data.published import PUBLISHED

PAGE = (PROJECT_ROOT / "docs" / "data-governance.md").read_text(encoding="utf-8")


def block(marker: str) -> str:
    found = re.search(rf"{marker}\n```\w*\n(.*?)```", PAGE, re.DOTALL)
    assert found, f"{marker} is not on the page"
    return found.group(1)


COMMANDS = re.findall(r"^evalrun data (?!audit-tests|mutants|vary-tests).*$", PAGE, re.MULTILINE)


def test_commands_of_the_page_run_with_the_documented_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    plan = re.search(r"```yaml\n(# plan.*?)```", PAGE, re.DOTALL)
    assert plan
    (tmp_path / "plan.yaml").write_text(plan.group(1))
    (tmp_path / "allow.yaml").write_text(block("<!-- allow -->"))
    humaneval = {"task_id": "HumanEval/0", "prompt": "def f():\n", "entry_point": "f", "test": "def check(c): pass"}
    mbpp = {"task_id": 11, "text": "Half.", "code": "def h(x): return x / 2", "test_list": ["assert h(4) == 2"]}
    (tmp_path / "HumanEval.jsonl.gz").write_bytes(gzip.compress(json.dumps(humaneval).encode()))
    write_rows(tmp_path / "mbpp.jsonl", [mbpp])
    write_rows(tmp_path / "train.jsonl", [contest_row(1, dataset="contest_train")])
    write_tiny_embedder(tmp_path / "model")
    for line in COMMANDS:
        # The tiny model takes words that it does not know for the same: it finds overlaps, as the page's example does.
        assert main(shlex.split(line)[2:]) == (1 if "--embedder" in line else 0), line
    assert "contest_train: 1 records, 0 duplicates removed, role train, audit passed" in capsys.readouterr().out


def test_the_page_names_every_command() -> None:
    assert {line.split()[2] for line in COMMANDS} == {
        "prepare",
        "show",
        "audit",
    }  # audit-tests, mutants and vary-tests go with a run: their own test runs them


def test_manifest_of_the_page_survives_a_round_trip(tmp_path: Path) -> None:
    (tmp_path / "m.jsonl").write_text(block("<!-- manifest -->"))
    (line,) = read_manifest("m.jsonl", tmp_path).lines
    assert (line.dataset, line.role, line.num_test_cases) == ("mbpp_reg", "dev", 1)
    assert json.loads(line.json_line) == json.loads(block("<!-- manifest -->"))


def test_allow_file_of_the_page_is_read(tmp_path: Path) -> None:
    (tmp_path / "allow.yaml").write_text(block("<!-- allow -->"))
    assert [entry.kind for entry in read_allow_file(tmp_path / "allow.yaml")] == [None, "exact"]


@pytest.mark.parametrize("name", [name for name, known in PUBLISHED.items() if known.fusion])
def test_the_servers_names_are_on_the_page(name: str) -> None:
    (line,) = [
        line for line in PAGE.splitlines() if line.startswith("|") and f"`{name}`" in line and "source" not in line
    ]
    table = PUBLISHED[name].fusion
    assert table is not None
    assert f"`{table.name}`" in line
