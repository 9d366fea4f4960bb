"""The tiny policy's network: Qwen3's architecture with a million parameters."""

from pathlib import Path

import torch
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from searchr1.tiny_policy.tokenizer import CONTEXT, PADDING, TURN_END


def new_model(tokenizer: PreTrainedTokenizerFast, seed: int) -> Qwen3ForCausalLM:
    """An untrained model (float32) for `tokenizer`; `seed` draws its weights."""
    torch.manual_seed(seed)
    padding = tokenizer.convert_tokens_to_ids(PADDING)
    assert isinstance(padding, int)
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=128,
        num_hidden_layers=5,
        num_attention_heads=4,
        num_key_value_heads=4,
        head_dim=32,
        intermediate_size=256,
        max_position_embeddings=CONTEXT,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.convert_tokens_to_ids(TURN_END),
        pad_token_id=padding,
    )
    return Qwen3ForCausalLM(config)


def load_model(folder: Path) -> Qwen3ForCausalLM:
    """The model in `folder`, in float32."""
    return Qwen3ForCausalLM.from_pretrained(folder, dtype=torch.float32)


def temper(model: Qwen3ForCausalLM, factor: float) -> None:
    """Multiply all logits by `factor`, in place: it scales the weight of the final norm.

    Sampling at temperature 1 draws every token; without this, small uncertainties about each
    token of a copied name add up over an episode.
    """
    with torch.no_grad():
        model.model.norm.weight.mul_(factor)
