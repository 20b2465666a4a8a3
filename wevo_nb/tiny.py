"""A tiny Llama from random weights with a tokenizer trained on the spot: for tests and CI.

About a million parameters. It knows nothing, so with replies chosen among the valid ones it
acts nearly at random; every code path of the real model runs in seconds.
"""

from __future__ import annotations

import hashlib
import inspect
import os
from pathlib import Path

from wevo_nb import actions, observation, prompts, schema

CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] }}"
    "{% if not (loop.last and continue_final_message) %}{{ '<|im_end|>\\n' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
VOCABULARY = 800


def tiny_model(cache: Path, *, seed: int = 0) -> Path:
    """The folder of the tiny model below `cache`, made if it is not there.

    Its name tells the texts that the tokenizer learned from, so that a change makes a new one.
    """
    texts = [inspect.getsource(module) for module in (prompts, actions, observation, schema)]
    known = hashlib.sha256("".join([*texts, str(VOCABULARY), str(seed)]).encode()).hexdigest()[:8]
    folder = cache / f"tiny-{known}"
    if (folder / "config.json").exists():
        return folder
    import torch
    from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM

    tokenizer = _tokenizer(texts)
    end = tokenizer.eos_token_id
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=96,
        intermediate_size=256,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=4096,
        tie_word_embeddings=True,
        bos_token_id=1,
        eos_token_id=end,
        pad_token_id=end,
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = LlamaForCausalLM(config)
    model.generation_config = GenerationConfig(bos_token_id=1, eos_token_id=end, pad_token_id=end)
    unfinished = folder.with_name(f"{folder.name}.{os.getpid()}")
    model.save_pretrained(unfinished)
    tokenizer.save_pretrained(unfinished)
    if not folder.exists():
        unfinished.replace(folder)
    return folder


def _tokenizer(texts: list[str]):
    """A byte-level BPE trained on the package's own prompts and page vocabulary."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    raw = Tokenizer(models.BPE())
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=list(SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    raw.train_from_iterator(texts, trainer)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=raw, eos_token="<|im_end|>", pad_token="<|im_end|>")
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer
