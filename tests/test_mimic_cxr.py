"""MIMIC-CXR: one row per study, joined from tables and files, whatever the order of the tables and what is missing."""

import csv
import gzip
import io
import json
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from benchmarks import data_mimic
from data_preprocess.core.candidates import Intake
from data_preprocess.core.rows import read_rows
from data_preprocess.core.skiplog import SkipLog
from data_preprocess.mimic_cxr import main
from data_preprocess.releases.mimic_files import MAX_BYTES
from data_preprocess.releases.mimic_tables import read_studies
from radverl.labels import CHEXPERT_14
from tests.written_files import files, skips

DATA = Path(__file__).parent / "data" / "mimic_cxr"
VERBATIM = ("--priors", "keep", "--blanks", "keep")
REPORT = (
    "                                 FINAL REPORT\n EXAMINATION:  CHEST (PA AND LAT)\n \n INDICATION:  Cough.\n \n"
    " FINDINGS:  The lungs are\n clear.\n \n IMPRESSION:  No acute process.\n"
)
TEXT = "Findings: The lungs are clear. Impression: No acute process."
COLUMNS = {
    "split": ["dicom_id", "study_id", "subject_id", "split"],
    "metadata": ["dicom_id", "subject_id", "study_id", "ViewPosition", "Rows", "Columns", "StudyDate"],
    "chexpert": ["subject_id", "study_id", *sorted(CHEXPERT_14)],
}


class Release:
    """A made-up release in a folder: tables as lists of rows that a test may change before `write`, reports, images."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.reports, self.images = folder, folder / "files", folder / "files"
        self.tables: dict[str, list[dict[str, Any]]] = {kind: [] for kind in COLUMNS}

    def add(
        self, number: int, views: tuple[str, ...] = ("PA",), *, split: str = "train",
        report: str | bytes | None = REPORT, labels: dict[str, float] | None = None, image: bool = True,
        ending: str = ".jpg",
    ) -> str:  # fmt: skip
        """Study `number` of patient `number`; returns its row_id. `labels` {} is a row of blanks, None too."""
        subject, study = 10_000_000 + number, 50_000_000 + number
        row_id = f"p{subject}/s{study}"
        for place, view in enumerate(views):
            name = f"{number:04d}-{place}"
            ids = {"dicom_id": name, "subject_id": subject, "study_id": study}
            self.tables["split"].append({**ids, "split": split})
            self.tables["metadata"].append(
                {**ids, "ViewPosition": view, "Rows": 24, "Columns": 30, "StudyDate": 21800401}
            )
            if image:
                pixels = np.random.default_rng([number, place]).integers(0, 256, (24, 30), dtype=np.uint8)
                file = self.images / "p10" / row_id / f"{name}{ending}"
                file.parent.mkdir(parents=True, exist_ok=True)
                Image.fromarray(pixels).save(file)
        self.tables["chexpert"].append({"subject_id": subject, "study_id": study, **(labels or {})})
        if report is not None:
            file = self.reports / "p10" / f"{row_id}.txt"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(report if isinstance(report, bytes) else report.encode())
        return row_id

    def text(self, kind: str) -> str:
        """The table as CSV."""
        file = io.StringIO()
        writer = csv.DictWriter(file, COLUMNS[kind], lineterminator="\n")
        writer.writeheader()
        writer.writerows(self.tables[kind])
        return file.getvalue()

    def write(self, change: Callable[[str], str] = str) -> "Release":
        self.folder.mkdir(exist_ok=True)
        for kind in COLUMNS:
            path = self.folder / f"mimic-cxr-2.0.0-{kind}.csv.gz"
            path.write_bytes(gzip.compress(change(self.text(kind)).encode()))
        return self

    def run(self, *options: str, out: str = "out") -> tuple[int, Path]:
        place = self.folder / out
        return main(["--root", str(self.folder), "--out", str(place), *options]), place


@pytest.fixture
def release(tmp_path: Path) -> Release:
    return Release(tmp_path / "mimic")


def by_study(out: Path, split: str = "train") -> dict[str, dict[str, Any]]:
    """Rows by the id of their study; the ground truth is parsed."""
    rows = {}
    for row in read_rows(out / f"{split}.parquet"):
        row["truth"] = json.loads(row["reward_model"]["ground_truth"])
        rows[row["extra_info"]["prompt_id"].removeprefix("mimic_cxr/")] = row
    return rows


def texts(out: Path, split: str = "train") -> dict[str, str]:
    return {study: row["truth"]["report"] for study, row in by_study(out, split).items()}


def test_the_published_layout(tmp_path: Path) -> None:
    assert main(["--root", str(DATA), "--out", str(tmp_path), "--target", "any", *VERBATIM]) == 0
    train = by_study(tmp_path)
    assert train.keys() == {"p10999901/s50999901", "p10999901/s50999902", "p11999904/s50999907"}
    first = train["p10999901/s50999901"]
    image = "files/p10/p10999901/s50999901/00000001-00000001-00000001-00000001-00000001.jpg"
    findings = "The heart is mildly enlarged, unchanged from ___. There is a new small right pleural effusion."
    findings += " No pneumothorax."
    impression = "1. New small right pleural effusion. 2. Stable mild cardiomegaly."
    assert first["truth"] == {
        "findings": findings,
        "impression": impression,
        "report": f"Findings: {findings} Impression: {impression}",
        "labels": dict.fromkeys(CHEXPERT_14) | {"Cardiomegaly": 1, "Pleural Effusion": 1},
        "regions": [],
        "boxes": [],
    }
    assert first["images"] == [{"image": f"file://{DATA / image}"}]
    assert first["data_source"] == "mimic_cxr"
    assert first["extra_info"] == {
        "index": 0, "split": "train", "prompt_id": "mimic_cxr/p10999901/s50999901", "subject_id": "10999901",
        "study_id": "50999901", "width": 254, "height": 305, "box_space": "unit", "view": "PA", "priors": "keep",
        "original_report": "",
    }  # fmt: skip
    assert train["p10999901/s50999902"]["truth"]["impression"].startswith("Right internal jugular line ends")
    assert by_study(tmp_path, "val").keys() == {"p10999902/s50999903"}  # "validate"; its text has no header
    assert skips(tmp_path) == {"p11999904/s50999906": "no labels"}
    assert skips(tmp_path, "test") == dict.fromkeys(["p11999903/s50999904", "p11999903/s50999905"], "no frontal view")
    subjects = json.loads((tmp_path / "subjects.json").read_text())
    assert subjects["cohort"] == "mimic"
    assert subjects["splits"]["test"] == ["11999903"]  # none of its studies is a row


def test_the_test_set_that_radiologists_labelled(tmp_path: Path) -> None:
    options = ["--labels", str(DATA / "mimic-cxr-2.1.0-test-set-labeled.csv"), "--views", "all", "--target", "any"]
    assert main(["--root", str(DATA), "--out", str(tmp_path), *options]) == 0
    rows = by_study(tmp_path, "test")
    assert rows["p11999903/s50999904"]["truth"]["labels"] == dict.fromkeys(CHEXPERT_14) | {"Fracture": 1}
    assert rows["p11999903/s50999905"]["truth"]["labels"]["No Finding"] == -1
    assert set(skips(tmp_path).values()) == {"no labels"}  # a study that nobody labelled is no row
    assert not (tmp_path / "train.parquet").exists()


def test_airspace_opacity_is_lung_opacity_in_any_order_of_columns(release: Release, tmp_path: Path) -> None:
    first, second = release.add(1), release.add(2)
    release.write()
    columns = ["Airspace Opacity", *(name for name in CHEXPERT_14 if name != "Lung Opacity"), "study_id"]
    values = ["1.0", *[""] * 13]
    table = tmp_path / "labels.csv.gz"
    table.write_bytes(gzip.compress(f"{','.join(columns)}\n{','.join(values)},s50000001\n".encode()))
    status, out = release.run("--labels", str(table))
    assert status == 0
    assert by_study(out)[first]["truth"]["labels"] == dict.fromkeys(CHEXPERT_14) | {"Lung Opacity": 1}
    assert skips(out) == {second: "no labels"}


def test_labels_of_either_table_or_of_the_report(release: Release) -> None:
    study = release.add(1, labels={"Edema": -1.0}, report=REPORT.replace("No acute process", "Small left effusion"))
    release.write()
    shutil.copy(release.folder / "mimic-cxr-2.0.0-chexpert.csv.gz", release.folder / "mimic-cxr-2.0.0-negbio.csv.gz")
    found = {}
    for labels in ("chexpert", "negbio", "rules"):
        status, out = release.run("--labels", labels, out=labels)
        assert status == 0
        found[labels] = by_study(out)[study]["truth"]["labels"]
    assert found["chexpert"] == found["negbio"] == dict.fromkeys(CHEXPERT_14) | {"Edema": -1}
    assert found["rules"]["Pleural Effusion"] == 1
    assert found["rules"]["Edema"] is None


@pytest.mark.parametrize(
    ("option", "views", "chosen"),
    [
        ("frontal", ("LATERAL", "AP", "PA"), "PA"),
        ("frontal", ("LL", "AP"), "AP"),
        ("frontal", ("", "LATERAL"), None),  # a blank view is no frontal one
        ("frontal", ("nan",), None),
        ("lateral", ("PA", "LL"), "LL"),
        ("pair", ("LL", "LATERAL", "AP"), "AP LATERAL"),
        ("pair", ("AP",), "AP"),
        ("all", ("", "LL", "PA", "LATERAL", "AP"), "PA AP LATERAL LL UNKNOWN"),
        ("all", ("ap  axial", "SWIMMERS"), "AP AXIAL SWIMMERS"),
    ],
)
def test_views(release: Release, option: str, views: tuple[str, ...], chosen: str | None) -> None:
    study = release.add(1, views)
    other = release.add(2, ("PA", "LATERAL"))
    status, out = release.write().run("--views", option)
    assert status == 0
    assert other in by_study(out)
    if chosen is None:
        assert skips(out) == {study: "no frontal view"}
        return
    row = by_study(out)[study]
    assert row["extra_info"]["view"] == chosen
    assert (
        len(row["images"])
        == row["prompt"][0]["content"].count("<image>")
        == len(chosen.replace("AP AXIAL", "A").split())
    )


def test_splits_are_the_official_ones_and_unknown_words_are_no_training_data(release: Release) -> None:
    train, val, test = release.add(1), release.add(2, split="validate"), release.add(3, split="test")
    release.add(4, split="holdout")
    release.add(5, split="")
    status, out = release.write().run()
    assert status == 0
    assert [*by_study(out), *by_study(out, "val"), *by_study(out, "test")] == [train, val, test]
    assert skips(out) == {"0004-0": "unknown split", "0005-0": "unknown split"}


@pytest.mark.parametrize(
    ("images", "reports"),
    [("files", "files"), ("", ""), ("files", ""), ("files", "mimic-cxr-reports/files"), ("files", "mimic-cxr-reports")],
)
def test_files_may_lie_inside_or_beside(release: Release, images: str, reports: str) -> None:
    release.images, release.reports = release.folder / images, release.folder / reports
    study = release.add(1)
    status, out = release.write().run()
    assert status == 0
    assert by_study(out)[study]["images"] == [{"image": f"file://{release.images / 'p10' / study / '0001-0.jpg'}"}]


def test_reports_and_images_of_other_folders(release: Release, tmp_path: Path) -> None:
    release.images, release.reports = tmp_path / "png", tmp_path / "reports" / "files"
    study = release.add(1, ending=".png")
    missing = release.add(2, image=False)
    release.write()
    status, out = release.run("--reports", str(tmp_path / "reports"), "--image-root", str(tmp_path / "png"))
    assert status == 0
    assert by_study(out)[study]["images"][0]["image"].endswith(f"png/p10/{study}/0001-0.png")
    assert skips(out) == {missing: "image missing"}
    status, _ = release.run(
        "--reports", str(tmp_path / "reports"), "--image-root", str(tmp_path / "png"), "--image-ending", "jpg"
    )
    assert status == 2  # none has that ending


def test_dicom_files_are_converted(release: Release) -> None:
    study = release.add(1, image=False)
    file = release.images / "p10" / study / "0001-0.dcm"
    file.parent.mkdir(parents=True)
    _write_dicom(file)
    status, out = release.write().run()
    assert status == 0
    row = by_study(out)[study]
    path = row["images"][0]["image"].removeprefix("file://")
    assert path.startswith(str(out / "images"))
    assert Image.open(path).size == (row["extra_info"]["width"], row["extra_info"]["height"]) == (32, 20)


def test_a_copy_of_smaller_images_does_not_get_the_sizes_of_the_table(release: Release) -> None:
    small, as_released = release.add(1), release.add(2)
    (release.images / "p10" / as_released / "0002-0.jpg").unlink()
    Image.new("L", (15, 12), 90).save(release.images / "p10" / small / "0001-0.jpg")
    release.write()
    status, out = release.run("--check-images", "exists")
    assert status == 0
    extra = by_study(out)[small]["extra_info"]
    assert (extra["width"], extra["height"]) == (15, 12)


def test_without_images_the_table_is_believed(release: Release) -> None:
    study = release.add(1, image=False)
    status, out = release.write().run("--check-images", "no", "--contact-sheet", "0")
    assert status == 0
    row = by_study(out)[study]
    assert (row["extra_info"]["width"], row["extra_info"]["height"]) == (30, 24)
    assert row["images"][0]["image"] == f"file://{release.folder / 'files/p10' / study / '0001-0.jpg'}"


def test_a_partial_download_gives_what_is_there(release: Release) -> None:
    whole, no_image, no_report = release.add(1), release.add(2, image=False), release.add(3, report=None)
    status, out = release.write().run()
    assert status == 0
    assert list(by_study(out)) == [whole]
    assert skips(out) == {no_image: "image missing", no_report: "report missing"}
    status, _ = release.run("--no-skip-bad", out="strict")
    assert status == 1


@pytest.mark.parametrize(
    ("report", "reason"),
    [
        (b"", "empty report"),
        (b" \n \n", "empty report"),
        (REPORT.encode() + b" " * MAX_BYTES, "report too long"),
        (b" FINDINGS: " + b"The lungs are clear. " * 500_000, "report too long"),  # 10 MB
        (b" FINDINGS: " + b"The lungs are clear. " * 4000 + b"\n \n IMPRESSION: Normal.\n", "report too long"),
        (b" FINDINGS: Clear.\n \n IMPRESSION: \x00\x01 Normal.", "malformed text"),
        (REPORT.encode("utf-16"), "malformed text"),
        (b" FINDINGS: <image> clear.\n IMPRESSION: Normal.", "placeholder in report"),
        (b" INDICATION: Cough.\n", "no findings and no impression"),
        (b" IMPRESSION: Normal.\n", "no findings"),
    ],
)
def test_reports_that_cannot_be_used(release: Release, report: bytes, reason: str) -> None:
    bad, good = release.add(1, report=report), release.add(2)
    status, out = release.write().run()
    assert status == 0
    assert skips(out) == {bad: reason}
    assert texts(out) == {good: TEXT}


def test_reports_that_are_no_files(release: Release) -> None:
    loop, folder, pipe, good = (release.add(number, report=None) for number in range(1, 5))
    group = release.reports / "p10"
    for study in (loop, folder, pipe, good):
        (group / study).parent.mkdir(parents=True, exist_ok=True)
    (group / f"{loop}.txt").symlink_to(f"{Path(loop).name}.txt")
    (group / f"{folder}.txt").mkdir()
    os.mkfifo(group / f"{pipe}.txt")
    (group / f"{good}.txt").write_text(REPORT)
    (group / "p10").symlink_to(group)  # a loop of folders: nobody walks through them
    status, out = release.write().run()
    assert status == 0
    assert skips(out) == dict.fromkeys([loop, folder, pipe], "report unreadable")


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "latin-1"])
def test_encodings_of_a_report(release: Release, encoding: str) -> None:
    text = REPORT.replace("No acute process", "Señor Müller: 5° scoliosis")
    study = release.add(1, report=text.replace("\n", "\r\n").encode(encoding))
    status, out = release.write().run(*VERBATIM)
    assert status == 0
    assert texts(out) == {study: "Findings: The lungs are clear. Impression: Señor Müller: 5° scoliosis."}


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("findings", {1: "Findings: The lungs are clear.", 2: "Findings: Clear."}),
        ("impression", {1: "Impression: No acute process.", 3: "Impression: Normal."}),
        ("both", {1: TEXT}),
        ("any", {1: TEXT, 2: "Findings: Clear.", 3: "Impression: Normal.", 4: "Findings: Heart and lungs are normal."}),
    ],
)
def test_targets(release: Release, target: str, expected: dict[int, str]) -> None:
    one, two = release.add(1), release.add(2, report=" FINDINGS: Clear.\n")
    three = release.add(3, report=" IMPRESSION:Normal.\n")  # no space after the colon
    four = release.add(4, report="                FINAL REPORT\n Heart and lungs are normal.\n")  # no header
    status, out = release.write().run("--target", target)
    assert status == 0
    found = texts(out)
    if target == "findings":  # of a report without headers, all is findings
        expected = expected | {4: "Findings: Heart and lungs are normal."}
    assert found == {study: expected[n] for n, study in enumerate((one, two, three, four), 1) if n in expected}


def test_the_indication_goes_before_the_prompt(release: Release) -> None:
    study = release.add(1)
    status, out = release.write().run("--indication")
    assert status == 0
    asked = by_study(out)[study]["prompt"][0]["content"]
    assert asked == "<image>Indication: Cough.\nWrite the findings and impression of this chest radiograph."


def test_rows_of_a_table_that_cannot_be_used(release: Release) -> None:
    good = release.add(1)
    for number, name in enumerate(("../../../etc/passwd", "a\\b", "..", "/tmp/x", "a b", "nan\0"), 2):
        release.add(number, image=False)
        release.tables["split"][-1]["dicom_id"] = release.tables["metadata"][-1]["dicom_id"] = name
    release.add(9)
    release.tables["split"][-1]["subject_id"] = "../../10"
    status, out = release.write().run()
    assert status == 0
    assert list(by_study(out)) == [good]
    entries = [json.loads(line) for line in (out / "train.skipped.jsonl").read_text().splitlines()]
    reasons = [entry["reason"] for entry in entries if entry["detail"].startswith("mimic-cxr-2.0.0-split")]
    assert sorted(reasons) == ["image outside image root"] * 4 + ["malformed id"] * 3


def test_images_in_one_table_only_are_listed(release: Release) -> None:
    study = release.add(1, ("PA", "AP"))
    release.tables["metadata"].pop(0)
    release.add(2)
    release.tables["split"].pop()
    status, out = release.write().run()
    assert status == 0
    assert by_study(out)[study]["extra_info"]["view"] == "AP"
    assert skips(out) == {"0001-0": "no metadata", "0002-0": "no split"}


def test_repeated_rows_count_once_and_contradictions_never(release: Release) -> None:
    twice, unclear_view, unclear_study, good = (release.add(number) for number in range(1, 5))
    for kind in ("split", "metadata"):
        release.tables[kind].append(dict(release.tables[kind][0]))
    release.tables["metadata"].append(release.tables["metadata"][1] | {"ViewPosition": "LATERAL"})
    release.tables["split"].append(release.tables["split"][2] | {"study_id": 50000009})
    status, out = release.write().run()
    assert status == 0
    assert list(by_study(out)) == [twice, good]
    assert skips(out) == {
        "0001-0": "duplicate row", "0002-0": "contradictory rows", "0003-0": "contradictory rows",
    }  # fmt: skip
    assert unclear_view not in by_study(out)
    assert unclear_study not in by_study(out)


def test_a_subject_of_two_splits_stays_out_of_training(release: Release) -> None:
    study, other = release.add(1), release.add(2)
    release.add(1, split="test", image=False)
    for kind in ("split", "metadata"):
        release.tables[kind][-1] |= {"study_id": 50000007, "dicom_id": "0007-0"}
    release.write()
    status, out = release.run()
    assert status == 0
    assert list(by_study(out)) == [other]
    assert skips(out)[study] == "subject of a held-out split"


@pytest.mark.parametrize("change", ["bom", "windows", "quoted", "unpacked"])
def test_other_forms_of_the_tables_give_the_same_rows(release: Release, change: str) -> None:
    for number in range(3):
        release.add(number, ("LATERAL", "PA"))
    _, first = release.write().run(out="first")
    if change == "unpacked":
        for path in release.folder.glob("*.csv.gz"):
            path.with_suffix("").write_bytes(gzip.decompress(path.read_bytes()))
            path.unlink()
    else:
        forms: dict[str, Callable[[str], str]] = {
            "bom": lambda text: "\ufeff" + text,
            "windows": lambda text: text.replace("\n", "\r\n"),
            "quoted": lambda text: "\n".join(",".join(f'"{v}"' for v in line.split(",")) for line in text.splitlines()),
        }
        release.write(forms[change])
    _, second = release.run(out="second")
    assert (first / "train.parquet").read_bytes() == (second / "train.parquet").read_bytes()


def test_same_bytes_for_any_number_of_workers_and_any_order_of_rows(release: Release) -> None:
    for number in range(12):
        views = ("LATERAL", "AP", "PA") if number % 3 else ("",)
        release.add(
            number, views, report=None if number == 5 else REPORT, split=("train", "validate", "test")[number // 5]
        )
    release.tables["metadata"].append(dict(release.tables["metadata"][0]))
    assert release.write().run("--views", "pair", out="first")[0] == 0
    for rows in release.tables.values():
        random.Random(1).shuffle(rows)
    assert release.write().run("--views", "pair", "--workers", "2", out="second")[0] == 0
    first, second = files(release.folder / "first"), files(release.folder / "second")
    assert first == second
    assert {"train.parquet", "val.parquet", "test.parquet", "train.png", "train.skipped.jsonl"} <= first.keys()


@given(order=st.permutations(range(8)), other=st.permutations(range(8)))
def test_what_is_read_does_not_depend_on_the_order_of_rows(
    tmp_path_factory: pytest.TempPathFactory, order: list[int], other: list[int]
) -> None:
    release = Release(tmp_path_factory.mktemp("order"))
    release.add(1, ("PA", "LATERAL", "AP"), image=False, report=None)
    release.add(2, ("AP", ""), image=False, report=None, split="test")
    release.tables["split"] += [
        release.tables["split"][i] | {"split": s} for i, s in ((0, "train"), (1, "test"), (3, "?"))
    ]
    rows = release.tables["metadata"]
    release.tables["metadata"] += [dict(rows[0]), rows[2] | {"ViewPosition": "LL"}, rows[4] | {"study_id": 50000001}]

    def read() -> tuple[Any, ...]:
        intake = Intake({split: SkipLog() for split in ("train", "val", "test")})
        release.write()
        paths = (release.folder / f"mimic-cxr-2.0.0-{kind}.csv.gz" for kind in ("split", "metadata"))
        studies = [(s.row_id, s.split, sorted(f.name for f in s.films)) for s in read_studies(*paths, intake)]
        logs = {split: sorted(map(str, log.entries)) for split, log in intake.logs.items()}
        return studies, logs, intake.held_out

    before = read()
    assert before[0] == [("p10000001/s50000001", "train", ["0001-0"])]
    for kind, places in (("split", order), ("metadata", other)):
        release.tables[kind] = [release.tables[kind][i] for i in places]
    assert read() == before


def test_a_release_without_reports_says_where_they_come_from(
    release: Release, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in range(3):
        release.add(number, report=None)
    status, out = release.write().run()
    message = capsys.readouterr().err
    assert status == 2
    assert "mimic-cxr-reports.zip" in message
    assert "--reports" in message
    assert message.count("\n") == 1
    assert not out.exists()
    (release.folder / "mimic-cxr-reports.zip").write_bytes(b"PK")
    assert release.run()[0] == 2
    assert "unpack" in capsys.readouterr().err


def test_folders_of_something_else(release: Release, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    release.add(1)
    release.write()

    def refused(*options: str) -> str:
        assert main([*options, "--out", str(tmp_path / "never")]) == 2
        assert not (tmp_path / "never").exists()
        return capsys.readouterr().err

    root = ("--root", str(release.folder))
    assert "no such folder" in refused("--root", str(tmp_path / "nowhere"))
    assert "no such folder" in refused(*root, "--reports", str(tmp_path / "nowhere"))
    assert "no such file" in refused(*root, "--labels", str(tmp_path / "nowhere.csv"))
    assert f"pass {release.folder} with --root" in refused("--root", str(tmp_path))  # one folder too high
    assert "--labels rules" in refused(*root, "--labels", "negbio")  # not there
    assert "is no ending" in refused(*root, "--image-ending", "../x")
    for file, hint in (
        ("df_chexpert_plus_240401.csv", "data_preprocess.chexpert_plus"),
        ("cxr-record-list.csv.gz", "MIMIC-CXR-JPG"),
    ):
        folder = tmp_path / hint
        folder.mkdir()
        (folder / file).write_bytes(b"")
        assert hint in refused("--root", str(folder))
    archive = tmp_path / "mimic-cxr-reports.zip"
    archive.write_bytes(b"PK")
    assert "unpack it" in refused(*root, "--reports", str(archive))
    other = tmp_path / "other.csv"
    other.write_text(",".join(["study_id", *CHEXPERT_14]) + "\n" + "59999999" + "," * 14 + "\n")
    assert "no row is about a study" in refused(*root, "--labels", str(other))


def test_tables_that_cannot_be_used(release: Release, capsys: pytest.CaptureFixture[str]) -> None:
    release.add(1)
    release.write()
    table = release.folder / "mimic-cxr-2.0.0-split.csv.gz"
    whole = table.read_bytes()

    def refused() -> str:
        status, out = release.run()
        assert status == 2
        assert not out.exists()
        return capsys.readouterr().err

    table.write_bytes(whole[:-9])
    assert "damaged" in refused()
    table.write_bytes(gzip.compress(b"dicom_id,study,subject_id,split\na,b,c,d\n"))
    assert "has no column 'study_id'" in refused()
    table.write_bytes(whole)
    newer = release.folder / "mimic-cxr-2.1.0-split.csv.gz"
    newer.write_bytes(whole)
    assert "2.0.0, 2.1.0" in refused()
    table.unlink()
    assert release.run()[0] == 0  # one version, whichever
    newer.with_suffix("").write_bytes(gzip.decompress(whole))
    assert release.run()[0] == 0  # the same table, unpacked beside it


def test_a_row_with_too_few_fields_is_listed(release: Release) -> None:
    study = release.add(1)
    release.add(2)
    release.write(lambda text: text.replace("0002-0,50000002,10000002,train", "0002-0,50000002"))
    status, out = release.run()
    assert status == 0
    assert list(by_study(out)) == [study]
    assert skips(out) == {2: "malformed row", "0002-0": "no split"}


def test_every_study_of_the_benchmark_is_a_row_or_listed(tmp_path: Path) -> None:
    studies = data_mimic.make_release(tmp_path / "release", 120)
    options = ["--check-images", "no", "--target", "any", "--contact-sheet", "0"]
    assert main(["--root", str(tmp_path / "release"), "--out", str(tmp_path / "out"), *options]) == 0
    names: list[str | int] = []
    for split in ("train", "val", "test"):
        if (tmp_path / "out" / f"{split}.parquet").exists():
            names += by_study(tmp_path / "out", split)
        names += skips(tmp_path / "out", split)
    assert len(names) == len(set(names)) == studies


def test_the_benchmark_measures_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("psutil")
    monkeypatch.chdir(tmp_path)
    data_mimic.main(["--images", "60"])
    result = json.loads((tmp_path / "outputs/bench/data_mimic.json").read_text())
    detail = result["detail"]
    assert 0 < detail["rows"] <= 60
    assert detail["gigabytes"] > 0.02  # Python itself takes more
    assert result["ratio"] == pytest.approx(max(detail["seconds"] / 90, detail["gigabytes"] / 1.5), abs=1e-2)


def _write_dicom(path: Path) -> None:
    from pydicom.dataset import FileDataset, FileMetaDataset
    from pydicom.uid import ExplicitVRLittleEndian

    meta = FileMetaDataset()
    meta.MediaStorageSOPClassUID, meta.MediaStorageSOPInstanceUID = "1.2.840.10008.5.1.4.1.1.1", "1.2.3"
    meta.TransferSyntaxUID = ExplicitVRLittleEndian
    film = FileDataset(str(path), {}, file_meta=meta, preamble=b"\0" * 128)
    film.Rows, film.Columns, film.SamplesPerPixel, film.PhotometricInterpretation = 20, 32, 1, "MONOCHROME2"
    film.BitsAllocated, film.BitsStored, film.HighBit, film.PixelRepresentation = 16, 12, 11, 0
    film.PixelData = np.arange(640, dtype=np.uint16).tobytes()
    film.save_as(path, enforce_file_format=True)


def test_a_line_of_labels_without_a_study_is_named(release: Release, capsys: pytest.CaptureFixture[str]) -> None:
    release.add(1)
    release.write()
    labels = release.folder / "labels.jsonl"
    labels.write_text(json.dumps({"study_id": 50000001, **dict.fromkeys(CHEXPERT_14)}) + "\n")
    assert release.run("--labels", str(labels))[0] == 0
    with labels.open("a") as file:
        file.write(json.dumps(dict.fromkeys(CHEXPERT_14)) + "\n")
    assert release.run("--labels", str(labels))[0] == 2
    assert "row 2: study_id is 'None'" in capsys.readouterr().err
