"""Bearer tokens of a connection between two parts: the client sends the first, the server accepts each.

Several tokens are accepted so that they can be rotated without downtime: servers get the new token as their second,
then clients send it as their first, then the old token is removed.
"""

import hmac
from collections.abc import Sequence
from pathlib import Path

from pydantic import SecretStr

from evalrun_runtime.connections.reloaded_files import ReloadedFiles
from evalrun_runtime.exits import BadInputError


class BearerTokens:
    """Tokens that are given once, or lines of a file that is read again when it changes.

    Args:
        tokens: as they are.
        file: instead of them.
        min_characters: of each token.

    Raises:
        ValueError: there is no token, or a token is too short or not valid in a header.
        BadInputError: the file cannot be used.
    """

    def __init__(self, *tokens: str, file: Path | None = None, min_characters: int = 1) -> None:
        def read(contents: Sequence[bytes]) -> tuple[str, ...]:
            lines = contents[0].decode("ascii").splitlines()
            return _check_tokens([line for line in lines if line.strip()], min_characters)

        self._file = None if file is None else ReloadedFiles([file], read)
        self._given = _check_tokens(tokens, min_characters) if file is None else ()

    @classmethod
    def load(cls, token: SecretStr | None, file: Path | None) -> "BearerTokens | None":
        """Return the tokens that two settings name; None where neither is set. Raises BadInputError."""
        if file is not None:
            return cls(file=file)
        try:
            return None if token is None else cls(token.get_secret_value())
        except ValueError as error:
            raise BadInputError(f"token: {error}") from error

    @property
    def sent(self) -> str:
        """The token that a client sends."""
        return self._tokens()[0]

    def accept(self, authorization: str) -> bool:
        """Return whether an Authorization header carries an accepted token."""
        return any(carries(authorization, token) for token in self._tokens())

    def has_signed(self, text: str, signature: str) -> bool:
        """Return whether one of the tokens signed a text.

        Signatures of a token that was removed from the file are invalid.
        """
        given = signature.encode(errors="replace")
        return any(hmac.compare_digest(given, sign(text, token).encode()) for token in self._tokens())

    def _tokens(self) -> Sequence[str]:
        return self._given if self._file is None else self._file.current


def carries(authorization: str, token: str) -> bool:
    """Return whether an Authorization header carries a token, in a time that does not reveal the token."""
    return hmac.compare_digest(authorization.encode(errors="replace"), f"Bearer {token}".encode())


def sign(text: str, token: str) -> str:
    """Return a text's signature by a token; the signature does not reveal the token."""
    return hmac.new(token.encode(), text.encode(errors="replace"), "sha256").hexdigest()


def authorization(tokens: BearerTokens | None) -> dict[str, str]:
    """Return the headers of an HTTP call that carries the token to send now."""
    return {} if tokens is None else {"Authorization": f"Bearer {tokens.sent}"}


def _check_tokens(tokens: Sequence[str], min_characters: int) -> tuple[str, ...]:
    if not tokens or not all(token.strip() for token in tokens):
        raise ValueError("it holds no token, or an empty one, which would let anyone in")
    stripped = tuple(token.strip() for token in tokens)
    if not all(token.isascii() and token.isprintable() for token in stripped):
        raise ValueError("a token holds a character that no HTTP header may hold: use letters and digits")
    if any(len(token) < min_characters for token in stripped):
        raise ValueError(f"a token has fewer than {min_characters} characters: draw one with: openssl rand -hex 32")
    return stripped
