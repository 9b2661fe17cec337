"""Installs one deployable's packages, and nothing else of the distribution, into a directory, for its image.

Usage: `python tools/install_part.py PART DIRECTORY`, e.g. `judge /out/site-packages`. `Dockerfile.judge` runs it in its
build stage, after the part's locked requirements. It also writes the distribution's metadata (services ask for their
own version) and byte code that is never compared with a timestamp, so that two builds give the same bytes and a
container with a read-only root starts without compiling.
"""

import base64
import csv
import hashlib
import io
import py_compile
import shutil
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCES = {
    "evalrun_aggregator": "services/aggregator/src",
    "evalrun_api": "libs/api/src",
    "evalrun_attest": "libs/attest/src",
    "evalrun_cli": "services/cli/src",
    "evalrun_client": "libs/client/src",
    "evalrun_cluster": "libs/cluster/src",
    "evalrun_data": "libs/data/src",
    "evalrun_executor": "libs/executor/src",
    "evalrun_generator": "services/generator/src",
    "evalrun_judge": "services/judge/src",
    "evalrun_operator": "operator/src",
    "evalrun_proto": "proto/gen",
    "evalrun_registry": "libs/registry/src",
    "evalrun_results": "libs/results/src",
    "evalrun_reward": "services/reward/src",
    "evalrun_runtime": "libs/runtime/src",
    "evalrun_sandbox": "services/sandbox/src",
}
"""Each of our packages and the directory that holds it."""

PARTS: dict[str, tuple[str, ...]] = {
    "aggregator": (
        "evalrun_aggregator",
        "evalrun_api",
        "evalrun_attest",
        "evalrun_client",
        "evalrun_data",
        "evalrun_generator",
        "evalrun_proto",
        "evalrun_registry",
        "evalrun_results",
        "evalrun_runtime",
    ),
    "judge": (
        "evalrun_client/__init__.py",
        "evalrun_client/failure_codes.py",
        "evalrun_client/fusion_names.py",
        "evalrun_executor",
        "evalrun_judge",
        "evalrun_proto",
        "evalrun_registry",
        "evalrun_runtime",
    ),
    "operator": (
        "evalrun_api",
        "evalrun_cluster",
        "evalrun_operator",
        "evalrun_proto",
        "evalrun_registry",
        "evalrun_runtime",
    ),
    "reward": (
        "evalrun_api",
        "evalrun_client",
        "evalrun_data",
        "evalrun_proto",
        "evalrun_registry",
        "evalrun_reward",
        "evalrun_runtime",
    ),
    "sandbox": ("evalrun_executor", "evalrun_registry", "evalrun_runtime", "evalrun_sandbox"),
    "viewer": (
        "evalrun_aggregator",
        "evalrun_api",
        "evalrun_cli",
        "evalrun_client",
        "evalrun_cluster",
        "evalrun_data",
        "evalrun_proto",
        "evalrun_registry",
        "evalrun_results",
        "evalrun_runtime",
    ),
}
"""Our own contents of each image: whole packages, or files and directories of one. A test compares it with the imports.

The aggregator's also holds the generator, which simple mode's Job runs (and the server of recorded answers): it needs
what the aggregator needs and aiohttp. The GPU side has an image of its own.
"""


class UnknownPartError(Exception):
    """There is no such part; the message lists the parts."""


def install(part: str, target: Path, root: Path = ROOT) -> list[Path]:
    """Install a part. Return the written files, relative to `target`, in order.

    Raises:
        UnknownPartError: the part is none of `PARTS`.
    """
    if part not in PARTS:
        raise UnknownPartError(f"no part {part!r}: write one of {', '.join(sorted(PARTS))}")
    written = []
    for entry in PARTS[part]:
        source_root = root / SOURCES[entry.partition("/")[0]]
        for source in _files(source_root / entry):
            relative = source.relative_to(source_root)
            (target / relative).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target / relative)
            written.append(relative)
    written += [_compile(target, path) for path in written if path.suffix == ".py"]
    return sorted(written + _write_metadata(target, root, written))


def _files(place: Path) -> list[Path]:
    """Return the files of a package, or the single file; byte code of the Python that runs this script is left out."""
    if place.is_file():
        return [place]
    return sorted(path for path in place.rglob("*") if path.is_file() and "__pycache__" not in path.parts)


def _compile(target: Path, relative: Path) -> Path:
    """Compile one module, and return the byte code's path.

    `UNCHECKED_HASH` stores no time and is never compared again.
    """
    place = relative.parent / "__pycache__" / f"{relative.stem}.{sys.implementation.cache_tag}.pyc"
    py_compile.compile(
        str(target / relative),
        cfile=str(target / place),
        dfile=f"/{relative}",
        doraise=True,
        invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
    )
    return place


def _write_metadata(target: Path, root: Path, files: list[Path]) -> list[Path]:
    """Write `*.dist-info` according to the packaging specifications, so that scanners list the package."""
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    directory = Path(f"{project['name'].replace('-', '_')}-{project['version']}.dist-info")
    (target / directory).mkdir(parents=True, exist_ok=True)
    texts = {
        "METADATA": f"Metadata-Version: 2.4\nName: {project['name']}\nVersion: {project['version']}\n"
        f"Summary: {project['description']}\nLicense-Expression: {project['license']}\n",
        "INSTALLER": "evalrun install_part\n",
    }
    for name, text in texts.items():
        (target / directory / name).write_text(text, encoding="utf-8")
    named = sorted([*files, *(directory / name for name in texts)])
    record = io.StringIO()
    writer = csv.writer(record, lineterminator="\n")
    writer.writerows(_record_row(target, path) for path in named)
    writer.writerow([f"{directory}/RECORD", "", ""])
    (target / directory / "RECORD").write_text(record.getvalue(), encoding="utf-8")
    return [directory / name for name in (*texts, "RECORD")]


def _record_row(target: Path, path: Path) -> list[str]:
    content = (target / path).read_bytes()
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
    return [str(path), f"sha256={digest}", str(len(content))]


def main(arguments: list[str]) -> int:
    """Install the part that is named, and return the exit code."""
    if len(arguments) != 2:
        print("usage: install_part.py PART DIRECTORY", file=sys.stderr)
        return 2
    try:
        written = install(arguments[0], Path(arguments[1]))
    except UnknownPartError as error:
        print(f"install_part: {error}", file=sys.stderr)
        return 2
    print(f"{arguments[0]}: {len(written)} files into {arguments[1]}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
