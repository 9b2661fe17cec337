"""Which views a query reads: what the others need is neither fetched nor opened."""

import pytest

from evalrun_cli.catalogue.commands import FLIPS
from evalrun_cli.catalogue.database import OF_THE_CATALOGUE, OF_THE_RUNS, views_of

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
    ],
)
def test_a_query_gets_the_views_that_it_reads(sql: str, views: set[str]) -> None:
    assert views_of(sql) == views
