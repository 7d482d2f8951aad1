"""Names of anatomical regions, as Chest ImaGenome has them and as models write them.

Two names are of one region where their keys agree: small letters, no underscores, hyphens, articles or plurals, the
side in front, abbreviations ("L", "CP angle") and a few words that mean the same ("heart") as the release has them. A
side is never added, dropped or exchanged; lobes are not zones, and are left as they are.
"""

import functools
import re
import unicodedata

# The 36 regions that Chest ImaGenome boxes, then those that only its phrases are about.
REGIONS = (
    "right lung", "right apical zone", "right upper lung zone", "right mid lung zone", "right lower lung zone",
    "right hilar structures", "right costophrenic angle", "right cardiophrenic angle", "right hemidiaphragm",
    "right clavicle", "right cardiac silhouette", "right upper abdomen",
    "left lung", "left apical zone", "left upper lung zone", "left mid lung zone", "left lower lung zone",
    "left hilar structures", "left costophrenic angle", "left cardiophrenic angle", "left hemidiaphragm",
    "left clavicle", "left cardiac silhouette", "left upper abdomen",
    "cardiac silhouette", "mediastinum", "upper mediastinum", "aortic arch", "descending aorta", "trachea", "carina",
    "svc", "cavoatrial junction", "right atrium", "spine", "abdomen",
    "neck", "right arm", "left arm", "right shoulder", "left shoulder", "right breast", "left breast",
    "right chest wall", "left chest wall",
)  # fmt: skip
MAX_NAME = 100  # characters of a name that are read; the longest of a region has some thirty (ours)

_WORDS = {
    "l": "left", "lt": "left", "r": "right", "rt": "right", "middle": "mid", "diaphragm": "hemidiaphragm",
    "hilum": "hilar structure", "hila": "hilar structure", "apex": "apical zone",
    "heart": "cardiac silhouette", "vertebra": "spine", "vertebrae": "spine", "midlung": "mid lung", "sulcus": "angle",
    "sulci": "angle", "clavicular": "clavicle", "field": "zone",
}  # fmt: skip
_PHRASES = {
    "cp angle": "costophrenic angle", "costo phrenic angle": "costophrenic angle",
    "cardio phrenic angle": "cardiophrenic angle", "superior vena cava": "svc", "aortic knob": "aortic arch",
    "aortic knuckle": "aortic arch", "cardiac shadow": "cardiac silhouette", "heart shadow": "cardiac silhouette",
    "cardiac silhouette silhouette": "cardiac silhouette", "cardiac silhouette shadow": "cardiac silhouette",
    "cardiac contour": "cardiac silhouette", "thoracic spine": "spine", "cavo atrial junction": "cavoatrial junction",
    "superior mediastinum": "upper mediastinum", "hemi hemidiaphragm": "hemidiaphragm", "lung base": "lower lung zone",
    "lung apical zone": "apical zone", "apical lung zone": "apical zone", "atrium right": "right atrium",
    "right atria": "right atrium",
}  # fmt: skip
_SIDED = {  # what follows a side, and is written short
    "hilar": "hilar structure", "hilar region": "hilar structure", "hilar area": "hilar structure",
    "apical": "apical zone", "apical region": "apical zone", "costophrenic": "costophrenic angle",
    "cardiophrenic": "cardiophrenic angle", "lung zone": "lung",
    **{f"{part} {what}": f"{part} lung zone" for part in ("upper", "mid", "lower") for what in ("zone", "lung")},
}  # fmt: skip
_SIDES = ("left", "right")
_SEPARATORS = re.compile(r"[\W_]+")
_SINGULAR = re.compile(r"(?<![sui])s$")


@functools.lru_cache(maxsize=4096)
def plain_name(name: str) -> str:
    """The name in small letters with single spaces, without punctuation and leading articles."""
    text = unicodedata.normalize("NFKC", name[:MAX_NAME]).lower()
    text = _SEPARATORS.sub(" ", text).strip()
    return text.removeprefix("the ").strip()


@functools.lru_cache(maxsize=4096)
def region_key(name: str) -> str:
    """What two names of one region have in common; "" of a name without letters."""
    words = [_WORDS.get(word, word) for word in map(_singular, plain_name(name).split()) if word not in ("the", "of")]
    if "side" in words and words[-1] != "side":
        words.remove("side")
    if words and words[-1] in _SIDES and words[0] not in _SIDES:
        words = [words[-1], *words[:-1]]
    side = f"{words[0]} " if words and words[0] in _SIDES else ""
    rest = " ".join(words[1:] if side else words)
    for written, meant in _PHRASES.items():
        if written in rest:
            rest = f" {rest} ".replace(f" {written} ", f" {meant} ").strip()
    if side:
        rest = _SIDED.get(rest, rest)
    return side + rest


def is_region(name: str) -> bool:
    """Whether Chest ImaGenome has this region."""
    return region_key(name) in _KEYS


@functools.lru_cache(maxsize=4096)
def other_side(key: str) -> str | None:
    """The key of the same region on the other side; None where a region has no side."""
    side, _, rest = key.partition(" ")
    if side not in _SIDES or not rest:
        return None
    return f"{_SIDES[side == 'left']} {rest}"


def _singular(word: str) -> str:
    return _SINGULAR.sub("", word) if len(word) > 3 else word


_KEYS = frozenset(map(region_key, REGIONS))
