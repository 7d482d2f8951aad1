"""The reasoning trace (arXiv 2609.31911): regions with box and finding, then the report.

In one line, without the break; boxes are [x0, y0, x1, y1] in 0-1 of the image with two decimals:
<think>[{"region": "left lung", "box": [0.53, 0.11, 0.88, 0.84], "finding": "left pneumothorax"}, ...]</think>
<answer>Findings: ... Impression: ...</answer>
"""

import json
from collections.abc import Sequence
from typing import Any


def trace_text(regions: Sequence[dict[str, Any]], report: str) -> str:
    """The text of a trace; each region is {"name", "box", "finding"}."""
    items = [{"region": r["name"], "box": [round(v, 2) for v in r["box"]], "finding": r["finding"]} for r in regions]
    return f"<think>{json.dumps(items, ensure_ascii=False)}</think><answer>{report}</answer>"
