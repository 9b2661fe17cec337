"""What a person sees of a run on one machine: progress, and what it waits for."""

from rich.console import Console

from evalrun.ledger.v1 import ledger_pb2
from evalrun_cli.display import LiveDisplay, PlainDisplay, display_for, progress_line

FULL = "disk full: /data/ledger.sqlite3: completions and verdicts wait until there is room"


def status(seconds: float, message: str = "", judged: int = 3) -> ledger_pb2.GetStatusResponse:
    dataset = ledger_pb2.DatasetStatus(name="demo", total=32, generated=32, judged=judged, accepted=2, not_judged=1)
    state = ledger_pb2.RUN_STATE_JUDGING
    return ledger_pb2.GetStatusResponse(state=state, elapsed_seconds=seconds, message=message, datasets=[dataset])


def printed(*statuses: ledger_pb2.GetStatusResponse) -> list[str]:
    console = Console(width=60)
    with console.capture() as capture:
        display = PlainDisplay(console)
        for each in statuses:
            display.update(each)
        display.close()
    return capture.get().splitlines()


def test_a_line_says_state_counts_and_what_the_run_waits_for() -> None:
    counts = "[    7.5 s] judging | demo: 32/32 generated, 3 judged, 2 accepted, 1 NOT JUDGED"
    assert progress_line(status(7.5)) == counts
    assert progress_line(status(7.5, FULL)) == f"{counts} | {FULL}"


def test_what_went_wrong_in_a_run_that_has_ended_is_the_commands_to_say() -> None:
    ended = status(7.5, "export to wandb failed: no API key")
    ended.state = ledger_pb2.RUN_STATE_SUCCEEDED
    assert "wandb" not in printed(ended)[0]


def test_lines_come_every_few_seconds_and_at_once_where_the_run_waits_for_something() -> None:
    lines = printed(status(0.0), status(1.0), status(2.0, FULL), status(2.2, ""), status(2.4, FULL), status(9.0))
    assert [line[:11] for line in lines] == ["[    0.0 s]", "[    2.0 s]", "[    9.0 s]"]
    assert lines[1].endswith(FULL)


def test_what_another_wait_is_for_is_said_too() -> None:
    lines = printed(status(0.0, FULL), status(0.2, "waiting for the judge: Connection refused"))
    assert [line.rpartition(" | ")[2] for line in lines] == [FULL, "waiting for the judge: Connection refused"]


def test_the_rate_is_that_of_the_generation_alone() -> None:
    console = Console(width=100, force_terminal=True, legacy_windows=False)
    with console.capture() as capture:
        display = display_for(console)
        for seconds, generated in ((1.0, 0), (5.0, 31), (10.0, 32), (1000.0, 32)):
            update = status(seconds)
            update.output_tokens = 100 * generated
            update.datasets[0].generated = generated
            display.update(update)
        display.close()
    assert "320 tokens/s" in capture.get().splitlines()[-3]


def test_a_terminal_has_bars_and_above_them_what_the_run_waits_for_once() -> None:
    console = Console(width=100, force_terminal=True, legacy_windows=False)
    with console.capture() as capture:
        display = display_for(console)
        assert isinstance(display, LiveDisplay)
        for each in (status(0.0), status(0.2, FULL), status(0.4, FULL, judged=5)):
            display.update(each)
        display.close()
    text = capture.get()
    assert text.count(FULL) == 1
    assert "demo judged" in text
    assert "6/32" in text  # those that were not judged are over too
