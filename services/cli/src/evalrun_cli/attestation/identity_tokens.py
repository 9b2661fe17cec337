"""Finds the token of an identity that signs without a key."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from evalrun_runtime.exits import BadInputError

NO_IDENTITY: Final = (
    "--sigstore: this environment has no identity: in GitHub Actions give the job `permissions: id-token: write`, in "
    "GitLab CI an id_token SIGSTORE_ID_TOKEN with aud sigstore; elsewhere --identity-token-file FILE, or --interactive "
    "to sign in with a browser"
)


def choose_source(
    file: Path | None, *, interactive: bool, detect: Callable[[], str | None], sign_in: Callable[[], str]
) -> Callable[[], str]:
    """Return the function that gets a token.

    Args:
        file: file with a token; None: no file.
        interactive: ask a person.
        detect: gets the token of the environment, e.g. of a CI job; None if there is no token.
        sign_in: asks a person.

    Raises:
        BadInputError: a file and a person are both named.
    """
    if file is not None and interactive:
        raise BadInputError("--interactive: a token comes from a person or from --identity-token-file: name one")
    if file is not None:
        return partial(_read, file)
    return sign_in if interactive else partial(_detect_token, detect)


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInputError(f"{file}: the identity token cannot be read") from error


def _detect_token(detect: Callable[[], str | None]) -> str:
    if (found := detect()) is None:
        raise BadInputError(NO_IDENTITY)
    return found
