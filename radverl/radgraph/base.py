"""What an annotator is, and how one is had by its name."""

import json
import threading
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol, runtime_checkable

from radverl.judge.failure import Cause

ANNOTATORS = ("rules", "radgraph", "radgraph-xl", "files")

_lock = threading.Lock()
_made: dict[tuple[str, str], "Annotator"] = {}


class AnnotationFailure(Exception):
    """A text that got no annotation. `cause` is the word to count by, `detail` says what happened, without the text.

    Causes: those of `radverl.judge.failure.JudgeFailure` that apply (timeout, invalid, connection, ...), or other.
    """

    def __init__(self, cause: Cause | Literal["other"], detail: str) -> None:
        super().__init__(cause, detail)
        self.cause, self.detail = cause, detail

    def __str__(self) -> str:
        return f"{self.cause}: {self.detail}"


@runtime_checkable
class Annotator(Protocol):
    """Reads entities and relations from texts. It may have `annotate_async(texts)`, too."""

    name: str

    def annotate(self, texts: Sequence[str]) -> list[dict[str, Any]]:
        """One annotation a text, in order, as the radgraph package writes them.

        Raises:
            AnnotationFailure: a text has none; no annotation ever stands for a failure.
        """


def get_annotator(name: str = "rules", settings: Mapping[str, Any] | None = None) -> Annotator:
    """The annotator of this name and these settings; one in a process, made on the first call.

    Args:
        name: rules (offline, not RadGraph), radgraph or radgraph-xl (`RadGraphAnnotator` behind
            `service.shared_annotator`: one per node under Ray), files (`FileAnnotator`).
        settings: arguments of what the name stands for.
    Raises:
        ValueError: another name, settings that the annotator does not have, or what it needs is missing.
    """
    if name not in ANNOTATORS:
        raise ValueError(f"annotator is {name!r:.60}; use one of {', '.join(ANNOTATORS)}.")
    given = dict(settings or {})
    key = (name, json.dumps(given, sort_keys=True, default=str))
    with _lock:
        if key not in _made:
            _made[key] = _make(name, given)
        return _made[key]


def _make(name: str, settings: dict[str, Any]) -> Annotator:
    # imported here: nobody pays for what is not asked for
    if name == "rules":
        from radverl.radgraph.rules import RulesAnnotator

        kind: type[Annotator] = RulesAnnotator
    elif name == "files":
        from radverl.radgraph.annotation_files import FileAnnotator

        kind = FileAnnotator
    else:
        from radverl.radgraph.service import shared_annotator

        return shared_annotator({"model": name, **settings})
    try:
        return kind(**settings)
    except TypeError as error:
        raise ValueError(f"annotator {name}: {error}; see the arguments of {kind.__name__}.") from None
