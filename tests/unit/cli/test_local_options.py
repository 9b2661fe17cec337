"""What a run on one machine may say about where it is judged."""

from pathlib import Path
from typing import Any

import pytest

from evalrun_cli.local.options import LocalOptions, check_tls, find_closed_directory
from evalrun_runtime.exits import BadInputError

RUN_CODE: dict[str, Any] = {"datasets": [{"name": "a", "source": "a.jsonl", "judgeMode": "RunCode"}, {"name": "b"}]}
SUBMIT: dict[str, Any] = {"datasets": [{"name": "a"}, {"name": "b", "judgeMode": "Submit"}]}
SERVER = "http://127.0.0.1:8080"


@pytest.mark.parametrize("spec", [RUN_CODE, SUBMIT])
def test_sandbox_fusion_server_is_accepted_for_both_judge_modes(spec: dict[str, Any]) -> None:
    options = LocalOptions(sandbox_fusion=SERVER)
    options.check(spec)


def test_own_sandbox_is_accepted_for_run_code() -> None:
    options = LocalOptions(slots=2)
    options.check(RUN_CODE)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (LocalOptions(), "spec.datasets[1].judgeMode: Submit needs a SandboxFusion server, which has the tests"),
        (LocalOptions(sandbox_fusion="localhost:8080"), "--sandbox-fusion localhost:8080: write http://HOST:PORT"),
        (LocalOptions(sandbox_fusion="http://[::1"), "--sandbox-fusion http://[::1: write http://HOST:PORT"),
        (LocalOptions(sandbox_fusion="http://h:port"), "--sandbox-fusion http://h:port: write http://HOST:PORT"),
        (LocalOptions(sandbox_fusion="http://"), "--sandbox-fusion http://: write http://HOST:PORT"),
        (LocalOptions(sandbox_fusion="http://u:secret@h:1"),
         "--sandbox-fusion: give its token by EVALRUN_JUDGE_SANDBOX_TOKEN, not in the address"),
        (LocalOptions(2, sandbox_fusion=SERVER),
         "--slots: only for a sandbox that is started here: remove it, or --sandbox-fusion"),
    ],
)  # fmt: skip
def test_unusable_options_are_refused(options: LocalOptions, message: str) -> None:
    with pytest.raises(BadInputError) as error:
        options.check(SUBMIT)
    assert str(error.value).startswith(message)


def test_a_directory_that_the_sandboxs_user_may_not_enter_is_named(tmp_path: Path) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    for directory in (tmp_path, inner):
        directory.chmod(0o755)
    assert find_closed_directory(inner) in {*tmp_path.parents, None}  # whatever the machine's own directories allow
    inner.chmod(0o711)  # may be passed, not listed
    assert find_closed_directory(inner) in {*tmp_path.parents, inner}
    tmp_path.chmod(0o750)
    assert find_closed_directory(inner) in {*tmp_path.parents, tmp_path}
    assert find_closed_directory(Path("/usr/lib")) is None


def test_packages_become_flags_and_a_missing_directory_is_refused(tmp_path: Path) -> None:
    options = LocalOptions(packages=[tmp_path / "a b", Path("c")])
    assert options.package_flags == [
        "--package-dirs",
        str(tmp_path / "a b"),
        "--package-dirs",
        str(Path("c").resolve()),
    ]
    with pytest.raises(BadInputError, match=r"--packages .*a b: no such directory"):
        options.check({"datasets": []})


OURS, THEIRS = "EVALRUN_SANDBOX_TLS_FOLDER", "EVALRUN_JUDGE_SANDBOX_TLS_FOLDER"


@pytest.mark.parametrize(("name", "other"), [(OURS, THEIRS), (THEIRS, OURS)])
def test_tls_for_only_one_of_sandbox_and_judge_is_refused(name: str, other: str) -> None:
    check_tls({})
    check_tls({name: "/etc/tls", other: "/etc/tls"})
    with pytest.raises(BadInputError, match=f"^{name}: .* set {other} too"):
        check_tls({name: "/etc/tls"})
