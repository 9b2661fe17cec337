"""Whose key or token signs a run, by the options of `evalrun attest`."""

from pathlib import Path

import pytest

from evalrun_attest.signatures import check_keyless_extra
from evalrun_cli.attestation.identity_tokens import choose_source
from evalrun_cli.attestation.signers import SignerOptions
from evalrun_runtime.exits import BadInputError


@pytest.mark.parametrize(
    ("is_file", "interactive", "ambient", "token"),
    [
        (True, False, "of the job", "of the file"),
        (False, True, "of the job", "of a person"),
        (False, False, "of the job", "of the job"),
    ],
)
def test_token_comes_from_file_then_sign_in_then_environment(
    tmp_path: Path, is_file: bool, interactive: bool, ambient: str, token: str
) -> None:
    file = tmp_path / "token"
    file.write_text("of the file")
    source = choose_source(
        file if is_file else None, interactive=interactive, detect=lambda: ambient, sign_in=lambda: "of a person"
    )
    assert source() == token


def test_environment_without_an_identity_is_refused() -> None:
    source = choose_source(None, interactive=False, detect=lambda: None, sign_in=lambda: "of a person")
    with pytest.raises(BadInputError, match="this environment has no identity: in GitHub Actions"):
        source()


def test_token_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    source = choose_source(tmp_path / "none", interactive=False, detect=lambda: None, sign_in=lambda: "")
    with pytest.raises(BadInputError, match="none: the identity token cannot be read"):
        source()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (SignerOptions(None), "name one signer"),
        (SignerOptions(Path("key.pem"), sigstore=True), "name one signer"),
        (SignerOptions(Path("key.pem"), interactive=True), "belong to --sigstore"),
        (SignerOptions(Path("key.pem"), trust_config=Path("trust.json")), "belong to --sigstore"),
    ],
)
def test_options_that_contradict_each_other_are_refused(options: SignerOptions, message: str) -> None:
    with pytest.raises(BadInputError, match=message):
        options.signer()


def test_token_from_a_person_and_a_file_is_refused() -> None:
    with pytest.raises(BadInputError, match="a token comes from a person or from --identity-token-file"):
        choose_source(Path("token"), interactive=True, detect=lambda: None, sign_in=lambda: "")


def test_missing_extra_is_named_with_its_install_command() -> None:
    with pytest.raises(BadInputError, match=r"need the extra sigstore: in a checkout pip install '\.\[sigstore\]'"):
        check_keyless_extra(lambda name: None)
