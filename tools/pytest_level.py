"""Run a level of tests that start processes; a few that fail are run once more, by themselves.

    python tools/pytest_level.py services tests/integration/judge tests/integration/sandbox

Four levels share the cores in `make test`, and a test's processes may wait for longer than anybody foresaw. What fails
by itself too is a failure. What passes then is printed as `Failed beside others`: look into it, because a limit or a
race is wrong, in the test or in evalrun.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

CACHE = Path(".pytest_cache")
MAX_RERUN = 5
"""More failures than so many have one cause, and no second try is needed to see it."""
TESTS_FAILED = 1
"""pytest's exit code if tests ran and some failed; any other one but 0 is an error of another kind."""

Pytest = Callable[[Sequence[str]], int]


def run_level(name: str, paths: Sequence[str], pytest: Pytest, cache: Path = CACHE) -> int:
    """Run the tests below these paths, and what failed once more. Return the exit code.

    Args:
        name: The level's own folder in pytest's cache, since levels run at the same time.
        paths: Folders and files of tests.
        pytest: Runs pytest with these arguments and returns its exit code.
        cache: Folder of the caches.
    """
    own = cache / name
    record = own / "v" / "cache" / "lastfailed"
    record.unlink(missing_ok=True)
    setting = ["-o", f"cache_dir={own}"]
    code = pytest([*setting, *paths])
    if code != TESTS_FAILED:
        return code
    failed = sorted(json.loads(record.read_text())) if record.exists() else []
    if not 0 < len(failed) <= MAX_RERUN:
        return code
    print(f"\n{name}: {len(failed)} failed; each is run once more, without the rest of its level", flush=True)
    code = pytest([*setting, "--last-failed", "--last-failed-no-failures=none", *paths])
    if code == 0:
        print("\n".join(["", *(f"Failed beside others, passed alone: {test}" for test in failed)]), flush=True)
    return code


def main() -> int:
    """Run pytest of this interpreter's environment."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name")
    parser.add_argument("paths", nargs="+")
    given = parser.parse_args()
    return run_level(
        given.name, given.paths, lambda flags: subprocess.run([sys.executable, "-m", "pytest", *flags]).returncode
    )


if __name__ == "__main__":
    sys.exit(main())
