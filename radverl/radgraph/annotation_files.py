"""Annotations from files, so that RadGraph's rewards work without its weights.

Four layouts, told apart by their content:
  RadGraph 1.0    {document: {"text", "entities"}}; its test split has {"text", "labeler_1": {"entities"}, ...}, of
                  which the first labeler is taken
  radgraph        {"0": {"text", "entities"}, ...}, as the package returns it, or a list of such annotations
  JSON lines      one annotation a line
  DyGIE           JSON lines of {"sentences", "ner", "relations"}, as RadGraph-XL's data are released, or with
                  "predicted_ner" and "predicted_relations"

An annotation is found by its text. Releases hold the text in RadGraph's tokens ("heart size is normal ."), a data set
holds it as it was written ("Heart size is normal."), so the key is the text in lower case without white space.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from radverl.radgraph.base import AnnotationFailure
from radverl.radgraph.scoring import check_annotation


def read_annotations(path: str | Path, lowercase: bool = True) -> dict[str, dict[str, Any]]:
    """Annotations of a file by `text_key` of their text; where a text stands twice, the first one counts.

    Args:
        lowercase: read tokens in lower case, as this package's annotators write them; else as in the file.
    Raises:
        ValueError: the file cannot be read or is in none of the layouts; names the document and the fault.
    """
    out: dict[str, dict[str, Any]] = {}
    for name, document in _documents(Path(path)):
        where = f"{path}: {name}"
        annotation = _annotation(document, where)
        if lowercase:
            annotation = _in_lower_case(annotation)
        out.setdefault(text_key(annotation["text"]), annotation)
    if not out:
        raise ValueError(f"{path} has no annotations; give a JSON file of RadGraph, of one annotation or more.")
    return out


def text_key(text: str) -> str:
    """What texts have in common that RadGraph reads as the same tokens: letters in lower case and marks, no space.

    Its tokens are parts of the text in order; only quotes and written-out escapes change before.
    """
    for escape in ("\\n", "\\f", "\\u2122"):
        text = text.replace(escape, " ")
    return "".join(text.replace('\\"', "``").lower().split())


class FileAnnotator:
    """Precomputed annotations of one file. A text that is not in it is a failure, an empty text has no entities."""

    name = "files"

    def __init__(self, path: str | Path, lowercase: bool = True) -> None:
        self.path = Path(path)
        self._annotations = read_annotations(path, lowercase)

    def annotate(self, texts: Sequence[str]) -> list[dict[str, Any]]:
        """One annotation a text, in order.

        Raises:
            AnnotationFailure: invalid, where the file has none for a text.
        """
        for out in (found := self.annotate_each(texts)):
            if isinstance(out, AnnotationFailure):
                raise out
        return found  # type: ignore[return-value]

    def annotate_each(self, texts: Sequence[str]) -> list[dict[str, Any] | AnnotationFailure]:
        """As `annotate`, with the failure in place of an annotation."""
        return [self._find(text) for text in texts]

    def _find(self, text: str) -> dict[str, Any] | AnnotationFailure:
        key = text_key(text)
        if not key:
            return empty_annotation()
        found = self._annotations.get(key)
        if found is None:
            return AnnotationFailure("invalid", f"{self.path} has no annotation of this text ({len(text)} characters)")
        return found


def empty_annotation() -> dict[str, Any]:
    """That of a text without words."""
    return {"text": "", "entities": {}}


def _documents(path: Path) -> Iterator[tuple[str, Any]]:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} cannot be read ({error}); give a JSON file of RadGraph annotations.") from None
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        yield from _lines(path, text, str(error))
        return
    if isinstance(content, Mapping) and ("text" in content or "sentences" in content):
        content = [content]
    if isinstance(content, list):
        yield from ((f"item {i}", document) for i, document in enumerate(content))
    elif isinstance(content, Mapping):
        yield from ((f"document {key!r:.80}", document) for key, document in content.items())
    else:
        raise ValueError(f"{path} is no JSON object or list; give a JSON file of RadGraph annotations.")


def _lines(path: Path, text: str, fault: str) -> Iterator[tuple[str, Any]]:
    """JSON lines; `fault` says why the whole is not JSON, in case these are none either."""
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            document = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise ValueError(
                f"{path} is neither JSON ({fault}) nor JSON lines (line {number}: {error}); the file is damaged or cut."
            ) from None
        yield f"line {number}", document


def _annotation(document: Any, where: str) -> dict[str, Any]:
    if isinstance(document, Mapping) and "text" not in document and len(document) == 1:
        (document,) = document.values()  # a line with its key
    if isinstance(document, Mapping) and "sentences" in document:
        document = _from_dygie(document, where)
    if not isinstance(document, Mapping) or not isinstance(document.get("text"), str):
        raise ValueError(f'{where} has no "text"; give annotations with the text they were made of.')
    entities = document.get("entities")
    if entities is None and isinstance(labeler := document.get("labeler_1"), Mapping):
        entities = labeler.get("entities")
    out = {"text": document["text"], "entities": entities}
    check_annotation(out, where)
    return out


def _from_dygie(document: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Spans of tokens of the whole document, as entities; a relation of other spans is left out, as radgraph does."""
    try:
        words = [str(word) for sentence in document["sentences"] for word in sentence]
        spans = [tuple(span[:3]) for sent in document.get("ner", document.get("predicted_ner")) for span in sent]
        pairs = document.get("relations", document.get("predicted_relations")) or []
        keys = {(start, end): str(i) for i, (start, end, _) in reversed(list(enumerate(spans, start=1)))}
        entities: dict[str, Any] = {
            str(i): {
                "tokens": " ".join(words[start : end + 1]), "label": label, "start_ix": start, "end_ix": end,
                "relations": [],
            }
            for i, (start, end, label) in enumerate(spans, start=1)
        }  # fmt: skip
        for start, end, to_start, to_end, kind, *_ in (pair for sentence in pairs for pair in sentence):
            if (start, end) in keys and (to_start, to_end) in keys:
                for entity in entities.values():
                    if (entity["start_ix"], entity["end_ix"]) == (start, end):
                        entity["relations"].append([kind, keys[to_start, to_end]])
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{where} has sentences and is not in DyGIE's layout ({error!r:.100}).") from None
    return {"text": " ".join(words), "entities": entities}


def _in_lower_case(annotation: dict[str, Any]) -> dict[str, Any]:
    entities = {key: {**entity, "tokens": entity["tokens"].lower()} for key, entity in annotation["entities"].items()}
    return {"text": annotation["text"].lower(), "entities": entities}
