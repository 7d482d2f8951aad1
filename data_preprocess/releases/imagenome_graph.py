"""A scene graph of Chest ImaGenome: the regions of one image, with box, phrases of the report and attributes.

    {"image_id", "viewpoint", "patient_id", "study_id",
     "objects": [{"bbox_name", "x1" ... "y2" in the 224 frame, "original_x1" ... "original_y2" in pixels}, ...],
     "attributes": [{"bbox_name", "phrases": [...], "attributes": [["category|yes|name", ...], ...],
                     "sections": ["finalreport", ...]}, ...], ...}

A region that no phrase is about was not described; that does not make it normal.
"""

import functools
import lzma
import os
import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from data_preprocess.core.image_files import MACHINE_ERRORS
from data_preprocess.core.json_files import JsonError, parse_json
from data_preprocess.core.reports import refuse_empty, words
from data_preprocess.core.skiplog import SkipRow
from data_preprocess.releases.imagenome_boxes import frames_disagree, image_box

MAX_BYTES = 20_000_000  # of one graph; the release's have some hundred thousand (ours)
ABNORMAL = "nlp|yes|abnormal"
HISTORY = "history"  # a section of the release beside finalreport and prelimread
# Damage in a member, or a way of packing that Python does not know: a password, an odd method.
_PACKING = (zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, RuntimeError, NotImplementedError)
# The 36 regions that the release boxes, from top to bottom of what a reader goes through (order: ours).
REGIONS = (
    "trachea", "carina", "upper mediastinum", "mediastinum", "svc", "aortic arch", "descending aorta",
    "cavoatrial junction", "right atrium", "cardiac silhouette", "right cardiac silhouette", "left cardiac silhouette",
    "right lung", "right apical zone", "right upper lung zone", "right mid lung zone", "right lower lung zone",
    "right hilar structures", "right costophrenic angle", "right cardiophrenic angle", "right hemidiaphragm",
    "left lung", "left apical zone", "left upper lung zone", "left mid lung zone", "left lower lung zone",
    "left hilar structures", "left costophrenic angle", "left cardiophrenic angle", "left hemidiaphragm",
    "right clavicle", "left clavicle", "spine", "abdomen", "right upper abdomen", "left upper abdomen",
)  # fmt: skip
_PLACE = {name: place for place, name in enumerate(REGIONS)}
# Where not all have room, these come before what is inside them (ours).
_FOREMOST = (
    "right lung", "left lung", "cardiac silhouette", "mediastinum", "right costophrenic angle",
    "left costophrenic angle", "right hilar structures", "left hilar structures",
)  # fmt: skip


@dataclass
class Region:
    """A region of one image.

    box: xyxy in 0-1 of the image, None where the graph has none that can be used.
    attributes: as the graph writes them, "anatomicalfinding|yes|pleural effusion", each once.
    """

    name: str
    box: list[float] | None = None
    phrases: list[str] = field(default_factory=list)
    attributes: list[str] = field(default_factory=list)

    @property
    def abnormal(self) -> bool:
        """Whether the graph calls it so."""
        return ABNORMAL in self.attributes


def read_graph(file: str, member: str, image_id: str, subject_id: str) -> dict[str, Any]:
    """The scene graph of an image of a subject.

    Args:
        file: the .json file, or the .zip that holds it as `member`.
    Raises:
        SkipRow: it is missing, damaged, too large or of another image.
    """
    data = _zip_bytes(file, member) if member else _file_bytes(file)
    where = member or file
    if len(data) > MAX_BYTES:
        raise SkipRow(f"{where}: is larger than {MAX_BYTES} bytes", "scene graph too large")
    try:
        graph = parse_json(data)
    except JsonError as error:
        raise SkipRow(f"{where}: cannot be read ({error})", "unreadable scene graph") from error
    if not isinstance(graph, dict) or not isinstance(graph.get("objects"), list):
        raise SkipRow(f"{where}: has no list of objects", "unreadable scene graph")
    named = [str(graph.get("image_id", image_id)).removesuffix(".dcm"), str(graph.get("patient_id", subject_id))]
    if named != [image_id, subject_id]:
        raise SkipRow(f"{where}: is about {' of '.join(named)[:160]}", "scene graph of another image")
    return graph


def regions_of(graph: dict[str, Any], width: int, height: int) -> tuple[list[Region], int]:
    """The regions of a graph in a fixed order (`REGIONS`, then others by name), and the number of boxes that were
    dropped: without area in the image, or a second one of a region.

    Raises:
        SkipRow: the graph was made for an image of another size, or a name is no text for a model.
    """
    objects = [one for one in graph["objects"] if isinstance(one, dict)]
    if frames_disagree(objects, width, height):
        message = f"most boxes lie elsewhere in the 224 frame than in an image of {width} x {height} pixels"
        raise SkipRow(message, "frames disagree")
    found: dict[str, Region] = {}
    dropped = len(graph["objects"]) - len(objects)
    for one in objects:
        name = _name(one)
        box = image_box(one, width, height) if name else None
        if box is None or (name in found and found[name].box):
            dropped += 1
        else:
            found.setdefault(name, Region(name)).box = box
    for one in _list(graph.get("attributes")):
        if isinstance(one, dict) and (name := _name(one)):
            region = found.setdefault(name, Region(name))
            region.phrases += [text for text in _told(one, "phrases") if isinstance(text, str)]
            said = [text for texts in _told(one, "attributes") for text in _list(texts) if isinstance(text, str)]
            region.attributes = list(dict.fromkeys([*region.attributes, *said]))
    return sorted(found.values(), key=lambda region: (_PLACE.get(region.name, len(_PLACE)), region.name)), dropped


def precedence(name: str) -> tuple[int, int, int, str]:
    """Sorts regions by what to keep where not all have room; left is not behind everything right."""
    first = _FOREMOST.index(name) if name in _FOREMOST else len(_FOREMOST)
    place = _PLACE.get(name, len(_PLACE))
    pair = _PLACE.get("right " + name.removeprefix("left "), place) if name.startswith("left ") else place
    return first, pair, place, name


def attribute_words(attributes: Sequence[str]) -> str:
    """Attributes as sentences, "Lung opacity. No pleural effusion."; what "normal" may stand for is not guessed."""
    said = [parts for text in attributes if len(parts := [part.strip() for part in text.split("|")]) == 3]
    out = []
    for category, answer, name in said:
        if category != "nlp" and answer in ("yes", "no") and name:
            text = name if answer == "yes" else f"no {name}"
            out.append(f"{text[0].upper()}{text[1:]}.")
    return " ".join(dict.fromkeys(out))


def _name(one: dict[str, Any]) -> str:
    """The name of a region, in small letters; "" where there is none."""
    name = one.get("bbox_name")
    name = words(name.lower()) if isinstance(name, str) else ""
    if name:
        refuse_empty(name, "")
    return name


def _told(one: dict[str, Any], key: str) -> list[Any]:
    """What a region has under a key, item by item with its `sections`, without what the reason for the film says."""
    values, sections = _list(one.get(key)), _list(one.get("sections"))
    if len(sections) != len(values):
        return values
    return [value for value, section in zip(values, sections, strict=True) if section != HISTORY]


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _file_bytes(file: str) -> bytes:
    try:
        with open(file, "rb") as stream:
            return stream.read(MAX_BYTES + 1)
    except FileNotFoundError as error:
        raise SkipRow(f"{file}: no such file", "no scene graph") from error
    except OSError as error:
        raise _unreadable(error, file) from error


def _zip_bytes(file: str, member: str) -> bytes:
    """A member of a zip file, at most one byte more than is allowed: its stated size may be wrong."""
    try:
        state = os.stat(file)
        packed = _opened_zip(file, state.st_size, state.st_mtime_ns, os.getpid())
        with packed.open(member) as stream:
            return stream.read(MAX_BYTES + 1)
    except KeyError as error:
        raise SkipRow(f"{file}: has no {member}", "no scene graph") from error
    except (*_PACKING, OSError) as error:
        raise _unreadable(error, f"{file}: {member}") from error


def _unreadable(error: Exception, where: str) -> Exception:
    if isinstance(error, OSError) and error.errno in MACHINE_ERRORS:
        return error
    return SkipRow(f"{where}: cannot be read ({error})", "unreadable scene graph")


@functools.lru_cache(maxsize=1)
def _opened_zip(file: str, size: int, time: int, process: int) -> zipfile.ZipFile:
    """Kept open, since its directory of 243,000 names takes a second to read; a forked process opens its own, because
    two of them would move one place in the file."""
    return zipfile.ZipFile(file)
