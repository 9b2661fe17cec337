"""The dashboard of the judge: where a verdict's time goes, how full the judge is, and what goes wrong."""

from monitoring.grafana import Dashboard, DashboardRow, Panel, Query, Variable
from monitoring.promql import RUN, SHARES, WITHOUT_VERDICT, by, of, quantiles, rate

REQUESTS = "evalrun_judge_request_seconds_count"
EACH_JUDGE = "{{namespace}}/{{run}}"

LATENCY = DashboardRow(
    "Latency",
    [
        Panel(
            "Total", "From a request's arrival to its verdict or failure.", quantiles("evalrun_judge_request_seconds"),
            unit="s",
        ),
        Panel(
            "Queue", "From a request's arrival to its first work.", quantiles("evalrun_judge_queue_seconds"), unit="s"
        ),
        Panel(
            "Sandbox",
            "One call of a sandbox, from the slot that it was given to the answer or failure.",
            quantiles("evalrun_judge_sandbox_seconds"),
            unit="s",
        ),
        Panel(
            "Total by outcome",
            "p95 of requests by how they ended.",
            [
                Query(
                    f"histogram_quantile({SHARES[1][0]},"
                    f" {by('le, outcome', rate('evalrun_judge_request_seconds_bucket'))})",
                    "{{outcome}}",
                )
            ],
            unit="s", width=12,
        ),
        Panel(
            "Requests/s by outcome",
            "accepted and rejected are verdicts; all else is none.",
            [Query(by("outcome", rate(REQUESTS)), "{{outcome}}")],
            unit="ops", width=12, stacked=True,
        ),
    ],
)  # fmt: skip
SATURATION = DashboardRow(
    "Saturation",
    [
        Panel(
            "Sandbox slots in use",
            "Programs that run, over what the sandboxes can run at once. At 1 the queue grows.",
            [
                Query(
                    f"{by(RUN, of('evalrun_judge_sandbox_inflight'))}"
                    f" / {by(RUN, of('evalrun_judge_sandbox_slots'), 'max')}",
                    EACH_JUDGE,
                )
            ],
            unit="percentunit", width=6, max_value=1,
        ),
        Panel(
            "Load and slots",
            "What autoscaling looks at: requests that wait and that are being judged, against 0.8 of the slots.",
            [
                Query(
                    f"{by(RUN, of('evalrun_judge_queue_depth'))} + {by(RUN, of('evalrun_judge_inflight'))}",
                    f"load {EACH_JUDGE}",
                ),
                Query(f"0.8 * {by(RUN, of('evalrun_judge_sandbox_slots'), 'max')}", f"target {EACH_JUDGE}"),
            ],
            width=6,
        ),
        Panel(
            "Requests waiting",
            "No work has begun on them.",
            [Query(by(RUN, of("evalrun_judge_queue_depth")), EACH_JUDGE)],
            width=6,
        ),
        Panel(
            "Age of the oldest request waiting",
            "0 where none waits.",
            [Query(by(RUN, of("evalrun_judge_queue_oldest_seconds"), "max"), EACH_JUDGE)],
            unit="s", width=6,
        ),
    ],
)  # fmt: skip
ERRORS = DashboardRow(
    "Errors by cause",
    [
        Panel(
            "Requests without a verdict",
            "Share of the requests that the judge could not tell about.",
            [Query(f"{by(RUN, rate(REQUESTS, WITHOUT_VERDICT))} / {by(RUN, rate(REQUESTS))}", EACH_JUDGE)],
            unit="percentunit", width=6, max_value=1,
        ),
        Panel(
            "Requests/s without a verdict, by cause",
            "unavailable: no sandbox could say; queue_full: sent again later; invalid: can never be judged.",
            [
                Query(
                    by("outcome", rate(REQUESTS, 'outcome!~"accepted|rejected"')),
                    "{{outcome}}",
                )
            ],
            unit="ops", width=6, stacked=True,
        ),
        Panel(
            "Sandbox calls/s made again, by cause",
            "busy: every slot taken by another gateway; the others are faults of sandbox or network.",
            [Query(by("reason", rate("evalrun_judge_retries_total")), "{{reason}}")],
            unit="ops", width=6, stacked=True,
        ),
        Panel(
            "Tests/s by status",
            "api_error is no verdict: the judge could not tell.",
            [Query(by("status", rate("evalrun_judge_tests_total")), "{{status}}")],
            unit="ops", width=6, stacked=True,
        ),
        Panel(
            "Verdict cache",
            "Requests/s by cache result; empty without a cache.",
            [Query(by("result", rate("evalrun_judge_cache_total")), "{{result}}")],
            unit="ops", width=24, stacked=True,
        ),
    ],
)  # fmt: skip
REWARDS = DashboardRow(
    "Rewards for trainers",
    [
        Panel(
            "Samples/s by outcome",
            "Of the reward service: not_judged and invalid have no reward.",
            [Query(by("outcome", rate("evalrun_reward_samples_total")), "{{outcome}}")],
            unit="ops", width=6, stacked=True,
        ),
        Panel(
            "Request", "From a trainer's request to its answer.", quantiles("evalrun_reward_request_seconds"),
            unit="s", width=6,
        ),
        Panel(
            "Samples at the judge, and waiting for it",
            "The service's places are shared between runs.",
            [
                Query(by("namespace", of("evalrun_reward_inflight")), "at the judge {{namespace}}"),
                Query(by("namespace", of("evalrun_reward_waiting")), "waiting {{namespace}}"),
            ],
            width=6,
        ),
        Panel(
            "Samples/s asked about again, by cause",
            "busy: the judge's queue is full; the others are faults of the judge.",
            [Query(by("cause", rate("evalrun_reward_judge_retries_total")), "{{cause}}")],
            unit="ops", width=6, stacked=True,
        ),
    ],
)  # fmt: skip

JUDGE_LATENCY = Dashboard(
    uid="evalrun-judge-latency",
    title="evalrun: judge latency",
    description="Where a verdict's time goes, how full the judge is, what goes wrong. A shared judge has no run: All.",
    variables=[
        Variable("namespace", "Namespace", "label_values(evalrun_judge_queue_depth, namespace)"),
        Variable("run", "Run", 'label_values(evalrun_judge_queue_depth{namespace=~"$namespace"}, run)'),
    ],
    rows=[LATENCY, SATURATION, ERRORS, REWARDS],
)
