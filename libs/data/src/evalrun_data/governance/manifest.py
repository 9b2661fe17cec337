"""Manifests with one JSON line per record, which document the data that was used.

The manifest's hash is the SHA-256 of the file's bytes, as `sha256sum` prints it. There is no other definition.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from evalrun_data.records import Problem
from evalrun_data.rows import Row
from evalrun_data.sources import read_bytes, rows_of_bytes
from evalrun_runtime.exits import BadInputError

MAX_MANIFEST_BYTES: Final = 256 << 20
"""About 700,000 records: more than any dataset here has by far."""

_SHA256: Final = re.compile(r"^[0-9a-f]{64}$")


@dataclass(frozen=True, slots=True)
class ManifestLine:
    """Entry of the manifest for a record."""

    dataset: str
    split: str
    problem_id: str
    prompt_sha256: str
    prompt_length: int
    """Characters of the prompt as published."""
    num_test_cases: int
    version: str
    source_url: str
    role: str = ""
    """train, dev or test; empty in manifests that were written without a role."""
    licence: str = ""
    """The row's own licence, else the dataset's; empty in manifests that were written without licences."""

    @property
    def json_line(self) -> str:
        """The line as it stands in the file, with its line break."""
        return json.dumps(asdict(self), ensure_ascii=False) + "\n"


@dataclass(frozen=True, slots=True)
class Manifest:
    """A manifest that was read."""

    source: str
    sha256: str
    lines: Sequence[ManifestLine]


def manifest_line(problem: Problem, *, version: str, source_url: str, licence: str) -> ManifestLine:
    """Return the manifest line of a problem."""
    return ManifestLine(
        problem.dataset,
        problem.split,
        problem.problem_id,
        problem.prompt_sha256,
        len(problem.prompt),
        problem.test_count,
        version,
        source_url,
        problem.role,
        problem.licence or licence,
    )


def manifest_sha256(content: bytes) -> str:
    """Return the manifest hash of a manifest's bytes."""
    return hashlib.sha256(content).hexdigest()


def read_manifest(source: str, base_dir: Path = Path()) -> Manifest:
    """Read a manifest.

    Raises:
        BadInputError: it cannot be read, or a line is not one of a manifest; the message names file, line and field.
    """
    return parse_manifest(read_bytes(source, base_dir, max_bytes=MAX_MANIFEST_BYTES), source)


def parse_manifest(content: bytes, source: str) -> Manifest:
    """Parse a manifest that was read from `source`. Raises BadInputError as `read_manifest` does."""
    lines: list[ManifestLine] = []
    first: dict[tuple[str, str], int] = {}
    for row in rows_of_bytes(content, source):
        line = _parse_line(row)
        earlier = first.setdefault((line.dataset, line.problem_id), row.number)
        if earlier != row.number:
            raise row.error(f"problem '{line.problem_id}' is there twice (first in line {earlier}): keep one of them")
        lines.append(line)
    if not lines:
        raise BadInputError(f"{source}: the manifest is empty: write it again with `evalrun data prepare`")
    return Manifest(source, manifest_sha256(content), lines)


def _parse_line(row: Row) -> ManifestLine:
    digest = row.name("prompt_sha256")
    if not _SHA256.match(digest):
        raise row.error("field 'prompt_sha256' should be 64 hexadecimal digits in lower case")
    return ManifestLine(
        row.name("dataset"),
        row.optional_text("split"),
        row.name("problem_id"),
        digest,
        row.optional_count("prompt_length") or 0,
        row.optional_count("num_test_cases") or 0,
        row.optional_text("version"),
        row.optional_text("source_url"),
        row.optional_text("role"),
        row.optional_text("licence"),
    )


def mismatches(manifest: Manifest, problems: Iterable[Problem], dataset: str, *, tests: bool = True) -> list[str]:
    """Describe differences between a dataset's records and its manifest, one sentence each.

    Compares which problems there are, their prompts and, unless told otherwise, how many tests each has. Lines of other
    datasets do not count.
    """
    expected = {line.problem_id: line for line in manifest.lines if line.dataset == dataset}
    if not expected:
        held = ", ".join(sorted({line.dataset for line in manifest.lines}))
        return [f"the manifest has no record of dataset '{dataset}' (it holds: {held})"]
    found: list[str] = []
    seen: set[str] = set()
    for problem in problems:
        seen.add(problem.problem_id)
        line = expected.get(problem.problem_id)
        if line is None:
            found.append(f"problem '{problem.problem_id}' is not in the manifest")
        elif line.prompt_sha256 != problem.prompt_sha256:
            found.append(f"the prompt of problem '{problem.problem_id}' is another one than in the manifest")
        elif tests and line.num_test_cases != problem.test_count:
            found.append(
                f"problem '{problem.problem_id}' has {problem.test_count} tests, in the manifest {line.num_test_cases}"
            )
    found += [f"problem '{name}' of the manifest is missing" for name in expected if name not in seen]
    return found
