"""Linear layers with their weights laid out for oneDNN beforehand: twice as fast in float32 on some CPUs.

torch multiplies through the library it was built with, which on CPUs of AMD leaves half of the vector unit idle; oneDNN
comes with torch as well and does not. The sums are the same up to their order, so scores differ in the last bits.
The laid-out weights are a copy: memory of the layers doubles.
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

MIN_WEIGHTS = 1 << 12  # ours; smaller layers gain nothing

Linears = list[tuple[Any, Callable[[Any], Any]]]


def pack(model: Any) -> Linears:
    """The large linear layers of a model on the CPU, each with its other forward; none where torch cannot."""
    import torch

    if not torch.backends.mkldnn.is_available():
        return []
    out: Linears = []
    try:
        for layer in model.modules():
            if isinstance(layer, torch.nn.Linear) and layer.weight.numel() >= MIN_WEIGHTS:
                out.append((layer, _forward(layer)))
    except (AttributeError, NotImplementedError, RuntimeError):  # the operator is not part of torch's stable interface
        return []
    return out


@contextlib.contextmanager
def using(linears: Linears) -> Iterator[None]:
    """Within, these layers go the other way; for one thread at a time."""
    try:
        for layer, forward in linears:
            layer.forward = forward
        yield
    finally:
        for layer, _ in linears:
            layer.__dict__.pop("forward", None)


def _forward(layer: Any) -> Callable[[Any], Any]:
    import torch

    run = torch.ops.mkldnn._linear_pointwise
    with torch.no_grad():
        weight = torch.ops.mkldnn._reorder_linear_weight(layer.weight.detach(), None)
        bias = None if layer.bias is None else layer.bias.detach()
        # a trial on the layer's own weights: an operator that has changed its meaning must not go unnoticed
        trial = torch.linspace(-1, 1, 3 * layer.in_features).reshape(3, -1)
        if not torch.allclose(run(trial, weight, bias, "none", [], ""), layer(trial), rtol=1e-3, atol=1e-3):
            raise RuntimeError("oneDNN's linear layer gives other numbers")
    return lambda given: run(given, weight, bias, "none", [], "")
