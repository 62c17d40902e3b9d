"""New weights for a running vLLM: they are loaded in place, and proven to be all that it computes.

vLLM's own `reload_weights` warns in its log where it keeps an old weight: on a CPU it multiplies by
packed copies, and that of a head that shares the embeddings' weights stays the old model's.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

EXTENSION = f"{__name__}.ReloadingWorker"
_PACKED = "cpu_linear"  # the attribute of a layer that multiplies by its packed copy


class ReloadingWorker:
    """A part of vLLM's workers (`worker_extension_cls`)."""

    model_runner: Any
    reload_weights: Any

    def replace_weights(self, model: str, revision: str | None) -> str | None:
        """Replace all weights by those of a model that has the same tensors and the same files.

        Returns why that is not proven, and null if it is. If not, the weights may be of both.

        Every parameter, and all memory for new ones, is filled with NaN before; packed copies are
        removed. So a weight that is not replaced shows itself.
        """
        import torch

        module, config = self.model_runner.get_model(), self.model_runner.vllm_config
        if (obstacle := _find_obstacle(module, config)) is not None:
            return obstacle
        dtype, tensors = config.model_config.dtype, dict(_weights(module))
        places = {name: tensor.data_ptr() for name, tensor in tensors.items() if tensor.is_cuda}
        layers = {name: layer for name, layer in module.named_modules() if _PACKED in vars(layer)}
        with torch.no_grad():
            for tensor in tensors.values():
                tensor.fill_(torch.nan)
        for layer in layers.values():
            delattr(layer, _PACKED)
            if getattr(layer, "bias", None) is not None:  # packed in float32, and loaded as before
                layer.bias.data = layer.bias.to(getattr(layer, "params_dtype", dtype))
        config.model_config.model, config.model_config.revision = model, revision
        with _checked_packing() as unloaded:
            self.reload_weights()
            for layer in layers.values():  # of a head that shares the weights of the embeddings
                if _PACKED not in vars(layer) and layer.weight.numel():
                    layer.quant_method.process_weights_after_loading(layer)
        old = [name for name, layer in layers.items() if _PACKED not in vars(layer)]
        old += [name for name, tensor in _weights(module) if tensor.isnan().any()]
        if unloaded or old:
            return f"{[*unloaded, *old][0]} has no new weights"
        new_places = {
            name: tensor.data_ptr() for name, tensor in _weights(module) if tensor.is_cuda
        }
        if new_places != places:
            return "its weights have moved, and graphs of vLLM's may read the old ones"
        return None


def _find_obstacle(module: "torch.nn.Module", config: Any) -> str | None:
    """What holds numbers made of the weights that could not be proven to be new; null: nothing."""
    from vllm.model_executor.layers.attention import Attention
    from vllm.model_executor.layers.attention_layer_base import AttentionLayerBase
    from vllm.model_executor.layers.linear import UnquantizedLinearMethod
    from vllm.model_executor.layers.vocab_parallel_embedding import UnquantizedEmbeddingMethod

    if config.model_config.quantization is not None:
        return "its weights are quantised"
    if config.model_config.word_embeddings_untied_by_checkpoint:
        return "its head may or may not share the weights of its embeddings"
    if {"max_autotune", "freezing"} & {
        name for name, value in config.compilation_config.inductor_compile_config.items() if value
    }:
        return "its weights are constants of compiled code"
    if hasattr(module, "process_weights_after_loading"):
        return f"{type(module).__name__} computes something of its weights"
    plain = (type(None), UnquantizedLinearMethod, UnquantizedEmbeddingMethod)
    for name, layer in module.named_modules():
        is_attention = type(layer) is Attention
        if type(getattr(layer, "quant_method", None)) not in plain:
            return f"{name} is of a kind that packs its weights"
        if isinstance(layer, AttentionLayerBase) and not is_attention:
            return f"{name} is a {type(layer).__name__}"
        if is_attention and getattr(layer.impl, "sinks", None) is not None:
            return f"{name} has attention sinks"
        if not is_attention and any(map(_holds_numbers, vars(layer).items())):
            return f"{name} holds numbers of its own"
    return None


def _holds_numbers(attribute: tuple[str, Any]) -> bool:
    """Whether an attribute of a layer is a tensor of numbers, or has one, and is no parameter."""
    import torch

    name, value = attribute
    values = value.values() if isinstance(value, dict) else value
    tensors = values if isinstance(value, dict | list | tuple) else [value]
    return name not in ("_parameters", "_buffers") and any(
        isinstance(tensor, torch.Tensor) and tensor.is_floating_point() for tensor in tensors
    )


def _weights(module: "torch.nn.Module") -> "Iterator[tuple[str, torch.Tensor]]":
    """The tensors of numbers that a checkpoint has: parameters, and buffers that are saved.

    The scales of an attention are saved as well, but only quantised checkpoints have any.
    """
    from vllm.model_executor.layers.attention import Attention

    for path, layer in module.named_modules():
        tensors = dict(layer.named_parameters(recurse=False))
        if not isinstance(layer, Attention):
            buffers = layer.named_buffers(recurse=False)
            hidden = layer._non_persistent_buffers_set
            tensors |= {name: buffer for name, buffer in buffers if name not in hidden}
        for name, tensor in tensors.items():
            if tensor.is_floating_point():
                yield f"{path}.{name}", tensor.data


@contextmanager
def _checked_packing() -> Iterator[list[str]]:
    """Fill new memory with NaN; the list gets the layers that are packed with some of it."""
    import torch
    from vllm.model_executor.layers.linear import UnquantizedLinearMethod
    from vllm.model_executor.layers.vocab_parallel_embedding import UnquantizedEmbeddingMethod

    unloaded: list[str] = []
    name = "process_weights_after_loading"
    kinds: tuple[type, ...] = (UnquantizedLinearMethod, UnquantizedEmbeddingMethod)
    originals = {kind: getattr(kind, name) for kind in kinds}

    def checked(original: Any) -> Any:
        def process(method: Any, layer: Any) -> None:
            if any(tensor.isnan().any() for tensor in layer.parameters(recurse=False)):
                unloaded.append(getattr(layer, "prefix", type(layer).__name__))
            original(method, layer)

        return process

    was_filled = torch.utils.deterministic.fill_uninitialized_memory
    mode = torch.get_deterministic_debug_mode()
    try:
        torch.use_deterministic_algorithms(True, warn_only=True)  # only then memory is filled
        torch.utils.deterministic.fill_uninitialized_memory = True
        for kind, original in originals.items():
            setattr(kind, name, checked(original))
        yield unloaded
    finally:
        for kind, original in originals.items():
            setattr(kind, name, original)
        torch.utils.deterministic.fill_uninitialized_memory = was_filled
        torch.set_deterministic_debug_mode(mode)
