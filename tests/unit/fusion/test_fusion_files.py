"""`files` and `fetch_files`: the stock server's rules, but for where a path leads."""

import base64
import json

import pytest
from builders.fusion.clients import OK, exited

from evalrun_executor.api import CompileResult, RunRequest
from evalrun_executor.contained.directory import DEPTH
from evalrun_executor.private_files import ReplyWithFiles, RequestWithFiles
from evalrun_sandbox.fusion import demand
from evalrun_sandbox.fusion.answer_body import pieces
from evalrun_sandbox.fusion.answers import add_files, answer_without_time, response
from evalrun_sandbox.fusion.files import MAX_FILES, Files, Unplaceable, parse_files
from evalrun_sandbox.fusion.refusals import BadRequest
from evalrun_sandbox.fusion.schemas import RunCodeRequest, RunCodeResponse

MEBIBYTE = base64.b64encode(bytes(1 << 20)).decode()
YES = base64.b64encode(b"yes").decode()


def asked(**fields: object) -> RunCodeRequest:
    return RunCodeRequest.model_validate({"code": "", "language": "python", **fields})


@pytest.mark.parametrize(
    ("files", "placed"),
    [
        ({}, {}),
        ({"a": YES}, {"a": b"yes"}),
        ({"d/./e//a": YES, "x/../b": YES}, {"d/e/a": b"yes", "b": b"yes"}),
        ({"a": "", "./a": YES}, {"a": b"yes"}),
        ({"a": None, "/etc/passwd": None, "dir/IGNORE_THIS_FILE.x": "?"}, {}),
        ({"a": "YW I=!\n"}, {"a": b"ab"}),
    ],
)
def test_parse_files_normalizes_paths_and_decodes_contents(
    files: dict[str, str | None], placed: dict[str, bytes]
) -> None:
    assert parse_files(asked(files=files)).placed == placed


@pytest.mark.parametrize("name", ["/etc/passwd", "../x", "a/../../x", "..", "//x", "/"])
@pytest.mark.parametrize("field", ["files", "fetch_files"])
def test_a_path_out_of_the_directory_is_refused_by_name(field: str, name: str) -> None:
    with pytest.raises(BadRequest, match=f"^{field}: .* leaves the program's private directory"):
        parse_files(asked(**{field: {name: YES} if field == "files" else [name]}))


@pytest.mark.parametrize(
    "files",
    [
        {"": YES}, {".": YES}, {"a/..": YES}, {"a/": YES}, {"a\0b": YES}, {"a" * 256: YES}, {"é" * 128: YES},
        {"a": YES, "a/b": YES}, {"a/b/c": YES, "a/b": YES}, {"a": "YQ"}, {"a": "é"},
    ],
)  # fmt: skip
def test_file_that_cannot_be_placed_raises_unplaceable(files: dict[str, str]) -> None:
    with pytest.raises(Unplaceable, match=r"^files: "):
        parse_files(asked(files=files))


@pytest.mark.parametrize(
    ("files", "complaint"),
    [
        ({f"{n}/x": "" for n in range(MAX_FILES // 2 + 1)}, "at most 900 files and folders"),
        ({str(n): "" for n in range(MAX_FILES + 1)}, "at most 900 each"),
        ({"d/" * (DEPTH + 1) + "x": ""}, "at most 16 directories deep"),
        ({f"{n}": MEBIBYTE for n in range(97)}, "at most 96 MiB"),
    ],
)
def test_files_above_the_limits_are_a_bad_request(files: dict[str, str], complaint: str) -> None:
    with pytest.raises(BadRequest, match=complaint):
        parse_files(asked(files=files))


def test_files_at_the_limits_are_placed() -> None:
    assert len(parse_files(asked(files={str(n): "" for n in range(MAX_FILES)})).placed) == MAX_FILES
    assert parse_files(asked(files={"d/" * DEPTH + "x": ""})).placed


def test_impossible_paths_are_not_fetched() -> None:
    names = ["a", "./a", "", ".", "a\0", "x" * 256, "d//b/"]
    assert parse_files(asked(fetch_files=names)).fetched == {"a": "a", "./a": "a", "d//b/": "d/b"}


def test_request_without_files_is_a_plain_run_request() -> None:
    request = asked(stdin="1", files={"a": None})
    plain = demand.make_run_request(request, parse_files(request))
    assert type(plain) is RunRequest
    filed = demand.make_run_request(request, Files({"a": b"1"}, {"./x": "x", "x": "x"}))
    assert isinstance(filed, RequestWithFiles)
    assert (filed.files, filed.fetch, filed.inputs) == ({"a": b"1"}, ["x"], plain.inputs)


FILED = Files({"a": b"placed"}, {"./a": "a", "b": "b"})
PLACED = {"./a": b"placed"}


def answered(compiled: CompileResult = OK, code: int = 0) -> RunCodeResponse:
    return response("cpp", compiled, exited(code=code))


@pytest.mark.parametrize("code", [0, 3])
def test_files_come_back_under_the_names_that_were_asked_for(code: int) -> None:
    reply = ReplyWithFiles(OK, [], "full", {"a": b"yes", "b": b""})
    assert add_files(answered(code=code), FILED, reply) == (answered(code=code), {"./a": b"yes", "b": b""})
    assert add_files(answered(), Files(FILED.placed), reply) == (answered(), {})


def test_files_of_a_program_that_did_not_run_are_returned_as_placed() -> None:
    broken = CompileResult("error", stderr=b"no")
    assert add_files(answered(broken), FILED, ReplyWithFiles(broken, [], "full"))[1] == PLACED
    assert add_files(answer_without_time("python", 1), FILED, None)[1] == PLACED


def test_too_much_in_files_fails_as_too_much_output_does() -> None:
    answer, files = add_files(answered(), FILED, ReplyWithFiles(OK, [], "full", None))
    assert answer.run_result is not None
    assert (answer.status, answer.run_result.return_code, files) == ("Failed", -25, {})
    assert "64 MiB" in (answer.run_result.stderr or "")


@pytest.mark.parametrize(
    "files", [{}, {"a": b""}, {'q"\u00e9\\': b"\x00\xff", "b": b"1"}, {"large": bytes(range(256)) * 4000}]
)
def test_an_answer_in_pieces_is_the_schemas_json(files: dict[str, bytes]) -> None:
    answer = answered()
    text = b"".join(pieces(answer, files))
    expected = {name: base64.b64encode(content).decode() for name, content in files.items()}
    assert RunCodeResponse.model_validate_json(text) == answer.model_copy(update={"files": expected})
    assert list(json.loads(text)) == list(RunCodeResponse.model_fields)
    assert max(map(len, pieces(answer, files))) <= 1 << 18
