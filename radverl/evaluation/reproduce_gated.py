"""The gated reward against its parts on simulated films: Tables 5 and 6 of arXiv 2609.31911, from folders of runs.

    python -m radverl.evaluation.reproduce_gated evaluate RUN --data test.parquet --out RUN/eval
    python -m radverl.evaluation.reproduce_gated report OUT --arms none spatial factual both --seeds 0 1 --taus 0 .5

`recipes/gated_cpu.sh` makes the folders (see reproduce_gated_runs.py) and calls both. `report` writes
reproduce_gated.json, .png and .md; the last two can be written anew from the first with `page`.
"""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from radverl.evaluation import reproduce_cli
from radverl.evaluation.files import extra_info, read_parquet, write_json, write_jsonl
from radverl.evaluation.generate import generate_reports
from radverl.evaluation.metrics import derangement
from radverl.evaluation.pages import checkpoints
from radverl.evaluation.reproduce_gated_runs import ARMS, compare
from radverl.evaluation.run import predictions_path
from radverl.evaluation.trace_metrics import measure_traces

SHOWN = ("format", "mean_iou", "region_f1", "gated_f1", "answer_f1")


def evaluate_checkpoints(
    source: Path,
    data: Path,
    out: Path,
    *,
    max_new_tokens: int,
    batch_size: int = 64,
    annotator: str = "rules",
    generate: Callable[..., list[str]] = generate_reports,
) -> list[int]:
    """Evaluate every checkpoint of a run, greedy, one JSON each; a model folder as step 0, with a blind baseline.

    Blind: the same model and prompts, images shuffled between the patients. A checkpoint that has its JSON already is
    left out. The outputs go beside it.

    Returns:
        the steps of all evaluated checkpoints, ascending.
    Raises:
        ValueError: `source` holds neither, or data that cannot be evaluated.
        RuntimeError: generation or the annotator failed.
    """
    rows = read_parquet(data)
    models = checkpoints(source)
    options = {"max_new_tokens": max_new_tokens, "batch_size": batch_size, "progress": False}
    for step, model in models.items():
        path = out / f"step_{step}.json"
        if path.is_file():
            continue
        texts = generate(model, rows, **options)
        result = measure_traces(texts, rows, annotator)
        studies = result.pop("studies")
        if step == 0:
            subjects = [str(extra_info(row).get("subject_id") or index) for index, row in enumerate(rows)]
            donors = derangement(len(rows), 0, subjects)
            blind = measure_traces(generate(model, rows, images_from=donors, **options), rows, annotator)
            result["blind"] = {name: value for name, value in blind.items() if name != "studies"}
        names = [extra_info(row).get("prompt_id") for row in rows]
        records = zip(names, texts, studies, strict=True)
        write_jsonl(predictions_path(path), [{"prompt_id": n, "prediction": t, **s} for n, t, s in records])
        write_json(path, {**result, "annotator": annotator, "max_new_tokens": max_new_tokens})
        print(f"  step {step}: {result['n']} held-out studies, " + ", ".join(f"{n} {result[n]:.3f}" for n in SHOWN))
    return list(models)


def write(result: dict[str, Any], folder: Path) -> None:
    """reproduce_gated.json, .png and .md of a result of `compare`."""
    from radverl.evaluation.reproduce_gated_picture import draw
    from radverl.evaluation.reproduce_gated_report import markdown

    reproduce_cli.write(result, folder, "reproduce_gated", draw, markdown)


def _add_taus(report: argparse.ArgumentParser) -> None:
    report.add_argument("--taus", nargs="*", default=[], help="of the sweep, beside that of the arm both")


def main(argv: list[str] | None = None) -> int:
    """0 done, 1 generation or annotation failed, 2 bad input."""
    return reproduce_cli.run_command(
        argv,
        module="reproduce_gated",
        recipe="recipes/gated_cpu.sh",
        arms=ARMS,
        seeds=(0, 1),
        max_new_tokens=1024,
        evaluate=evaluate_checkpoints,
        compare=lambda args, settings: compare(args.out, args.arms, args.seeds, args.taus, settings),
        write=write,
        add_options=_add_taus,
    )


if __name__ == "__main__":
    sys.exit(main())
