"""The command's own errors: one line that says what to write instead, and exit code 2."""

from pathlib import Path

import pytest

from evalrun_judge.__main__ import main
from evalrun_judge.settings import JudgeSettings
from evalrun_runtime.exits import ExitCode
from evalrun_runtime.settings import load_settings


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "sandbox"),
        (["--sandbox", "localhost:8080"], "http://host:port"),
        (["--sandbox", "http://127.0.0.1:1", "--queue-limit", "0"], "queue-limit"),
        (["--sandbox", "http://127.0.0.1:1", "--host", "0.0.0.0"], "token"),
        (["--sandbox", "http://127.0.0.1:1", "--required-level", "some"], "required-level"),
        (
            ["--sandbox", "http://127.0.0.1:1", "--package-dirs", "/no/such"],
            "--package-dirs-0: Path does not point to a dir",
        ),
    ],
)
def test_wrong_flag_is_reported_in_one_line(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == ExitCode.BAD_INPUT
    shown = capsys.readouterr()
    assert shown.out == ""
    assert said in shown.err
    assert shown.err.count("\n") == 1


def test_a_directory_of_packages_is_a_plain_path_and_may_be_one_of_several(tmp_path: Path) -> None:
    arguments = ["--sandbox", "http://127.0.0.1:1", f"--package-dirs={tmp_path}", "--package-dirs", "/usr"]
    assert load_settings(JudgeSettings, arguments, program="evalrun-judge").package_dirs == [tmp_path, Path("/usr")]


def test_only_allow_uncontained_lowers_the_level() -> None:
    urls = ["http://127.0.0.1:1", "https://sandbox:8080"]
    assert JudgeSettings(sandbox=urls).min_level == "full"
    assert JudgeSettings(sandbox=urls, required_level="seccomp").min_level == "seccomp"
    assert JudgeSettings(sandbox=urls, allow_uncontained=True).min_level == "none"
