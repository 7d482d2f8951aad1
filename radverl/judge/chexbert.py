"""CheXbert (Smit et al. 2020, arXiv 2004.09167): labels and embeddings of reports from a checkpoint of the user's.

    h = BERT([CLS] report [SEP])[0];  class_k = argmax(W_k h + b_k),  k = 1..14

BERT-base (uncased) with 13 heads of four classes and one of two for "No Finding". Classes: 0 blank, 1 positive,
2 negative, 3 uncertain. Report text as its authors prepare it: whitespace collapsed, cut to 512 tokens.

The checkpoint has the layout of the published `chexbert.pth`: {"model_state_dict": {"module.bert....",
"module.linear_heads.<k>.weight", ...}, ...}. It is a pickle, so it is opened only where its sha256 is the one the user
gives, and then with `weights_only`. Nothing is looked up on a hub.

Shapes: ids_NT, hidden_NH, logits_NC of one head.
"""

import logging
import os
import re
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from radverl.judge.chexbert_files import check_vocabulary, first_line, load_weights, read_config, read_vocabulary
from radverl.judge.failure import JudgeFailure
from radverl.labels import NO_FINDING, Labels

if TYPE_CHECKING:
    import numpy as np

# The order of the heads; not that of radverl.labels.CHEXPERT_14.
HEADS: tuple[str, ...] = (
    "Enlarged Cardiomediastinum", "Cardiomegaly", "Lung Opacity", "Lung Lesion", "Edema", "Consolidation", "Pneumonia",
    "Atelectasis", "Pneumothorax", "Pleural Effusion", "Pleural Other", "Fracture", "Support Devices", NO_FINDING,
)  # fmt: skip
VALUES: tuple[int | None, ...] = (None, 1, 0, -1)  # of classes 0 to 3, as in a label dict
MAX_TOKENS = 512
BATCH = 32
CHECKPOINT, SHA256, TOKENIZER = "RADVERL_CHEXBERT", "RADVERL_CHEXBERT_SHA256", "RADVERL_CHEXBERT_TOKENIZER"

_log = logging.getLogger(__name__)
_lock = threading.Lock()
_loaded: dict[tuple[str, ...], "CheXbert"] = {}


class CheXbert:
    """The loaded model. Methods may be called from any thread; they take turns.

    Args and errors: as of `load_chexbert`, which keeps one model a process.
    """

    def __init__(self, checkpoint: Path, sha256: str, tokenizer: Path, device: str = "cpu") -> None:
        import torch

        words, config = read_vocabulary(tokenizer), read_config(tokenizer)
        check_vocabulary(words, config, tokenizer)
        try:
            place = torch.device(device)
            torch.empty(1, device=place)
        except (RuntimeError, AssertionError, NotImplementedError, TypeError) as error:
            raise ValueError(f"chexbert: device {device!r} cannot be used ({first_line(error)}).") from None
        self.max_tokens = min(MAX_TOKENS, config.max_position_embeddings)
        self._tokenizer = _new_tokenizer(words, self.max_tokens)
        self._pad = words["[PAD]"]
        bert, heads = _new_model(config)
        load_weights(torch.nn.ModuleDict({"bert": bert, "linear_heads": heads}), checkpoint, sha256)
        self.device = place
        self._bert, self._heads = bert.to(place).eval(), heads.to(place).eval()
        self._turn = threading.Lock()
        self._warned = False

    def labels(self, texts: Sequence[str]) -> list[Labels]:
        """Labels of many texts, in order: each of the 14 names -> 1 | 0 | -1 | None, as CheXbert says; "No Finding" may
        stand beside a finding.

        Raises:
            JudgeFailure: invalid, where the model gives no finite number.
        """
        import torch

        out: list[Labels] = [{} for _ in texts]
        for rows, hidden_NH in self._encode(texts):
            with torch.inference_mode():
                logits = [head(hidden_NH) for head in self._heads]
                finite = all(bool(torch.isfinite(logits_NC).all()) for logits_NC in logits)
                classes = [logits_NC.argmax(dim=1).tolist() for logits_NC in logits]
            if not finite:
                raise JudgeFailure("invalid", "CheXbert's heads give NaN or infinity; check the checkpoint")
            for name, column in zip(HEADS, classes, strict=True):
                for row, value in zip(rows, column, strict=True):
                    out[row][name] = VALUES[value]
        return out

    def embed(self, texts: Sequence[str]) -> "np.ndarray":
        """[CLS] vectors of the last layer, float32 of shape [texts, hidden], in order; before any pooling.

        Raises:
            JudgeFailure: invalid, where the model gives no finite number.
        """
        import numpy as np

        out_NH = np.empty((len(texts), self._bert.config.hidden_size), dtype=np.float32)
        for rows, hidden_NH in self._encode(texts):
            out_NH[rows] = hidden_NH.cpu().numpy()
        return out_NH

    def _encode(self, texts: Sequence[str]) -> Iterator[tuple[list[int], Any]]:
        """Batches of texts of like length: their places in `texts`, and their [CLS] vectors."""
        import torch

        encoded = self._tokenizer.encode_batch([normalise(text) for text in texts])
        if not self._warned and (cut := sum(bool(e.overflowing) for e in encoded)):
            self._warned = True
            _log.warning(
                "chexbert: %d of %d texts have more than %d tokens; CheXbert does not read beyond these (said once).",
                cut, len(texts), self.max_tokens,
            )  # fmt: skip
        order = sorted(range(len(texts)), key=lambda row: len(encoded[row].ids))
        for start in range(0, len(order), BATCH):
            rows = order[start : start + BATCH]
            longest = len(encoded[rows[-1]].ids)
            ids_NT = torch.full((len(rows), longest), self._pad, dtype=torch.long)
            mask_NT = torch.zeros((len(rows), longest), dtype=torch.long)
            for i, row in enumerate(rows):
                ids = encoded[row].ids
                ids_NT[i, : len(ids)], mask_NT[i, : len(ids)] = torch.tensor(ids), 1
            with self._turn, torch.inference_mode():
                given = {"input_ids": ids_NT.to(self.device), "attention_mask": mask_NT.to(self.device)}
                hidden_NH = self._bert(**given).last_hidden_state[:, 0]
                finite = bool(torch.isfinite(hidden_NH).all())
            if not finite:
                raise JudgeFailure("invalid", "CheXbert's encoder gives NaN or infinity; check the checkpoint")
            yield rows, hidden_NH


def load_chexbert(
    checkpoint: str | os.PathLike[str] | None = None,
    sha256: str | None = None,
    tokenizer: str | os.PathLike[str] | None = None,
    device: str = "cpu",
) -> CheXbert:
    """The model of these settings: one in a process, loaded on the first call.

    Args:
        checkpoint: path of `chexbert.pth`; default RADVERL_CHEXBERT.
        sha256: of that file, 64 hexadecimal digits; default RADVERL_CHEXBERT_SHA256.
        tokenizer: local folder of bert-base-uncased (vocab.txt or tokenizer.json; config.json where the sizes are not
            BERT-base's), or the path of its vocab.txt; default RADVERL_CHEXBERT_TOKENIZER.
        device: as torch names it.
    Raises:
        ValueError: one of them is missing, is no such file, or does not fit; torch or transformers is not installed.
    """
    path = _given("checkpoint", checkpoint, CHECKPOINT, "give the path of chexbert.pth")
    words = _given("tokenizer", tokenizer, TOKENIZER, "give a local bert-base-uncased folder or its vocab.txt")
    pin = str(sha256 or os.environ.get(SHA256) or "").strip().lower()
    key = (os.path.realpath(path), pin, os.path.realpath(words), str(device))
    with _lock:
        if key not in _loaded:
            _check_files(path, pin, words)
            try:
                _loaded[key] = CheXbert(path, pin, words, str(device))
            except ImportError as error:
                raise ValueError(f"chexbert: {error}; pip install torch transformers.") from error
        return _loaded[key]


def normalise(text: str) -> str:
    """Report text as CheXbert's authors prepare it: one line, single spaces. Half surrogate pairs become "?"."""
    return " ".join(text.encode("utf-8", "replace").decode("utf-8").split())


def _given(name: str, value: Any, variable: str, advice: str) -> Path:
    value = value or os.environ.get(variable)
    if not value:
        raise ValueError(f"chexbert: no {name}; {advice} (judge_settings.{name}=PATH or {variable}).")
    if not isinstance(value, str | os.PathLike):
        raise ValueError(f"chexbert: {name} is {value!r:.60}; {advice}.")
    return Path(value).expanduser()


def _check_files(path: Path, pin: str, words: Path) -> None:
    if not path.is_file():
        raise ValueError(f"chexbert: {path} is no file; give checkpoint the path of chexbert.pth.")
    if not words.exists():
        raise ValueError(f"chexbert: {words} does not exist; give tokenizer a local bert-base-uncased folder.")
    if not re.fullmatch(r"[0-9a-f]{64}", pin):
        said = f"sha256 is {pin!r:.80}" if pin else "no sha256 is given"
        raise ValueError(
            f"chexbert: {said}; give the 64 digits that `sha256sum {path}` prints, compared with those of your source."
        )


def _new_tokenizer(words: dict[str, int], max_tokens: int) -> Any:
    from tokenizers.implementations import BertWordPieceTokenizer

    tokenizer = BertWordPieceTokenizer(vocab=words, lowercase=True)
    tokenizer.enable_truncation(max_tokens)
    return tokenizer


def _new_model(config: Any) -> tuple[Any, Any]:
    from torch import nn
    from transformers import BertModel

    bert = BertModel(config).float()  # whatever torch's default dtype is just now
    sizes = [2 if name == NO_FINDING else 4 for name in HEADS]
    return bert, nn.ModuleList([nn.Linear(config.hidden_size, size) for size in sizes]).float()
