"""SandboxFusion's rule for comparing a program's output, including its faults: 1000000 equals 1000001. Pure.

The judge's comparator `sandbox-fusion` is the same rule. This module cannot import it: the sandbox's image contains no
judge.
"""

RELATIVE = 1e-5
_MIN_DIVISOR = 1e-10


def same_output(stdout: str, expected: str) -> bool:
    """Return whether the output is right: equal line by line but for case and outer blanks, or equal as one number."""
    got, wanted = stdout.strip().split("\n"), expected.strip().split("\n")
    return len(got) == len(wanted) and all(map(_same_line, got, wanted))


def _same_line(got: str, wanted: str) -> bool:
    got, wanted = got.lower().strip(), wanted.lower().strip()
    if got == wanted:
        return True
    try:
        number, right = float(got), float(wanted)
    except ValueError:
        return False
    return abs(number - right) / max(abs(right), _MIN_DIVISOR) < RELATIVE
