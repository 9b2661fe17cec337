"""The expressions that dashboards have in common. Pure."""

from monitoring.grafana import Query

SCOPE = 'namespace=~"$namespace",run=~"$run"'
"""Label matchers for the choices at the top of a dashboard."""
INTERVAL = "$__rate_interval"
"""Grafana's variable for the range of a rate: at least four scrapes."""
RUN = "namespace, run"
SCHEDULE = "namespace, schedule"
WITHOUT_VERDICT = 'outcome=~"not_judged|unavailable|expired"'
"""The judge's requests that came to nothing, for no fault of the program's."""


def of(metric: str, *matchers: str) -> str:
    """Return a metric's series in the chosen scope, e.g. `of("evalrun_problems", 'state="accepted"')`."""
    return f"{metric}{{{','.join((SCOPE, *matchers))}}}"


def of_schedules(metric: str) -> str:
    return f'{metric}{{namespace=~"$namespace",schedule=~"$schedule"}}'


def rate(metric: str, *matchers: str) -> str:
    return f"rate({of(metric, *matchers)}[{INTERVAL}])"


def by(labels: str, expression: str, function: str = "sum") -> str:
    return f"{function} by ({labels}) ({expression})"


def quantiles(histogram: str) -> list[Query]:
    """Return p50, p95 and p99 of a histogram over all that was chosen."""
    buckets = by("le", rate(f"{histogram}_bucket"))
    return [Query(f"histogram_quantile({share}, {buckets})", name) for share, name in SHARES]


SHARES = ((0.5, "p50"), (0.95, "p95"), (0.99, "p99"))
EACH_RUN = "{{namespace}}/{{run}}"
EACH_SCHEDULE = "{{namespace}}/{{schedule}}"
EACH_DATASET = "{{run}} {{dataset}}"
