"""What CheXbert is read from: the files of bert-base-uncased, and the checkpoint (see `radverl.judge.chexbert`).

Whatever does not fit is a ValueError of one sentence that names the file and what is wrong in it.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

# Of config.json; what it lacks is as in BERT-base. The rest (dtype, dropout, ...) is not for this use.
_ARCHITECTURE = (
    "vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size",
    "max_position_embeddings", "type_vocab_size", "hidden_act", "layer_norm_eps",
)  # fmt: skip
# Where bert-base-uncased has these; other vocabularies have 30,522 entries, too.
_BERT_BASE_SIZE = 30_522
_BERT_BASE_IDS = {"[PAD]": 0, "[UNK]": 100, "[CLS]": 101, "[SEP]": 102, "the": 1996}
_OLD_BUFFER = "bert.embeddings.position_ids"  # saved by some versions of transformers; no weight


def read_vocabulary(path: Path) -> dict[str, int]:
    """Word piece -> id, of a vocab.txt or a tokenizer.json."""
    files = [path] if path.is_file() else [path / "vocab.txt", path / "tokenizer.json"]
    found = next((file for file in files if file.is_file()), None)
    if found is None:
        raise ValueError(f"chexbert: {path} has neither vocab.txt nor tokenizer.json; give bert-base-uncased.")
    try:
        if found.suffix != ".json":
            with open(found, encoding="utf-8") as lines:
                return {line.rstrip("\n"): i for i, line in enumerate(lines)}
        model = json.loads(found.read_text(encoding="utf-8"))["model"]
        return {str(word): int(i) for word, i in model["vocab"].items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        detail = f"{type(error).__name__}: {first_line(error)}"
        raise ValueError(f"chexbert: {found} is no vocabulary of word pieces ({detail}); get it anew.") from error


def read_config(path: Path) -> Any:
    """BERT-base, or what the config.json beside the vocabulary says."""
    from transformers import BertConfig

    file = path / "config.json"
    if not file.is_file():
        return BertConfig()
    try:
        given = json.loads(file.read_text(encoding="utf-8"))
        if given.get("model_type", "bert") != "bert":
            raise ValueError(f"model_type is {given['model_type']!r}")
        return BertConfig(**{name: given[name] for name in _ARCHITECTURE if name in given})
    except Exception as error:  # whatever transformers makes of odd values
        raise ValueError(f"chexbert: {file} is no config of BERT ({first_line(error)}); get it anew.") from error


def check_vocabulary(words: Mapping[str, int], config: Any, path: Path) -> None:
    """Refuse a vocabulary that is not the one the model was trained with, as far as it shows."""
    advice = "use the one of bert-base-uncased"
    missing = [word for word in ("[PAD]", "[UNK]", "[CLS]", "[SEP]") if word not in words]
    if missing:
        raise ValueError(f"chexbert: the vocabulary in {path} has no {', '.join(missing)}; {advice}.")
    if sorted(words.values()) != list(range(config.vocab_size)):
        raise ValueError(
            f"chexbert: the vocabulary in {path} has {len(words)} entries and the model {config.vocab_size}; {advice}."
        )
    other = [word for word, i in _BERT_BASE_IDS.items() if words.get(word) != i]
    if config.vocab_size == _BERT_BASE_SIZE and other:
        raise ValueError(f"chexbert: {path} has another vocabulary ({', '.join(other)} stand elsewhere); {advice}.")


def load_weights(model: Any, path: Path, sha256: str) -> None:
    """Fill `model` with the checkpoint's weights, all of them and no others; its sha256 is checked first."""
    import torch

    with open(path, "rb") as file:  # hashed and loaded from one open file, so that none can be put in its place
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        if digest != sha256:
            raise ValueError(
                f"chexbert: {path} has sha256 {digest} and not {sha256}; it is another file than you named, or damaged."
            )
        file.seek(0)
        try:
            saved = torch.load(file, map_location="cpu", weights_only=True)
        except Exception as error:
            detail = f"{type(error).__name__}: {first_line(error)}"
            raise ValueError(
                f"chexbert: {path} is no file of weights alone ({detail}); it is damaged, or has code in it."
            ) from error
    state = saved.get("model_state_dict") if isinstance(saved, Mapping) else None
    if not isinstance(state, Mapping) or not all(isinstance(value, torch.Tensor) for value in state.values()):
        keys = ", ".join(map(str, list(saved)[:5])) if isinstance(saved, Mapping) else type(saved).__name__
        raise ValueError(f"chexbert: {path} has no weights at model_state_dict (it has: {keys}); give chexbert.pth.")
    weights = {str(name).removeprefix("module."): value for name, value in state.items()}
    weights.pop(_OLD_BUFFER, None)
    wanted = model.state_dict()
    wrong = {
        "lacks": [name for name in wanted if name not in weights],
        "has unknown": [name for name in weights if name not in wanted],
        "has other shapes for": [
            f"{name} {tuple(weights[name].shape)} for {tuple(wanted[name].shape)}"
            for name in wanted
            if name in weights and weights[name].shape != wanted[name].shape
        ],
    }
    if faults := [f"{what} {_listed(names)}" for what, names in wrong.items() if names]:
        raise ValueError(f"chexbert: {path} {'; '.join(faults)}; give the published layout (BERT-base and 14 heads).")
    model.load_state_dict(weights)


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more


def first_line(error: BaseException) -> str:
    """The first line of an error, short enough for a sentence."""
    return str(error).strip().split("\n")[0].rstrip(".")[:160]
