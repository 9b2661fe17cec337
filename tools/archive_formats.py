"""Writes `tests/archived/`: the formats that this release accepts and writes. The next release is tested against them.

    python tools/archive_formats.py

Run it for each release (CONTRIBUTING.md). It replaces the archive of the release before, because compatibility is
promised with one release back.
"""

import gzip
import io
import json
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml
from google.protobuf.descriptor import Descriptor, FileDescriptor
from reference_settings import SERVICES

from evalrun_api.crd import crds
from evalrun_proto.judge.v1 import judge_pb2
from evalrun_proto.ledger.v1 import ledger_pb2
from evalrun_runtime.distribution import read_own_version

ROOT = Path(__file__).resolve().parent.parent
ARCHIVE = ROOT / "tests" / "archived"
CONTRACTS = ARCHIVE / "contracts.json"
RUN = ARCHIVE / "run.tar.gz"
RUN_FILES = (
    "ledger.sqlite3", "metrics.json", "results.jsonl", "run_info.json", "start_settings.json", "summary.json",
    "work_order.json",
)  # fmt: skip
"""Files of a run that are archived. Logs and pages are for people, and results.parquet has the rows of results.jsonl.
"""
BOUNDS = ("type", "enum", "minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems", "pattern", "default")

SUMS = {"inputs": ["1 2\n", "5 7\n"], "outputs": ["3\n", "12\n"]}
DOUBLE = {
    "prompt": 'def double(x):\n    """Twice x."""\n',
    "test": "def check(candidate):\n    assert candidate(2) == 4\n",
}
PROBLEMS = (
    {"dataset": "sums", "problem_id": "right", "prompt": "Add the numbers.", "ground_truth": SUMS},
    {"dataset": "sums", "problem_id": "wrong", "prompt": "Add the numbers.", "ground_truth": SUMS},
    {"dataset": "sums", "problem_id": "call", "prompt": "Double.", "ground_truth": {**DOUBLE, "entry_point": "double"}},
)
ANSWERS = (
    {"problem_id": "right", "response": "```python\nprint(sum(map(int, input().split())))\n```"},
    {"problem_id": "wrong", "response": "```python\nprint(3)\n```"},
    {"problem_id": "call", "response": "```python\ndef double(x):\n    return 2 * x\n```"},
)


def describe_contracts() -> dict[str, Any]:
    """Return the contracts that others rely on: fields of CRDs, messages, calls, settings, and the chart's values."""
    files: list[FileDescriptor] = [judge_pb2.DESCRIPTOR, ledger_pb2.DESCRIPTOR]
    messages = [message for file in files for message in file.message_types_by_name.values()]
    schemas = {name: crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"] for name, crd in crds().items()}
    return {
        "version": read_own_version(),
        "crd_fields": {path: field for name, schema in schemas.items() for path, field in _walk(name, schema)},
        "messages": {message.full_name: _describe_fields(message) for each in messages for message in _nest(each)},
        "enums": {
            enum.full_name: {str(value.number): value.name for value in enum.values}
            for file in files
            for enum in file.enum_types_by_name.values()
        },
        "calls": {
            method.full_name: [method.input_type.full_name, method.output_type.full_name]
            for file in files
            for service in file.services_by_name.values()
            for method in service.methods
        },
        "settings": {name: sorted(settings.model_fields) for name, (_, settings) in SERVICES.items()},
        "chart_values": yaml.safe_load((ROOT / "charts" / "evalrun" / "values.yaml").read_text()),
    }


def _walk(path: str, schema: Mapping[str, Any], *, required: bool = True) -> Iterator[tuple[str, dict[str, Any]]]:
    yield path, {**{key: schema[key] for key in BOUNDS if key in schema}, "required": required}
    for name, field in schema.get("properties", {}).items():
        yield from _walk(f"{path}.{name}", field, required=name in schema.get("required", ()))
    for key, suffix in (("items", "[]"), ("additionalProperties", "{}")):
        if isinstance(schema.get(key), Mapping):
            yield from _walk(f"{path}{suffix}", schema[key])


def _nest(message: Descriptor) -> Iterator[Descriptor]:
    yield message
    for inner in message.nested_types:
        yield from _nest(inner)


def _describe_fields(message: Descriptor) -> dict[str, list[Any]]:
    return {
        str(field.number): [field.name, field.type, field.is_repeated, _name_type(field.message_type)]
        for field in message.fields
    }


def _name_type(message: Descriptor | None) -> str:
    return "" if message is None else str(message.full_name)


def write_run(target: Path) -> None:
    """Judge three answers, and pack the files of the run."""
    with tempfile.TemporaryDirectory() as directory:
        for name, rows in (("problems.jsonl", PROBLEMS), ("answers.jsonl", ANSWERS)):
            (Path(directory) / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
        command = [sys.executable, "-m", "evalrun_cli", "judge", "--problems", "problems.jsonl", "--quiet"]
        subprocess.run([*command, "--responses", "answers.jsonl", "--output", "run"], cwd=directory, check=True)
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w") as archive:
            for name in ("problems.jsonl", "answers.jsonl", *(f"run/{each}" for each in RUN_FILES)):
                content = (Path(directory) / name).read_bytes()
                member = tarfile.TarInfo(name)
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
        target.write_bytes(gzip.compress(packed.getvalue(), mtime=0))


def main() -> int:
    """Write the archive of this release."""
    ARCHIVE.mkdir(exist_ok=True)
    CONTRACTS.write_text(render_contracts(describe_contracts()))
    write_run(RUN)
    print(f"wrote {ARCHIVE}")
    return 0


def render_contracts(contracts: Mapping[str, Any]) -> str:
    """Return the file of contracts, with one entry per line, so that a release's changes can be read."""
    parts = []
    for name, content in contracts.items():
        if isinstance(content, dict):
            lines = ",\n".join(f"{json.dumps(key)}: {json.dumps(value)}" for key, value in content.items())
            content_text = f"{{\n{lines}\n}}"
        else:
            content_text = json.dumps(content)
        parts.append(f"{json.dumps(name)}: {content_text}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


if __name__ == "__main__":
    sys.exit(main())
