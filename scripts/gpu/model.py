"""A model folder of a 7B shape without weights, for `--load-format dummy`: real prefill cost and real KV bytes.

The shape is Qwen2-7B's with a small vocabulary: 57,344 bytes of KV a token in bf16. The tokenizer is trained on our
own word list and knows ASCII alone, so that every token is whole text: half a character streams as an empty delta,
which would shift the time to the first visible token.
"""

from __future__ import annotations

import json
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from harness.files import write_atomically
from scenarios.prompts import WORDS_FILE

VOCABULARY = 8192
CONTEXT_TOKENS = 32768
END_OF_TEXT, TURN_START, TURN_END = SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
ASCII = (*map(chr, range(32, 127)), "\t", "\n", "\r")

CONFIG = {
    "architectures": ["Qwen2ForCausalLM"],
    "model_type": "qwen2",
    "hidden_size": 3584,
    "intermediate_size": 18944,
    "num_hidden_layers": 28,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-6,
    "rope_theta": 1000000.0,
    "max_position_embeddings": CONTEXT_TOKENS,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "vocab_size": VOCABULARY,
    "pad_token_id": SPECIAL.index(END_OF_TEXT),
    "eos_token_id": SPECIAL.index(TURN_END),
}
TOKENIZER_CONFIG = {
    "tokenizer_class": "PreTrainedTokenizerFast",
    "pad_token": END_OF_TEXT,
    "eos_token": TURN_END,
    "chat_template": CHAT_TEMPLATE,
    "model_max_length": CONTEXT_TOKENS,
    "clean_up_tokenization_spaces": False,
}


def write_model(folder: Path) -> None:
    """Write config.json and the tokenizer into `folder`; two makings give the same bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = make_tokenizer(WORDS_FILE.read_text(encoding="utf-8").split())
    write_atomically(folder / "tokenizer.json", tokenizer.to_str())
    write_atomically(folder / "config.json", json.dumps(CONFIG, indent=1))
    write_atomically(folder / "tokenizer_config.json", json.dumps(TOKENIZER_CONFIG, indent=1))


def make_tokenizer(words: list[str]) -> Tokenizer:
    """Train a byte-level BPE of `VOCABULARY` entries on `words`, so that their text has about one token a word."""
    tokenizer = Tokenizer(models.BPE())
    split = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.pre_tokenizer, tokenizer.decoder = split, decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        min_frequency=0,
        special_tokens=list(SPECIAL),
        initial_alphabet=[split.pre_tokenize_str(character)[0][0] for character in ASCII],
        show_progress=False,
    )
    # The words alone make too few entries; their capitals fill the vocabulary up.
    forms = (form for word in words for form in (word, word.capitalize(), word.upper()))
    tokenizer.train_from_iterator((text for form in forms for text in (f" {form}", form)), trainer)
    return tokenizer
