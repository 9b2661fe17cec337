"""The text by which older vLLM, and servers that copy its API, report that a model is not served. Pure.

A vLLM whose error has its fields at the top level of the body names neither OpenAI's code `model_not_found` nor the
parameter `model`: only the message tells this 404 from an error about a single prompt.
"""

from typing import Final

_PHRASES: Final = ("does not exist", "not found")


def says_model_is_missing(message: str) -> bool:
    """Return whether an error message says that a model is not served."""
    said = message.lower()
    return "model" in said and any(phrase in said for phrase in _PHRASES)
