"""OraPO against GRPO on the simulated cohort: the paper's Figure 2 (arXiv 2509.18600) from the folders of the runs.

    python -m radverl.evaluation.reproduce_orapo evaluate RUN --data test.parquet --out RUN/eval
    python -m radverl.evaluation.reproduce_orapo report OUT --arms grpo orapo --seeds 0 1 2 [--docs docs]

`recipes/orapo_cpu.sh` makes the folders (see reproduce_orapo_runs.py) and calls both. `report` writes
reproduce_orapo.json, .png and .md; the last two can be written anew from the first with `page`.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from radverl.evaluation import reproduce_cli
from radverl.evaluation.generate import generate_reports
from radverl.evaluation.pages import checkpoints
from radverl.evaluation.reproduce_orapo_runs import ARMS, METRICS, compare
from radverl.evaluation.run import evaluate


def evaluate_checkpoints(
    source: Path,
    data: Path,
    out: Path,
    *,
    max_new_tokens: int,
    batch_size: int = 64,
    generate: Callable[..., list[str]] = generate_reports,
) -> list[int]:
    """Evaluate every checkpoint of a run (or a model folder, as step 0, with a blind baseline), one JSON each.

    A checkpoint that has its JSON already is left out.

    Returns:
        the steps of all evaluated checkpoints, ascending.
    Raises:
        ValueError: `source` holds neither; or as `evaluate`.
    """
    models = checkpoints(source)
    for step, model in models.items():
        path = out / f"step_{step}.json"
        if path.is_file():
            continue
        result = evaluate(
            model,
            data,
            blind=step == 0,
            out=path,
            max_new_tokens=max_new_tokens,
            batch_size=batch_size,
            progress=False,
            generate=generate,
        )
        rates = ", ".join(f"{name} {result[name]:.3f}" for name in METRICS)
        print(f"  step {step}: {result['n']} held-out studies, {rates}")
    return list(models)


def write(result: dict[str, Any], folder: Path) -> None:
    """reproduce_orapo.json, .png and .md of a result of `compare`."""
    from radverl.evaluation.reproduce_orapo_report import draw, markdown

    reproduce_cli.write(result, folder, "reproduce_orapo", draw, markdown)


def main(argv: list[str] | None = None) -> int:
    """0 done, 1 generation failed, 2 bad input."""
    return reproduce_cli.run_command(
        argv,
        module="reproduce_orapo",
        recipe="recipes/orapo_cpu.sh",
        arms=ARMS,
        seeds=(0, 1, 2),
        max_new_tokens=64,
        evaluate=evaluate_checkpoints,
        compare=lambda args, settings: compare(args.out, args.arms, args.seeds, settings),
        write=write,
    )


if __name__ == "__main__":
    sys.exit(main())
