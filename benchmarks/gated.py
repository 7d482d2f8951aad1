"""Time of the gated reward without its annotator, parsing and IoU, per output: goal 0.3 ms on one core.

    python -m benchmarks.gated

Outputs of 10 and of 38 regions, made here: two thirds JSON in one line, as the traces that a model is trained on, the
others indented JSON in a code fence, Python dicts with a comma behind the last, and keys without quotes. Timed is what
`radverl.rewards.gated` does between the output and the annotator. The ratio is that of 38 regions, which no output of
the paper's 1,024 tokens can hold; detail has both.
"""

import argparse
import json
import random
import re
import sys
import time

from benchmarks.result import write
from radverl.reasoning import REGIONS, Annotated, match_regions, parse_trace

GOAL_MS = 0.3
COUNTS = (10, 38)

_FINDINGS = (
    "Small {side} pleural effusion with adjacent atelectasis.",
    "The lungs are clear, without focal consolidation.",
    "Patient's heart is mildly enlarged, unchanged in size.",
    "No pneumothorax. A {side} PICC line ends in the mid SVC.",
    "Patchy opacity at the {side} base may represent atelectasis or early pneumonia in the right setting.",
)


def make_outputs(regions: int, outputs: int, seed: int = 0) -> list[tuple[str, list[Annotated]]]:
    """Different outputs of so many regions, each with its truth."""
    rng = random.Random(seed)
    out = []
    for number in range(outputs):
        truth, items = [], []
        for name in rng.sample(REGIONS, regions):
            x, y = rng.uniform(0, 0.6), rng.uniform(0, 0.6)
            box = (x, y, x + rng.uniform(0.1, 0.4), y + rng.uniform(0.1, 0.4))
            finding = rng.choice(_FINDINGS).format(side=rng.choice(("left", "right")))
            truth.append(Annotated(name, box, finding))
            written = [round(value + rng.uniform(-0.05, 0.05), 2) for value in box]
            items.append({"region": name, "box": written, "finding": finding})
        out.append((f"<think>{_written(items, number)}</think><answer>Findings: Clear.</answer>", truth))
    return out


def milliseconds(outputs: list[tuple[str, list[Annotated]]]) -> float:
    """Processor time of an output."""
    start = time.thread_time()
    for text, truth in outputs:
        match_regions(parse_trace(text).regions, truth)
    return (time.thread_time() - start) * 1000 / len(outputs)


def main(argv: list[str] | None = None) -> int:
    """Run the benchmark; exit 0 if the goal holds, else 1."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--outputs", type=int, default=300)
    parser.add_argument("--repeats", type=int, default=7, help="the fastest of so many passes counts")
    args = parser.parse_args(argv)
    times = {}
    for regions in COUNTS:
        outputs = make_outputs(regions, args.outputs)
        if any(len(parse_trace(text).regions) != regions for text, _ in outputs):
            raise AssertionError("an output of the benchmark was not read whole")
        times[regions] = min(milliseconds(outputs) for _ in range(args.repeats))
    detail = {f"ms_{regions}_regions": round(value, 4) for regions, value in times.items()} | {"goal_ms": GOAL_MS}
    text = ", ".join(f"{value:.3f} ms for {regions} regions" for regions, value in times.items())
    return 0 if write("gated", max(times.values()) / GOAL_MS, 1.0, detail, text) else 1


def _written(items: list[dict[str, object]], number: int) -> str:
    if number % 3:
        return json.dumps(items)
    if number % 9 == 0:
        return f"Let me go through the regions.\n```json\n{json.dumps(items, indent=2)}\n```\n"
    if number % 9 == 3:
        return f"{str(items)[:-1]},]"
    return re.sub(r'"(region|box|finding)":', r"\1:", json.dumps(items))


if __name__ == "__main__":
    sys.exit(main())
