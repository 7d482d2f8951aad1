"""RadGraph for all callers: `RadGraphAnnotator` behind `radverl.serve`, so that a node's reward workers share one copy.

In a Ray job the model lives in one actor per node, else in this process; either way texts of all callers are collected
into batches and each is annotated once. Not a text's annotation but a call without an answer raises
`AnnotationFailure`, with the cause.
"""

import inspect
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from radverl.radgraph.annotator import CACHE, RadGraphAnnotator
from radverl.radgraph.base import AnnotationFailure
from radverl.radgraph.checkpoint import CHECKPOINT, TOKENIZER, find_checkpoint
from radverl.radgraph.transformers5 import check_versions
from radverl.serve import Client, ModelFailure, shared
from radverl.serve.entries import Run

# Ours. A step of GRPO hands in all its rollouts at once, and the last text waits for all before it.
TIMEOUT = 600.0
# Ours. More than the model runs at once (`batch`), since texts of equal length run together.
MAX_BATCH = 128


class SharedAnnotator:
    """An annotator (`radverl.radgraph.Annotator`) that asks a served model; made by `shared_annotator`."""

    def __init__(self, name: str, client: Client) -> None:
        self.name, self.client = name, client

    def annotate(self, texts: Sequence[str]) -> list[dict[str, Any]]:
        """One annotation a text, in order. Equal texts share one dict: do not write into it.

        Raises:
            AnnotationFailure: of the first text that has none.
        """
        return _annotations(self.annotate_each(texts))

    async def annotate_async(self, texts: Sequence[str]) -> list[dict[str, Any]]:
        """`annotate` for callers in an event loop, which goes on meanwhile."""
        return _annotations(await self.annotate_each_async(texts))

    def annotate_each(self, texts: Sequence[str]) -> list[dict[str, Any] | AnnotationFailure]:
        """As `annotate`, with a failure in the place of the annotation it is about."""
        return _each(self.client.ask(self._checked(texts), return_failures=True))

    async def annotate_each_async(self, texts: Sequence[str]) -> list[dict[str, Any] | AnnotationFailure]:
        """`annotate_each` for callers in an event loop."""
        return _each(await self.client.ask_async(self._checked(texts), return_failures=True))

    def counts(self) -> dict[str, float]:
        """As `radverl.serve.Client.counts`, for logs."""
        return self.client.counts()

    def _checked(self, texts: Sequence[str]) -> list[str]:
        for text in texts:
            if not isinstance(text, str):
                raise TypeError(f"{self.name}: a text is {type(text).__name__}; give strings.")
        return list(texts)


def shared_annotator(
    settings: Mapping[str, Any] | None = None,
    *,
    where: Literal["auto", "process", "ray"] = "auto",
) -> SharedAnnotator:
    """The node's RadGraph under Ray, else the process's. The model is loaded by the first call.

    Args:
        settings: arguments of `RadGraphAnnotator` (model, checkpoint, device, cache, ...), and
            gpu: share of a GPU that the actor takes, 0 (default): none; with it `device` is cuda unless given;
            timeout: seconds for a call, default 600; max_batch: texts collected at most, default 128;
            threads: CPU threads in the actor, see `radverl.serve.shared`.
        where: see `radverl.serve.shared`.
    Raises:
        ValueError: a setting that is not known or cannot be, no checkpoint, or versions that must not run together.
    """
    model = {"model": "radgraph-xl", **(settings or {})}
    served: dict[str, Any] = {"timeout": TIMEOUT, "max_batch": MAX_BATCH}
    served |= {name: model.pop(name) for name in ("timeout", "max_batch", "threads") if name in model}
    gpu = model.pop("gpu", 0)
    known = list(inspect.signature(RadGraphAnnotator).parameters)
    if unknown := sorted(set(model) - set(known)):
        known += ["gpu", "timeout", "max_batch", "threads"]
        raise ValueError(f"radgraph: unknown setting {', '.join(unknown)}; it has {', '.join(known)}.")
    name = str(model["model"])
    check_versions(name)
    if gpu:
        model.setdefault("device", "cuda")
    if not model.get("download"):
        path = find_checkpoint(name, model.get("checkpoint"))
        if not path.exists():
            raise ValueError(f"{name}: checkpoint {path} is not there; give the path of a folder or a .tar.gz.")
    client = shared("radverl.radgraph.service:load_annotator", _as_here(model), where=where, num_gpus=gpu, **served)
    return SharedAnnotator(name, client)


def load_annotator(**settings: Any) -> Run:
    """The factory: runs where the model is to live."""
    return RadGraphAnnotator(**settings).annotate_each


def _as_here(settings: dict[str, Any]) -> dict[str, Any]:
    """The settings with what this process has in its environment: an actor may have another, and another folder."""
    found = dict(settings)
    for name, variable in (("checkpoint", CHECKPOINT), ("tokenizer", TOKENIZER), ("cache", CACHE)):
        value = os.environ.get(variable) or None if found.get(name) in (None, True) else found[name]
        if isinstance(value, str | os.PathLike):
            path = Path(value).expanduser()
            value = os.path.abspath(path) if name != "tokenizer" or path.exists() else str(value)
        found[name] = value
    return found


def _annotations(outcomes: list[dict[str, Any] | AnnotationFailure]) -> list[dict[str, Any]]:
    for outcome in outcomes:
        if isinstance(outcome, AnnotationFailure):
            raise outcome
    return outcomes  # type: ignore[return-value]


def _each(outcomes: list[Any]) -> list[dict[str, Any] | AnnotationFailure]:
    return [AnnotationFailure(out.cause, out.detail) if isinstance(out, ModelFailure) else out for out in outcomes]
