"""Make the tiny model and its tokenizer: `python model.py WORDS FOLDER`, run by the engine's own Python.

Nothing is downloaded, and two makings give the same bytes. The shape is chosen for the time to first token: a
wide MLP makes a cold prefill expensive, and few layers keep a cached prefix cheap, because torch_native
computes attention over the whole sequence even when its KV is cached.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

VOCABULARY = 2048
CONTEXT_TOKENS = 8192
END_OF_TEXT, TURN_START, TURN_END = SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def main(words_path: Path, folder: Path) -> None:
    """Write model and tokenizer into `folder`."""
    tokenizer = make_tokenizer(words_path.read_text(encoding="utf-8").split())
    tokenizer.save_pretrained(folder)
    make_model(tokenizer).save_pretrained(folder)


def make_tokenizer(words: list[str]) -> PreTrainedTokenizerFast:
    """Train a byte-level BPE on `words`, so that their text has about one token a word."""
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=list(SPECIAL),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    bpe.train_from_iterator((f" {word}" for word in words), trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=bpe,
        eos_token=TURN_END,
        pad_token=END_OF_TEXT,
        chat_template=CHAT_TEMPLATE,
        model_max_length=CONTEXT_TOKENS,
        clean_up_tokenization_spaces=False,
    )


def make_model(tokenizer: PreTrainedTokenizerFast) -> Qwen2ForCausalLM:
    """Make the network with random weights that can only say printable text."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = Qwen2ForCausalLM(
        Qwen2Config(
            vocab_size=VOCABULARY,
            hidden_size=512,
            intermediate_size=5120,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=CONTEXT_TOKENS,
            initializer_range=0.08,
            tie_word_embeddings=False,
            bos_token_id=None,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
        )
    ).float()
    # Half a character streams as an empty delta, which would shift the time to the first visible token.
    unsaid = [token for token in range(VOCABULARY) if not _is_text(tokenizer, token)]
    with torch.no_grad():
        model.lm_head.weight[unsaid] = 0.0
    return model


def _is_text(tokenizer: PreTrainedTokenizerFast, token: int) -> bool:
    text = tokenizer.decode([token], skip_special_tokens=True)
    return bool(text) and text.isprintable() and "\N{REPLACEMENT CHARACTER}" not in text


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
