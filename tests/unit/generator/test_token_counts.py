import asyncio
from pathlib import Path

import pytest
from tokenizers import Tokenizer
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel
from tokenizers.trainers import BpeTrainer

from evalrun_generator.token_counts import CountTokens, TokenCounter, TokenizerMissingError, load_tokenizer

TEXT = "def add(a, b):\n    return a + b\n"


@pytest.fixture
def tokenizer(tmp_path: Path) -> Path:
    made = Tokenizer(BPE())
    made.pre_tokenizer = ByteLevel()
    made.train_from_iterator([TEXT] * 4, BpeTrainer(vocab_size=300, show_progress=False))
    made.save(str(tmp_path / "tokenizer.json"))
    return tmp_path


@pytest.mark.parametrize("place", ["", "tokenizer.json"])
async def test_tokens_are_the_models_own(tokenizer: Path, place: str) -> None:
    own = Tokenizer.from_file(str(tokenizer / "tokenizer.json")).encode(TEXT).ids
    assert await TokenCounter(str(tokenizer / place)).count(TEXT) == len(own)
    assert len(own) != len(TEXT.split())


def test_a_directory_without_a_tokenizer_is_named(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text("no json")
    with pytest.raises(TokenizerMissingError, match=f"no tokenizer at {tmp_path}: "):
        load_tokenizer(str(tmp_path))


async def test_answers_without_a_tokenizer_have_no_token_count(caplog: pytest.LogCaptureFixture) -> None:
    asked = []

    def load(place: str) -> CountTokens:
        asked.append(place)
        raise TokenizerMissingError("the hub is away")

    counter = TokenCounter("some/model", load)
    assert set(await asyncio.gather(counter.count("a"), counter.count("b"))) == {None}
    assert asked == ["some/model"]
    assert caplog.text.count("answers have no token count: the hub is away") == 1
    assert await TokenCounter(None, load).count("a") is None
