"""RadGraph's published models as an annotator: batched, cached, and the same as radgraph's own run of each text alone.

    texts -> radgraph's tokens -> equal ones once -> cache -> buckets of equal token count -> model -> cache

Batches differ from a text alone in the last bits of the scores. Where that could turn a choice (`forward.Scores`), the
text is run again as radgraph runs it, so its annotation is the same, not nearly the same. Texts longer than the encoder
are always run so. How far the scores differ is measured on the model when it is loaded.

Texts are read in lower case (`lowercase`): the encoder does so anyway, and RadGraph-F1 compares tokens with their case.
An empty text has no entities; radgraph reads it as the word "None".

Research only, not for clinical use.
"""

import math
import os
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from radverl.judge.cache import AnswerCache, cache_key
from radverl.radgraph.annotation_files import empty_annotation
from radverl.radgraph.base import AnnotationFailure

CACHE = "RADVERL_RADGRAPH_CACHE"
# Ours. A text of 1,024 tokens has 262,144 pairs of spans: seconds on a CPU. Reports have some 100.
MAX_TOKENS = 1024
MAX_CHARS_PER_TOKEN = 40
BATCH = 16
# Ours: a choice nearer to its turning than so many times the difference that a batch made on `_TRIALS` is made anew.
SAFETY = 16
_TRIALS = (
    "no pneumothorax",
    "small left pleural effusion with atelectasis at the left base , new since the prior study .",
)
_REMEMBERED_WORDS = 50_000

Tokens = tuple[str, ...]


class RadGraphAnnotator:
    """A loaded RadGraph model; may be asked from any thread.

    Args:
        model: radgraph-xl, radgraph or echograph.
        checkpoint: folder or .tar.gz; default RADVERL_RADGRAPH, else the local cache of the hub or of radgraph.
        device: as torch names it.
        batch: texts of one run at most.
        cache: SQLite file; None: RADVERL_RADGRAPH_CACHE, else radverl/radgraph.sqlite in the user's cache folder;
            False: none. It holds report text.
        tokenizer: local folder, or hub name, of the BERT that the checkpoint names; default
            RADVERL_RADGRAPH_TOKENIZER, else the checkpoint's own name.
        download: whether what is missing may be fetched from the Hugging Face hub.
        lowercase: read texts in lower case.
        max_tokens: a text with more fails; radgraph itself needs memory with the square of the length.
    Raises:
        ValueError: something is missing, does not fit, or must not run together (`transformers5`).
    """

    def __init__(
        self,
        model: str = "radgraph-xl",
        checkpoint: str | os.PathLike[str] | None = None,
        device: str = "cpu",
        batch: int = BATCH,
        cache: str | os.PathLike[str] | bool | None = None,
        tokenizer: str | os.PathLike[str] | None = None,
        download: bool = False,
        lowercase: bool = True,
        max_tokens: int = MAX_TOKENS,
    ) -> None:
        from radverl.radgraph import checkpoint as files
        from radverl.radgraph.packed import pack
        from radverl.radgraph.transformers5 import check_versions

        if batch < 1 or max_tokens < 1:
            raise ValueError(f"{model}: batch is {batch} and max_tokens {max_tokens}; both are at least 1.")
        check_versions(model)
        read = files.read_checkpoint(files.find_checkpoint(model, checkpoint, download))
        for kind in ("ner", "relation"):
            if f"{model}__{kind}_labels.txt" not in read.vocabulary:
                found = ", ".join(sorted(name.split("__")[0] for name in read.vocabulary if "__ner_labels" in name))
                raise ValueError(f"{read.path} is a checkpoint of {found or 'another model'}, not of {model}.")
        self._built = files.load(read, tokenizer, download)
        self.name, self.digest, self.lowercase, self.max_tokens = model, read.digest, lowercase, max_tokens
        self._place = self._move_to(device)
        self._linears = pack(self._built.model) if self._place.type == "cpu" else []
        # sentences of one document share what coreference and events find, so there each text is a document
        weights = self._built.model._loss_weights
        shares = weights["coref"] > 0 or weights["events"] > 0 or self._built.model._coref.coref_prop > 0
        self._batch = 1 if shares else batch
        self._words: dict[str, Any] = {}
        self._turn = threading.RLock()
        self._remember_words()
        self._margins_3 = self._measure()
        self._cache = (
            None if cache is False else AnswerCache(default_cache() if cache is None or cache is True else cache)
        )
        self.run_alone = self.computed = 0

    def annotate(self, texts: Sequence[str]) -> list[dict[str, Any]]:
        """One annotation a text, in order, as radgraph writes them. Equal texts share one dict: do not write into it.

        Raises:
            AnnotationFailure: the first text that has none (`annotate_each` gives the others'): invalid where it is too
                long, other where the model fails on it.
        """
        for out in (found := self.annotate_each(texts)):
            if isinstance(out, AnnotationFailure):
                raise out
        return found  # type: ignore[return-value]

    def annotate_each(self, texts: Sequence[str]) -> list[dict[str, Any] | AnnotationFailure]:
        """As `annotate`, with a failure in the place of the annotation it is about."""
        found: dict[Tokens, dict[str, Any] | AnnotationFailure] = {}
        tokens = [self._tokens(text) for text in texts]
        missing = []
        for words in tokens:
            if isinstance(words, AnnotationFailure) or words in found:
                continue
            kept = self._cache.get(self._key(words)) if words and self._cache else None
            found[words] = kept if kept and "entities" in kept else empty_annotation()
            if words and found[words] is not kept:
                missing.append(words)
        for words, out in self._run(missing):
            found[words] = out
            if self._cache and not isinstance(out, AnnotationFailure):
                self._cache.put(self._key(words), f"{self.name}:{self.digest[:12]}", "annotation", out)
        return [words if isinstance(words, AnnotationFailure) else found[words] for words in tokens]

    def _tokens(self, text: str) -> Tokens | AnnotationFailure:
        """The tokens that radgraph makes of a text."""
        from radgraph.utils import preprocess_reports

        if not isinstance(text, str):
            raise TypeError(f"{self.name}: a text is {type(text).__name__}; give strings.")
        words: list[str] = []
        long = len(text) > MAX_CHARS_PER_TOKEN * self.max_tokens
        if not long:
            text = text.encode("utf-8", "replace").decode("utf-8")  # half surrogate pairs, which no tokenizer takes
            words = preprocess_reports([text.lower() if self.lowercase else text], self.name)[0]["sentences"][0]
            long = len(words) > self.max_tokens
        if long:
            size = f"{len(words)} tokens" if words else f"{len(text)} characters"
            return AnnotationFailure("invalid", f"{self.name}: a text has {size}, over {self.max_tokens} tokens")
        return tuple(words) if any(self._pieces(word) for word in words) else ()

    def _key(self, words: Sequence[str]) -> str:
        return cache_key(self.name, "annotation", self.digest, {}, " ".join(words))

    def _run(self, texts: list[Tokens]) -> Iterator[tuple[Tokens, dict[str, Any] | AnnotationFailure]]:
        from radverl.radgraph.buckets import buckets

        alone = [sum(map(self._pieces, words)) + 2 > self._built.max_length for words in texts]
        for rows in buckets([len(words) for words in texts], self._batch, alone):
            group = [texts[row] for row in rows]
            try:
                outs: list[Any] = self._run_group(group, alone[rows[0]])
            except Exception as error:  # whatever torch or radgraph make of a text
                outs = [self._run_single(words) for words in group] if len(group) > 1 else [self._failure(error)]
            yield from zip(group, outs, strict=True)

    def _run_single(self, words: Tokens) -> dict[str, Any] | AnnotationFailure:
        try:
            return self._run_group([words], True)[0]
        except Exception as error:
            return self._failure(error)

    def _run_group(self, group: list[Tokens], alone: bool) -> list[dict[str, Any]]:
        """Texts of one bucket; those on edge once more, as radgraph runs them."""
        from radverl.radgraph.forward import forward, make_batch
        from radverl.radgraph.packed import using

        with self._turn:
            batch = make_batch(self._built, [list(words) for words in group], self.name)
            with using([] if alone else self._linears):
                outs, scores = forward(self._built, batch, self._place)
            self.computed += len(group)
            if alone:
                return outs
            sure_B = (scores.margins() > self._margins_3).all(1)  # not so where one is NaN
            for row, sure in enumerate(sure_B.tolist()):
                if not sure:
                    single = make_batch(self._built, [list(group[row])], self.name)
                    outs[row] = forward(self._built, single, self._place)[0][0]
                    self.run_alone += 1
        return outs

    def _measure(self) -> Any:
        """What running in a batch changes in the scores of this model on this machine, times SAFETY."""
        import torch

        from radverl.radgraph.forward import forward, make_batch
        from radverl.radgraph.packed import using

        seen: list[list[float]] = []
        for text in _TRIALS * 2:
            words = text.split() * (1 + len(seen))  # 2 to 80 tokens
            alone = forward(self._built, make_batch(self._built, [words], self.name), self._place)[1]
            with using(self._linears):
                batch = make_batch(self._built, [words] * 3, self.name)
                seen.append(forward(self._built, batch, self._place)[1].differences(alone))
        if not all(map(math.isfinite, map(max, seen))):
            raise ValueError(f"{self.name} gives scores that are no numbers; the checkpoint is damaged.")
        return SAFETY * torch.tensor(seen, device=self._place).amax(0)

    def _failure(self, error: Exception) -> AnnotationFailure:
        detail = f"{type(error).__name__}: {str(error).strip().splitlines()[0][:200] if str(error).strip() else ''}"
        return AnnotationFailure("other", f"{self.name} gives no annotation ({detail})")

    def _move_to(self, device: str) -> Any:
        import torch

        try:
            place = torch.device(device)
            self._built.model.to(place)
        except (RuntimeError, AssertionError, NotImplementedError, TypeError) as error:
            first = str(error).strip().split("\n")[0][:160]
            raise ValueError(f"{self.name}: device {device!r} cannot be used ({first}).") from None
        return place

    def _pieces(self, word: str) -> int:
        return len(self._encode(word)["input_ids"])

    def _encode(self, word: str) -> Any:
        out = self._words.get(word)
        if out is None:
            with self._turn:  # fast tokenizers are for one thread at a time
                out = {"input_ids": self._plain(word, add_special_tokens=False)["input_ids"]}
                if len(self._words) >= _REMEMBERED_WORDS:
                    self._words.clear()
                self._words[word] = out
        return out

    def _remember_words(self) -> None:
        """radgraph's reader asks for the pieces of each word anew; they are looked up instead."""
        tokenizer = self._built.tokenizer
        self._plain = plain = tokenizer.encode_plus

        def encode_plus(text: str, text_pair: str | None = None, **options: Any) -> Any:
            if text_pair is None and options.get("add_special_tokens") is False and not options.get("max_length"):
                return self._encode(text)
            return plain(text, text_pair, **options)

        tokenizer.encode_plus = encode_plus


def default_cache() -> Path:
    """RADVERL_RADGRAPH_CACHE, else radverl/radgraph.sqlite in the user's cache folder."""
    if chosen := os.environ.get(CACHE):
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "radverl" / "radgraph.sqlite"
