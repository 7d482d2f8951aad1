"""`radverl score`: reward any file of generated reports with a named reward.

The file is JSON lines or CSV, one report a row:
    prediction (or `output`, as in verl's rollout dumps)   the generated report
    ground_truth (or `gts`)                                 the JSON of our Parquet, or instead of it
    extra_info                                              as in our Parquet: width and height, for boxes in pixels
    reference                                               the true report, and/or
    labels (or `labels_true`, as `radverl eval` writes it)  {label: 1 | 0 | -1 | null}; in a CSV one column per label
Without labels the reference is labelled by the offline rules, and the summary says so.

A row that cannot be scored is skipped and counted by reason; a row whose judge or annotator failed is counted by cause
and kept out of means.
"""

import argparse
import asyncio
import inspect
import json
import math
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

from data_preprocess.core.outputs import output_file
from data_preprocess.core.tabular import MalformedRow, read_table
from radverl.evaluation.files import parse_json, write_jsonl
from radverl.labels import CHEXPERT_14, normalise_labels
from radverl.rewards import load, perfect_example
from radverl.rewards.base import FAILURES, failure_causes

PREDICTION_KEYS = ("prediction", "output")
TRUTH_KEYS = ("ground_truth", "gts")
SAMPLE_ARGUMENTS = ("data_source", "solution_str", "ground_truth", "extra_info")
ROWS_AT_ONCE = 64  # more than a judge's client asks at once
REFUSED = "the reward refused the row"


def read_rows(path: str | Path) -> list[dict]:
    """Rows of a .csv, .jsonl or .json (lines) file; a line that cannot be parsed becomes {"error": reason}.

    Raises:
        ValueError: no such file, another ending, not UTF-8, a CSV that cannot be parsed, or no row at all.
    """
    path = Path(path)
    if not path.is_file():
        raise ValueError(f"{path} does not exist: give a .jsonl or .csv file of predictions.")
    if path.suffix.lower() not in (".csv", ".jsonl", ".json"):
        raise ValueError(f"{path}: the ending {path.suffix or '(none)'} is unknown: give a .jsonl or .csv file.")
    try:
        # utf-8-sig: spreadsheets put a byte-order mark before the first column name.
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 text (byte {error.start}): save it as UTF-8.") from error
    if path.suffix.lower() == ".csv":
        columns, table = read_table(path)
        if not set(PREDICTION_KEYS) & set(columns):
            raise ValueError(f"{path} has no column prediction or output: its columns are {', '.join(columns)}.")
        malformed = {"error": "a CSV row has more or fewer fields than the header"}
        rows = [malformed if isinstance(row, MalformedRow) else _csv_row(row) for row in table]
    else:
        # Not splitlines(): a report may hold U+2028, which is no line end in JSON.
        rows = [_json_row(line) for line in text.split("\n") if line.strip()]
    if not rows:
        raise ValueError(f"{path} holds no row: write one report per line.")
    return rows


def ground_truth(row: dict) -> tuple[str, bool]:
    """The row's truth as the JSON string rewards take, and whether its labels were read from the reference.

    Raises:
        ValueError: neither ground truth, reference nor labels, or labels that are not a label dict.
    """
    for key in TRUTH_KEYS:
        if row.get(key):
            return (row[key] if isinstance(row[key], str) else json.dumps(row[key])), False
    reference, labels = row.get("reference"), row.get("labels") or row.get("labels_true")
    if reference is None or (isinstance(reference, float) and math.isnan(reference)):
        reference = ""
    if not isinstance(reference, str):
        raise ValueError("the reference is not text")
    if isinstance(labels, str) and labels.strip():
        try:
            labels = parse_json(labels)
        except ValueError as error:
            raise ValueError("a field is not JSON") from error
    if not reference and not labels:
        raise ValueError("no reference, labels or ground_truth")
    if labels and not isinstance(labels, dict):
        raise ValueError("labels are not an object of label names and values")
    from radverl.chexpert import has_clinical_content, label_report
    from radverl.text import split_sections

    sections = split_sections(reference) if reference else {}
    if not labels and not has_clinical_content(reference):
        raise ValueError("the reference says nothing about a chest image")
    known = normalise_labels(labels) if labels else label_report(reference)
    truth = {
        "findings": sections.get("findings", ""),
        "impression": sections.get("impression", ""),
        "report": reference,
        "labels": known,
        "regions": row.get("regions") or [],
        "boxes": row.get("boxes") or [],
    }
    return json.dumps(truth), not labels


def score_rows(rows: Iterable[dict], reward: str, **settings: Any) -> tuple[dict[str, Any], list[dict]]:
    """Reward every row.

    Args:
        rows: as `read_rows` gives them.
        reward: a name of `radverl.rewards.available()`.
        settings: keyword arguments of the reward, the same for every row.
    Returns:
        (summary, per-row results). Summary: {"reward", "rows", "scored", "failed", "causes": {cause of failure: count},
        "skipped": {reason: count}, "labels_from_reference", "mean": score or None, "components": {name: mean}}; means
        leave failed rows out.
        A result is the reward's dict with "row" before it, or {"row", "skipped": reason} and perhaps "detail".
    Raises:
        ValueError: an unknown reward or setting, a setting that the reward refuses, or a judge out of reach.
    """
    module = load(reward)
    compute = module.compute_score
    # Only named parameters are settings: a reward's **keywords are there for what verl passes.
    parameters = inspect.signature(compute).parameters.values()
    known = [p.name for p in parameters if p.name not in SAMPLE_ARGUMENTS and p.kind is not p.VAR_KEYWORD]
    for name in settings:
        if name not in known:
            raise ValueError(f"reward {reward} has no setting {name!r}: use one of {', '.join(known) or '(none)'}.")
    results, from_reference = asyncio.run(_score_all(list(rows), module, settings))
    scored = [result for result in results if "skipped" not in result]
    good = [result for result in scored if not result["failed"]]
    components: dict[str, list[float]] = {}
    for result in good:
        for name, value in result.items():
            if name not in ("row", "failed", *FAILURES) and isinstance(value, int | float) and math.isfinite(value):
                components.setdefault(name, []).append(float(value))
    means = {name: sum(values) / len(values) for name, values in components.items()}
    summary = {
        "reward": reward,
        "rows": len(results),
        "scored": len(good),
        "failed": len(scored) - len(good),
        "causes": dict(Counter(cause for result in scored for cause in failure_causes(result))),
        "skipped": dict(Counter(result["skipped"] for result in results if "skipped" in result)),
        "labels_from_reference": from_reference,
        "mean": means.pop("score", None),
        "components": means,
    }
    return summary, results


def main(argv: list[str] | None = None) -> int:
    """`radverl score`: 0 scored, 1 no row could be scored, 2 bad input."""
    parser = argparse.ArgumentParser(
        prog="radverl score",
        description="Reward a file of generated reports.",
        epilog="example: radverl score facts --input predictions.jsonl --out scored.jsonl --set beta=1.0",
    )
    parser.add_argument("reward", help="name of a reward, e.g. facts")
    parser.add_argument("--input", required=True, help=".jsonl or .csv with prediction and reference or labels")
    parser.add_argument("--out", help="write one result a line to this .jsonl")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a setting of the reward")
    parser.add_argument(
        "--judge", help="rules (default), openai (a model behind a server) or chexbert: see docs/judge.md"
    )
    parser.add_argument("--judge-url", help="its address up to /v1 (default: RADVERL_JUDGE_URL, localhost:8000)")
    parser.add_argument("--judge-model", help="its model (default: RADVERL_JUDGE_MODEL or the only one it has)")
    parser.add_argument(
        "--judge-remote-ok", action="store_true", help="allow a server outside this site: report text leaves it"
    )
    args = parser.parse_args(argv)
    try:
        settings = _with_judge(dict(_setting(text) for text in args.set), args)
        if args.out and Path(output_file(args.out)).resolve() == Path(args.input).resolve():
            raise ValueError(f"--out {args.out} is the input itself: name another file.")
        summary, results = score_rows(read_rows(args.input), args.reward, **settings)
        if args.out:
            write_jsonl(args.out, results)
    except (ValueError, OSError) as error:
        print(f"radverl score: {error}", file=sys.stderr)
        return 2
    _print_summary(summary)
    refused = [result["detail"] for result in results if "detail" in result]
    if refused:
        print(f"  first refusal: {refused[0]}")
    return 0 if summary["scored"] else 1


async def _score_all(rows: list[dict], module: ModuleType, settings: dict) -> tuple[list[dict], int]:
    # A setting that the reward refuses is no fault of a row: the reward's own example would be refused as well.
    try:
        text, truth, extra_info, _ = perfect_example(module, settings)
        example = module.compute_score("file", text, truth, extra_info, **settings)
        if inspect.isawaitable(example):
            example = await example
    except (TypeError, NotImplementedError) as error:
        raise ValueError(f"the reward refuses these settings ({error}).") from error
    if example["failed"]:
        causes = ", ".join(failure_causes(example)) or "no cause given"
        raise ValueError(f"the judge or annotator gives no answer to the reward's own example ({causes}; see above).")
    compute = getattr(module, "compute_score_async", module.compute_score)
    gate = asyncio.Semaphore(ROWS_AT_ONCE)

    async def one(index: int, row: dict) -> tuple[dict, bool]:
        try:
            if "error" in row:
                raise ValueError(row["error"])
            prediction = next((row[key] for key in PREDICTION_KEYS if row.get(key) is not None), None)
            if not isinstance(prediction, str):
                raise ValueError("no prediction")
            truth, labelled = ground_truth(row)
        except ValueError as error:
            return {"row": index, "skipped": str(error)}, False
        try:
            async with gate:
                source = str(row.get("data_source") or "file")
                result = compute(source, prediction, truth, _extra_info(row), **settings)
                return {"row": index, **(await result if inspect.isawaitable(result) else result)}, labelled
        except ValueError as error:
            return {"row": index, "skipped": REFUSED, "detail": str(error)}, False

    done = await asyncio.gather(*(one(index, row) for index, row in enumerate(rows)))
    return [result for result, _ in done], sum(labelled for _, labelled in done)


def _extra_info(row: dict) -> dict | None:
    given = row.get("extra_info")
    if isinstance(given, str) and given.strip():
        given = parse_json(given)
    if given is None or given == "":
        return None
    if not isinstance(given, dict):
        raise ValueError("extra_info is not an object")
    return given


def _json_row(line: str) -> dict:
    try:
        row = parse_json(line)
    except ValueError:
        return {"error": "the line is not JSON"}
    return row if isinstance(row, dict) else {"error": "the line is not a JSON object"}


def _csv_row(row: dict) -> dict:
    """A CSV row with its label columns, where it has any, gathered under `labels`."""
    columns = [name for name in CHEXPERT_14 if name in row]
    return {**row, "labels": {name: row[name] for name in columns}} if columns else row


def _setting(text: str) -> tuple[str, Any]:
    name, sign, value = text.partition("=")
    if not name or not sign:
        raise ValueError(f"--set {text!r} is not NAME=VALUE.")
    try:
        return name, parse_json(value)
    except ValueError:
        return name, value


def _with_judge(settings: dict[str, Any], args: argparse.Namespace) -> dict[str, Any]:
    """The settings with those of the --judge options, which come before the same ones of --set."""
    given = {"url": args.judge_url, "model": args.judge_model, "allow_remote": args.judge_remote_ok}
    judge_settings = {name: value for name, value in given.items() if value}
    if judge_settings and not args.judge:
        raise ValueError("--judge-url, --judge-model and --judge-remote-ok need --judge openai.")
    if args.judge:
        settings = settings | {"judge": args.judge}
    known = settings.get("judge_settings") or {}
    if judge_settings and isinstance(known, dict):  # the judge refuses what is no object
        settings = settings | {"judge_settings": known | judge_settings}
    return settings


def _print_summary(summary: dict) -> None:
    mean = "none" if summary["mean"] is None else f"{summary['mean']:.4f}"
    print(f"{summary['reward']}: mean {mean} over {summary['scored']} of {summary['rows']} rows")
    for name, value in sorted(summary["components"].items()):
        print(f"  {name}: {value:.4f}")
    if summary["labels_from_reference"]:
        print(f"  labels read from the reference by the offline rules: {summary['labels_from_reference']} rows")
    if summary["failed"]:
        causes = ", ".join(f"{cause} {count}" for cause, count in sorted(summary["causes"].items()))
        print(f"  failed, not in the mean: {summary['failed']} rows" + (f" ({causes})" if causes else ""))
    for reason, count in sorted(summary["skipped"].items()):
        print(f"  skipped: {count} rows, {reason}")
