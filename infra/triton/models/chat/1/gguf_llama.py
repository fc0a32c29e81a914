"""Reads a Llama-family .gguf file into a transformers model and a tokenizer, in about two seconds.

`from_pretrained(gguf_file=…)` would do, but parses the file anew for configuration, tokenizer and
weights (half a minute of pure Python on a small machine), and does not split digits as SmolLM's own
tokenizer does.
Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md. Quantised blocks are decoded by the `gguf` package.
"""

import mmap
import struct
from pathlib import Path
from typing import Any

import numpy as np
import torch

STRING, ARRAY = 8, 9
SCALARS = dict(enumerate(("<B", "<b", "<H", "<h", "<I", "<i", "<f", "<?")))
SCALARS |= {10: "<Q", 11: "<q", 12: "<d"}
CONTROL_TOKEN = 3

# gguf's names of a layer's weights -> transformers'.
LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
TOP = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}


class Cursor:
    """Takes values off a buffer, one after the other."""

    def __init__(self, data: mmap.mmap) -> None:
        self.data = data
        self.at = 0

    def scalar(self, form: str) -> Any:
        (value,) = struct.unpack_from(form, self.data, self.at)
        self.at += struct.calcsize(form)
        return value

    def string(self) -> str:
        size = self.scalar("<Q")
        self.at += size
        return self.data[self.at - size : self.at].decode()

    def value(self, kind: int) -> Any:
        if kind == STRING:
            return self.string()
        if kind != ARRAY:
            return self.scalar(SCALARS[kind])
        kind, count = self.scalar("<I"), self.scalar("<Q")
        return [self.value(kind) for _ in range(count)]


def read(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """The file's settings, and its tensors decoded to float32."""
    from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, dequantize

    with path.open("rb") as file:
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    cursor = Cursor(data)
    if data[:4] != b"GGUF":
        raise ValueError(f"{path} is not a gguf file")
    cursor.at = 8
    tensors, settings = cursor.scalar("<Q"), cursor.scalar("<Q")
    fields = {}
    for _ in range(settings):
        name = cursor.string()
        fields[name] = cursor.value(cursor.scalar("<I"))
    infos = []
    for _ in range(tensors):
        name = cursor.string()
        shape = [cursor.scalar("<Q") for _ in range(cursor.scalar("<I"))]
        infos.append((name, shape[::-1], cursor.scalar("<I"), cursor.scalar("<Q")))
    align = fields.get("general.alignment", 32)
    start = -(-cursor.at // align) * align
    weights = {}
    for name, shape, kind, offset in infos:
        block, size = GGML_QUANT_SIZES[GGMLQuantizationType(kind)]
        row = shape[-1] // block * size
        count = int(np.prod(shape[:-1], dtype=np.int64)) * row
        raw = np.frombuffer(data, np.uint8, count, start + offset).reshape(*shape[:-1], row)
        weights[name] = np.array(dequantize(raw, GGMLQuantizationType(kind)), np.float32)
    return fields, weights


def interleaved(weight: Any, heads: int) -> Any:
    """Undo gguf's order of the rotary halves within each head."""
    half = weight.shape[0] // heads // 2
    return weight.reshape(heads, half, 2, -1).swapaxes(1, 2).reshape(weight.shape)


def load_model(fields: dict[str, Any], weights: dict[str, Any]) -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

    heads = fields["llama.attention.head_count"]
    kv_heads = fields.get("llama.attention.head_count_kv", heads)
    base = float(fields.get("llama.rope.freq_base", 10_000.0))
    config = LlamaConfig(
        vocab_size=len(fields["tokenizer.ggml.tokens"]),
        hidden_size=fields["llama.embedding_length"],
        intermediate_size=fields["llama.feed_forward_length"],
        num_hidden_layers=fields["llama.block_count"],
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        max_position_embeddings=fields["llama.context_length"],
        rms_norm_eps=fields["llama.attention.layer_norm_rms_epsilon"],
        rope_parameters={"rope_type": "default", "rope_theta": base},
        bos_token_id=fields["tokenizer.ggml.bos_token_id"],
        eos_token_id=fields["tokenizer.ggml.eos_token_id"],
        tie_word_embeddings="output.weight" not in weights,
    )
    state = {}
    for name, weight in weights.items():
        stem = name.removesuffix(".weight")
        if stem.startswith("blk."):
            _, layer, part = stem.split(".")
            if part in ("attn_q", "attn_k"):
                weight = interleaved(weight, heads if part == "attn_q" else kv_heads)
            stem = f"model.layers.{layer}.{LAYER[part]}"
        else:
            stem = TOP[stem]
        state[f"{stem}.weight"] = torch.from_numpy(weight)
    if config.tie_word_embeddings:
        state["lm_head.weight"] = state["model.embed_tokens.weight"]
    # Without the meta device every weight would first be drawn at random, which takes longer than
    # reading them.
    with torch.device("meta"):
        model = LlamaForCausalLM(config)
    model.load_state_dict(state, assign=True)
    model.tie_weights()
    model.model.rotary_emb = LlamaRotaryEmbedding(config)
    model.requires_grad_(False)
    model.train(False)
    return model


def load_tokenizer(fields: dict[str, Any]) -> Any:
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    tokens = fields["tokenizer.ggml.tokens"]
    merges = [tuple(merge.split(" ", 1)) for merge in fields["tokenizer.ggml.merges"]]
    vocabulary = {token: number for number, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    splits: list[Any] = [pre_tokenizers.ByteLevel(add_prefix_space=False)]
    if fields.get("tokenizer.ggml.pre") == "smollm":
        splits.insert(0, pre_tokenizers.Digits(individual_digits=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(splits)
    tokenizer.decoder = decoders.ByteLevel()
    kinds = fields["tokenizer.ggml.token_type"]
    control = [t for t, kind in zip(tokens, kinds, strict=True) if kind == CONTROL_TOKEN]
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in control])
    wrap: Any = PreTrainedTokenizerFast
    fast = wrap(
        tokenizer_object=tokenizer,
        bos_token=tokens[fields["tokenizer.ggml.bos_token_id"]],
        eos_token=tokens[fields["tokenizer.ggml.eos_token_id"]],
    )
    fast.chat_template = fields.get("tokenizer.chat_template")
    return fast


def load(path: Path) -> tuple[Any, Any]:
    """(model, tokenizer) of a Llama-family file with a byte-level BPE tokenizer."""
    fields, weights = read(path)
    found = (fields["general.architecture"], fields["tokenizer.ggml.model"])
    if found != ("llama", "gpt2"):
        raise ValueError(f"{path.name}: llama with a gpt2 tokenizer required, {found} came")
    return load_model(fields, weights), load_tokenizer(fields)
