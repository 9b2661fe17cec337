"""What a person sees of a run on one machine: progress, and what it waits for."""

from rich.console import Console

from evalrun_cli.clock import stopwatch
from evalrun_cli.local.display import LiveDisplay, PlainDisplay, make_display, progress_line
from evalrun_cli.local.pace import OpenRequests, Pace
from evalrun_proto.ledger.v1 import ledger_pb2

FULL = "disk full: /data/ledger.sqlite3: completions and verdicts wait until there is room"


def status(seconds: float, message: str = "", judged: int = 3) -> ledger_pb2.GetStatusResponse:
    dataset = ledger_pb2.DatasetStatus(name="demo", total=32, generated=32, judged=judged, accepted=2, not_judged=1)
    state = ledger_pb2.RUN_STATE_JUDGING
    return ledger_pb2.GetStatusResponse(state=state, elapsed_seconds=seconds, message=message, datasets=[dataset])


def printed(*statuses: ledger_pb2.GetStatusResponse) -> list[str]:
    console = Console(width=60)
    now = [0.0]
    with console.capture() as capture:
        display = PlainDisplay(console, lambda: now[0])
        for each in statuses:
            now[0] = each.elapsed_seconds
            display.update(each)
        display.close()
    return capture.get().splitlines()


def test_progress_line_shows_state_counts_and_the_reason_for_waiting() -> None:
    counts = "[    7.5 s] judging | demo: 32/32 generated, 3 judged, 2 accepted (66.7 %), 1 NOT JUDGED"
    assert progress_line(status(99.0), 7.5, Pace(), OpenRequests()) == counts
    assert progress_line(status(99.0, FULL), 7.5, Pace(), OpenRequests()) == f"{counts} | {FULL}"
    shown = progress_line(status(99.0), 7.5, Pace(350.4, 700.0), OpenRequests(12, 45.0, 410.0))
    assert shown == f"{counts} | 12 requests open, the oldest 45 of 410 s | 350 tokens/s, about 12 min left"


def test_ended_run_failure_is_left_to_the_command() -> None:
    ended = status(7.5, "export to wandb failed: no API key")
    ended.state = ledger_pb2.RUN_STATE_SUCCEEDED
    assert "wandb" not in printed(ended)[0]


def test_plain_lines_appear_at_once_for_a_wait_and_otherwise_rarely_with_progress() -> None:
    statuses = [status(0.0), status(1.0), status(2.0, FULL), status(2.2, ""), status(2.4, FULL), status(9.0)]
    later = [status(20.0, judged=5), status(32.1, judged=6), status(63.0, judged=6), status(900.0, judged=6)]
    lines = printed(*statuses, *later)
    assert [line[:11] for line in lines] == ["[    0.0 s]", "[    2.0 s]", "[   32.1 s]"]
    assert lines[1].endswith(FULL)


def test_unanswered_request_is_reported_less_and_less_often() -> None:
    waiting = ledger_pb2.Replica(in_flight=1, oldest_request_at=1000.0, oldest_request_limit_seconds=410.0)
    console, now = Console(width=60), [0.0]
    with console.capture() as capture:
        display = PlainDisplay(console, lambda: now[0], lambda: 1000.0 + now[0])
        for second in range(400):
            now[0] = float(second)
            asked = status(now[0])
            asked.replicas.append(waiting)
            display.update(asked)
    told = [line.partition("the oldest ")[2].partition(" of")[0] for line in capture.get().splitlines()]
    assert told == ["0", "30", "60", "120", "240"]


def test_each_reason_for_waiting_is_printed() -> None:
    lines = printed(status(0.0, FULL), status(0.2, "waiting for the judge: Connection refused"))
    assert [line.rpartition(" | ")[2] for line in lines] == [FULL, "waiting for the judge: Connection refused"]


def test_terminal_shows_bars_and_each_reason_for_waiting_once() -> None:
    console = Console(width=100, force_terminal=True, legacy_windows=False)
    with console.capture() as capture:
        display = make_display(console, stopwatch())
        assert isinstance(display, LiveDisplay)
        for each in (status(0.0), status(0.2, FULL), status(0.4, FULL, judged=5)):
            display.update(each)
        display.close()
    text = capture.get()
    assert text.count(FULL) == 1
    assert "demo judged" in text
    assert "6/32" in text  # those that were not judged are over too


def test_warnings_are_printed_once_each_also_at_the_end() -> None:
    first, second, ended = status(0.0), status(1.0), status(2.0)
    ended.state = ledger_pb2.RUN_STATE_SUCCEEDED
    for each in (first, second, ended):
        each.warnings.append("endpoint a does not list its models")
    ended.warnings.append("sums: 2 of 2 answers hold no program")
    lines = [line for line in printed(first, second, ended) if line.startswith("warning: ")]
    assert lines == ["warning: endpoint a does not list its models", "warning: sums: 2 of 2 answers hold no program"]


def test_progress_time_is_that_of_the_command_and_never_decreases() -> None:
    console = Console(width=60)
    seconds = iter([100.0, 112.0, 112.2, 113.0])
    clock = stopwatch(lambda: next(seconds))
    resumed, rejudged, ended = status(86_400.0), status(0.2, FULL), status(0.1)
    ended.state = ledger_pb2.RUN_STATE_SUCCEEDED
    with console.capture() as capture:
        display = PlainDisplay(console, clock)
        for each in (resumed, rejudged, ended):
            display.update(each)
    assert [line[:11] for line in capture.get().splitlines()] == ["[   12.0 s]", "[   12.2 s]", "[   13.0 s]"]
