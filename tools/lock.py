"""Lock every deployable's dependencies with hashes into `requirements/<name>.txt`.

`build` is what installs the rest; `base`, `dev` and `docs` install the whole distribution. An extra is locked by
itself, without the base, because its image holds nothing that it does not import; so is the group `graders`. The groups
of `OF_TESTS` are for tests and share no lock with the rest. The extra `inspect` is in no image, and allows no version
of fsspec that the others have: it is locked together with the base's requirements, into a file that replaces
`base.txt`. Addresses of a package index are never written.
"""

import argparse
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ALONE = {
    "dev": ("axe-playwright-python",),
    "graders": ("verl",),
    "trainers": ("openrlhf", "transferqueue", "trl"),
    "every-eval-ever": ("every-eval-ever",),
    "nemo-gym": ("nemo-gym",),
}
"""Packages that are locked without their requirements. verl's scorers import neither torch nor Ray. Of the trainers'
requirements one part needs a GPU's compiler, and the environment of `tools/gen_cpu.py` has the other. The validator of
Every Eval Ever takes its imports from `dev`, and NeMo Gym from `trainers` and the environment beneath. Of axe's package
only the script is wanted, without Playwright."""
OF_TESTS = ("evalplus", "every-eval-ever", "mlflow", "nemo-gym", "openenv", "openreward", "trainers", "verifiers")
OLDEST_PYTHON = {"every-eval-ever": "3.12", "nemo-gym": "3.12"}


def wanted() -> dict[str, list[str]]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    base = project["project"]["dependencies"]
    groups: dict[str, list[str]] = project["dependency-groups"]
    build = project["build-system"]["requires"] + groups["build"]
    locks = {"build": build, "base": base, "dev": build + base + groups["dev"], "docs": build + base + groups["docs"]}
    extras: dict[str, list[str]] = project["project"]["optional-dependencies"]
    alone = {name: groups[name] for name in ("graders", *OF_TESTS)}
    return locks | extras | {"inspect": base + extras["inspect"]} | alone


def lock(name: str, requirements: list[str], *, upgrade: bool) -> None:
    """Write one lock file, keeping the versions that it already pins unless `upgrade`."""
    target = ROOT / "requirements" / f"{name}.txt"
    with tempfile.TemporaryDirectory() as directory:
        source, config = Path(directory) / "wanted.in", Path(directory) / "uv.toml"
        source.write_text("\n".join(requirements) + "\n")
        alone = [f'[[dependency-metadata]]\nname = "{each}"\nrequires-dist = []\n' for each in ALONE.get(name, ())]
        config.write_text("".join(alone))
        command = [sys.executable, "-m", "uv", "pip", "compile", "--quiet", "--universal", "--generate-hashes"]
        command += ["--python-version", OLDEST_PYTHON.get(name, "3.11")]
        command += ["--no-annotate", "--custom-compile-command", "make lock"]
        # The server must have the client's version, and use the same lock.
        if name == "mlflow":
            command += ["--constraints", str(ROOT / "requirements" / "exports.txt")]
        elif name not in ("build", "base", "inspect", *OF_TESTS):
            command += ["--constraints", str(ROOT / "requirements" / "base.txt")]
        command += ["--config-file", str(config)]
        if upgrade:
            command.append("--upgrade")
        subprocess.run([*command, "--output-file", str(target), str(source)], check=True, stdout=subprocess.DEVNULL)


def main() -> None:
    """Lock all files, `base` first: the others may hold no other version of what it pins."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--upgrade", action="store_true", help="take the newest versions that fit")
    arguments = parser.parse_args()
    for name, requirements in wanted().items():
        lock(name, requirements, upgrade=arguments.upgrade)


if __name__ == "__main__":
    main()
