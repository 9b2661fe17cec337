"""Texts made fit for UTF-8."""

import pytest

from evalrun_runtime.unicode_text import replace_surrogates, replace_surrogates_within


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("", ""),
        ("a\n", "a\n"),
        ("é😀", "é😀"),
        ("\ufeffa", "\ufeffa"),
        ("a\ud800b", "a\ufffdb"),
        ("\udc00\ud800", "\ufffd\ufffd"),
        ("\ud83d\ude00", "😀"),
        ("é\udfff", "é\ufffd"),
    ],
)
def test_replace_surrogates_keeps_every_character_that_utf8_has(text: str, plain: str) -> None:
    assert replace_surrogates(text) == plain


def test_replace_surrogates_within_reaches_keys_and_nested_texts() -> None:
    given = {"\ud800": [1, None, 0.5, ("\udfff", {"a": "b"})]}
    assert replace_surrogates_within(given) == {"\ufffd": [1, None, 0.5, ["\ufffd", {"a": "b"}]]}
