"""Time of RadGraph annotations for GRPO against the radgraph package on the same weights, and of their scores.

    python -m benchmarks.radgraph [--groups 4] [--repeats 2]

Four groups of eight rollouts, all different, each with the reference of its group. The package is asked as a reward
asks it: each rollout with its reference, 64 texts one by one. `RadGraphAnnotator` is asked for all texts at once.
  radgraph_warm    references are in the cache, rollouts are not: goal at most 1/4 of the package's time
  radgraph_cold    nothing is in the cache: goal at most 1/2.5
  radgraph_scores  10,000 pairs of annotations: goal at most 1 s
The model has random weights, the published architecture and BERT-base's size; both run in this process with the same
threads, in alternation, and every annotation must be the same.
"""

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.result import write
from tests import tiny_radgraph

WARM, COLD = 1 / 4, 1 / 2.5
PAIRS, PAIRS_SECONDS = 10_000, 1.0
BERT_BASE = {
    "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072,
    "vocab_size": 30_522, "feature_size": 20, "hidden": 150,
}  # fmt: skip


def make_groups(groups: int, rollouts: int, seed: int = 0) -> list[list[str]]:
    """A reference and its rollouts, all different: 5 to 12 sentences, some 60 words."""
    rng = random.Random(seed)
    out = []
    for _ in range(groups):
        texts: dict[str, None] = {}
        while len(texts) < rollouts + 1:
            texts[tiny_radgraph.report(rng, rng.randint(5, 12))] = None
        out.append(list(texts))
    return out


def main(argv: list[str] | None = None) -> int:
    """Run the benchmark; exit 0 if the goals hold, else 1."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--groups", type=int, default=4)
    parser.add_argument("--rollouts", type=int, default=8)
    parser.add_argument("--repeats", type=int, default=2, help="the fastest of so many passes counts")
    args = parser.parse_args(argv)

    import torch

    from radverl.judge.cache import AnswerCache
    from radverl.radgraph import RadGraphAnnotator

    groups = make_groups(args.groups, args.rollouts)
    texts = [text for group in groups for text in group]
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        path = tiny_radgraph.write_checkpoint(root, entities=0.1, **BERT_BASE)
        ours = RadGraphAnnotator(checkpoint=path, cache=False)
        theirs = tiny_radgraph.upstream(root, root / "base")
        seconds: dict[str, list[float]] = {"package": [], "cold": [], "warm": []}
        found: dict[str, Any] = {}
        ours.annotate(texts[:2])
        theirs(texts[:1])
        for repeat in range(args.repeats):
            for name in seconds:
                ours._cache = AnswerCache(root / f"{name}{repeat}.sqlite")
                if name == "warm":
                    ours.annotate([group[0] for group in groups])
                run = (lambda: _package(theirs, groups)) if name == "package" else (lambda: ours.annotate(texts))
                seconds[name].append(_seconds(run, found, name))
        same = [mine["entities"] == its["entities"] for mine, its in zip(found["cold"], found["package"], strict=True)]
        if not all(same):
            raise SystemExit(f"radgraph: {same.count(False)} of {len(same)} annotations differ from the package's.")
    best = {name: min(values) for name, values in seconds.items()}
    detail = {
        "seconds": {name: round(value, 3) for name, value in best.items()},
        "texts": len(texts),
        "tokens_per_text": round(sum(len(a["text"].split()) for a in found["cold"]) / len(texts), 1),
        "run_alone": ours.run_alone,
        "computed": ours.computed,
        "threads": torch.get_num_threads(),
    }
    holds = True
    for name, goal in (("warm", WARM), ("cold", COLD)):
        text = f"{best[name]:.2f} s against {best['package']:.2f} s, {best['package'] / best[name]:.1f} times as fast"
        holds = write(f"radgraph_{name}", best[name] / best["package"], goal, detail, text) and holds
    return 0 if _scores(found["cold"]) and holds else 1


def _package(theirs: Any, groups: list[list[str]]) -> list[dict[str, Any]]:
    """Each rollout with its reference; the annotations of references and rollouts in order."""
    out = []
    for reference, *rollouts in groups:
        pairs = [theirs([rollout, reference]) for rollout in rollouts]
        out += [pairs[0]["1"], *(pair["0"] for pair in pairs)]
    return [
        {"entities": {key: {**e, "tokens": e["tokens"].lower()} for key, e in found["entities"].items()}}
        for found in out
    ]


def _scores(annotations: list[dict[str, Any]]) -> bool:
    from radverl.radgraph import LEVELS, f1

    rng = random.Random(0)
    pairs = [(rng.choice(annotations), rng.choice(annotations)) for _ in range(PAIRS)]
    seconds = {}
    for level in LEVELS:
        start = time.perf_counter()
        for ref, hyp in pairs:
            f1(ref, hyp, level)
        seconds[level] = time.perf_counter() - start
    slowest = max(seconds.values())
    detail = {
        "seconds": {level: round(value, 3) for level, value in seconds.items()},
        "entities_per_text": round(sum(len(a["entities"]) for a in annotations) / len(annotations), 1),
    }
    text = f"{slowest:.2f} s for {PAIRS} pairs at the slowest level"
    return write("radgraph_scores", slowest / PAIRS_SECONDS, 1.0, detail, text)


def _seconds(run: Callable[[], Any], found: dict[str, Any], name: str) -> float:
    start = time.perf_counter()
    found[name] = run()
    return time.perf_counter() - start


if __name__ == "__main__":
    sys.exit(main())
