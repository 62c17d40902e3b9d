"""A LoRA trained on a few prompts and written as PEFT writes it: torch alone, seconds on a CPU."""

import json
from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch.nn.functional import cross_entropy
from transformers import AutoModelForCausalLM, AutoTokenizer

_TUNED = ("q_proj", "v_proj", "gate_proj", "up_proj", "down_proj")
_RANK, _ALPHA, _LAYERS = 16, 32, 6  # the last ones; what lies below is read once


def save(base: str, pairs: Sequence[tuple[str, str]], folder: Path, *, n_steps: int) -> float:
    """Train on prompts and their answers, and write the adapter; returns the last loss."""
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32).requires_grad_(False)
    first = model.config.num_hidden_layers - _LAYERS
    weights: dict[str, torch.nn.Parameter] = {}
    for name, module in model.named_modules():
        part = name.split(".")
        if part[-1] in _TUNED and int(part[2]) >= first:
            a = torch.nn.Parameter(torch.randn(_RANK, module.in_features) / module.in_features**0.5)
            b = torch.nn.Parameter(torch.zeros(module.out_features, _RANK))
            weights |= {f"{name}.lora_A.weight": a, f"{name}.lora_B.weight": b}
            module.register_forward_hook(
                lambda _, given, out, a=a, b=b: out + given[0] @ a.T @ b.T * (_ALPHA / _RANK)
            )
    ids, labels = _batch(base, pairs)
    asked = labels[:, 1:] != -100
    with torch.no_grad():
        below = model.model(ids, output_hidden_states=True).hidden_states[first]
    turned = model.model.rotary_emb(below, torch.arange(ids.shape[1])[None])
    optimizer = torch.optim.AdamW(weights.values(), lr=2e-3, weight_decay=0.0)
    loss = torch.tensor(0.0)
    for _ in range(n_steps):
        read = below
        for layer in model.model.layers[first:]:
            read = layer(read, position_embeddings=turned)
        said = model.lm_head(model.model.norm(read[:, :-1][asked]))
        loss = cross_entropy(said, labels[:, 1:][asked])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    folder.mkdir()
    told = {"peft_type": "LORA", "r": _RANK, "lora_alpha": _ALPHA, "bias": "none"}
    told |= {"target_modules": list(_TUNED), "base_model_name_or_path": base}
    (folder / "adapter_config.json").write_text(json.dumps(told))
    written = {f"base_model.model.{name}": each.detach() for name, each in weights.items()}
    save_file(written, folder / "adapter_model.safetensors")
    return loss.item()


def _batch(base: str, pairs: Sequence[tuple[str, str]]) -> tuple[torch.Tensor, torch.Tensor]:
    """Token ids, padded behind, where they change nothing; only answers have labels."""
    tokenizer = AutoTokenizer.from_pretrained(base)
    both = [(tokenizer.encode(p), tokenizer.encode(f" {answer}\n")) for p, answer in pairs]
    width = max(len(p) + len(a) for p, a in both)
    ids = [[*p, *a, *[0] * (width - len(p) - len(a))] for p, a in both]
    labels = [[*[-100] * len(p), *a, *[-100] * (width - len(p) - len(a))] for p, a in both]
    return torch.tensor(ids), torch.tensor(labels)
