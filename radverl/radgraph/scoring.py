"""RadGraph-F1 of two annotations (Jain et al. 2021, arXiv 2106.14463; reward levels of Delbrouck et al. 2022,
arXiv 2210.12186).

    F1 = 2 P R / (P + R),  P = |H & R| / |H|,  R = |H & R| / |R|;  0 where a side is empty

H and R are sets, so a repeated sentence gains nothing and a pair may be given in either order. The elements by level:
  simple    (tokens, label) of every entity
  partial   (tokens, label), with True beside it where the entity has a relation; "RG_ER" in papers
  complete  (tokens, label) of an entity without relations, else one (tokens, label, relation, target's tokens) per
            relation, these in lower case
  radcliq   mean of two F1: of (tokens, label), and of (entity, target entity, relation); as RadCliQ's authors compute
            it (Yu et al. 2023). Two annotations without relations have 0 for the second, so equal ones score 0.5.

Range [0, 1], higher is better. Tokens are compared with their case, as RadGraph's own code does outside relations, so
annotators of this package read texts in lower case. The label names of RadGraph 1.0 (OBS-DP) equal the long ones.
"""

from collections.abc import Callable, Mapping
from typing import Any, Literal, get_args

Level = Literal["simple", "partial", "complete", "radcliq"]
LEVELS: tuple[Level, ...] = get_args(Level)
# RadGraph 1.0's name -> that of RadGraph-XL.
LONG_LABELS = {
    "ANAT-DP": "Anatomy::definitely present",
    "ANAT-U": "Anatomy::uncertain",
    "ANAT-DA": "Anatomy::definitely absent",
    "OBS-DP": "Observation::definitely present",
    "OBS-U": "Observation::uncertain",
    "OBS-DA": "Observation::definitely absent",
}

Annotation = Mapping[str, Any]


def f1(ref: Annotation, hyp: Annotation, level: Level = "partial") -> float:
    """RadGraph-F1 of two annotations as the radgraph package writes them, for one text each.

    Raises:
        ValueError: another level, or an annotation that is none; the sentence names the side and the entity.
    """
    if level not in LEVELS:
        raise ValueError(f"level is {level!r:.60}; use one of {', '.join(LEVELS)}.")
    if level == "radcliq":
        return (_f1(ref, hyp, _simple) + _f1(ref, hyp, _relations)) / 2
    return _f1(ref, hyp, {"simple": _simple, "partial": _partial, "complete": _complete}[level])


def check_annotation(annotation: Any, name: str = "annotation") -> None:
    """Raise a ValueError that says what is wrong with an annotation, if anything is."""
    if not isinstance(annotation, Mapping) or not isinstance(annotation.get("entities"), Mapping):
        is_document = isinstance(annotation, Mapping) and any(
            isinstance(value, Mapping) and "entities" in value for value in annotation.values()
        )
        advice = "give one of its values" if is_document else "give what RadGraph writes for one text"
        raise ValueError(f'{name} has no "entities" of its own; {advice}.')
    entities = annotation["entities"]
    for key, entity in entities.items():
        where = f"{name}: entity {key!r:.40}"
        if not isinstance(entity, Mapping):
            raise ValueError(f"{where} is {entity!r:.60}; it needs tokens, label and relations.")
        for field in ("tokens", "label"):
            if not isinstance(entity.get(field), str):
                raise ValueError(f'{where} has {entity.get(field)!r:.60} for "{field}"; it must be a string.')
        relations = entity.get("relations")
        if not isinstance(relations, list | tuple):
            raise ValueError(f'{where} has {relations!r:.60} for "relations"; it must be a list, empty where none is.')
        for relation in relations:
            if not (
                isinstance(relation, list | tuple)
                and len(relation) == 2
                and all(isinstance(part, str) for part in relation)
            ):
                raise ValueError(f"{where} has the relation {relation!r:.60}; it must be [type, key of an entity].")
            if relation[1] not in entities:
                raise ValueError(f"{where} has a relation to {relation[1]!r:.40}, which is no entity of it.")


def _f1(ref: Annotation, hyp: Annotation, elements: Callable[[Any], set[Any]]) -> float:
    try:
        refs, hyps = elements(ref["entities"]), elements(hyp["entities"])
        _check_targets(ref["entities"])
        _check_targets(hyp["entities"])
    except (KeyError, TypeError, ValueError, AttributeError, IndexError):
        check_annotation(ref, "ref")
        check_annotation(hyp, "hyp")
        raise
    if not (both := len(refs & hyps)):
        return 0.0
    precision, recall = both / len(hyps), both / len(refs)
    return 2 * precision * recall / (precision + recall)


def _check_targets(entities: Any) -> None:
    """KeyError where a relation leads nowhere, at the levels that do not look, too."""
    for e in entities.values():
        for _, target in e["relations"]:
            entities[target]


def _label(entity: Any) -> str:
    label: str = entity["label"]
    return LONG_LABELS.get(label, label)


def _simple(entities: Any) -> set[Any]:
    return {(e["tokens"], _label(e)) for e in entities.values()}


def _partial(entities: Any) -> set[Any]:
    return {(e["tokens"], _label(e), bool(e["relations"])) for e in entities.values()}


def _complete(entities: Any) -> set[Any]:
    out: set[Any] = set()
    for e in entities.values():
        if not e["relations"]:
            out.add((e["tokens"], _label(e)))
        for kind, target in e["relations"]:
            out.add((e["tokens"].lower(), _label(e), kind, entities[target]["tokens"].lower()))
    return out


def _relations(entities: Any) -> set[Any]:
    return {
        ((e["tokens"], _label(e)), (entities[target]["tokens"], _label(entities[target])), kind)
        for e in entities.values()
        for kind, target in e["relations"]
    }
