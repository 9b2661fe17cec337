"""The dashboard of schedules: the curve over a training's checkpoints, and whether every night was evaluated."""

from evalrun_registry.metrics import HEADLINE
from monitoring.alerts import RECORDED
from monitoring.grafana import Dashboard, DashboardRow, Panel, Query, Variable
from monitoring.promql import EACH_SCHEDULE, SCHEDULE, by, of_schedules


def _newest(metric: str, labels: str = SCHEDULE) -> str:
    return by(labels, of_schedules(metric), "max")


CURVE = DashboardRow(
    "Curve",
    [
        Panel(
            f"{HEADLINE.title} of the newest checkpoint",
            "By schedule and dataset, as each run ends. Intervals stand in the report and in evalrun history.",
            [
                Query(
                    _newest(HEADLINE.series("checkpoint"), f"{SCHEDULE}, dataset"),
                    f"{EACH_SCHEDULE} {{{{dataset}}}}",
                )
            ],
            unit="percentunit", width=16, max_value=1,
        ),
        Panel(
            "Step of the newest checkpoint with results",
            "Flat for longer than the training takes between checkpoints: nothing new was evaluated.",
            [Query(_newest("evalrun_checkpoint_step"), EACH_SCHEDULE)],
        ),
    ],
)  # fmt: skip
MODELS = DashboardRow(
    "Models",
    [
        Panel(
            f"{HEADLINE.title} by model and step",
            "Of ended runs, whatever made them: the recorded series, which can be kept for longer than runs are. The "
            "mean where several runs evaluated the same.",
            [
                Query(
                    f'{RECORDED}{{namespace=~"$namespace"}}', "{{model}} {{phase}} {{step}} {{dataset}}"
                )
            ],
            unit="percentunit", width=24, max_value=1,
        )
    ],
)  # fmt: skip
NIGHTS = DashboardRow(
    "Nights",
    [
        Panel(
            "Since the last start",
            "A start that found nothing new counts; one that was missed does too, and is 0 in Starts.",
            [Query(f"time() - {_newest('evalrun_schedule_last_start_timestamp_seconds')}", EACH_SCHEDULE)],
            unit="s", kind="stat", width=6,
        ),
        Panel(
            "Until the next start",
            "Below zero: the operator does not work on the schedule. Absent while suspended.",
            [Query(f"{_newest('evalrun_schedule_next_start_timestamp_seconds')} - time()", EACH_SCHEDULE)],
            unit="s", kind="stat", width=6,
        ),
        Panel(
            "Starts",
            "1 while the last start made its runs or found nothing new, 0 while it came to nothing; the reason is that "
            "of condition Started.",
            [Query(_newest("evalrun_schedule_started", f"{SCHEDULE}, reason"), f"{EACH_SCHEDULE} {{{{reason}}}}")],
            width=6, max_value=1,
        ),
        Panel(
            "Checkpoints sound, gates passed",
            "0 while a checkpoint is broken, or the gate of the newest one failed. An inconclusive gate is absent.",
            [
                Query(_newest("evalrun_schedule_sound"), f"sound {EACH_SCHEDULE}"),
                Query(_newest("evalrun_checkpoint_gate_passed"), f"gate {EACH_SCHEDULE}"),
            ],
            width=6, max_value=1,
        ),
    ],
)  # fmt: skip

CHECKPOINTS = Dashboard(
    uid="evalrun-checkpoints",
    title="evalrun: checkpoints",
    description="What each schedule made of a training's checkpoints, and whether every night was evaluated.",
    variables=[
        Variable("namespace", "Namespace", "label_values(evalrun_schedule_started, namespace)"),
        Variable("schedule", "Schedule", 'label_values(evalrun_schedule_started{namespace=~"$namespace"}, schedule)'),
    ],
    rows=[CURVE, NIGHTS, MODELS],
)
