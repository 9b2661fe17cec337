"""An endpoint's URL as a user writes it. Imports no HTTP client: the command checks URLs before it starts anything."""

from urllib.parse import urlsplit

from evalrun_runtime.exits import BadInputError


def base_url(given: str) -> str:
    """Normalise an endpoint given by a user: `http(s)://host[:port][/path]`, with or without `/v1`.

    Raises:
        BadInputError: the text is no such URL, or contains a password, which would appear in every log and result.
    """
    url = given.strip().rstrip("/")
    url = url.removesuffix("/v1").rstrip("/")
    scheme, separator, rest = url.partition("://")
    host = rest.partition("/")[0]
    if "@" in host:
        raise BadInputError(
            "endpoint: the URL contains a user or password: remove them and set EVALRUN_GENERATOR_API_KEY instead"
        )
    fits = scheme in ("http", "https") and separator and not any(character in url for character in " ?#")
    if not fits or not host or not _has_valid_port(url):
        raise BadInputError(f"endpoint {given!r} is not a URL: write http://HOST:PORT, with or without /v1")
    return url


def _has_valid_port(url: str) -> bool:
    try:
        port = urlsplit(url).port
    except ValueError:
        return False
    return port != 0 and not url.partition("://")[2].partition("/")[0].endswith(":")
