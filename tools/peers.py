"""Installs published packages that evalrun is compared with, or that call or serve it, and runs the tests with them.

EvalPlus, LiveCodeBench, Inspect; TRL, OpenRLHF, slime, ROLL, NeMo Gym, OpenEnv, OpenReward, verifiers; MLflow, Every
Eval Ever.

  python tools/peers.py             install what is missing, then run the tests that compare
  python tools/peers.py install     only install, and print the variables that those tests read

They allow no common set of versions, so each has an environment of its own (EvalPlus 0.6 GB, Inspect 0.3 GB, MLflow
0.6 GB, verifiers 0.3 GB) in `$EVALRUN_CACHE/peers` (default ~/.cache/evalrun), made once per lock. LiveCodeBench, slime
and ROLL are in no package index: they are fetched by git, at fixed commits. The environment of the trainers (TRL,
OpenRLHF, and what slime, ROLL and NeMo Gym import) holds these alone and takes torch and the rest from that of
`make setup-gen-cpu`; where that is not installed, their tests skip.
"""

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gen_cpu import interpreter as of_gen_cpu

ROOT = Path(__file__).resolve().parent.parent
CHECKOUTS = {
    "EVALRUN_TEST_LIVECODEBENCH": (
        "https://github.com/LiveCodeBench/LiveCodeBench",
        "28fef95ea8c9f7a547c8329f2cd3d32b92c1fa24",
    ),
    # The commit is v0.3.0.
    "EVALRUN_TEST_ROLL": ("https://github.com/alibaba/ROLL", "7f9d4d3873a87679c8d070085a4bd3bdeea7e589"),
    # The commit is v0.3.1.
    "EVALRUN_TEST_SLIME": ("https://github.com/THUDM/slime", "a6272da0d4f3d0a08520c99a2f3b4f6c887960dc"),
}
"""Repository and commit, by the environment variable that names the checkout."""
LOCKED = {
    "EVALRUN_TEST_EVALPLUS": "evalplus",
    "EVALRUN_TEST_INSPECT": "inspect",
    "EVALRUN_TEST_MLFLOW": "mlflow",
    "EVALRUN_TEST_OPENENV": "openenv",
    "EVALRUN_TEST_OPENREWARD": "openreward",
    "EVALRUN_TEST_VERIFIERS": "verifiers",
}
DIRECTORIES = {
    "EVALRUN_TEST_EVERY_EVAL_EVER": "every-eval-ever",
    "EVALRUN_TEST_GRADERS": "graders",
    "EVALRUN_TEST_NEMO_GYM": "nemo-gym",
}
"""Locks of packages without compiled parts. Some ask for Python 3.12; what is used of them runs on 3.11."""
TRAINERS = "EVALRUN_TEST_TRAINERS_PYTHON"
TESTS = (
    "tests/unit/function_tests/test_evalplus_package.py",
    "tests/unit/data/test_inspect_logs.py",
    "tests/unit/results/test_publications.py",
    "tests/integration/cli/test_inspect_export.py",
    "tests/integration/cli/test_livecodebench_checker.py",
    "tests/integration/cli/test_verls_scores.py",
    "tests/integration/reward/test_odd_rows.py",
    "tests/integration/reward/test_published_gym_slime_roll.py",
    "tests/integration/reward/test_published_openenv.py",
    "tests/integration/reward/test_published_openreward.py",
    "tests/integration/reward/test_published_trainers.py",
    "tests/integration/reward/test_published_verifiers.py",
    "tests/integration/reward/test_reward_check.py",
    "tests/integration/cli/test_training_export.py",
    "tests/integration/aggregator/test_mlflow_server.py",
)


def directory(name: str, version: bytes) -> Path:
    cache = Path(os.environ.get("EVALRUN_CACHE", "~/.cache/evalrun")).expanduser()
    return cache / "peers" / f"{name}-{hashlib.sha256(version).hexdigest()[:16]}"


@contextmanager
def track_completion(target: Path) -> Iterator[bool]:
    """Yield whether a directory is missing or incomplete, and remove its remains. At the end mark it as complete."""
    is_missing = not (target / ".complete").exists()
    if is_missing:
        shutil.rmtree(target, ignore_errors=True)
    yield is_missing
    if is_missing:
        (target / ".complete").touch()


def interpreter(name: str, beneath: Path | None = None) -> Path:
    """Return the interpreter of an environment with a lock's packages. Install the environment if it is missing.

    Args:
        name: name of the lock.
        beneath: an interpreter whose packages the environment has too.
    """
    lock = ROOT / "requirements" / f"{name}.txt"
    target = directory(name, lock.read_bytes() + sys.version.encode() + str(beneath or "").encode())
    python = target / "bin" / "python"
    with track_completion(target) as is_missing:
        if is_missing:
            subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(target)], check=True)
            command = [sys.executable, "-m", "uv", "pip", "install", "--python", str(python), "--quiet", "--no-deps"]
            subprocess.run([*command, "--require-hashes", "-r", str(lock)], check=True)
            if beneath is not None:
                (packages,) = target.glob("lib/python*/site-packages")
                (others,) = beneath.parents[1].glob("lib/python*/site-packages")
                (packages / "beneath.pth").write_text(f"{others}\n")
    return python


def package(name: str) -> Path:
    """Return a directory with a lock's package, for PYTHONPATH."""
    lock = ROOT / "requirements" / f"{name}.txt"
    target = directory(name, lock.read_bytes())
    with track_completion(target) as is_missing:
        if is_missing:
            command = [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--no-deps", "--require-hashes"]
            command += ["--target", str(target), "--python-version", "3.12", "-r", str(lock)]
            subprocess.run(command, check=True)
    return target


def checkout(repository: str, commit: str) -> Path:
    """Return a checkout of a repository. Fetch it if it is missing."""
    name = repository.rpartition("/")[2]
    target = directory(name.lower(), commit.encode())
    with track_completion(target) as is_missing:
        if is_missing:
            git = ["git", "-C", str(target)]
            subprocess.run(["git", "init", "--quiet", str(target)], check=True)
            fetched = subprocess.run([*git, "fetch", "--quiet", "--depth", "1", repository, commit])
            if fetched.returncode:
                raise SystemExit(
                    f"{name} cannot be fetched. Where {repository} is out of reach, name another copy of it: "
                    f"git config --global url.COPY.insteadOf {repository}"
                )
            subprocess.run([*git, "checkout", "--quiet", commit], check=True)
    return target


def variables() -> dict[str, str]:
    """Install what is missing, and return the environment variables that the tests read."""
    found = {variable: str(interpreter(name)) for variable, name in LOCKED.items()}
    if (python := of_gen_cpu()) is not None:
        found[TRAINERS] = str(interpreter("trainers", beneath=python))
    found |= {variable: str(package(name)) for variable, name in DIRECTORIES.items()}
    return found | {variable: str(checkout(*where)) for variable, where in CHECKOUTS.items()}


def main(arguments: list[str]) -> int:
    """Install, and run the tests unless only that is asked for."""
    if arguments not in ([], ["install"]):
        print("usage: peers.py [install]", file=sys.stderr)
        return 2
    found = variables()
    if arguments:
        print("\n".join(f"{name}={value}" for name, value in found.items()))
        return 0
    command = [sys.executable, "-m", "pytest", *TESTS]
    return subprocess.run(command, cwd=ROOT, env={**os.environ, **found}, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
