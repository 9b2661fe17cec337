"""Output tokens of answers whose server does not say: counted by the model's own tokenizer, never from blanks.

The tokenizer is loaded when the first such answer comes. Where it cannot be had the count stays unknown, which the
results say of every answer (`without_token_count`).
"""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

logger = logging.getLogger(__name__)

CountTokens: TypeAlias = Callable[[str], int]

LOAD_SECONDS = 60.0
"""A hub that does not answer must not hold the run up for longer."""


class TokenizerMissingError(Exception):
    """There is no tokenizer to count with; the message says why and what to do."""


def load_tokenizer(place: str) -> CountTokens:
    """Load a tokenizer. Blocking.

    Args:
        place: a folder with tokenizer.json, that file, or a hub id.

    Raises:
        TokenizerMissingError: the package is not installed, or there is no such tokenizer.
    """
    try:
        from tokenizers import Tokenizer
    except ImportError as error:
        raise TokenizerMissingError("the package `tokenizers` is not installed: install evalrun[tokenizer]") from error
    path = Path(place)
    file = path / "tokenizer.json" if path.is_dir() else path
    try:
        tokenizer = Tokenizer.from_file(str(file)) if file.exists() else Tokenizer.from_pretrained(place)
    except Exception as error:  # the package raises bare Exceptions, also for a file that is not JSON
        raise TokenizerMissingError(f"no tokenizer at {place}: {error}") from error

    def count(text: str) -> int:
        return len(tokenizer.encode(text, add_special_tokens=False).ids)

    return count


class TokenCounter:
    """Counts tokens with a tokenizer that is loaded at the first need, once.

    Args:
        place: see `load_tokenizer`; None: nothing is counted.
        load: gives the tokenizer; runs in a thread.
    """

    def __init__(self, place: str | None, load: Callable[[str], CountTokens] = load_tokenizer) -> None:
        self._place = place
        self._load = load
        self._loading: asyncio.Task[CountTokens | None] | None = None

    async def count(self, text: str) -> int | None:
        """Give how many tokens a text is; None where that cannot be known."""
        if self._place is None:
            return None
        if self._loading is None:
            self._loading = asyncio.create_task(self._loaded(self._place))
        count = await asyncio.shield(self._loading)  # others wait for it, too
        return None if count is None else count(text)

    async def _loaded(self, place: str) -> CountTokens | None:
        try:
            async with asyncio.timeout(LOAD_SECONDS):
                return await asyncio.to_thread(self._load, place)
        except TimeoutError:
            reason = f"no tokenizer at {place} within {LOAD_SECONDS:.0f} s"
        except TokenizerMissingError as error:
            reason = str(error)
        logger.warning("the endpoint gives no usage and answers stay without a token count: %s", reason)
        return None
