"""`evalrun judge --exclude-problems`: ids, a file of ids, or the file of `evalrun data audit-tests`."""

import json
from pathlib import Path

import pytest

from evalrun_cli.local.exclusions import read_exclusions
from evalrun_data.records import Problem, StdioTests
from evalrun_runtime.exits import BadInputError

TESTS = StdioTests(("",), ("1\n",))
PROBLEMS = [
    Problem(name, f"p/{n}", "", TESTS) for name, count in (("plus", 3), ("base", 3), ("other", 1)) for n in range(count)
]


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "suites.json").write_text(
        json.dumps({"schema": 1, "problems": [], "exclude": {"base": ["p/1"], "elsewhere": ["q"]}})
    )
    (tmp_path / "ids.txt").write_text("p/2\n\np/1\n")
    (tmp_path / "unknown.json").write_text('{"exclude": {"elsewhere": ["q"]}}')
    (tmp_path / "other.json").write_text('{"problems": []}')
    (tmp_path / "wrong.json").write_text('{"exclude": {"base": ["p/9"]}}')
    (tmp_path / "broken.json").write_text('{"exclude": ')
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("given", "excluded"),
    [
        ([], {}),
        (["p/1"], {"plus": ["p/1"], "base": ["p/1"]}),
        (["p/1, p/2"], {"plus": ["p/1", "p/2"], "base": ["p/1", "p/2"]}),
        (["ids.txt"], {"plus": ["p/1", "p/2"], "base": ["p/1", "p/2"]}),
        ([",".join(["p/1"] * 2000)], {"plus": ["p/1"], "base": ["p/1"]}),
        (["suites.json"], {"base": ["p/1"]}),
        (["suites.json", "p/1", "p/2"], {"plus": ["p/1", "p/2"], "base": ["p/1", "p/2"]}),
    ],
)
def test_read_exclusions_keeps_for_each_dataset_the_ids_that_it_has(
    files: Path, given: list[str], excluded: dict[str, list[str]]
) -> None:
    assert read_exclusions(given, PROBLEMS) == excluded


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("p/1,p/7", r"--exclude-problems p/1,p/7: there is no problem 'p/7': correct the id"),
        ("missing.json", r"there is no problem 'missing.json'"),
        ("p/0", r"--exclude-problems: all problems of other are excluded: keep some"),
        ("unknown.json", r"unknown.json: it names elsewhere, judged are plus, base, other"),
        ("other.json", r"other.json: it has no 'exclude' with lists of ids by dataset: write one id a line"),
        ("wrong.json", r"wrong.json: base: there is no problem 'p/9'"),
        ("broken.json", r"broken.json: cannot be read: Expecting value"),
    ],
)
def test_impossible_exclusion_is_refused(files: Path, given: str, says: str) -> None:
    with pytest.raises(BadInputError, match=says):
        read_exclusions([given], PROBLEMS)
