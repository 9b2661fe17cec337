"""Runs the benchmarks of `make bench` one after the other, each in a separate process."""

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
COMMANDS = (
    ("sandbox_throughput.py",),
    ("judge_humaneval.py",),
    ("judge_command.py",),
    ("end_to_end.py",),
    ("plan_accuracy.py",),
    ("contests.py",),
    ("gateway_overhead.py",),
    ("judge_policies.py",),
    ("ledger_growth.py", "--max-items", "100000"),
    ("outputs_growth.py", "--results", "20000"),
)


def main() -> int:
    """Run all benchmarks. Return 1 if a benchmark failed."""
    failed = []
    for name, *arguments in COMMANDS:
        print(f"== {name} {' '.join(arguments)}", flush=True)
        if subprocess.run([sys.executable, str(HERE / name), *arguments], check=False).returncode:
            failed.append(name)
    for name in failed:
        print(f"{name} failed", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
