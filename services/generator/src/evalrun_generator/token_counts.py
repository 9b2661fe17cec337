"""Counts the output tokens of completions without `usage` with the model's own tokenizer, never by splitting on blanks.

The tokenizer is loaded at the first such completion. If it is not available, the count stays unknown, and the results
report how many completions are affected (`without_token_count`).
"""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

from evalrun_runtime.distribution import describe_install

logger = logging.getLogger(__name__)

CountTokens: TypeAlias = Callable[[str], int]

LOAD_SECONDS = 60.0
"""Timeout of loading, so that an unresponsive hub does not hold up the run."""


class TokenizerMissingError(Exception):
    """No tokenizer is available; the message names the reason and a remedy."""


def load_tokenizer(place: str) -> CountTokens:
    """Load a tokenizer; blocks.

    Args:
        place: directory with tokenizer.json, that file, or a hub id.

    Raises:
        TokenizerMissingError: the package or the tokenizer is missing.
    """
    try:
        from tokenizers import Tokenizer
    except ImportError as error:
        raise TokenizerMissingError(
            f"the package `tokenizers` is not installed: {describe_install('tokenizer')}"
        ) from error
    path = Path(place)
    file = path / "tokenizer.json" if path.is_dir() else path
    try:
        tokenizer = Tokenizer.from_file(str(file)) if file.exists() else Tokenizer.from_pretrained(place)
    # The package raises bare Exceptions, also for a file that is not JSON.
    except Exception as error:
        raise TokenizerMissingError(f"no tokenizer at {place}: {error}") from error

    def count(text: str) -> int:
        return len(tokenizer.encode(text, add_special_tokens=False).ids)

    return count


class TokenCounter:
    """Counts tokens with a tokenizer that is loaded once, when first needed.

    Args:
        place: see `load_tokenizer`; None: no counting.
        load: loads the tokenizer; runs in a thread.
    """

    def __init__(self, place: str | None, load: Callable[[str], CountTokens] = load_tokenizer) -> None:
        self._place = place
        self._load = load
        self._loading: asyncio.Task[CountTokens | None] | None = None

    async def count(self, text: str) -> int | None:
        """Return the number of tokens in a text, or None if it cannot be known."""
        if self._place is None:
            return None
        if self._loading is None:
            self._loading = asyncio.create_task(self._load_in_time(self._place))
        # Other callers wait for the loading too.
        count = await asyncio.shield(self._loading)
        return None if count is None else count(text)

    async def _load_in_time(self, place: str) -> CountTokens | None:
        try:
            async with asyncio.timeout(LOAD_SECONDS):
                return await asyncio.to_thread(self._load, place)
        except TimeoutError:
            reason = f"no tokenizer at {place} within {LOAD_SECONDS:.0f} s"
        except TokenizerMissingError as error:
            reason = str(error)
        logger.warning("the endpoint reports no usage, so answers have no token count: %s", reason)
        return None
