"""The dashboard of a run's throughput: how far it is, how fast, how well used, and what a solved problem costs."""

from evalrun_registry.metrics import HEADLINE
from monitoring.grafana import Dashboard, DashboardRow, Panel, Query, Variable
from monitoring.promql import EACH_DATASET, EACH_RUN, INTERVAL, RUN, by, of, quantiles, rate

PASSES = f"rate(evalrun_reconcile_seconds_bucket[{INTERVAL}])"
JUDGED = 'state=~"accepted|rejected|not_judged"'
SOLVED = by(RUN, of("evalrun_problems", 'state="accepted"'))
GPU_SECONDS = by(RUN, of("evalrun_gpu_seconds_total"))

PROGRESS = DashboardRow(
    "Progress",
    [
        Panel(
            "Judged",
            "Share of the samples that have a verdict, or could not be judged.",
            [Query(f"{by(RUN, of('evalrun_problems', JUDGED))} / {by(RUN, of('evalrun_problems'))}", EACH_RUN)],
            unit="percentunit", kind="stat", width=6, max_value=1,
        ),
        Panel(
            f"{HEADLINE.title} so far",
            "Mean over problems of accepted / judged samples. The interval stands in the report.",
            [Query(by(f"{RUN}, dataset", of(HEADLINE.series()), "max"), EACH_DATASET)],
            unit="percentunit", kind="stat", width=6, max_value=1,
        ),
        Panel(
            "Not judged",
            "Samples that the judge could not tell about: no verdict, and not counted as wrong.",
            [Query(by(RUN, of("evalrun_problems", 'state="not_judged"')), EACH_RUN)],
            kind="stat", width=6,
        ),
        Panel(
            "Since the last progress",
            "Since a completion or a verdict was last stored.",
            [Query(f"time() - {by(RUN, of('evalrun_last_progress_timestamp_seconds'), 'max')}", EACH_RUN)],
            unit="s", kind="stat", width=6,
        ),
        Panel(
            "Samples by state",
            "Every sample is in one state; generated: it waits for the judge or is being judged.",
            [Query(by("state", of("evalrun_problems")), "{{state}}")],
            width=24, stacked=True,
        ),
    ],
)  # fmt: skip
SPEED = DashboardRow(
    "Generation and judging",
    [
        Panel(
            "Problems/s",
            "Samples generated and judged a second.",
            [
                Query(by(RUN, rate("evalrun_completions_total")), f"generated {EACH_RUN}"),
                Query(by(RUN, f"deriv({of('evalrun_problems', JUDGED)}[{INTERVAL}])"), f"judged {EACH_RUN}"),
            ],
            unit="ops",
        ),
        Panel(
            "Output tokens/s",
            "As the servers of the model count them.",
            [Query(by(RUN, rate("evalrun_generated_tokens_total")), EACH_RUN)],
        ),
        Panel(
            "Completions by how they ended",
            "length: cut off at maxNewTokens.",
            [Query(by("finish_reason", rate("evalrun_completions_total")), "{{finish_reason}}")],
            unit="ops", stacked=True,
        ),
        Panel(
            "Generation time",
            "From sending a request for a completion to its last byte.",
            quantiles("evalrun_generation_seconds"),
            unit="s", width=12,
        ),
        Panel(
            "Judge time",
            "From a request's arrival at a gateway to its verdict. A shared judge serves several runs: choose run All.",
            quantiles("evalrun_judge_request_seconds"),
            unit="s", width=12,
        ),
    ],
)  # fmt: skip
USE = DashboardRow(
    "Utilisation",
    [
        Panel(
            "Requests in flight by replica",
            "A replica far below the others is slow, or its requests are shorter.",
            [Query(by(f"{RUN}, replica", of("evalrun_replica_inflight")), "{{run}} replica {{replica}}")],
            stacked=True, width=6,
        ),
        Panel(
            "Replicas up",
            "Servers of the model that answer.",
            [Query(by(RUN, of("evalrun_replica_up")), EACH_RUN)],
            width=6,
        ),
        Panel(
            "GPUs held",
            "GPU seconds a second.",
            [Query(by(RUN, rate("evalrun_gpu_seconds_total")), EACH_RUN)],
            width=6,
        ),
        Panel(
            "Sandbox slots in use",
            "Programs that run, over what the sandboxes can run at once.",
            [
                Query(
                    f"{by(RUN, of('evalrun_judge_sandbox_inflight'))}"
                    f" / {by(RUN, of('evalrun_judge_sandbox_slots'), 'max')}",
                    EACH_RUN,
                )
            ],
            unit="percentunit", width=6, max_value=1,
        ),
    ],
)  # fmt: skip
COST = DashboardRow(
    "Cost",
    [
        Panel(
            "Money a solved problem",
            "GPU hours so far at cost.gpuHour, over accepted samples; empty where the run says no price.",
            [
                Query(
                    f"{by(f'{RUN}, currency', of('evalrun_gpu_hour_price'), 'max')}"
                    f" * on ({RUN}) group_left () ({GPU_SECONDS} / 3600 / {SOLVED})",
                    "{{run}} {{currency}}",
                )
            ],
            unit="none",
        ),
        Panel(
            "GPU seconds a solved problem",
            "GPU seconds so far over accepted samples.",
            [Query(f"{GPU_SECONDS} / {SOLVED}", EACH_RUN)],
            unit="s",
        ),
        Panel(
            "Output tokens a solved problem",
            "Output tokens so far over accepted samples.",
            [Query(f"{by(RUN, of('evalrun_generated_tokens_total'))} / {SOLVED}", EACH_RUN)],
        ),
    ],
)
OPERATOR = DashboardRow(
    "All runs, from the operator",
    [
        Panel(
            "Runs by phase",
            "EvalRuns of the namespaces that the operator serves.",
            [Query(by("phase", "evalrun_runs"), "{{phase}}")],
            stacked=True, width=6,
        ),
        Panel(
            f"{HEADLINE.title} of ended runs",
            "Until the run's TTL.",
            [Query(by(f"{RUN}, dataset", of(HEADLINE.series("run")), "max"), EACH_DATASET)],
            unit="percentunit", width=6, max_value=1,
        ),
        Panel(
            "Gates passed",
            "1 passed, 0 failed; absent while open or inconclusive.",
            [Query(by(RUN, of("evalrun_gate_passed"), "max"), EACH_RUN)],
            width=6, max_value=1,
        ),
        Panel(
            "Time of a pass of the operator",
            "p95 of one look at one run, by how it ended.",
            [
                Query(
                    f"histogram_quantile(0.95, {by('le, outcome', PASSES)})",
                    "{{outcome}}",
                )
            ],
            unit="s", width=6,
        ),
    ],
)  # fmt: skip

THROUGHPUT = Dashboard(
    uid="evalrun-throughput",
    title="evalrun: throughput",
    description="How far the runs are, how fast they go, how well they use what they hold, and at what cost.",
    variables=[
        Variable("namespace", "Namespace", "label_values(evalrun_problems, namespace)"),
        Variable("run", "Run", 'label_values(evalrun_problems{namespace=~"$namespace"}, run)'),
    ],
    rows=[PROGRESS, SPEED, USE, COST, OPERATOR],
)
