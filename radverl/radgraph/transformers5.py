"""radgraph 0.1.18 beside transformers 5: what its fork of AllenNLP misses there, given to it alone.

transformers 5 took two methods from tokenizers that the fork calls: `encode_plus` (now `__call__`) and
`build_inputs_with_special_tokens`. They are put on the one tokenizer that RadGraph uses, and the fork is handed that
tokenizer and an encoder while a model is built; no class of transformers is changed, and no other tokenizer.

Refused, for the output would be wrong and nothing would show it: modern-radgraph-xl on transformers 5, whose tokenizer
cuts words otherwise than the one it was trained with; and versions of radgraph that have not been checked.
"""

import contextlib
import importlib.metadata
import threading
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

RADGRAPH = "0.1.18"
MODELS = ("radgraph", "radgraph-xl", "echograph")

_INSTALL = f"pip install radgraph=={RADGRAPH} requests"  # it imports requests and does not say so
_lock = threading.Lock()


def check_versions(model: str) -> None:
    """ValueError of one sentence where this model must not run with what is installed."""
    found = {}
    for package in ("radgraph", "transformers", "torch"):
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            raise ValueError(f"{model}: {package} is not installed; {_INSTALL}.") from None
    if found["radgraph"] != RADGRAPH:
        raise ValueError(
            f"{model}: radgraph {found['radgraph']} is installed, and only {RADGRAPH} has been checked; {_INSTALL}."
        )
    major = int(found["transformers"].split(".")[0])
    if model == "modern-radgraph-xl":
        if major >= 5:
            raise ValueError(
                f"modern-radgraph-xl gives wrong annotations with transformers {found['transformers']}, without an "
                "error; use radgraph-xl."
            )
        raise ValueError("modern-radgraph-xl is not supported; use radgraph-xl.")
    if model not in MODELS:
        raise ValueError(f"model is {model!r:.60}; use one of {', '.join(MODELS)}.")


def import_radgraph() -> Any:
    """The package; it sets the warning filters of the process on import, which are put back."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            import radgraph.radgraph as package
        except ImportError as error:
            raise ValueError(f"radgraph cannot be imported ({error}); {_INSTALL}.") from error
    return package


def load_base_model(name: str | Path, download: bool = False) -> tuple[Any, Any]:
    """Tokenizer and configuration of the BERT that a checkpoint names; its weights are in the checkpoint.

    Args:
        name: a local folder, or a name on the hub, which is looked up in the local cache unless `download`.
    Raises:
        ValueError: it is not there, or not of this kind.
    """
    from transformers import AutoConfig, AutoTokenizer

    options = {"local_files_only": not download, "trust_remote_code": False}
    try:
        config = AutoConfig.from_pretrained(str(name), **options)
        tokenizer = AutoTokenizer.from_pretrained(str(name), use_fast=True, **options)
    except (OSError, ValueError, KeyError, TypeError) as error:
        first = str(error).strip().split("\n")[0].rstrip(".")[:160]
        raise ValueError(
            f"radgraph: tokenizer and config of {name} are not on this machine ({first}); fetch them with "
            f"`hf download {name} config.json vocab.txt tokenizer_config.json`, name a local folder (tokenizer=PATH "
            "or RADVERL_RADGRAPH_TOKENIZER), or allow it with download=True."
        ) from None
    if not getattr(tokenizer, "is_fast", False) or tokenizer.cls_token_id is None or tokenizer.sep_token_id is None:
        raise ValueError(f"radgraph: {name} has no fast tokenizer of BERT's kind; give the one that the model names.")
    return tokenizer, config


def give_old_methods(tokenizer: Any) -> Any:
    """The same tokenizer, with the two methods that radgraph calls. They live on this object only."""

    def encode_plus(text: str, text_pair: str | None = None, **options: Any) -> Any:
        return tokenizer(text, text_pair, **options)

    def build_inputs_with_special_tokens(first: Sequence[int], second: Sequence[int] | None = None) -> list[int]:
        start, end = [tokenizer.cls_token_id], [tokenizer.sep_token_id]
        return [*start, *first, *end, *([*second, *end] if second is not None else [])]

    tokenizer.encode_plus = encode_plus
    tokenizer.build_inputs_with_special_tokens = build_inputs_with_special_tokens
    return tokenizer


@contextlib.contextmanager
def building(tokenizer: Any, config: Any) -> Iterator[None]:
    """Within, radgraph's fork of AllenNLP builds with this tokenizer and an untrained encoder of this config."""
    from transformers import AutoModel

    import_radgraph()
    from radgraph.allennlp.common import cached_transformers as fork

    with _lock:
        before = fork.get_tokenizer, fork.get
        fork.get_tokenizer = lambda *_, **__: tokenizer
        fork.get = lambda *_, **__: AutoModel.from_config(config).float()
        try:
            yield
        finally:
            fork.get_tokenizer, fork.get = before
