"""The card of a data file: what is in it, what was left out, and the hash of the bytes.

`write_card("out/train.parquet", log)` writes `out/train.md` for people and `out/train.json` for programs.
"""

import hashlib
import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

from data_preprocess.core.skiplog import SkipLog, write_text
from data_preprocess.core.trace_card import TraceCounts, spread, trace_lines

STATES = ((1, "present"), (0, "absent"), (-1, "uncertain"), (None, "not mentioned"))
WORDS_PER_BIN = 20
ROWS_AT_ONCE = 4096
SIZES_SHOWN = 10


def summarise(path: str | os.PathLike[str], skipped: SkipLog, settings: dict[str, Any] | None = None) -> dict[str, Any]:
    """Count what an RL Parquet file holds; no paths and no dates, so the same data gives the same card.

    Args:
        skipped: rows left out of this file.
        settings: the options that made it (seed, max_pixels, ...), repeated in the card.
    """
    import pyarrow.parquet as pq

    path = Path(path)
    words: Counter[int] = Counter()
    sizes: Counter[str] = Counter()
    tasks: Counter[str] = Counter()
    labels: dict[str, Counter[Any]] = {}
    traces = TraceCounts()
    boxes = regions = 0
    sources, subjects, studies = set[str](), set[str](), set[str]()
    columns = ["data_source", "ability", "reward_model", "extra_info"]
    for batch in pq.ParquetFile(path).iter_batches(batch_size=ROWS_AT_ONCE, columns=columns):  # not all in memory
        for row in batch.to_pylist():
            truth, extra = json.loads(row["reward_model"]["ground_truth"]), row["extra_info"]
            words[len(str(truth.get("report") or truth.get("phrase") or "").split())] += 1
            for name, value in (truth.get("labels") or {}).items():
                labels.setdefault(name, Counter())[value] += 1
            boxes += len(truth.get("boxes") or [])
            regions += len(truth.get("regions") or [])
            sizes[f"{extra['width']} x {extra['height']}"] += 1
            tasks[row["ability"]] += 1
            if row["ability"] == "trace":
                traces.add(truth)
            sources.add(row["data_source"])
            subjects.add(extra["subject_id"])
            studies.add(extra["study_id"])
    bins: Counter[int] = Counter()
    for count, rows in words.items():
        bins[count // WORDS_PER_BIN * WORDS_PER_BIN] += rows
    card = {
        "file": path.name,
        "rows": words.total(),
        "subjects": len(subjects),
        "studies": len(studies),
        "data_sources": sorted(sources),
        "tasks": dict(sorted(tasks.items())),
        "skipped": {"rows": len(skipped), "reasons": skipped.counts()},
        "labels": {name: {state: n[value] for value, state in STATES} for name, n in labels.items()},
        "boxes": boxes,
        "regions": regions,
        "report_words": {
            **spread(words),
            "histogram": {f"{low}-{low + WORDS_PER_BIN - 1}": bins[low] for low in sorted(bins)},
        },
        "image_sizes": dict(sorted(sizes.items(), key=lambda item: (-item[1], item[0]))),
        "settings": settings or {},
        "sha256": _sha256(path),
    }
    return card | ({"traces": traces.card()} if tasks["trace"] else {})


def write_card(
    path: str | os.PathLike[str], skipped: SkipLog, settings: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Write the card of an RL Parquet file beside it, as `.md` and `.json`, and return it as a dict."""
    path = Path(path)
    card = summarise(path, skipped, settings)
    write_text(path.with_suffix(".json"), json.dumps(card, indent=1, ensure_ascii=False) + "\n")
    write_text(path.with_suffix(".md"), _markdown(card))
    return card


def _markdown(card: dict[str, Any]) -> str:
    words, skipped = card["report_words"], card["skipped"]
    lines = [
        f"# {card['file']}",
        "",
        f"{card['rows']} rows of {card['subjects']} subjects and {card['studies']} studies, {card['boxes']} boxes, "
        f"{card['regions']} regions, "
        f"from {', '.join(card['data_sources']) or 'nothing'}. Research only, not for clinical use.",
        "",
        f"sha256 `{card['sha256']}`",
        "",
        f"Report length in words: {words['min']} to {words['max']}, median {words['median']:g}.",
        "",
        *_rows(("words", "rows"), words["histogram"].items()),
        *(trace_lines(card["traces"]) if "traces" in card else []),
        f"Skipped: {skipped['rows']} rows.",
        "",
        *_rows(("reason", "rows"), skipped["reasons"].items()),
        *_rows(("label", *(state for _, state in STATES)), ((n, *c.values()) for n, c in card["labels"].items())),
        *_rows(("image size (pixels)", "rows"), list(card["image_sizes"].items())[:SIZES_SHOWN]),
    ]
    if len(card["image_sizes"]) > SIZES_SHOWN:
        lines += [f"and {len(card['image_sizes']) - SIZES_SHOWN} more sizes, in the .json beside this file.", ""]
    given = [(name, value) for name, value in card["settings"].items() if value not in (None, False)]
    lines += _rows(("setting", "value"), given)
    return "\n".join(lines).rstrip("\n") + "\n"


def _rows(header: tuple[str, ...], rows: Any) -> list[str]:
    """A Markdown table and a blank line; nothing where there are no rows."""
    body = ["| " + " | ".join(str(v).replace("|", "\\|").replace("\n", " ") for v in row) + " |" for row in rows]
    return ["| " + " | ".join(header) + " |", "|" + " --- |" * len(header), *body, ""] if body else []


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
