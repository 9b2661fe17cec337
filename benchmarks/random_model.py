"""Makes a Qwen2 with random weights and a byte-level BPE tokenizer: for speed and for tests, never for figures."""

import argparse
from pathlib import Path

SHAPES = {
    # head_dim is 64 or more, because vLLM's CPU attention supports no smaller one.
    "tiny": {"hidden": 128, "layers": 2, "heads": 2, "kv_heads": 1, "inner": 256, "vocabulary": 512},
    # This is Qwen2-7B with a smaller vocabulary: 6.5 billion parameters.
    "7b": {"hidden": 3584, "layers": 28, "heads": 28, "kv_heads": 4, "inner": 18944, "vocabulary": 8192},
}
POSITIONS = 8192
END, START = "<|end|>", "<|start|>"
TEMPLATE = (
    "{% for message in messages %}" + START + "{{ message['role'] }}\n{{ message['content'] }}" + END + "\n{% endfor %}"
    "{% if add_generation_prompt %}" + START + "assistant\n{% endif %}"
)
TEXT = "def add(first, second):\n    return first + second\n\n\nfor number in range(10):\n    print(add(number, 1))\n"


def make_tokenizer(directory: Path, vocabulary: int) -> None:
    """Train a tokenizer on a few lines. Missing tokens of the vocabulary are added afterwards."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=[END, START],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([TEXT] * 4, trainer)
    # Every id that the model can sample must be a token: an id that decodes to nothing would make answers empty.
    missing = vocabulary - tokenizer.get_vocab_size()
    tokenizer.add_tokens([f" word{number}" for number in range(missing)])
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=END, pad_token=END)
    fast.chat_template = TEMPLATE
    fast.save_pretrained(directory)


def make_weights(directory: Path, shape: dict[str, int], dtype: str, device: str, seed: int) -> int:
    """Save random weights. Return the number of parameters."""
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    torch.manual_seed(seed)
    config = Qwen2Config(
        vocab_size=shape["vocabulary"],
        hidden_size=shape["hidden"],
        num_hidden_layers=shape["layers"],
        num_attention_heads=shape["heads"],
        num_key_value_heads=shape["kv_heads"],
        intermediate_size=shape["inner"],
        max_position_embeddings=POSITIONS,
        bos_token_id=None,
        eos_token_id=0,
        pad_token_id=0,
        tie_word_embeddings=False,
    )
    torch.set_default_dtype(getattr(torch, dtype))
    with torch.device(device):
        model = Qwen2ForCausalLM(config)
    # With a zero row greedy decoding never picks the end, so every answer has its full length.
    with torch.no_grad():
        model.lm_head.weight[config.eos_token_id].zero_()
    model.save_pretrained(directory, max_shard_size="4GB")
    return sum(weights.numel() for weights in model.parameters())


def default_device() -> str:
    """Return the GPU if there is one, because 6.5 billion numbers take minutes on a CPU."""
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def make(directory: Path, size: str, dtype: str, device: str = "cpu", seed: int = 0) -> int:
    """Make model and tokenizer in a directory. Return the number of parameters."""
    directory.mkdir(parents=True, exist_ok=True)
    make_tokenizer(directory, SHAPES[size]["vocabulary"])
    return make_weights(directory, SHAPES[size], dtype, device, seed)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--device", default=None, help="where weights are drawn; default: a GPU, if any")
    parser.add_argument("--tiny", action="store_true", help="360,000 parameters instead of 6.5 billion")
    parser.add_argument("--seed", type=int, default=0, help="of the weights; the tokenizer is the same for each")
    arguments = parser.parse_args()
    size, dtype = ("tiny", "float32") if arguments.tiny else ("7b", "bfloat16")
    parameters = make(arguments.directory, size, dtype, arguments.device or default_device(), arguments.seed)
    print(f"{parameters:,} parameters in {arguments.directory}")


if __name__ == "__main__":
    main()
