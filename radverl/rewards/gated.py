"""Gated reward: where the regions of the reasoning lie, and what is found in those that lie right (arXiv 2609.31911).

An output is <think>[{"region", "box", "finding"}, ...]</think><answer>report</answer>. With IoU_m and F1_m of annotated
region m (0 where the output lacks it), M annotated regions, F of them with a finding:

    1. format gate: both tags complete, at least one region, every region with a box; else score = 0, no points for it
    2. spatial = 1/M sum_m IoU_m
    3. factual = 1/|F| sum_(m in F) 1[IoU_m > tau] F1_m          tau = 0.25, strictly above
    R = spatial + factual

F1 is RadGraph-F1 of the written and the annotated finding (`radverl.radgraph.f1`). R is in [0, 2], higher is better.
What the paper leaves open (*ours*, each a setting):
  gate          region: as above; "regions with IoU <= tau keep only the spatial term". sample: 1[spatial > tau] F1_m.
  factual_over  annotated: the mean as above, closed gates count as 0. gated: over the regions whose gate is open.
  level         of RadGraph-F1: simple, partial (default), complete, radcliq.
  verify        reasoning: score = R. answer: RadGraph-F1 of the answer against the true report. both: their sum, in
                [0, 3]. The format gate holds for all three.
  reward        both: R. spatial: its first term. factual: its second without the gate. none: 0, whatever is written.
Also ours: regions are paired by anatomical name (`radverl.reasoning.names`), the first of a name counts, and regions
that are not annotated cost nothing. An IoU equal to tau up to 1e-9 is not above it. A box whose corners are inverted,
or without area, is a box with IoU 0; one that is not four finite numbers is no box. Tags: `radverl.reasoning.trace`.

The annotator is `rules` (default, offline, not RadGraph), `radgraph`, `radgraph-xl` (the paper's) or `files`; all texts
of a sample are annotated in one call, and none under reward=spatial or none, or where the format gate is closed. Where
it fails, the sample is `failed` with its cause, as in `radverl.rewards.facts`.

What it can be hacked by, and the number that tells: spatial alone by one finding for all regions (distinct_findings
falls below distinct_true_findings), factual alone by right findings in wrong boxes (gated_share falls). Blind to
regions that are not annotated, and to a finding whose annotation has no entities, which scores 0 whatever is written.
"""

import asyncio
import logging
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from numbers import Real
from typing import Any, Literal, get_args

from radverl.boxes.parse import check_space, has_area, is_finite
from radverl.radgraph import LEVELS, Annotator, Level, f1, get_annotator
from radverl.reasoning import Annotated, annotated_regions, match_regions, parse_trace
from radverl.reasoning.matching import TOLERANCE
from radverl.rewards.base import FAILURES, Score, check_keywords, failed, read_ground_truth, row_name, scored
from radverl.rewards.facts import true_text
from radverl.text.normal import normalise

Reward = Literal["both", "spatial", "factual", "none"]
Verify = Literal["reasoning", "answer", "both"]
Gate = Literal["region", "sample"]
FactualOver = Literal["annotated", "gated"]

TAU = 0.25  # the paper's
MAX_TEXT = 20_000  # characters of a text that are annotated; real reports have some thousand (ours)
COMPONENTS = (
    "format_ok", "tags_ok", "n_regions", "n_without_box",
    "spatial", "factual", "answer_f1", "mean_iou", "factual_mean", "gated_share",
    "n_found", "n_missing", "n_duplicated", "n_unknown", "n_extra", "n_swapped", "n_invalid_boxes",
    "distinct_findings", "distinct_true_findings", "boxes_unit", "boxes_pixel", "boxes_thousand", "n_annotated",
    *FAILURES,
)  # fmt: skip

_GOLD_BOXES = {"unit": "0.53, 0.11, 0.88, 0.84", "pixel": "424, 110, 704, 840", "thousand": "530, 110, 880, 840"}
_GOLD_SIZE = {"width": 800, "height": 1000}
_GOLD_OUTPUT = (
    '<think>[{"region": "left lung", "box": [BOX], "finding": "Small left pleural effusion."}]</think>'
    "<answer>Findings: Small left pleural effusion.</answer>"
)
_GOLD_TRUTH = (
    '{"regions": [{"name": "left lung", "box": [0.53, 0.11, 0.88, 0.84], "finding": "Small left pleural effusion."}],'
    ' "report": "Findings: Small left pleural effusion."}'
)
GOLD = (_GOLD_OUTPUT.replace("BOX", _GOLD_BOXES["unit"]), _GOLD_TRUTH)
_log = logging.getLogger(__name__)


def gold(settings: Mapping[str, Any]) -> tuple[str, str, dict[str, Any], float]:
    """A perfect output under these settings of `compute_score`: output, ground truth, extra_info, and the score that it
    reaches at least, which is 0 where the settings give no points."""
    space = settings.get("box_space") or "unit"
    pointless = settings.get("reward") == "none" and settings.get("verify", "reasoning") == "reasoning"
    output = _GOLD_OUTPUT.replace("BOX", _GOLD_BOXES.get(space, _GOLD_BOXES["unit"]))
    return output, _GOLD_TRUTH, dict(_GOLD_SIZE), 0.0 if pointless else 1.0


def compute_score(
    data_source: str,
    solution_str: str,
    ground_truth: str | Mapping[str, Any],
    extra_info: Mapping[str, Any] | None = None,
    *,
    reward: Reward = "both",
    verify: Verify = "reasoning",
    gate: Gate = "region",
    tau: float = TAU,
    level: Level = "partial",
    annotator: str | Annotator = "rules",
    annotator_settings: Mapping[str, Any] | None = None,
    box_space: str | None = None,
    factual_over: FactualOver = "annotated",
    **verl_keywords: Any,
) -> Score:
    """Score one output.

    Args:
        solution_str: the output, with its tags.
        ground_truth: JSON string with "regions", [{"name", "box", "finding"}, ...], boxes in the space
            extra_info["box_space"] (0-1 by default); for verify=answer and both "report", or its sections.
        extra_info: "width" and "height" of the image, where boxes may be in pixels.
        reward, verify, gate, tau, level, factual_over: see above.
        annotator: "rules", "radgraph", "radgraph-xl", "files", or any object with `radverl.radgraph.Annotator`'s
            interface.
        annotator_settings: of an annotator given by name, see `radverl.radgraph.get_annotator`.
        box_space: of the boxes in the output: unit | pixel | thousand; None: found by their numbers, see
            `radverl.boxes.parse.box_spaces`. Boxes are corners; x, y, width, height are not told apart.
    Returns:
        {"score", "failed", *COMPONENTS}; score = spatial + factual + answer_f1, of which each is 0 where it does not
        count. mean_iou and gated_share are of all annotated regions whatever the settings; factual_mean is the mean
        F1_m without the gate, 0 where no findings were annotated. Where the format gate is closed, all but tags_ok,
        n_regions and n_without_box are 0; where the annotator raised, all but its cause.
    Raises:
        ValueError: bad ground truth, one without regions or report where they are needed, or a region without name
            or area (names the row by extra_info["prompt_id"]); or a bad setting. verify=answer needs no regions.
        TypeError: an unknown keyword.
    """
    check_keywords(verl_keywords, "gated reward")
    settings = _Settings(reward, verify, gate, tau, level, box_space, factual_over)
    study = _Study(solution_str, ground_truth, extra_info, settings)
    reader = _reader(settings, annotator, annotator_settings)
    f1s: dict[Pair, float] = {}
    if reader and study.texts:
        try:
            f1s = study.compared(reader.annotate(study.texts))
        except Exception as error:  # whatever an annotator raises is its failure, never a zero for the output
            return study.failed(error, reader)
    return study.scored(f1s)


async def compute_score_async(
    data_source: str,
    solution_str: str,
    ground_truth: str | Mapping[str, Any],
    extra_info: Mapping[str, Any] | None = None,
    **settings: Any,
) -> Score:
    """`compute_score` for callers in an event loop, which goes on while the annotator is waited for."""
    given = {**(compute_score.__kwdefaults__ or {}), **settings}
    annotator, annotator_settings = given.pop("annotator"), given.pop("annotator_settings")
    known = {name: given.pop(name) for name in [one.name for one in fields(_Settings)]}
    check_keywords(given, "gated reward")
    checked = _Settings(**known)
    study = _Study(solution_str, ground_truth, extra_info, checked)
    reader = await asyncio.to_thread(_reader, checked, annotator, annotator_settings)
    f1s: dict[Pair, float] = {}
    if reader and study.texts:
        try:
            if ask := getattr(reader, "annotate_async", None):
                f1s = study.compared(await ask(study.texts))
            else:
                f1s = study.compared(await asyncio.to_thread(reader.annotate, study.texts))
        except Exception as error:
            return study.failed(error, reader)
    return study.scored(f1s)


Pair = tuple[str, str]  # true text, written text


@dataclass(frozen=True)
class _Settings:
    reward: Reward
    verify: Verify
    gate: Gate
    tau: float
    level: Level
    box_space: str | None
    factual_over: FactualOver

    def __post_init__(self) -> None:
        choices = {
            "reward": get_args(Reward), "verify": get_args(Verify), "gate": get_args(Gate), "level": LEVELS,
            "factual_over": get_args(FactualOver),
        }  # fmt: skip
        for name, known in choices.items():
            if (value := getattr(self, name)) not in known:
                raise ValueError(f"gated reward: {name} is {value!r:.40}; use one of {', '.join(known)}.")
        tau = self.tau
        if not isinstance(tau, int | float) or isinstance(tau, bool) or not 0 <= tau < 1:  # NaN too
            raise ValueError(f"gated reward: tau is {tau!r:.40}; use a number from 0 to below 1.")
        check_space(self.box_space, "gated reward")

    @property
    def reads_findings(self) -> bool:
        """Whether findings are compared."""
        return self.verify != "answer" and self.reward in ("both", "factual")


class _Study:
    """An output with its truth, before and after the annotator's word; `texts` are for the annotator."""

    def __init__(
        self,
        output: str,
        ground_truth: str | Mapping[str, Any],
        extra_info: Mapping[str, Any] | None,
        settings: _Settings,
    ) -> None:
        self.settings, self.extra_info = settings, extra_info
        width, height = _size(extra_info)
        self.annotated, self.true_report = _read_truth(ground_truth, extra_info, settings.verify)
        if settings.box_space == "pixel" and not (width and height):
            raise ValueError(
                f'{row_name(extra_info)}: box_space is pixel, and extra_info has no "width" and "height" above 0; '
                "rebuild the data set with the size of its images."
            )
        self.trace = parse_trace(output)
        self.regions = self.trace.regions
        self.without_box = sum(not (region.box and is_finite(region.box)) for region in self.regions)
        self.format_ok = self.trace.complete and bool(self.regions) and not self.without_box
        self.pairs: dict[int, Pair] = {}
        self.report: Pair | None = None
        if self.format_ok:
            space = settings.box_space
            self.match = match_regions(self.regions, self.annotated, space=space, width=width, height=height)
            self._pair_texts()
        pairs = [*self.pairs.values(), *([self.report] if self.report else [])]
        # A text that is empty on either side scores 0 without being read.
        self.texts = list(dict.fromkeys(text for pair in pairs if all(pair) for text in pair))

    def _pair_texts(self) -> None:
        if self.settings.reads_findings:
            for m, (one, place) in enumerate(zip(self.annotated, self.match.found_M, strict=True)):
                if one.finding:
                    written = "" if place is None else self.regions[place].finding
                    self.pairs[m] = (one.finding[:MAX_TEXT], written[:MAX_TEXT])
        if self.settings.verify != "reasoning":
            self.report = (self.true_report[:MAX_TEXT], self.trace.answer[:MAX_TEXT])

    def compared(self, annotations: Sequence[Mapping[str, Any]]) -> dict[Pair, float]:
        """F1 of each pair of texts that has no empty one, from the annotations of `texts`."""
        if len(annotations) != len(self.texts):
            raise ValueError(f"{len(annotations)} annotations of {len(self.texts)} texts")
        of = dict(zip(self.texts, annotations, strict=True))
        pairs = {*self.pairs.values(), *([self.report] if self.report else [])}
        return {pair: f1(of[pair[0]], of[pair[1]], self.settings.level) for pair in pairs if all(pair)}

    def scored(self, f1s: Mapping[Pair, float]) -> Score:
        """The terms of the score and all counts."""
        out = dict.fromkeys(COMPONENTS, 0.0)
        out |= {"tags_ok": self.trace.complete, "n_regions": len(self.regions), "n_without_box": self.without_box}
        if not self.format_ok:
            return scored(0.0, out)
        settings, match = self.settings, self.match
        above = [iou > settings.tau + TOLERANCE for iou in match.iou_M]
        f1_m = {m: f1s.get(pair, 0.0) for m, pair in self.pairs.items()}
        opened = above if settings.gate == "region" else [match.mean_iou > settings.tau + TOLERANCE] * len(above)
        if settings.verify != "answer":
            if settings.reward in ("both", "spatial"):
                out["spatial"] = match.mean_iou
            if settings.reward == "factual":
                out["factual"] = _mean(f1_m.values())
            elif settings.factual_over == "gated":
                out["factual"] = _mean(value for m, value in f1_m.items() if opened[m])
            else:
                out["factual"] = _mean(value * opened[m] for m, value in f1_m.items())
        if self.report:
            out["answer_f1"] = f1s.get(self.report, 0.0)
        found = sum(place is not None for place in match.found_M)
        out |= {
            "format_ok": 1.0,
            "mean_iou": match.mean_iou,
            "factual_mean": _mean(f1_m.values()),
            "gated_share": _mean(above),
            "n_found": found,
            "n_missing": len(match.found_M) - found,
            "n_duplicated": match.n_duplicated,
            "n_unknown": match.n_unknown,
            "n_extra": match.n_extra,
            "n_swapped": match.n_swapped(settings.tau),
            "n_invalid_boxes": sum(not has_area(region.box) for region in self.regions if region.box),
            "distinct_findings": _distinct(region.finding for region in self.regions),
            "distinct_true_findings": _distinct(one.finding for one in self.annotated),
            "n_annotated": len(self.texts),
        }
        out |= {f"boxes_{space}": match.spaces_N.count(space) for space in ("unit", "pixel", "thousand")}
        return scored(out["spatial"] + out["factual"] + out["answer_f1"], out)

    def failed(self, error: Exception, annotator: Annotator) -> Score:
        """The sample whose annotator raised, with the cause in the log and in the numbers."""
        name = getattr(annotator, "name", annotator)
        _log.warning("%s: annotator %s failed: %s: %s", row_name(self.extra_info), name, type(error).__name__, error)
        return failed(COMPONENTS, error)


def _read_truth(
    ground_truth: str | Mapping[str, Any], extra_info: Mapping[str, Any] | None, verify: Verify
) -> tuple[list[Annotated], str]:
    """The annotated regions and the report of a row, of which `verify` says what must be there."""
    truth = read_ground_truth(ground_truth, extra_info)
    space = (extra_info or {}).get("box_space") or "unit"
    try:
        check_space(space, "extra_info")
        annotated = annotated_regions(truth.get("regions"), space, *_size(extra_info))
    except ValueError as error:
        if verify != "answer":
            raise ValueError(f"{row_name(extra_info)}: {error} Rebuild the data set.") from error
        annotated = []  # the answer is compared with the report alone
    if verify != "answer" and not annotated:
        raise ValueError(
            f"{row_name(extra_info)}: ground_truth has no regions, and this reward compares with them; leave such rows "
            "out, or set verify=answer."
        )
    report = true_text(truth).strip()
    if verify != "reasoning" and not report:
        raise ValueError(
            f"{row_name(extra_info)}: ground_truth has no report text, and verify={verify} compares with it; leave "
            "such rows out, or set verify=reasoning."
        )
    return annotated, report


def _size(extra_info: Mapping[str, Any] | None) -> tuple[float | None, float | None]:
    width, height = ((extra_info or {}).get(key) for key in ("width", "height"))
    if isinstance(width, Real) and isinstance(height, Real):  # numpy's integers, too
        size = float(width), float(height)
        if all(0 < one < math.inf for one in size):
            return size
    return None, None


def _reader(settings: _Settings, annotator: str | Annotator, given: Mapping[str, Any] | None) -> Annotator | None:
    """The annotator, where these settings compare texts at all."""
    if not settings.reads_findings and settings.verify == "reasoning":
        return None
    if isinstance(annotator, str):
        return get_annotator(annotator, given)
    if not callable(getattr(annotator, "annotate", None)):
        raise ValueError(f"gated reward: annotator is {annotator!r:.40}; name one, or pass an object with annotate().")
    return annotator


def _mean(values: Iterable[float]) -> float:
    numbers = list(values)
    return math.fsum(numbers) / len(numbers) if numbers else 0.0


def _distinct(findings: Iterable[str]) -> float:
    """Different findings per region with one; 0.0 where none has any."""
    said = [text for text in map(normalise, filter(None, findings)) if text]
    return len(set(said)) / len(said) if said else 0.0
