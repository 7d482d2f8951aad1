"""`radverl eval`: measure a model on a Parquet file of studies, with a blind baseline beside it.

A report writer can score well by saying what is usual. So every number comes twice: with the right images, and blind,
the same model and the same prompts but the images shuffled between studies. What is left after subtraction is sight.

Writes <out>.json (numbers, settings, a few examples) and <out>.predictions.jsonl (every report).
"""

import argparse
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from data_preprocess.core.outputs import output_file
from radverl.datacheck.messages import check_messages
from radverl.datacheck.pictures import PictureCheck
from radverl.evaluation.files import extra_info, read_parquet, row_name, truth_of, write_json, write_jsonl
from radverl.evaluation.generate import chat_messages, generate_reports
from radverl.evaluation.metrics import bootstrap_intervals, derangement, label_metrics, mean_facts, mean_interval
from radverl.rewards.facts import true_labels as labels_of

HEADLINES = ("macro_precision", "macro_recall", "macro_f1", "macro_f1_present", "labels_present")
MICRO = ("micro_precision", "micro_recall", "micro_f1")


def evaluate(
    model_dir: str | Path,
    parquet: str | Path,
    *,
    limit: int | None = None,
    blind: bool = False,
    out: str | Path | None = None,
    max_new_tokens: int = 256,
    batch_size: int = 32,
    device: str = "auto",
    seed: int = 0,
    truth: str = "labels",
    uncertain: str = "ones",
    beta: float = 2.0,
    examples: int = 8,
    progress: bool = True,
    generate: Callable[..., list[str]] = generate_reports,
) -> dict[str, Any]:
    """Generate, label and score the reports of the studies of a Parquet file.

    Args:
        limit: only the first so many usable rows.
        blind: also generate with shuffled images (doubles the time).
        out: where to write the JSON; None writes nothing.
        truth: "labels" takes the labels of the data set; "report" labels the true report with the same offline rules
            as the generated one.
        uncertain: policy for -1, see `metrics.label_metrics`; FactS gets the same.
        beta: of F_beta in FactS.
        generate: a function with the signature of `generate_reports`, say over an inference server.
    Returns:
        {"n", "skipped": {reason: count}, "facts", "facts_ci", "facts_failed", macro and micro numbers, "macro_f1_ci",
        "per_label", "empty_predictions", "distinct_predictions", "facts_blind", "macro_f1_blind", "macro_f1_gain_ci",
        "blind": all numbers of the blind run or None, "examples", "settings", "seconds"}. Intervals are 95 % bootstrap
        over subjects. Values that were not measured are None.
    Raises:
        ModelError: the model folder is unusable.
        ValueError: the Parquet file is unusable, has no usable row, a blind run has fewer than two, or `out` cannot
            be written; all before a report is generated.
    """
    if truth not in ("labels", "report"):
        raise ValueError(f"truth={truth!r} is unknown: use labels or report.")
    if limit is not None and limit < 1:
        raise ValueError(f"limit={limit}: it must be at least 1.")
    if seed < 0:
        raise ValueError(f"seed={seed}: use 0 or a positive number.")
    if out is not None and output_file(out).resolve() == Path(parquet).resolve():
        raise ValueError(f"--out {out} is the data file itself: name another.")
    started = time.monotonic()
    rows, truths, positions, skipped = _usable_rows(parquet, limit, truth)
    subjects = [str(extra_info(r).get("subject_id") or f"row {i}") for r, i in zip(rows, positions, strict=True)]
    names = [row_name(row, position) for row, position in zip(rows, positions, strict=True)]
    donors = derangement(len(rows), seed, subjects) if blind else None
    options: dict[str, Any] = {
        "max_new_tokens": max_new_tokens,
        "batch_size": batch_size,
        "device": device,
        "progress": progress,
    }
    predictions = generate(model_dir, rows, **options)
    predictions_blind = generate(model_dir, rows, images_from=donors, **options) if blind else None

    from radverl.chexpert import label_report

    true_labels = [label_report(t["report"]) if truth == "report" else t["labels"] for t in truths]
    ground_truths = [row["reward_model"]["ground_truth"] for row in rows]

    def measure(texts: Sequence[str]) -> tuple[dict[str, Any], list[dict], list[dict]]:
        labels = [label_report(text) for text in texts]
        facts, facts_rows = mean_facts(texts, ground_truths, beta=beta, uncertain=uncertain)
        numbers = {
            "facts": facts,
            "facts_failed": sum(bool(result["failed"]) for result in facts_rows),
            **label_metrics(labels, true_labels, uncertain),
            "empty_predictions": sum(not text.strip() for text in texts),
            "distinct_predictions": len(set(texts)),
        }
        return numbers, labels, facts_rows

    sighted, labels, facts_rows = measure(predictions)
    unsighted, labels_blind, _ = measure(predictions_blind) if predictions_blind is not None else (None, None, [])
    intervals = bootstrap_intervals(
        labels, true_labels, baseline=labels_blind, clusters=subjects, uncertain=uncertain, seed=seed
    )
    judged = [(r["score"], s) for r, s in zip(facts_rows, subjects, strict=True) if not r["failed"]]
    facts_ci = mean_interval([v for v, _ in judged], clusters=[s for _, s in judged], seed=seed) if judged else None
    records = [
        {
            "row": positions[i],
            "prompt_id": names[i],
            "prediction": predictions[i],
            "prediction_blind": predictions_blind[i] if predictions_blind is not None else None,
            "blind_images_of": names[donors[i]] if donors is not None else None,
            "reference": truths[i].get("report", ""),
            "facts": None if facts_rows[i]["failed"] else facts_rows[i]["score"],
            "labels_predicted": labels[i],
            "labels_true": true_labels[i],
        }
        for i in range(len(rows))
    ]
    result: dict[str, Any] = {
        "model": str(model_dir),
        "data": str(parquet),
        "skipped": dict(skipped),
        **sighted,
        "facts_ci": facts_ci,
        **{f"{name}_ci": bounds for name, bounds in intervals.items()},
        "facts_blind": unsighted["facts"] if unsighted else None,
        "macro_f1_blind": unsighted["macro_f1"] if unsighted else None,
        "macro_f1_present_blind": unsighted["macro_f1_present"] if unsighted else None,
        "macro_f1_gain_ci": intervals.get("macro_f1_gain"),
        "blind": unsighted,
        "examples": records[:examples],
        "settings": {
            **{name: options[name] for name in ("max_new_tokens", "batch_size", "device")},
            "limit": limit,
            "seed": seed,
            "truth": truth,
            "uncertain": uncertain,
            "beta": beta,
        },
        "seconds": round(time.monotonic() - started, 2),
    }
    if out is not None:
        write_jsonl(predictions_path(out), records)
        write_json(out, result)
    return result


def predictions_path(out: str | Path) -> Path:
    """Where the reports go that belong to the numbers in `out`: x.json -> x.predictions.jsonl."""
    return Path(out).with_suffix(".predictions.jsonl")


def main(argv: list[str] | None = None) -> int:
    """`radverl eval`: 0 measured, 1 generation failed, 2 bad input."""
    parser = argparse.ArgumentParser(
        prog="radverl eval",
        description="Label F1 and FactS of a model's reports, with a blind baseline.",
        epilog="example: radverl eval --model outputs/merged --data data/test.parquet --out outputs/eval.json --blind",
    )
    parser.add_argument("--model", required=True, help="Hugging Face folder of the model")
    parser.add_argument("--data", required=True, help="RL Parquet file, e.g. test.parquet")
    parser.add_argument("--out", required=True, help="JSON file to write; the reports go beside it")
    parser.add_argument("--limit", type=int, help="only the first so many studies")
    parser.add_argument("--blind", action="store_true", help="also measure with images shuffled between studies")
    parser.add_argument("--max-new-tokens", type=int, default=256)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--truth", choices=("labels", "report"), default="labels", help="where true labels come from")
    parser.add_argument("--uncertain", choices=("ones", "zeros", "ignore"), default="ones", help="what -1 counts as")
    args = parser.parse_args(argv)
    try:
        result = evaluate(
            args.model,
            args.data,
            limit=args.limit,
            blind=args.blind,
            out=args.out,
            max_new_tokens=args.max_new_tokens,
            batch_size=args.batch_size,
            device=args.device,
            seed=args.seed,
            truth=args.truth,
            uncertain=args.uncertain,
        )
    except (ValueError, OSError) as error:
        print(f"radverl eval: {error}", file=sys.stderr)
        return 2
    except RuntimeError as error:  # out of memory, mostly
        print(f"radverl eval: generation failed ({error}); try a smaller --batch-size.", file=sys.stderr)
        return 1
    print(summary(result))
    print(f"wrote {args.out} and {predictions_path(args.out)}")
    return 0


def summary(result: dict[str, Any]) -> str:
    """The headline numbers as lines of text; a blind column where it was measured."""
    blind = result["blind"]
    lines = [f"{result['n']} studies" + (f", skipped {sum(result['skipped'].values())}" if result["skipped"] else "")]
    lines += [f"  skipped: {count} rows, {reason}" for reason, count in sorted(result["skipped"].items())]
    lines.append(f"{'':<18}{'images':>8}" + (f"{'blind':>8}" if blind else ""))
    for name in ("facts", *HEADLINES, *MICRO):
        columns = [result[name]] + ([blind[name]] if blind else [])
        shown = "".join(f"{'none' if v is None else v if isinstance(v, int) else f'{v:.3f}':>8}" for v in columns)
        low_high = result.get(f"{name}_ci")
        lines.append(f"{name:<18}{shown}" + (f"   95 % CI {low_high[0]:.3f} to {low_high[1]:.3f}" if low_high else ""))
    if blind:
        low, high = result["macro_f1_gain_ci"]
        gain = result["macro_f1"] - blind["macro_f1"]
        lines.append(f"macro F1 gained by seeing the right image: {gain:+.3f} (95 % CI {low:+.3f} to {high:+.3f})")
    if result["facts_failed"]:
        lines.append(f"judge failed, not in facts: {result['facts_failed']} studies")
    return "\n".join(lines)


def _usable_rows(
    parquet: str | Path, limit: int | None, truth_from: str
) -> tuple[list[dict], list[dict], list[int], Counter[str]]:
    """Rows that can be evaluated, their truths, their positions in the file, and the others counted by reason."""
    rows: list[dict] = []
    truths: list[dict] = []
    positions: list[int] = []
    skipped: Counter[str] = Counter()
    first_detail = ""
    pictures = PictureCheck()
    for index, row in enumerate(read_parquet(parquet)):
        if limit is not None and len(rows) == limit:
            break
        name = row_name(row, index)
        reason = "ground truth unreadable"
        try:
            truth = truth_of(row, name)
            labels_of(truth, {"prompt_id": name})
            if truth_from == "report" and not (isinstance(truth.get("report"), str) and truth["report"].strip()):
                raise ValueError(f"{name}: reward_model.ground_truth has no report to take labels from.")
            reason = "prompt and images disagree"
            chat_messages(row, name)
            found = list(check_messages(row["prompt"], row["images"] or [], "rl", set()))
            found += [f for image in row["images"] or [] for f in pictures.check(image, "rl")[0]]
            for severity, kind, message in found:
                if severity == "error" or kind == "image not checked":
                    reason = kind
                    raise ValueError(f"{name}: {message}")
        except ValueError as error:
            skipped[reason] += 1
            first_detail = first_detail or str(error)
            continue
        rows.append(row)
        truths.append(truth)
        positions.append(index)
    if not rows:
        raise ValueError(f"{parquet} has no usable row. {first_detail}".strip())
    return rows, truths, positions, skipped
