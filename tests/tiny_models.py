"""Tiny random models of several families, each a folder as the hub has it, made on the spot."""

import json
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

# Heads of 32, which vLLM's attention on a CPU can compute.
_SIZES: dict[str, Any] = {
    "vocab_size": 257,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "max_position_embeddings": 8192,
    "bos_token_id": 0,
    "eos_token_id": 0,
    "pad_token_id": 0,
}
_FAMILIES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "gpt-neox": ("GPTNeoXConfig", "GPTNeoXForCausalLM", {}),
    "llama": ("LlamaConfig", "LlamaForCausalLM", {"num_key_value_heads": 1}),
    # Heads of 16, which it cannot.
    "llama-16": ("LlamaConfig", "LlamaForCausalLM", {"num_attention_heads": 4}),
    "qwen": ("Qwen3Config", "Qwen3ForCausalLM", {"num_key_value_heads": 1, "head_dim": 32}),
    "bert": ("BertConfig", "BertForMaskedLM", {"max_position_embeddings": 512}),
    "bert-without-head": ("BertConfig", "BertModel", {}),
    "bloom": ("BloomConfig", "BloomForCausalLM", {"n_head": 2, "max_position_embeddings": None}),
    "t5": ("T5Config", "T5ForConditionalGeneration", {"d_model": 16, "d_ff": 16, "d_kv": 8}),
}
# Wrappers that are asked for text alone.
_TEXT = _SIZES | {"num_key_value_heads": 1, "head_dim": 32, "max_position_embeddings": 2048}
_EYES = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1}
_EYES |= {"num_attention_heads": 2, "image_size": 28, "patch_size": 14}
_QWEN_EYES = {"depth": 1, "hidden_size": 32, "intermediate_size": 64, "num_heads": 2}
_QWEN_EYES |= {"out_hidden_size": 64, "num_position_embeddings": 16}
_LINEAR = dict.fromkeys(("linear_num_key_heads", "linear_num_value_heads"), 2)
_LINEAR |= dict.fromkeys(("linear_key_head_dim", "linear_value_head_dim"), 32)
_FAMILIES |= {
    name.lower(): (
        f"{name}Config",
        f"{name}ForConditionalGeneration",
        {"text_config": _TEXT | text, "vision_config": vision},
    )
    for name, text, vision in (
        ("Gemma3", {}, _EYES),
        ("Mistral3", {"model_type": "mistral"}, _EYES | {"model_type": "pixtral", "head_dim": 16}),
        ("Qwen3VL", {}, _QWEN_EYES | {"deepstack_visual_indexes": [0]}),
        ("Qwen3_5", _LINEAR, _QWEN_EYES),
    )
}
FAMILIES = ("gpt-neox", "llama", "qwen", "bert")


def save(family: str, folder: Path, *, chat_template: str | None = None) -> Path:
    """Write a model of the family, with a tokenizer that reads bytes."""
    config, model, further = _FAMILIES[family]
    torch.manual_seed(0)
    sizes = {} if "text_config" in further else _SIZES
    given = getattr(transformers, config)(**{**sizes, **further})
    getattr(transformers, model)(given).save_pretrained(folder)
    _tokenizer(masks=family == "bert", chat_template=chat_template).save_pretrained(folder)
    return folder


def _tokenizer(*, masks: bool, chat_template: str | None) -> Any:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {character: i for i, character in enumerate(["</s>", *alphabet])}
    bytewise = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    bytewise.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bytewise.decoder = decoders.ByteLevel()
    special = {"mask_token": "</s>", "pad_token": "</s>"} if masks else {"eos_token": "</s>"}
    reads = PreTrainedTokenizerFast(tokenizer_object=bytewise, **special)
    reads.chat_template = chat_template
    return reads


# What the encoder of `save_encoder` reads: token 5 and on.
WORDS = (
    *("x", "y", "died", "in", "is", "the", "town", "which"),
    *("rome", "capital", "of", "italy", "oslo"),
)


def save_encoder(folder: Path) -> Path:
    """Write a BERT that encodes texts of at most ten of the WORDS, in lower case."""
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
    path = folder / "vocab.txt"
    path.write_text("\n".join(vocabulary))
    transformers.BertTokenizerFast(vocab=str(path), do_lower_case=False).save_pretrained(folder)
    torch.manual_seed(1)
    config = transformers.BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=12,
    )
    transformers.BertModel(config).save_pretrained(folder)
    return folder


def save_adapter(base: Path, folder: Path, merged: Path | None = None, *, seed: int = 0) -> Path:
    """Write a random LoRA for a model of `save`, as PEFT does; `merged` is the model with it."""
    model = transformers.AutoModelForCausalLM.from_pretrained(base)
    random = torch.Generator().manual_seed(seed)
    written, rank, alpha = {}, 4, 8
    for name, module in model.named_modules():
        if name.endswith(("q_proj", "v_proj", "down_proj")):
            n_out, n_in = module.weight.shape
            first = torch.randn(rank, n_in, generator=random) / n_in**0.5
            second = torch.randn(n_out, rank, generator=random)
            written[f"base_model.model.{name}.lora_A.weight"] = first
            written[f"base_model.model.{name}.lora_B.weight"] = second
            module.weight.data += alpha / rank * second @ first
    folder.mkdir()
    said = {"peft_type": "LORA", "r": rank, "lora_alpha": alpha, "bias": "none"}
    said |= {"target_modules": ["q_proj", "v_proj", "down_proj"]}
    (folder / "adapter_config.json").write_text(json.dumps(said))
    save_file(written, folder / "adapter_model.safetensors")
    if merged is not None:
        model.save_pretrained(merged)
        transformers.AutoTokenizer.from_pretrained(base).save_pretrained(merged)
    return folder


def save_int8(base: Path, folder: Path) -> Path:
    """Write a model of `save` in W8A8, as compressed-tensors does: a scale for each channel."""
    transformers.AutoTokenizer.from_pretrained(base).save_pretrained(folder)
    read = {"num_bits": 8, "type": "int", "symmetric": True}
    weights = read | {"strategy": "channel", "dynamic": False}
    inputs = read | {"strategy": "token", "dynamic": True}
    group = {"targets": ["Linear"], "weights": weights, "input_activations": inputs}
    said = {"quant_method": "compressed-tensors", "format": "int-quantized", "ignore": ["lm_head"]}
    said |= {"quantization_status": "compressed", "config_groups": {"group_0": group}}
    config = json.loads((base / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "quantization_config": said}))
    stored = load_file(base / "model.safetensors")
    for name in [each for each in stored if each.endswith("proj.weight")]:
        stored[name], stored[f"{name}_scale"] = to_int8(stored[name])
    save_file(stored, folder / "model.safetensors", {"format": "pt"})
    return folder


def to_int8(numbers: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Each row as integers, and what to multiply them by."""
    scale = numbers.abs().amax(-1, keepdim=True) / 127
    return (numbers / scale).round().to(torch.int8), scale


def as_int8(base: Path) -> Any:
    """The model of `base` in float32, whose layers multiply what they would in W8A8."""
    model = transformers.AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)

    def rounded(numbers: torch.Tensor) -> torch.Tensor:
        integers, scale = to_int8(numbers)
        return integers * scale

    for name, module in model.named_modules():
        if name.endswith("proj"):
            module.weight.data = rounded(module.weight.data)
            module.register_forward_pre_hook(lambda _, given: (rounded(given[0]),))
    return model
