"""Causes and remedies of object stores' errors. Pure.

Stores raise their own clients' classes (botocore's NoCredentialsError, gcsfs's HttpError, aiohttp's ClientError, ...),
which share no base but Exception. Errors are recognized by the store's error code, the HTTP status, or the class's
name; `gcsfs_texts` reads the only error without any of these.
"""

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from typing import Final

from evalrun_data.gcsfs_texts import Forbidden, read_forbidden
from evalrun_runtime.exits import BadInputError

MAX_SAID: Final = 200


class Kind(Enum):
    """Kind of an object store's problem."""

    MISSING = "missing"
    """The bucket or the file does not exist."""
    REFUSED = "refused"
    """The credentials are absent, wrong, expired, or lack a right."""
    FULL = "full"
    UNREACHABLE = "unreachable"
    FAILED = "failed"
    """Any other failure, e.g. the store is overloaded."""


@dataclass(frozen=True, slots=True)
class StoreProblem:
    """An error of a store in the user's terms."""

    kind: Kind
    text: str
    """Cause, remedy and the store's own message, in one line."""


_EXPIRED = (Kind.REFUSED, "the credentials have expired: renew them")
_WRONG_KEY = (Kind.REFUSED, "the store does not accept these credentials: correct the access key and its secret")
_DENIED = (
    Kind.REFUSED,
    "the credentials lack a right there, or have expired: grant reading, listing, writing and deleting, or renew them",
)
_NO_CREDENTIALS = (
    Kind.REFUSED,
    (
        "no credentials were found: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (s3://) or "
        "GOOGLE_APPLICATION_CREDENTIALS (gs://), in a cluster by output.credentialsSecretRef or serviceAccountName"
    ),
)
_NO_BUCKET = (Kind.MISSING, "there is no such bucket: create it, or correct the URL")
_NO_FILE = (Kind.MISSING, "no such file")
_FULL = (Kind.FULL, "the store is full: free space in it, or raise its quota")
_UNREACHABLE = (
    Kind.UNREACHABLE,
    "the store cannot be reached: check AWS_ENDPOINT_URL (s3://), DNS, and the network policies in between",
)
_NO_BILLING = (Kind.REFUSED, "the project's billing is disabled: enable it, or take a bucket of another project")
_BUSY = (Kind.FAILED, "the store is overloaded or failing")

_BY_CODE: Final = {
    **dict.fromkeys(("ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired", "RequestExpired"), _EXPIRED),
    **dict.fromkeys(("InvalidAccessKeyId", "SignatureDoesNotMatch", "InvalidToken", "XAdminUserNotFound"), _WRONG_KEY),
    **dict.fromkeys(("AccessDenied", "AllAccessDisabled", "403", "401"), _DENIED),
    "NoSuchBucket": _NO_BUCKET,
    **dict.fromkeys(("NoSuchKey", "404"), _NO_FILE),
    **dict.fromkeys(
        (
            "QuotaExceeded",
            "BucketQuotaExceeded",
            "XMinioStorageFull",
            "XMinioAdminBucketQuotaExceeded",
            "InsufficientStorage",
            "507",
        ),
        _FULL,
    ),
    **dict.fromkeys(("SlowDown", "ServiceUnavailable", "InternalError", "500", "502", "503", "504", "429"), _BUSY),
}
_BY_CLASS: Final = {
    **dict.fromkeys(("NoCredentialsError", "PartialCredentialsError", "DefaultCredentialsError"), _NO_CREDENTIALS),
    **dict.fromkeys(("TokenRetrievalError", "UnauthorizedSSOTokenError", "RefreshError"), _EXPIRED),
    **dict.fromkeys(
        (
            "EndpointConnectionError",
            "ConnectTimeoutError",
            "ReadTimeoutError",
            "ConnectionClosedError",
            "ConnectionError",
            "ClientConnectorError",
            "ServerDisconnectedError",
            "FSTimeoutError",
        ),
        _UNREACHABLE,
    ),
    "PermissionError": _DENIED,
    "FileNotFoundError": _NO_FILE,
}
_FORBIDDEN_FOR: Final = {Forbidden.QUOTA: _FULL, Forbidden.BILLING: _NO_BILLING, Forbidden.RIGHTS: _DENIED}
_DISK_FULL = (Kind.FULL, "the disk is full: free space on it, or take a larger one")
_BY_ERRNO: Final = {errno.ENOSPC: _DISK_FULL, errno.EDQUOT: _DISK_FULL}
"""Errors of this machine's own files; stores have codes instead."""


def store_problem(error: BaseException) -> StoreProblem:
    """Interpret a store's error by the most informative of its causes."""
    for facts in (_codes, _refusals_of_gcsfs, _numbers, _classes):
        for each in _chain(error):
            for kind, meaning in facts(each):
                return StoreProblem(kind, f"{meaning} ({_said(error)})")
    return StoreProblem(Kind.FAILED, _said(error))


@contextmanager
def name_read_errors(place: str) -> Iterator[None]:
    """Raise BadInputError with the place for any error inside, so that unreadable input cannot crash a run."""
    try:
        yield
    except BadInputError:
        raise
    # Each store's client has its own classes, without a common base.
    except Exception as error:
        raise BadInputError(f"{place}: cannot be read: {store_problem(error).text}") from error


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield the error and its causes, the first cause first: the clients' classes hide behind OSError."""
    chain: list[BaseException] = []
    current: BaseException | None = error
    while current is not None and current not in chain:
        chain.append(current)
        current = current.__cause__
    yield from reversed(chain)


def _codes(error: BaseException) -> Iterator[tuple[Kind, str]]:
    response = getattr(error, "response", None)
    named = response.get("Error", {}).get("Code") if isinstance(response, dict) else None
    for code in (named, getattr(error, "code", None), getattr(error, "status", None)):
        if str(code) in _BY_CODE:
            yield _BY_CODE[str(code)]


def _refusals_of_gcsfs(error: BaseException) -> Iterator[tuple[Kind, str]]:
    forbidden = read_forbidden(error)
    if forbidden is not None:
        yield _FORBIDDEN_FOR[forbidden]


def _numbers(error: BaseException) -> Iterator[tuple[Kind, str]]:
    if isinstance(error, OSError) and error.errno in _BY_ERRNO:
        yield _BY_ERRNO[error.errno]


def _classes(error: BaseException) -> Iterator[tuple[Kind, str]]:
    for each in type(error).__mro__:
        if each.__name__ in _BY_CLASS:
            yield _BY_CLASS[each.__name__]


def _said(error: BaseException) -> str:
    said = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return " ".join(said.split())[:MAX_SAID] or type(error).__name__
