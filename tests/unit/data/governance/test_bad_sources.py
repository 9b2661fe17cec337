"""Whatever is wrong with a source or a plan: file, line, reason, what to write; and nothing is left behind."""

import gzip
import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from builders.governance import contest_row, prepared, write_plan, write_rows

from evalrun_data import sources
from evalrun_data.governance.__main__ import main
from evalrun_data.governance.plan import read_plan
from evalrun_runtime.exits import BadInputError, ExitCode

GOOD = json.dumps(contest_row(1)).encode()


def lines(*more: bytes) -> bytes:
    return b"\n".join((GOOD, *more)) + b"\n"


def row(**fields: Any) -> bytes:
    return json.dumps({**contest_row(2), **fields}).encode()


def parquet(**fields: Any) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist([{**contest_row(2), **fields}]), sink)
    content: bytes = sink.getvalue().to_pybytes()
    return content


class Opened:
    """What a pickle would call when it is loaded."""

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return (Path.touch, (Path("/tmp/evalrun-pickle-was-loaded"),))


def damaged_gzip() -> bytes:
    """Return gzip of which a byte in the middle is another one: what comes out is no JSON."""
    content = bytearray(gzip.compress(b"".join(json.dumps(contest_row(n)).encode() + b"\n" for n in range(500))))
    content[len(content) // 2] ^= 0xFF
    return bytes(content)


BAD_FILES = [
    ("empty file", "rows.jsonl", b"", "the file is empty"),
    ("blank lines only", "rows.jsonl", b"\n\n", "the file is empty"),
    ("broken gzip", "rows.jsonl.gz", gzip.compress(GOOD)[:-20], "broken gzip: "),
    ("gzip in name only", "rows.jsonl.gz", lines(), "not gzip, although its name ends in .gz"),
    ("damaged gzip", "rows.jsonl.gz", gzip.compress(lines())[:-8] + b"\0" * 8, "broken gzip: "),
    ("gzip damaged in the middle", "rows.jsonl.gz", damaged_gzip(), "broken gzip: "),
    ("Parquet in name only", "rows.parquet", lines(), "not Parquet, although its name ends in .parquet"),
    ("cut Parquet", "rows.parquet", parquet()[:200], "broken Parquet after row 0: "),
    ("wrong columns", "rows.jsonl", b'{"question": 1, "answer": 2}', "1: not a known problem format .fields: question"),
    ("wrong Parquet columns", "rows.parquet", parquet(prompt=None), "row 1: field 'prompt' is missing"),
    ("JSON array", "rows.json", b"[" + GOOD + b", []]", " item 2: expected an object, not a list"),
    ("not JSON", "rows.jsonl", lines(b"{"), "2: not JSON: "),
    ("Python literal", "rows.jsonl", lines(b"{'a': 1}"), "2: not JSON: "),
    ("NaN", "rows.jsonl", lines(b'{"prompt": NaN}'), "2: NaN is not JSON: write null, or a number"),
    ("Infinity", "rows.jsonl", lines(b'{"limits": {"time_seconds": -Infinity}}'), "2: -Infinity is not JSON: write"),
    ("raw NUL byte", "rows.jsonl", lines(b'{"prompt": "a\0b"}'), "2: not JSON: Invalid control character"),
    ("escaped NUL", "rows.jsonl", lines(row(prompt="a\0b")), "2: field 'prompt' has a NUL byte at character 1: remove"),
    ("NUL in an id", "rows.jsonl", lines(row(problem_id="a\0")), "2: field 'problem_id' has a NUL byte at character 1"),
    ("two lines in an id", "rows.jsonl", lines(row(problem_id="a\nb")), r"2: field 'problem_id' is 'a\\nb': write it"),
    ("mixed encodings", "rows.jsonl", lines('{"a": "é"}'.encode("latin-1")), "2: not UTF-8: .*save the file as UTF-8"),
    ("UTF-16", "rows.jsonl", lines().decode().encode("utf-16"), "is UTF-16: save the file as UTF-8"),
    ("lone surrogate", "rows.jsonl", lines(row(prompt="\ud800")), "2: field 'prompt' is not valid Unicode at char"),
    ("same field twice", "rows.jsonl", lines(b'{"prompt": "a", "prompt": "b"}'), "2: field 'prompt' is there twice"),
    ("deep nesting", "rows.jsonl", lines(b"[" * 100_000), "2: nested too deeply"),
    (
        "two records with one id",
        "rows.jsonl",
        lines(row(problem_id="p1")),
        "2: problem 'p1' of dataset 'contest' is th",
    ),
    ("empty tests", "rows.jsonl", lines(row(ground_truth={"inputs": [], "outputs": []})), "2: .*needs at least one te"),
    ("no tests", "rows.jsonl", lines(row(ground_truth={})), "2: field 'ground_truth' holds no tests: expected inputs"),
    (
        "uneven tests",
        "rows.jsonl",
        lines(row(ground_truth={"inputs": ["1"], "outputs": []})),
        "2: .*1 inputs but 0 out",
    ),
    (
        "a number as output",
        "rows.jsonl",
        lines(row(ground_truth={"inputs": ["1"], "outputs": [1]})),
        "2: .*should be te",
    ),
    ("blank prompt", "rows.jsonl", lines(row(prompt=" \n")), "2: problem 'p2' has a blank prompt: write the task"),
    ("no id", "rows.jsonl", lines(row(problem_id=None)), "2: field 'problem_id' is missing"),
    ("unknown role", "rows.jsonl", lines(row(role="eval")), "2: field 'role' is 'eval': write one of train, dev, test"),
    ("unknown language", "rows.jsonl", lines(row(language="cobol")), "2: field 'language' is 'cobol' .known: python"),
    ("misspelt limit", "rows.jsonl", lines(row(limits={"time_second": 1})), "2: field 'limits.time_second' is unknown"),
    ("another dataset", "rows.jsonl", row(dataset="other"), "no problem of dataset 'contest' there: write the name th"),
    ("pickle", "rows.jsonl", pickle.dumps(Opened()), "looks like a pickle, .*: none is ever loaded; write the rows as"),
    ("pickle by name", "rows.pkl", lines(), "looks like a pickle"),
    ("numpy pickle", "rows.npy", b"\x93NUMPY", "looks like a pickle"),
    (
        "bytes in Parquet",
        "rows.parquet",
        parquet(prompt=b"\x80\x04."),
        "row 1: field 'prompt' should be text, not bytes",
    ),
]


@pytest.mark.parametrize(
    ("name", "content", "message"), [kind[1:] for kind in BAD_FILES], ids=[k[0] for k in BAD_FILES]
)
def test_bad_file_is_named_with_its_line_and_no_output_is_left(
    name: str, content: bytes, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / name).write_bytes(content)
    write_rows(tmp_path / "good.jsonl", [contest_row(5, dataset="good")])
    datasets = [
        {"name": "good", "source": "good.jsonl", "role": "dev"},
        {"name": "contest", "source": name, "role": "dev"},
    ]
    plan = write_plan(tmp_path, datasets)
    assert main(["prepare", str(plan), "--output", str(tmp_path / "out")]) == ExitCode.BAD_INPUT
    (said,) = capsys.readouterr().err.splitlines()
    assert said.startswith(f"evalrun: {name}")
    with pytest.raises(BadInputError, match=message):
        prepared(plan, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    assert not Path("/tmp/evalrun-pickle-was-loaded").exists()


def test_a_line_without_end_is_refused_before_it_fills_the_memory(tmp_path: Path) -> None:
    with (tmp_path / "rows.jsonl").open("wb") as stream:
        stream.write(b'{"prompt": "')
        stream.truncate(2 << 30)  # sparse: 2 GB of NUL bytes, no line break
    plan = write_plan(tmp_path, [{"name": "contest", "source": "rows.jsonl", "role": "dev"}])
    rows = sources.read_rows(str(tmp_path / "rows.jsonl"))
    with pytest.raises(BadInputError, match=r"rows.jsonl:1: the line is longer than 128 MiB: write one JSON object"):
        next(rows)
    assert read_plan(plan).datasets[0].sources == ("rows.jsonl",)


def test_a_link_out_of_the_plans_directory_is_refused(tmp_path: Path) -> None:
    outside, directory = tmp_path / "outside.jsonl", tmp_path / "plans"
    directory.mkdir()
    write_rows(outside, [contest_row(1)])
    (directory / "rows.jsonl").symlink_to(outside)
    plan = write_plan(directory, [{"name": "contest", "source": "rows.jsonl", "role": "dev"}])
    with pytest.raises(
        BadInputError, match=r"'rows.jsonl' is a symbolic link that leads out of the plan's directory, to .*"
    ):
        prepared(plan, tmp_path / "out")
    write_plan(directory, [{"name": "contest", "source": "../outside.jsonl", "role": "dev"}])
    assert prepared(plan, tmp_path / "out").state == "passed"


@pytest.mark.parametrize(
    "source", ["missing.jsonl", "directory", "nostore://bucket/rows.jsonl", "memory://no/rows.jsonl"]
)
def test_missing_source_is_named_and_nothing_is_written(source: str, tmp_path: Path) -> None:
    (tmp_path / "directory").mkdir()
    plan = write_plan(tmp_path, [{"name": "contest", "source": source, "role": "dev"}])
    with pytest.raises(BadInputError, match=f"^{source}: "):
        prepared(plan, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        ("[]", "expected a mapping with `datasets`, not a list"),
        ("datasets: []", "expected a list `datasets`, not a list"),
        ("datasets: [x]", "entry 1: expected a mapping, not text"),
        ("data: []", "field 'data' is unknown .known: datasets, allow"),
        ("datasets: [{name: a, source: b, rôle: dev}]", "field 'rôle' is unknown"),
        ("datasets: [{source: b}]", "field 'name' is missing"),
        ("datasets: [{name: a/b, source: b, role: dev}]", "field 'name' is 'a/b': write lower case letters"),
        ("datasets: [{name: a, source: b}]", "field 'role' is missing: write what 'a' may be used for"),
        ("datasets: [{name: a, source: b, role: eval}]", "field 'role' is 'eval': write one of train, dev, test"),
        ("datasets: [{name: a, role: dev}]", "write either `source` .one file. or `sources`"),
        (
            "datasets: [{name: a, role: dev, sources: ['x/*.jsonl']}]",
            "source 'x/\\*.jsonl' is a pattern: name each file",
        ),
        (
            "datasets: [{name: a, role: dev, source: 's3://b/*.jsonl'}]",
            "source 's3://b/..jsonl' is a pattern: name each",
        ),
        ("datasets: [{name: a, role: dev, sources: [x, x]}]", "source 'x' is listed twice"),
        ("datasets: [{name: a, role: dev, split: a/b, source: x}]", "field 'split' is 'a/b': write letters"),
        (
            "datasets: [{name: a, role: dev, source: x}, {name: a, role: dev, source: y}]",
            "entry 2: dataset 'a' is listed",
        ),
        ("datasets: {", "plan.yaml:1: "),
        ("since: 2024-02-30", "plan.yaml: day is out of range for month"),
        ("!!python/object/apply:os.system [true]", "could not determine a constructor"),
        ("allow: no.yaml\ndatasets: [{name: a, role: dev, source: x}]", "no.yaml: no such file"),
    ],
)
def test_bad_plan_is_refused_with_entry_and_field(plan: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "plan.yaml").write_text(plan, encoding="utf-8")
    with pytest.raises(BadInputError, match=message):
        read_plan(tmp_path / "plan.yaml")


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("{first: a, second: b}", "field 'reason' is missing"),
        ("{first: a, reason: c}", "field 'second' is missing"),
        ("{first: a, second: b, reason: c, kind: similar}", "field 'kind' is 'similar': write one of exact, near"),
        ("{first: a, second: b, why: c}", "field 'why' is unknown"),
    ],
)
def test_bad_allow_file_is_refused_with_entry_and_field(entry: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "allow.yaml").write_text(f"- {entry}\n", encoding="utf-8")
    (tmp_path / "plan.yaml").write_text("allow: allow.yaml\ndatasets: [{name: a, role: dev, source: x}]\n")
    with pytest.raises(BadInputError, match=f"allow.yaml entry 1: {message}"):
        read_plan(tmp_path / "plan.yaml")
