"""RadGraph: entities and relations of reports, by the published models, from files or by rules, and their F1.

`scoring` needs nothing but annotations. The models need the extra `radgraph` and a checkpoint of the user's. The
annotator `rules` needs neither, and its numbers are never called RadGraph.
"""

from typing import TYPE_CHECKING, Any

from radverl.radgraph.annotation_files import FileAnnotator, read_annotations
from radverl.radgraph.base import ANNOTATORS, AnnotationFailure, Annotator, get_annotator
from radverl.radgraph.scoring import LEVELS, Level, check_annotation, f1

if TYPE_CHECKING:
    from radverl.radgraph.annotator import RadGraphAnnotator
    from radverl.radgraph.rules import RulesAnnotator

__all__ = [
    "ANNOTATORS",
    "LEVELS",
    "AnnotationFailure",
    "Annotator",
    "FileAnnotator",
    "Level",
    "RadGraphAnnotator",
    "RulesAnnotator",
    "check_annotation",
    "f1",
    "get_annotator",
    "read_annotations",
]


def __getattr__(name: str) -> Any:
    # what needs more than the standard library, or is seldom needed, is imported where it is asked for
    if name == "RadGraphAnnotator":
        from radverl.radgraph.annotator import RadGraphAnnotator

        return RadGraphAnnotator
    if name == "RulesAnnotator":
        from radverl.radgraph.rules import RulesAnnotator

        return RulesAnnotator
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
