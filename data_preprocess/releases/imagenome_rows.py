"""A scene graph becomes a row: the reasoning trace of a study, or the place of one region.

A region's finding is what its phrases say, each sentence once, without the headers and list numbers that the release
left in them, without references to prior studies and marks of de-identification (`--priors`, `--blanks`). A region that
has attributes but no phrase gets those in words.
"""

import hashlib
import re
from argparse import Namespace
from collections.abc import Sequence
from typing import Any

from data_preprocess.core.candidates import Candidate, Content
from data_preprocess.core.content import MAX_REPORT, grounding_content, report_content
from data_preprocess.core.image_files import header_size, refuse_other_shape
from data_preprocess.core.reports import refuse_empty, words
from data_preprocess.core.skiplog import SkipRow
from data_preprocess.core.traces import fitting, trace_text
from data_preprocess.releases.imagenome_graph import Region, attribute_words, precedence, read_graph, regions_of
from data_preprocess.releases.mimic_files import read_report
from radverl.text import apply_blanks, remove_prior_references, split_sections, split_sentences

REGIONS = ("with-findings", "all")
NO_FINDING, FEWER, TOO_LONG = "no region with a finding", "fewer regions", "trace too long"
UNWANTED = frozenset({
    NO_FINDING, FEWER, TOO_LONG, "no box left", "no scene graph", "image to avoid", "not in a split",
})  # fmt: skip
_NOT_SEEN = ("indication", "history", "comparison", "technique", "examination", "notification")
_NUMBER = re.compile(r"^(?:#?\d{1,2}[.)]\s+|#\d\s+|[-*\u2022]\s+)")
_READ_AT = re.compile(r"^[\s_:/,\d-]*\b[AP]M\b[\s:.]*")  # "WET READ: ___ ___ 8:19 AM", then what was read


def trace_content(drawn: Candidate, args: Namespace) -> Content:
    """The trace and report of a study, from the scene graph of its image and its report file.

    Raises:
        SkipRow: the graph or the report cannot be used, or nothing is left of one of them.
    """
    regions, dropped = _regions(drawn, args)
    found = [(region, _finding(region, args)) for region in regions]
    if sum(len(text) for _, text in found) > MAX_REPORT:
        raise SkipRow(f"the phrases of its regions have more than {MAX_REPORT} characters", "report too long")
    told = [(region, text) for region, text in found if text or args.regions == "all"]
    boxed = [(region, text) for region, text in told if region.box]
    if not boxed:
        raise SkipRow("no phrase is about a region that has a box", NO_FINDING)
    traced = []
    for region, text in boxed:
        if text:
            refuse_empty(text, "")
        traced.append({"name": region.name, "box": region.box, "finding": text, "attributes": region.attributes})
    extra = {
        "dropped_boxes": dropped, "findings_without_box": sum(not region.box and bool(text) for region, text in found),
    }  # fmt: skip
    sections = split_sections(read_report(drawn.payload["report"]))
    content = report_content(sections, args, labels=drawn.labels, extra=extra)
    report = content.truth["report"]
    kept = fitting(traced, report, _foremost(boxed)[: args.max_regions], args.max_response_length)
    if not kept:
        message = f"its report and a region have more than {args.max_response_length} tokens"
        raise SkipRow(message, TOO_LONG)
    content.truth |= {"regions": kept, "regions_left_out": len(traced) - len(kept)}
    content.target = trace_text(kept, report)
    return content


def anatomy_content(drawn: Candidate, args: Namespace) -> Content:
    """Where one of the regions of an image is: the n-th in an order that a hash decides.

    Raises:
        SkipRow: the graph cannot be used, or has fewer regions with a box.
    """
    regions, dropped = _regions(drawn, args)
    image, number = drawn.payload["image"], drawn.payload["number"]
    boxed = sorted((region for region in regions if region.box), key=lambda r: _draw(image, r.name))
    if number >= len(boxed):
        raise SkipRow(f"it has {len(boxed)} regions with a box", FEWER)
    region = boxed[number]
    assert region.box
    return grounding_content(region.name, [region.box], args, drawn.row_id, extra={"dropped_boxes": dropped})


def finding(phrases: Sequence[str], priors: str, blanks: str) -> str:
    """What the phrases of a region say, in one line; "" where nothing is left.

    Args:
        priors: as `--priors`; "llm" rewrites reports only, so the rules do these.
        blanks: as `--blanks`.
    """
    kept: dict[str, str] = {}
    for phrase in phrases:
        for sentence in split_sentences(_said(phrase)):
            text = _NUMBER.sub("", sentence)
            if priors != "keep":
                text = words(remove_prior_references(text))
            text = words(apply_blanks(text, blanks))
            if text:
                kept.setdefault(text.lower().rstrip(" .;"), text)
    *earlier, last = kept.values() or [""]
    return " ".join([*(text if text[-1] in ".?!;" else f"{text}." for text in earlier), last])


def _regions(drawn: Candidate, args: Namespace) -> tuple[list[Region], int]:
    """The regions of the image of a candidate, at least one of them with a box, and how many boxes were dropped."""
    payload = drawn.payload
    graph = read_graph(payload["file"], payload["member"], payload["image"], drawn.subject_id)
    size = payload["size"] or header_size(drawn.images[0])
    if args.check_images == "decode":
        refuse_other_shape(drawn.images[0], *size)
    regions, dropped = regions_of(graph, *size)
    if not any(region.box for region in regions):
        raise SkipRow(f"none of {dropped} boxes has area in the image", "no box left")
    return regions, dropped


def _finding(region: Region, args: Namespace) -> str:
    # Where phrases are there and nothing is left of them, their attributes are about a prior study as well.
    told = any(map(str.strip, region.phrases))
    return finding(region.phrases if told else [attribute_words(region.attributes)], args.priors, args.blanks)


def _foremost(boxed: Sequence[tuple[Region, str]]) -> list[int]:
    """Places of the regions, those to be kept first: abnormal ones, then those with a finding."""

    def rank(place: int) -> tuple[Any, ...]:
        region, text = boxed[place]
        return not region.abnormal, not text, precedence(region.name)

    return sorted(range(len(boxed)), key=rank)


def _said(phrase: str) -> str:
    """A phrase without the headers in it, and without the sections that say nothing about the image."""
    if not phrase.strip():
        return ""
    sections = {name: text for name, text in split_sections(phrase).items() if name not in _NOT_SEEN}
    return "\n\n".join(_READ_AT.sub("", text) if name == "wet read" else text for name, text in sections.items())


def _draw(image: str, name: str) -> bytes:
    return hashlib.sha256(f"{image}/{name}".encode("utf-8", "surrogatepass")).digest()
