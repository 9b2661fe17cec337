"""Build what a release consists of into `dist/release`: wheel, sdist, chart, manifests, bills of materials, checksums.

    python tools/release.py

Made again from the same commit, every file has the same checksum, but for the bills of materials, which hold a serial
number and the time. Nothing is uploaded, and nothing is signed.
"""

import gzip
import hashlib
import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path

import generate_sbom
from generate_manifests import CHART, NoHelmError, find_helm

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "dist" / "release"
MANIFESTS = ("k8s/crd.yaml", "k8s/install.yaml")


def release_notes(changelog: str, version: str) -> str | None:
    """Return the version's section of the changelog; None if there is none."""
    found = re.search(rf"^## \[{re.escape(version)}\][^\n]*\n(.*?)(?=^## |\Z)", changelog, re.MULTILINE | re.DOTALL)
    return None if found is None else found[1].strip()


def checksums(directory: Path) -> str:
    """Return lines as `sha256sum --check` reads them, of all files below the directory."""
    files = sorted(path for path in directory.rglob("*") if path.is_file() and path.name != "SHA256SUMS")
    return "".join(
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.relative_to(directory)}\n" for path in files
    )


def build_packages(epoch: str) -> None:
    """Build wheel and sdist. `epoch`: time of the files in them, Unix seconds."""
    for form in ("wheel", "sdist"):
        command = [sys.executable, "-m", "hatchling", "build", "-t", form, "-d", str(TARGET)]
        subprocess.run(command, check=True, cwd=ROOT, env={**os.environ, "SOURCE_DATE_EPOCH": epoch})


def package_chart(helm: Path, epoch: int) -> None:
    """Package the chart. Helm writes the time of packaging into the archive, so it is packed again with `epoch`."""
    subprocess.run([str(helm), "package", str(CHART), "--destination", str(TARGET)], check=True)
    (archive,) = TARGET.glob("evalrun-*.tgz")
    packed = io.BytesIO()
    with tarfile.open(archive) as source, tarfile.open(fileobj=packed, mode="w") as target:
        for member in source.getmembers():
            member.mtime = epoch
            target.addfile(member, source.extractfile(member))
    archive.write_bytes(gzip.compress(packed.getvalue(), mtime=epoch))


def main() -> int:
    """Build the release of this commit; return the exit code."""
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    notes = release_notes((ROOT / "CHANGELOG.md").read_text(), version)
    if notes is None:
        print(f"CHANGELOG.md has no section [{version}], the version of pyproject.toml: write one", file=sys.stderr)
        return 2
    try:
        helm = find_helm()
    except NoHelmError as error:
        print(f"the chart cannot be packaged: {error}", file=sys.stderr)
        return 2
    shutil.rmtree(TARGET, ignore_errors=True)
    TARGET.mkdir(parents=True)
    epoch = subprocess.run(
        ["git", "log", "-1", "--format=%ct"], check=True, cwd=ROOT, capture_output=True, text=True
    ).stdout.strip()
    build_packages(epoch)
    package_chart(helm, int(epoch))
    for manifest in MANIFESTS:
        shutil.copy(ROOT / manifest, TARGET)
    generate_sbom.main([str(TARGET / "sbom")])
    (TARGET / "NOTES.md").write_text(f"{notes}\n")
    (TARGET / "SHA256SUMS").write_text(checksums(TARGET))
    print(f"evalrun {version}: {TARGET}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
