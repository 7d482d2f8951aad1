"""Reasoning traces: what a model wrote between its tags, and how far its regions are those of the truth."""

from radverl.reasoning.matching import Match, match_regions
from radverl.reasoning.names import REGIONS, is_region, region_key
from radverl.reasoning.trace import Region, Trace, parse_trace
from radverl.reasoning.truth import Annotated, annotated_regions

__all__ = [
    "REGIONS",
    "Annotated",
    "Match",
    "Region",
    "Trace",
    "annotated_regions",
    "is_region",
    "match_regions",
    "parse_trace",
    "region_key",
]
