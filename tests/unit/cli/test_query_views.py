"""Which views a query reads: what the others need is neither fetched nor opened."""

import sys
import time

import pytest

from evalrun_cli.catalogue.commands import FLIPS
from evalrun_cli.catalogue.database import OF_THE_CATALOGUE, OF_THE_RUNS, check_is_query, find_views, open_database
from evalrun_results.catalogue.store import Catalogue
from evalrun_runtime.exits import BadInputError

ALL = OF_THE_CATALOGUE | OF_THE_RUNS


@pytest.mark.parametrize(
    ("sql", "views"),
    [
        ("SELECT * FROM runs", {"runs"}),
        ("WITH best AS (SELECT * FROM metrics) SELECT * FROM best JOIN Results USING (place)", {"metrics", "results"}),
        (FLIPS, {"results"}),
        ("SELECT * FROM answers", {"answers"}),
        ('SELECT * FROM "Tests"', {"tests"}),
        ("SELECT * FROM runs WHERE place IN (SELECT place FROM tests)", {"runs", "tests"}),
        ("WITH answers AS (SELECT * FROM answers) SELECT * FROM answers", {"answers"}),
        ("DESCRIBE answers", {"answers"}),
        ("SHOW TABLES", ALL),
        ("SELECT * FROM information_schema.tables", ALL),
        ("SELECT * FROM duckdb_views()", ALL),
        ("SELECT 1", ALL),
        ("SELECT * FROM runs, query('SELECT count(*) FROM results')", ALL),
        ("SELECT unnest([1]) FROM runs", {"runs"}),
    ],
)
def test_a_query_gets_the_views_that_it_reads(sql: str, views: set[str]) -> None:
    assert find_views(sql) == views


def test_query_without_duckdb_names_the_extra_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "duckdb", None)
    with pytest.raises(BadInputError, match="SQL needs the extra sql"):
        check_is_query("SELECT 1")


@pytest.mark.parametrize("views", [{"runs"}, OF_THE_CATALOGUE])
def test_a_catalogue_of_a_store_that_has_no_results_yet_is_empty(views: set[str]) -> None:
    place = f"memory://catalogue-{len(views)}/runs"
    Catalogue(place, now=time.time, new_name=lambda: "one").begin()
    with open_database(place, views) as connection:
        assert connection.sql("SELECT count(*) FROM runs").fetchall() == [(0,)]
