"""The ready line, which callers of a service wait for."""

from evalrun_runtime.process import address_of, ready_line


def test_the_ready_line_names_the_address() -> None:
    assert address_of(ready_line("sandbox", "http://127.0.0.1:80") + "\n") == "http://127.0.0.1:80"


def test_other_lines_are_no_ready_lines() -> None:
    assert address_of("evalrun sandbox is not ready on anything yet") is None
