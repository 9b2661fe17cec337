"""The text of the gcsfs error that has neither a status nor a class of its own. Pure.

gcsfs turns Google's status 403 into a plain OSError, so only the text contains the cause (gcsfs 2026.10.1,
`gcsfs.retry.validate_response`).
"""

from enum import Enum
from typing import Final

VERSION: Final = "2026.10.1"
"""Version of gcsfs whose text is read here; a test compares it with the locked version."""


class Forbidden(Enum):
    """Meanings of Google's status 403."""

    QUOTA = "quota"
    BILLING = "billing"
    RIGHTS = "rights"


_START: Final = "Forbidden: http"
_WORDS: Final = {"quota": Forbidden.QUOTA, "billing": Forbidden.BILLING}
"""Words of Google's own message for refusals that are not about rights."""


def read_forbidden(error: BaseException) -> Forbidden | None:
    """Return what Google forbade, or None if the error is not gcsfs's error for status 403."""
    text = str(error)
    if not isinstance(error, OSError) or not text.startswith(_START):
        return None
    said = text.partition("\n")[2].lower()
    return next((meaning for word, meaning in _WORDS.items() if word in said), Forbidden.RIGHTS)
