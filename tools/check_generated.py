"""Fails if a generated file differs from what its source generates now.

Without helm, which renders the chart, `k8s/install.yaml` and the page about reachability are left out, with a message
on stderr. CI has helm.
"""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
GENERATORS = (
    "generate_stubs.py",
    "generate_crd.py",
    "generate_reference.py",
    "generate_monitoring.py",
    "generate_manifests.py",
    "generate_reachability.py",
)
NO_HELM = 3
"""Exit code of `generate_manifests.py` and `generate_reachability.py` if there is no helm."""


def snapshot() -> dict[Path, bytes]:
    directories = [ROOT / "proto" / "gen", ROOT / "k8s", ROOT / "charts", ROOT / "docs" / "reference"]
    files = (
        path for directory in directories for path in directory.rglob("*") if path.is_file() and path.suffix != ".pyc"
    )
    return {path: path.read_bytes() for path in (*files, ROOT / "docs" / "outputs.md")}


def main() -> int:
    before = snapshot()
    for generator in GENERATORS:
        done = subprocess.run([sys.executable, str(ROOT / "tools" / generator)])
        if done.returncode == NO_HELM and os.environ.get("CI") != "true":
            print(f"not checked: what {generator} makes, see above", file=sys.stderr)
        elif done.returncode != 0:
            return done.returncode
    after = snapshot()
    changed = sorted(
        str(path.relative_to(ROOT)) for path in before.keys() | after if before.get(path) != after.get(path)
    )
    for path in changed:
        print(f"{path} was not what its source makes: commit what `make generate` writes", file=sys.stderr)
    return 1 if changed else 0


if __name__ == "__main__":
    sys.exit(main())
