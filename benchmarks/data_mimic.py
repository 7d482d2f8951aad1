"""Time and memory of `data_preprocess.mimic_cxr` on a table of full size: goal 90 s and 1.5 GB with two workers.

    python -m benchmarks.data_mimic [--folder DIR] [--images 250000]

The release is made here: tables, and report files of invented text. There are no images, so the script runs with
--check-images no. Memory is the largest sum of the resident sets of its processes, looked at every 0.1 s; pages that
processes share count more than once. The ratio is the larger of seconds / 90 and GB / 1.5. `--folder` keeps the release
for the next run.
"""

import argparse
import csv
import gzip
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.result import write

GOAL_SECONDS, GOAL_GB = 90.0, 1.5
OPTIONS = ("--check-images", "no", "--workers", "2", "--target", "any", "--priors", "drop")
STUDIES_PER_PATIENT = 3.5
FILMS = (1, 1, 1, 2, 2, 3)  # of a study, drawn from these
# Views and splits as often as in the release, about.
VIEWS = {"AP": 0.39, "PA": 0.255, "LATERAL": 0.22, "LL": 0.093, "": 0.042}
SPLITS = {"train": 0.979, "validate": 0.008, "test": 0.013}
SIZES = ((2544, 3056), (3056, 2544), (2021, 2021), (2544, 2544), (1792, 2140))
LABELS = (
    "Atelectasis", "Cardiomegaly", "Consolidation", "Edema", "Enlarged Cardiomediastinum", "Fracture", "Lung Lesion",
    "Lung Opacity", "No Finding", "Pleural Effusion", "Pleural Other", "Pneumonia", "Pneumothorax", "Support Devices",
)  # fmt: skip
SLOTS = {
    "side": ("left", "right", "bilateral"),
    "size": ("small", "mild", "moderate", "trace", "large", "minimal", "subtle", "extensive"),
    "place": ("lower lobe", "upper lobe", "lung base", "perihilar region", "costophrenic angle", "mid lung zone"),
    "why": (
        "cough",
        "fever",
        "chest pain",
        "shortness of breath",
        "fall",
        "hypoxia",
        "line placement",
        "altered status",
    ),
    "device": (
        "PICC line",
        "internal jugular line",
        "chest tube",
        "pacemaker lead",
        "subclavian line",
        "port catheter",
    ),
    "end": ("mid SVC", "cavoatrial junction", "right atrium", "lower SVC", "brachiocephalic vein"),
    "change": ("unchanged", "slightly increased", "decreased", "improved", "worse", "new"),
    "disease": ("pneumonia", "atelectasis", "aspiration", "edema", "infection", "contusion"),
    "bone": ("rib", "clavicle", "vertebral body", "humerus", "sternum"),
}
SENTENCES = (
    "The heart is {size}ly enlarged, {change} from ___.",
    "Cardiac silhouette measures {number} cm and is top normal in size.",
    "There is a {size} {side} pleural effusion, {change} since the prior study.",
    "{size} {side} {place} opacity may represent {disease} or {disease}.",
    "As compared to the previous radiograph, the {side} {device} has been removed.",
    "A {side} {device} terminates {number} mm above the {end}.",
    "No focal consolidation, pneumothorax, or pulmonary edema.",
    "There is a {number} mm nodule in the {side} {place}, not seen on ___.",
    "Interval placement of a {side} {device} with tip in the {end}.",
    "In comparison with the study of ___, the {size} {side} effusion is {change}.",
    "Old healed {side} {bone} fracture is again noted at level {number}.",
    "The mediastinal and hilar contours are unremarkable.",
    "{side} {place} atelectasis persists; superimposed {disease} cannot be excluded.",
    "No acute {bone} abnormality is identified.",
    "Linear {side} {place} scarring is stable over {number} months.",
    "Endotracheal tube ends {number} cm above the carina.",
    "Lung volumes are low with {size} crowding of vessels in the {side} {place}.",
    "There is no evidence of {disease} in the {side} {place}.",
)


def make_release(folder: Path, images: int, seed: int = 0) -> int:
    """Tables of MIMIC-CXR-JPG for so many images, and their reports; returns the number of studies."""
    rng = random.Random(seed)
    folder.mkdir(parents=True, exist_ok=True)
    splits, metadata, labels = [], [], []
    subject, study, films, split = 10000000, 50000000, 0, "train"
    new_patient = True
    while films < images:
        if new_patient:
            subject += rng.randint(1, 60)
            split = _draw(rng, SPLITS)
        new_patient = rng.random() < 1 / STUDIES_PER_PATIENT
        study += rng.randint(1, 40)
        for _ in range(min(images - films, rng.choice(FILMS))):
            films += 1
            dicom_id = "-".join(f"{rng.getrandbits(32):08x}" for _ in range(5))
            splits.append((dicom_id, study, subject, split))
            sides = rng.choice(SIZES)
            day = f"21{rng.randint(10, 99)}0{rng.randint(1, 9)}1{rng.randint(0, 9)}"
            metadata.append(
                (dicom_id, subject, study, "CHEST (PA AND LAT)", _draw(rng, VIEWS), *sides, day, "81305.25")
            )
        values = [rng.choice(("1.0", "0.0", "-1.0")) if rng.random() < 0.15 else "" for _ in LABELS]
        labels.append((subject, study, *values))
        file = folder / f"files/p{str(subject)[:2]}/p{subject}/s{study}.txt"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("\n".join(_report(rng)) + "\n", encoding="utf-8")
    columns = ("PerformedProcedureStepDescription", "ViewPosition", "Rows", "Columns", "StudyDate", "StudyTime")
    _write(folder, "split", ("dicom_id", "study_id", "subject_id", "split"), splits)
    _write(folder, "metadata", ("dicom_id", "subject_id", "study_id", *columns), metadata)
    _write(folder, "chexpert", ("subject_id", "study_id", *LABELS), labels)
    return len(labels)


def measured(command: list[str]) -> tuple[float, float, float]:
    """Seconds of a command, those of all its processes on cores, and the peak of their memory in GB.

    Raises:
        SystemExit: it fails.
    """
    import psutil

    start, used = time.perf_counter(), _core_seconds()
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    process, peak = psutil.Process(child.pid), 0
    while child.poll() is None:
        peak = max(peak, _resident(process))
        time.sleep(0.1)
    seconds = time.perf_counter() - start
    if child.returncode:
        raise SystemExit(f"{' '.join(command[:3])} failed with exit status {child.returncode}.")
    return seconds, _core_seconds() - used, peak / 1e9


def main(argv: list[str] | None = None) -> int:
    """Run the benchmark; exit 0 if the goal holds, else 1."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--folder", type=Path, help="where the release is made, or lies already (default: a temporary one)"
    )
    parser.add_argument("--images", type=int, default=250_000)
    args = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as temporary:
        release = args.folder or Path(temporary, "release")
        if not (release / "mimic-cxr-2.0.0-chexpert.csv.gz").exists():  # the last file that is made
            make_release(release, args.images)
        out = Path(temporary, "out")
        command = [
            sys.executable,
            "-m",
            "data_preprocess.mimic_cxr",
            "--root",
            str(release),
            "--out",
            str(out),
            *OPTIONS,
        ]
        seconds, core_seconds, gigabytes = measured(command)
        rows = sum(_rows(path) for path in sorted(out.glob("t*.parquet")) + sorted(out.glob("val.parquet")))
    detail: dict[str, Any] = {"seconds": round(seconds, 2), "goal_seconds": GOAL_SECONDS}
    detail |= {"gigabytes": round(gigabytes, 3), "goal_gigabytes": GOAL_GB, "images": args.images, "rows": rows}
    detail |= {"core_seconds": round(core_seconds, 2), "options": " ".join(OPTIONS), "cores": os.cpu_count()}
    ratio = max(seconds / GOAL_SECONDS, gigabytes / GOAL_GB)
    text = f"{seconds:.1f} s, {gigabytes:.2f} GB for {args.images} images, {rows} rows"
    return 0 if write("data_mimic", ratio, 1.0, detail, text) else 1


def _report(rng: random.Random) -> Iterator[str]:
    """The lines of a report, as MIMIC-CXR's are set: each begins with a space, a blank line is a space."""
    kind = rng.random()
    if kind < 0.03:
        yield f" WET READ: ___ ___ ___ {rng.randint(1, 12)}:{rng.randint(10, 59)} PM"
        yield from _wrapped(_sentence(rng))
        yield f" {'_' * 78}"
    yield f"{' ' * 33}FINAL REPORT"
    yield from (" EXAMINATION:  CHEST (PA AND LAT)", " ")
    yield from _wrapped(f"INDICATION:  ___-year-old {rng.choice(('man', 'woman'))} with {rng.choice(SLOTS['why'])}")
    yield " "
    yield from ((" COMPARISON:  Chest radiograph of ___.", " ") if rng.random() < 0.6 else ())
    findings = " ".join(_sentence(rng) for _ in range(rng.randint(2, 10)))
    points = [_sentence(rng) for _ in range(rng.randint(1, 3))]
    numbered = "\n".join(f"{number}. {point}" for number, point in enumerate(points, 1))
    if kind > 0.95:  # only paragraphs
        yield from _wrapped(findings)
        return
    if kind < 0.67:
        yield from (" FINDINGS: ", " ", *_wrapped(findings), " ")
    if kind < 0.55 or kind >= 0.67:
        yield from (" IMPRESSION: ", " ")
        for point in numbered.split("\n") if len(points) > 1 else points:
            yield from _wrapped(point)


def _sentence(rng: random.Random) -> str:
    words = {name: rng.choice(values) for name, values in SLOTS.items()}
    text = rng.choice(SENTENCES).format(number=rng.randint(2, 30), **words)
    return text[0].upper() + text[1:]


def _wrapped(text: str, width: int = 78) -> Iterator[str]:
    line = ""
    for word in text.split(" "):
        if len(line) + len(word) >= width:
            yield line
            line = ""
        line += " " + word
    yield line


def _draw(rng: random.Random, shares: dict[str, float]) -> str:
    return rng.choices(list(shares), list(shares.values()))[0]


def _write(folder: Path, kind: str, columns: tuple[str, ...], rows: list[Any]) -> None:
    with gzip.open(
        folder / f"mimic-cxr-2.0.0-{kind}.csv.gz", "wt", newline="", encoding="utf-8", compresslevel=3
    ) as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(rows)


def _core_seconds() -> float:
    """Of the processes that this one started and that have ended; other work on the machine does not lengthen it."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _resident(process: Any) -> int:
    """Bytes of a process and those it started; 0 where one of them is just ending."""
    import psutil

    try:
        return sum(part.memory_info().rss for part in (process, *process.children(recursive=True)))
    except psutil.Error:
        return 0


def _rows(path: Path) -> int:
    import pyarrow.parquet as pq

    return int(pq.ParquetFile(path).metadata.num_rows)


if __name__ == "__main__":
    sys.exit(main())
