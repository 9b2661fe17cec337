"""Lock every deployable's dependencies with hashes into `requirements/<name>.txt`.

`build` is what installs the rest; `base` and `dev` install the whole distribution. An extra is locked by itself,
without the base, because its image holds nothing that it does not import. Addresses of a package index are never
written.
"""

import argparse
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def wanted() -> dict[str, list[str]]:
    """Return the requirements of each lock file by its name."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    base = project["project"]["dependencies"]
    groups: dict[str, list[str]] = project["dependency-groups"]
    build = project["build-system"]["requires"] + groups["build"]
    locks = {"build": build, "base": base, "dev": build + base + groups["dev"]}
    extras: dict[str, list[str]] = project["project"]["optional-dependencies"]
    return locks | extras


def lock(name: str, requirements: list[str], *, upgrade: bool) -> None:
    """Write one lock file, keeping the versions that it already pins unless `upgrade`."""
    target = ROOT / "requirements" / f"{name}.txt"
    with tempfile.NamedTemporaryFile("w", suffix=".in") as source:
        source.write("\n".join(requirements) + "\n")
        source.flush()
        command = [sys.executable, "-m", "uv", "pip", "compile", "--quiet", "--universal", "--generate-hashes"]
        command += ["--python-version", "3.11", "--no-annotate", "--custom-compile-command", "make lock"]
        if name not in ("build", "base"):
            command += ["--constraints", str(ROOT / "requirements" / "base.txt")]
        if upgrade:
            command.append("--upgrade")
        subprocess.run([*command, "--output-file", str(target), source.name], check=True, stdout=subprocess.DEVNULL)


def main() -> None:
    """Lock all files, `base` first: the others may hold no other version of what it pins."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--upgrade", action="store_true", help="take the newest versions that fit")
    arguments = parser.parse_args()
    for name, requirements in wanted().items():
        lock(name, requirements, upgrade=arguments.upgrade)


if __name__ == "__main__":
    main()
