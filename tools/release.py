"""Build what a release consists of into `dist/release`: wheel, sdist, chart, manifests, bills of materials, checksums.

    python tools/release.py                           nothing is signed
    python tools/release.py --key key.pem             signs by a key, as `evalrun attest --key` does
    python tools/release.py --sigstore                signs by the identity of this CI job
    python tools/release.py --verify DIR --trust key.pub
    python tools/release.py --verify DIR --identity NAME --issuer URL

A second build from the same commit gives every file the same checksum, except the bills of materials, which hold a
serial number and the time. The signature covers an in-toto statement about every file. Nothing is uploaded.
"""

import argparse
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
from typing import Any

import generate_sbom
from generate_manifests import CHART, NoHelmError, find_helm

from evalrun_attest.checks import Finding, Outcome, differs, matches
from evalrun_attest.envelope import EnvelopeError, parse_payload
from evalrun_attest.keys import PublicKey
from evalrun_attest.signatures import Identity, Signer, parse_signed, sign_statement
from evalrun_attest.statement import STATEMENT_TYPE
from evalrun_attest.trust import Trust, check_signer
from evalrun_cli.attestation.signers import SignerOptions
from evalrun_runtime.exits import BadInputError

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "dist" / "release"
MANIFESTS = ("k8s/crd.yaml", "k8s/install.yaml")
SIGNATURE = "release.intoto.json"
PREDICATE_TYPE = "https://evalrun.dev/attestation/release/v1"


def release_notes(changelog: str, version: str) -> str | None:
    """Return the version's section of the changelog; None if there is none."""
    found = re.search(rf"^## \[{re.escape(version)}\][^\n]*\n(.*?)(?=^## |\Z)", changelog, re.MULTILINE | re.DOTALL)
    return None if found is None else found[1].strip()


def checksums(directory: Path) -> str:
    """Return lines as `sha256sum --check` reads them, of all files below the directory."""
    return "".join(f"{digest}  {name}\n" for name, digest in digests(directory).items() if name != "SHA256SUMS")


def digests(directory: Path) -> dict[str, str]:
    """Return the SHA-256 of every file below the directory, by name, but for the signature."""
    files = sorted(path for path in directory.rglob("*") if path.is_file() and path.name != SIGNATURE)
    return {str(path.relative_to(directory)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def describe_release(version: str, commit: str, files: dict[str, str]) -> dict[str, Any]:
    """Return the statement that is signed: the files by their digests, and what they were built from."""
    return {
        "_type": STATEMENT_TYPE,
        "subject": [{"name": name, "digest": {"sha256": digest}} for name, digest in files.items()],
        "predicateType": PREDICATE_TYPE,
        "predicate": {"version": version, "commit": commit},
    }


def sign_release(directory: Path, version: str, commit: str, signer: "Signer") -> None:
    """Sign every file of a release. Raises BadInputError if an identity cannot sign it now."""
    signed = sign_statement(describe_release(version, commit, digests(directory)), signer)
    (directory / SIGNATURE).write_bytes(signed.to_bytes())


def check_release(directory: Path, trust: Trust) -> list[Finding]:
    """Check the signer of a release, and that its files match the signed statement."""
    try:
        signed = parse_signed((directory / SIGNATURE).read_bytes())
        statement = parse_payload(signed.payload)
    except OSError as error:
        return [differs(f"{directory / SIGNATURE} cannot be read: {error.strerror}")]
    except EnvelopeError as error:
        return [differs(f"{SIGNATURE}: {error}")]
    findings = check_signer(signed, trust)
    predicate = statement.get("predicate")
    if statement.get("predicateType") != PREDICATE_TYPE or not isinstance(predicate, dict):
        return [*findings, differs("the statement is about no release")]
    found = digests(directory)
    if describe_release(predicate.get("version", ""), predicate.get("commit", ""), found) == statement:
        return [*findings, matches(f"{len(found)} files of {predicate['version']}, built from {predicate['commit']}")]
    said = {each.get("name"): each.get("digest", {}).get("sha256") for each in statement.get("subject", [])}
    names = sorted(name for name in {*said, *found} if said.get(name) != found.get(name))
    return [*findings, differs(f"not as signed: {', '.join(map(str, names))}")]


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


def read_arguments(given: list[str]) -> argparse.Namespace:
    """Return the options."""
    parser = argparse.ArgumentParser(description="Build a release, or check one.")
    parser.add_argument("--key", type=Path, help="PEM file of an Ed25519 key that signs")
    parser.add_argument("--sigstore", action="store_true", help="sign by the identity of this CI job")
    parser.add_argument("--verify", type=Path, metavar="DIR", help="check the release in DIR instead of building one")
    parser.add_argument("--trust", type=Path, action="append", default=[], help="with --verify: a public key")
    parser.add_argument("--identity", help="with --verify: an e-mail address or workflow, with --issuer")
    parser.add_argument("--issuer", help="with --verify: the OpenID Connect provider that knows it")
    return parser.parse_args(given)


def main(given: list[str]) -> int:
    """Build the release of this commit, or check one; return the exit code."""
    asked = read_arguments(given)
    try:
        if asked.verify is not None:
            return verify(asked)
        signer = SignerOptions(asked.key, asked.sigstore).signer() if asked.key or asked.sigstore else None
        return build(signer)
    except BadInputError as error:
        print(f"release: {error}", file=sys.stderr)
        return 2


def verify(asked: argparse.Namespace) -> int:
    """Print the findings about a release. Return 0 only if a trusted signer signed all of it."""
    if (asked.identity is None) != (asked.issuer is None):
        raise BadInputError("--identity and --issuer belong together: name both")
    identity = None if asked.identity is None else Identity(asked.identity, asked.issuer)
    findings = check_release(asked.verify, Trust([PublicKey.read(path) for path in asked.trust], identity))
    for finding in findings:
        print(f"{finding.outcome.value:<11} {finding.text}")
    outcomes = {finding.outcome for finding in findings}
    return 4 if Outcome.DIFFERS in outcomes else 5 if Outcome.UNKNOWN in outcomes else 0


def build(signer: "Signer | None") -> int:
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
    commit, epoch = subprocess.run(
        ["git", "log", "-1", "--format=%H %ct"], check=True, cwd=ROOT, capture_output=True, text=True
    ).stdout.split()
    build_packages(epoch)
    package_chart(helm, int(epoch))
    for manifest in MANIFESTS:
        shutil.copy(ROOT / manifest, TARGET)
    generate_sbom.main([str(TARGET / "sbom")])
    (TARGET / "NOTES.md").write_text(f"{notes}\n")
    (TARGET / "SHA256SUMS").write_text(checksums(TARGET))
    if signer is not None:
        sign_release(TARGET, version, commit, signer)
    print(f"evalrun {version}: {TARGET}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
