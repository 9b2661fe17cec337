import pytest

from evalrun_executor.containment import PROBE, is_sufficient, rate_containment, read_probe

ALL = ("memory", "socket", "fork", "signal", "execute", "read", "write", "root")


@pytest.mark.parametrize(("allowed", "level"), [
    ((), "full"), (("read",), "seccomp"), (("root",), "seccomp"), (("read", "write"), "seccomp"), (("fork",), "limits"),
    (("socket", "read"), "limits"), (("memory",), "none"), (ALL, "none"),
])  # fmt: skip
def test_a_level_needs_everything_below_it(allowed: tuple[str, ...], level: str) -> None:
    report = rate_containment({name: name not in allowed for name in ALL})
    assert report.level == level
    assert len(report.missing) == len(allowed)


def test_an_attempt_without_an_answer_counts_as_allowed() -> None:
    """E.g. `execute`: where it works, the probe is gone before it could say so."""
    answers = "\n".join(f"{name} refused" for name in ALL if name != "execute")
    assert rate_containment(read_probe(answers)).level == "limits"


def test_every_try_of_an_attempt_must_be_refused() -> None:
    assert read_probe("read refused\nread allowed\nread refused")["read"] is False
    assert read_probe("read refused\nread refused")["read"] is True


def test_the_probe_makes_every_attempt() -> None:
    compile(PROBE, "probe", "exec")
    assert all(f'"{name}"' in PROBE for name in ALL)


@pytest.mark.parametrize(("level", "required", "enough"), [
    ("full", "full", True), ("seccomp", "full", False), ("full", "none", True), ("limits", "seccomp", False),
])  # fmt: skip
def test_is_sufficient_orders_the_levels(level: str, required: str, enough: bool) -> None:
    assert is_sufficient(level, required) is enough  # type: ignore[arg-type]  # literals in a table
