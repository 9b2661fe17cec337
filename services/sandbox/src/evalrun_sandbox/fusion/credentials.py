"""Accepts a token from SandboxFusion's clients, which have no setting for it: the password of the endpoint's URL."""

import base64
import binascii


def convert_to_bearer(header: str) -> str:
    """Return an Authorization header as `Bearer TOKEN`; converts Basic with the token as its password.

    `http://evalrun:TOKEN@HOST:PORT` as an endpoint, or a .netrc entry, makes requests and aiohttp send Basic.
    """
    scheme, _, value = header.partition(" ")
    if scheme.lower() != "basic":
        return header
    try:
        pair = base64.b64decode(value.strip(), validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return header
    return f"Bearer {pair.partition(':')[2]}"
