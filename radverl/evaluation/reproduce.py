"""OraPO against GRPO on the simulated cohort: the paper's Figure 2 (arXiv 2509.18600) from the folders of the runs.

    python -m radverl.evaluation.reproduce evaluate RUN --data test.parquet --out RUN/eval
    python -m radverl.evaluation.reproduce report OUT --arms grpo orapo --seeds 0 1 2 [--docs docs]

`recipes/orapo_cpu.sh` makes the folders (see reproduce_runs.py) and calls both. `report` writes reproduce_orapo.json,
.png and .md; the last two can be written anew from the first with `page`.
"""

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from data_preprocess.core.outputs import output_folder
from data_preprocess.core.skiplog import write_text
from radverl.evaluation.files import parse_json
from radverl.evaluation.generate import generate_reports
from radverl.evaluation.reproduce_runs import ARMS, METRICS, compare
from radverl.evaluation.run import evaluate

NAME = "reproduce_orapo"


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
    if (source / "config.json").is_file():
        models = {0: source}
    else:
        folders = source.glob("checkpoints/global_step_*/actor/huggingface")
        models = {int(folder.parts[-3].removeprefix("global_step_")): folder for folder in folders}
    if not models:
        raise ValueError(f"{source} is neither a model folder nor a run with checkpoints/global_step_*; did it end?")
    for step, model in sorted(models.items()):
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
    return sorted(models)


def write(result: dict[str, Any], folder: Path) -> None:
    """reproduce_orapo.json, .png and .md of a result of `compare`."""
    from radverl.evaluation.reproduce_report import draw, markdown

    write_text(folder / f"{NAME}.json", to_json(result) + "\n")
    draw(result, folder / f"{NAME}.png")
    write_text(folder / f"{NAME}.md", markdown(result))


def to_json(value: Any, indent: str = "") -> str:
    """JSON in which whatever holds only numbers and texts takes one line, so that a curve is one line of a diff."""
    inner = indent + " "
    items = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else []
    if not any(isinstance(item, dict | list) for item in items):
        return json.dumps(value, ensure_ascii=False, allow_nan=False)
    if isinstance(value, dict):
        lines = [f"{inner}{json.dumps(key, ensure_ascii=False)}: {to_json(item, inner)}" for key, item in value.items()]
        return "{\n" + ",\n".join(lines) + f"\n{indent}}}"
    return "[\n" + ",\n".join(inner + to_json(item, inner) for item in value) + f"\n{indent}]"


def main(argv: list[str] | None = None) -> int:
    """0 done, 1 generation failed, 2 bad input."""
    parser = argparse.ArgumentParser(
        prog="python -m radverl.evaluation.reproduce", description="The comparison of recipes/orapo_cpu.sh."
    )
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("evaluate", help="measure every checkpoint of a run on the held-out studies")
    one.add_argument("source", type=Path, help="folder of a run, or of a model")
    one.add_argument("--data", type=Path, required=True)
    one.add_argument("--out", type=Path, required=True)
    one.add_argument("--max-new-tokens", type=int, default=64)
    all_of = commands.add_parser("report", help="compare the arms: JSON, picture, Markdown")
    all_of.add_argument("out", type=Path, help="folder of the experiment")
    all_of.add_argument("--arms", nargs="+", choices=ARMS, default=list(ARMS))
    all_of.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    all_of.add_argument("--setting", action="append", default=[], metavar="NAME=VALUE", help="shown in the report")
    all_of.add_argument("--docs", type=Path, help="also write the three files there")
    again = commands.add_parser("page", help="write picture and Markdown anew from the JSON, beside it")
    again.add_argument("json", type=Path)
    args = parser.parse_args(argv)
    try:
        if args.command == "evaluate":
            evaluate_checkpoints(args.source, args.data, output_folder(args.out), max_new_tokens=args.max_new_tokens)
            return 0
        if args.command == "page":
            write(parse_json(args.json.read_text(encoding="utf-8")), args.json.parent)
            return 0
        unnamed = [item for item in args.setting if "=" not in item]
        if unnamed:
            raise ValueError(f"--setting {unnamed[0]!r} has no name; write NAME=VALUE.")
        settings = dict(item.split("=", 1) for item in args.setting)
        result = compare(args.out, args.arms, args.seeds, settings)
        for folder in filter(None, (args.out, args.docs)):
            write(result, output_folder(folder))
            print(f"wrote {folder}/{NAME}.json, .png and .md")
    except (ValueError, OSError) as error:
        print(f"reproduce: {error}", file=sys.stderr)
        return 2
    except RuntimeError as error:
        print(f"reproduce: generation failed: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
