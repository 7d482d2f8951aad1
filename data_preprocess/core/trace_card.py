"""What the card of a file says about its traces: how many regions they have, how long they are, what was left out."""

import statistics
from collections import Counter
from collections.abc import Mapping
from typing import Any

from data_preprocess.core.traces import RESPONSE_TOKENS, estimated_tokens, trace_text

# Of the ground truth; box hygiene first.
LEFT_OUT = ("dropped_boxes", "findings_without_box", "regions_left_out")


class TraceCounts:
    """Counts over the traces of a file, one `add` a row."""

    def __init__(self) -> None:
        self.regions: Counter[int] = Counter()
        self.tokens: Counter[int] = Counter()
        self.names: Counter[str] = Counter()
        self.left_out: Counter[str] = Counter()

    def add(self, truth: Mapping[str, Any]) -> None:
        """Count the trace of a row by its ground truth."""
        regions = truth.get("regions") or []
        self.regions[len(regions)] += 1
        self.tokens[estimated_tokens(trace_text(regions, str(truth.get("report") or "")))] += 1
        self.names.update(region["name"] for region in regions)
        self.left_out.update({name: truth.get(name) or 0 for name in LEFT_OUT})

    def card(self) -> dict[str, Any]:
        """The numbers for the card; tokens are an estimate (`estimated_tokens`)."""
        long = sum(rows for tokens, rows in self.tokens.items() if tokens > RESPONSE_TOKENS)
        return {
            "regions": spread(self.regions),
            "estimated_tokens": spread(self.tokens) | {f"over_{RESPONSE_TOKENS}": long},
            "names": dict(sorted(self.names.items(), key=lambda item: (-item[1], item[0]))),
            **{name: self.left_out[name] for name in LEFT_OUT},
        }


def trace_lines(traces: Mapping[str, Any]) -> list[str]:
    """The same for people."""
    regions, tokens = traces["regions"], traces["estimated_tokens"]
    long = tokens[f"over_{RESPONSE_TOKENS}"]
    return [
        f"Traces have {regions['min']} to {regions['max']} regions, median {regions['median']:g}, and with the report "
        f"about {tokens['min']} to {tokens['max']} tokens, median {tokens['median']:g} (an estimate); "
        f"{long} have more than {RESPONSE_TOKENS}.",
        "",
        f"Left out: {traces['dropped_boxes']} boxes that are damaged, doubled or without area in the image, "
        f"{traces['findings_without_box']} findings without a box, {traces['regions_left_out']} regions without room.",
        "",
    ]


def spread(counts: Counter[int]) -> dict[str, float]:
    """Smallest, median and largest of counted values."""
    middle = statistics.median(counts.elements()) if counts else 0
    return {"min": min(counts, default=0), "median": middle, "max": max(counts, default=0)}
