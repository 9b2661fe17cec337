"""Which views a query needs: those over the runs' own files are made for a query that reads them alone."""

import pytest

from evalrun_cli.catalogue.commands import FLIPS
from evalrun_cli.catalogue.database import needs_texts


@pytest.mark.parametrize(
    ("sql", "needed"),
    [
        ("SELECT * FROM runs", False),
        ("WITH best AS (SELECT * FROM metrics) SELECT * FROM best JOIN Results r USING (place)", False),
        (FLIPS, False),
        ("SELECT * FROM answers", True),
        ('SELECT * FROM "Tests"', True),
        ("SELECT * FROM runs WHERE place IN (SELECT place FROM tests)", True),
        ("WITH answers AS (SELECT * FROM answers) SELECT * FROM answers", True),
        ("DESCRIBE answers", True),
        ("SHOW TABLES", True),
        ("SELECT * FROM duckdb_views()", True),
    ],
)
def test_query_gets_the_views_that_it_reads(sql: str, *, needed: bool) -> None:
    assert needs_texts(sql) is needed
