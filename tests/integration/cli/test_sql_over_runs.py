"""`evalrun sql`, `find`, `flips` and `index`, as people type them."""

import json
import re
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from builders.catalogued_runs import write_checkpoint
from builders.command_line import evalrun

PAGE = Path(__file__).parents[3] / "docs" / "sql.md"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three checkpoints: the second gains a problem, the third loses one."""
    root = tmp_path_factory.mktemp("outputs")
    write_checkpoint(root, 1, [True, False, False, None])
    write_checkpoint(root, 2, [True, True, False, True])
    write_checkpoint(root, 3, [False, True, False, True], model="org/other")
    return root


def test_sql_answers_over_all_runs(runs: Path) -> None:
    done = evalrun(
        "sql",
        "SELECT step, value FROM metrics WHERE metric = 'accepted_at_1' ORDER BY step",
        *("--runs", runs, "--format", "json"),
    )
    assert done.returncode == 0, done.stderr
    assert [row["step"] for row in json.loads(done.stdout)] == [1, 2, 3]
    assert json.loads(done.stdout)[1]["value"] == 0.75


@pytest.mark.parametrize(
    ("query", "refusal"),
    [
        ("DROP VIEW runs", "write one SELECT"),
        ("COPY runs TO 'x.csv'", "write one SELECT"),
        ("SELECT 1; SELECT 2", "write one SELECT"),
        ("SELECT nothing_there FROM runs", "SQL: Binder Error"),
        ("SELECT * FROM read_csv('/etc/passwd')", "SQL: Permission Error"),
        ("SELEC", "SQL: Parser Error"),
    ],
)
def test_sql_other_than_a_query_over_runs_is_refused(runs: Path, query: str, refusal: str) -> None:
    done = evalrun("sql", query, "--runs", runs)
    assert done.returncode == 2, done.stdout
    assert refusal in done.stderr
    assert "Traceback" not in done.stderr


def test_find_lists_the_runs_that_meet_a_condition(runs: Path) -> None:
    done = evalrun("find", "--where", "model = 'org/other'", "--runs", runs, "--format", "csv")
    assert done.stdout.splitlines()[1].startswith("run-3,run-3,Succeeded,org/other,nightly,3,grpo")


def test_flips_lists_problems_that_only_some_runs_solve(runs: Path, tmp_path: Path) -> None:
    done = evalrun("flips", "run-1", "run-2", "run-3", "--runs", runs, "--format", "md")
    assert done.returncode == 0, done.stderr
    assert [line.split(" | ")[1] for line in done.stdout.splitlines()[2:]] == ["P/00000", "P/00001"]
    unknown = evalrun("flips", "run-1", "run-9", "--runs", runs)
    assert unknown.returncode == 2
    assert "run-9: no such run below" in unknown.stderr
    table = tmp_path / "flips.parquet"
    assert evalrun("flips", "run-1", "run-2", "--runs", runs, "--format", "parquet", "--output", table).returncode == 0
    assert pq.read_table(table).num_rows == 1


def test_queries_of_the_page_work(runs: Path) -> None:
    queries = re.findall(r"```sql\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(queries) == 10
    joined = ["SELECT count(*) FROM (" + query.strip().rstrip(";") + ")" for query in queries]
    done = evalrun("sql", " UNION ALL ".join(joined), "--runs", runs, "--format", "json")
    assert done.returncode == 0, done.stderr


def test_index_reports_found_runs_and_empty_directories(runs: Path, tmp_path: Path) -> None:
    done = evalrun("index", runs)
    assert re.match(r"\d added, 0 changed, 0 removed, \d unchanged", done.stdout), done.stdout + done.stderr
    empty = evalrun("find", "--runs", tmp_path)
    assert empty.returncode == 2
    assert "no run was found: name the directory of your runs" in empty.stderr
    missing = evalrun("index", tmp_path / "nowhere")
    assert missing.returncode == 2
    assert "no such directory" in missing.stderr
