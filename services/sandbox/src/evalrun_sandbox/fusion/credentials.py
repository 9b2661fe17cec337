"""How SandboxFusion's clients, which know no token, can send one: as the password in the endpoint's address."""

import base64
import binascii


def as_bearer(header: str) -> str:
    """Give an Authorization header as `Bearer TOKEN`, also where it is Basic with the token as its password.

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
