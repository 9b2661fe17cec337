"""Who may read a shared page, decided without a socket: headers of a proxy, options, sessions."""

from pathlib import Path

import pytest

from evalrun_cli.viewer.access import SharedAccess, SharedOptions, TrustedProxy
from evalrun_cli.viewer.commands import Listening
from evalrun_runtime.connections.bearer_tokens import BearerTokens
from evalrun_runtime.exits import BadInputError

TOKEN = "0123456789-0123456789"


def token_file(directory: Path, content: str = TOKEN, mode: int = 0o400) -> Path:
    file = directory / "token"
    file.write_text(content)
    file.chmod(mode)
    return file


@pytest.mark.parametrize(
    ("named", "peer", "is_trusted"),
    [
        (["ada"], "10.0.3.7", True),
        (["ada"], "::ffff:10.0.3.7", True),
        (["ada"], "fd00::1", True),
        (["ada"], "10.0.4.7", False),
        (["ada"], "127.0.0.1", False),
        (["ada"], "", False),
        (["ada"], "unix", False),
        ([], "10.0.3.7", False),
        ([""], "10.0.3.7", False),
        ([" "], "10.0.3.7", False),
        (["mallory", "ada"], "10.0.3.7", False),
    ],
)
def test_trusted_proxy_vouches_for_one_user_from_its_own_address(named: list[str], peer: str, is_trusted: bool) -> None:
    access = SharedAccess.from_options(
        SharedOptions(trusted_header="X-User", trusted_proxies=("10.0.3.0/24", "fd00::1")), lambda: 0.0
    )
    proxy = access.proxy
    assert isinstance(proxy, TrustedProxy)
    assert proxy.vouches(named, peer) is is_trusted


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (SharedOptions(), "others could read every answer: add --token-file"),
        (SharedOptions(allowed_hosts=("a.example.com",)), "--allowed-host: says nothing without --token-file"),
        (SharedOptions(trusted_header="X-User"), "--trusted-header and --trusted-proxy: one is missing"),
        (SharedOptions(Path("token"), trusted_proxies=("10.0.3.7",)), "--trusted-header and --trusted-proxy"),
        (SharedOptions(trusted_header="X-User", trusted_proxies=("10.0.3.7/24",)), "host bits set"),
        (SharedOptions(trusted_header="X-User", trusted_proxies=("proxy",)), "write an address or a block"),
        (SharedOptions(Path("/nowhere/token")), "/nowhere/token: No such file"),
    ],
)
def test_shared_access_options_that_let_in_anyone_or_nobody_are_refused(options: SharedOptions, message: str) -> None:
    with pytest.raises(BadInputError, match=message):
        SharedAccess.from_options(options, lambda: 0.0)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.7", "evals.example.com"])
def test_listening_beyond_this_machine_without_a_token_is_refused(host: str) -> None:
    with pytest.raises(BadInputError, match="others could read every answer"):
        Listening(host=host).access(lambda: 0)


@pytest.mark.parametrize("mode", [0o400, 0o440, 0o600, 0o640])
def test_token_file_of_its_owner_and_group_is_taken(tmp_path: Path, mode: int) -> None:
    access = SharedAccess.from_options(SharedOptions(token_file(tmp_path, mode=mode)), lambda: 0.0)
    assert access.is_session(access.new_session(TOKEN))


@pytest.mark.parametrize("mode", [0o444, 0o404, 0o420, 0o666, 0o402])
def test_token_file_that_others_read_or_change_is_refused(tmp_path: Path, mode: int) -> None:
    with pytest.raises(BadInputError, match=r"others on this machine may read or change it: chmod 400"):
        SharedAccess.from_options(SharedOptions(token_file(tmp_path, mode=mode)), lambda: 0.0)


@pytest.mark.parametrize(
    ("content", "message"),
    [("", "holds no token"), ("secret", "fewer than 20 characters"), (f"{TOKEN}\nshort\n", "fewer than 20 characters")],
)
def test_token_file_without_a_token_that_cannot_be_guessed_is_refused(
    tmp_path: Path, content: str, message: str
) -> None:
    with pytest.raises(BadInputError, match=message):
        SharedAccess.from_options(SharedOptions(token_file(tmp_path, content)), lambda: 0.0)


@pytest.mark.parametrize(
    ("cookie", "is_session"),
    [
        ("1043200.{signature}", True),
        ("1043201.{signature}", False),
        ("1043200.{signature}0", False),
        ("1043200.", False),
        ("1043200", False),
        ("", False),
        ("99999999999.\udcff", False),
        (TOKEN, False),
    ],
)
def test_session_cookie_is_accepted_only_unchanged_and_until_it_expires(cookie: str, is_session: bool) -> None:
    now = [1_000_000.0]
    access = SharedAccess((), BearerTokens("another-token-of-yesterday", TOKEN), None, lambda: now[0])
    signature = access.new_session(TOKEN).partition(".")[2]
    assert access.is_session(cookie.format(signature=signature)) is is_session
    now[0] += 12 * 3600
    assert not access.is_session(cookie.format(signature=signature))


def test_session_ends_with_the_token_that_opened_it() -> None:
    first = "another-token-1234567"
    opened = SharedAccess((), BearerTokens(first, TOKEN), None, lambda: 0.0).new_session(TOKEN)
    assert SharedAccess((), BearerTokens("a-token-after-it-12345", TOKEN), None, lambda: 0.0).is_session(opened)
    assert not SharedAccess((), BearerTokens(first), None, lambda: 0.0).is_session(opened)
