"""CheXpert Plus: one row per study with the labels of the release, whatever the order of the table."""

import csv
import gzip
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from data_preprocess.chexpert_plus import main
from data_preprocess.core.rows import read_rows
from radverl.labels import CHEXPERT_14
from tests.written_files import files, skips

DATA = Path(__file__).parent / "data"
COLUMNS = ("path_to_image", "frontal_lateral", "ap_pa", "section_findings", "section_impression", "split")
CHEXBERT = [*(name for name in CHEXPERT_14 if name != "No Finding"), "No Finding"]  # the release's order
CLEAR = ("The lungs are clear.", "1.  Normal chest.")


class Release:
    """A made-up release in a folder: table, label files and PNG images."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.rows, self.labels = folder, list[dict[str, str]](), list[dict[str, Any]]()
        (folder / "PNG" / "train").mkdir(parents=True)

    def add(
        self, path: str, texts: tuple[str, str] = CLEAR, labels: tuple[str, ...] = ("No Finding",),
        view: tuple[str, str] = ("Frontal", "AP"), image: bool = True, split: str = "train",
    ) -> Path:  # fmt: skip
        """One image, `patient1/study1/view1_frontal`; its PNG differs from all others."""
        name = f"{split}/{path}"
        self.rows.append(dict(zip(COLUMNS, (f"{name}.jpg", *view, *texts, split), strict=True)))
        positive = {label: 1.0 if label in labels else None for label in CHEXBERT}
        self.labels.append({"path_to_image": f"{name}.jpg", **positive})
        file = self.folder / "PNG" / f"{name}.png"
        if image:
            file.parent.mkdir(parents=True, exist_ok=True)
            pixels = np.random.default_rng(len(self.rows)).integers(0, 256, (24, 30), dtype=np.uint8)
            Image.fromarray(pixels).save(file)
        return file

    def write(self, columns: tuple[str, ...] = COLUMNS) -> None:
        with (self.folder / "table.csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, columns, extrasaction="ignore")
            writer.writeheader()
            writer.writerows(self.rows)
        (self.folder / "chexbert_labels").mkdir(exist_ok=True)
        for name in ("report", "findings", "impression"):
            lines = "".join(json.dumps(row) + "\n" for row in self.labels)
            (self.folder / "chexbert_labels" / f"{name}_fixed.json").write_text(lines)

    def run(self, *options: str) -> tuple[int, Path]:
        out = self.folder / "out"
        arguments = ["--csv", str(self.folder / "table.csv"), "--image-root", str(self.folder / "PNG")]
        return main([*arguments, "--out", str(out), "--test-fraction", "0", *options]), out


@pytest.fixture
def release(tmp_path: Path) -> Release:
    return Release(tmp_path)


@pytest.fixture
def tail(release: Release) -> Release:
    """40 training studies: mostly normal, some with devices, four with a fracture; one validation study."""
    kinds = [("No Finding",)] * 24 + [("Support Devices",)] * 12 + [("Fracture", "Support Devices")] * 4
    for number, labels in enumerate(kinds):
        release.add(f"patient{number:05d}/study1/view1_frontal", labels=labels)
    release.add("patient90000/study1/view1_frontal", split="valid")
    release.write()
    return release


def labels_line(**labels: int) -> str:
    """A line of a label file about the second study of `tail`."""
    path = "train/patient00001/study1/view1_frontal.jpg"
    return json.dumps({"path_to_image": path, **dict.fromkeys(CHEXBERT), **labels})


def truths(path: Path) -> dict[str, dict[str, Any]]:
    return {row["extra_info"]["study_id"]: json.loads(row["reward_model"]["ground_truth"]) for row in read_rows(path)}


def pictures(out: Path, split: str = "train") -> Iterator[Image.Image]:
    for row in read_rows(out / f"{split}.parquet"):
        for image in row["images"]:
            yield Image.open(image["image"].removeprefix("file://"))


def test_the_published_layout(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = DATA / "chexpert_plus" / "df_chexpert_plus_240401.csv"
    for row in csv.DictReader(table.open(newline="")):
        file = tmp_path / "PNG" / row["path_to_image"].replace(".jpg", ".png")  # as released: the table says .jpg
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.arange(9600).reshape(80, 120).astype(np.uint8)).save(file)
    common = ["--csv", str(table), "--image-root", str(tmp_path / "PNG"), "--test-fraction", "0"]
    assert main([*common, "--out", str(tmp_path / "both")]) == 0
    assert truths(tmp_path / "both" / "train.parquet").keys() == {"patient99002/study1"}  # one row, two images
    assert skips(tmp_path / "both") == {"patient99001/study1": "no findings"}
    assert skips(tmp_path / "both", "val") == {"patient99003/study2": "no findings"}  # its cell is white space
    assert "train.parquet: 1 row; skipped 1 row (no findings 1)" in capsys.readouterr().out

    assert main([*common, "--out", str(tmp_path / "impression"), "--target", "impression"]) == 0
    train = truths(tmp_path / "impression" / "train.parquet")
    assert train["patient99001/study1"] == {
        "findings": "",
        "impression": "1. SMALL LEFT PLEURAL EFFUSION. 2. CARDIOMEGALY.",
        "report": "Impression: 1. SMALL LEFT PLEURAL EFFUSION. 2. CARDIOMEGALY.",
        "labels": dict.fromkeys(CHEXPERT_14) | {"Cardiomegaly": 1, "Pleural Effusion": 1},
        "regions": [],
        "boxes": [],
    }
    first = read_rows(tmp_path / "impression" / "train.parquet")[0]["extra_info"]
    assert first["priors"] == "drop"
    assert first["original_report"] == "Impression: 1. SMALL LEFT PLEURAL EFFUSION. 2. STABLE CARDIOMEGALY."
    assert train["patient99002/study1"]["labels"]["No Finding"] == 1
    (row,) = read_rows(tmp_path / "impression" / "val.parquet")
    assert row["prompt"][0]["content"] == "<image>Write the impression of this chest radiograph."
    assert row["extra_info"] == {
        "index": 0, "split": "val", "prompt_id": "chexpert_plus/patient99003/study2", "subject_id": "patient99003",
        "study_id": "patient99003/study2", "width": 120, "height": 80, "box_space": "unit",
        "view": "AP", "priors": "drop", "original_report": "Impression: Right apical pneumothorax ___.",
    }  # fmt: skip
    image = tmp_path / "PNG" / "valid" / "patient99003" / "study2" / "view1_frontal.png"
    assert row["images"] == [{"image": f"file://{image}"}]
    # findings_fixed.json has a label for each image, also where there are no findings to label.
    assert main([*common, "--out", str(tmp_path / "findings"), "--target", "findings"]) == 0
    assert truths(tmp_path / "findings" / "train.parquet").keys() == {"patient99002/study1"}
    assert not (tmp_path / "findings" / "val.parquet").exists()


def test_every_study_is_a_row_or_a_reason(release: Release) -> None:
    release.add("patient1/study1/view1_frontal")
    release.add("patient2/study1/view1_frontal", texts=("nan", "Fine."))
    release.add("patient3/study1/view1_frontal", texts=("Fine.", "1. ___"))
    release.add("patient4/study1/view1_frontal", texts=(" \n ", ""))
    release.add("patient5/study1/view1_lateral", view=("Lateral", ""))
    release.add("patient6/study1/view1_frontal", image=False)
    release.add("patient7/study1/view1_frontal").write_bytes(b"\x89PNG\r\n\x1a\n")
    release.add("patient8/study1/view1_frontal")
    release.labels.pop()
    release.add("patient9/study1/view1_frontal", texts=("See <image> 2.", "Fine."))
    release.add("patient32368/study1/view1_frontal")
    release.add("patient10/study1/view1_frontal", texts=("No change since prior.", "Unchanged."))
    release.add("somewhere/else")
    release.add("patient11/study1/view1_frontal")
    release.rows[-1]["path_to_image"] = "../train/patient11/study1/view1_frontal.jpg"
    release.rows.append(release.rows[0])
    release.write()
    with (release.folder / "table.csv").open("a") as file:
        file.write("train/patient12/study1/view1_frontal.jpg,Frontal\n")
    status, out = release.run()
    assert status == 0
    assert truths(out / "train.parquet").keys() == {"patient1/study1"}
    assert skips(out) == {
        12: "unknown path",
        13: "image outside image root",
        15: "malformed row",
        "train/patient1/study1/view1_frontal": "duplicate row",
        "patient2/study1": "no findings",
        "patient3/study1": "no impression",
        "patient4/study1": "no findings and no impression",
        "patient5/study1": "no frontal view",
        "patient6/study1": "image missing",
        "patient7/study1": "not an image",
        "patient8/study1": "no labels",
        "patient9/study1": "placeholder in report",
        "patient32368/study1": "known corrupt image",
        "patient10/study1": "only prior references",
    }
    assert json.loads((out / "train.json").read_text())["skipped"]["rows"] == 14


def test_no_skip_bad_stops_at_damage_but_not_at_a_missing_section(
    release: Release, capsys: pytest.CaptureFixture[str]
) -> None:
    release.add("patient1/study1/view1_frontal")
    release.add("patient2/study1/view1_frontal", texts=("", "Fine."))
    release.write()
    assert release.run("--no-skip-bad")[0] == 0
    release.add("patient3/study1/view1_frontal").write_bytes(b"no picture")
    release.write()
    capsys.readouterr()
    assert release.run("--no-skip-bad")[0] == 1
    error = capsys.readouterr().err.splitlines()[-1]
    assert "patient3/study1: not an image" in error


@pytest.mark.parametrize("options", [("--balance", "12"), ("--limit", "7"), ()])
def test_same_bytes_whatever_the_order_of_the_table_and_the_workers(tail: Release, options: tuple[str, ...]) -> None:
    tail.add("patient00003/study2/view1_frontal", texts=("", "Fine."))  # listed in the skip log
    (tail.folder / "PNG/train/patient00005/study1/view1_frontal.png").write_bytes(b"torn")
    for folder in ("patient00006", "patient00038"):
        picture = tail.folder / f"PNG/train/{folder}/study1/view1_frontal.png"
        Image.fromarray(np.arange(720, dtype=np.uint16).reshape(24, 30)).save(picture)  # 16 bit: converted
    tail.write()
    status, out = tail.run("--max-pixels", "400", *options)
    assert status == 0
    first = files(out)
    for row in (tail.rows, tail.labels):
        random.Random(1).shuffle(row)
    tail.write()
    assert tail.run("--max-pixels", "400", "--workers", "2", *options)[0] == 0
    assert files(out) == first


def test_balance_takes_rare_labels_first_and_says_what_it_did(
    tail: Release, capsys: pytest.CaptureFixture[str]
) -> None:
    status, out = tail.run("--balance", "12")
    assert status == 0
    taken = [
        [name for name, value in truth["labels"].items() if value == 1]
        for truth in truths(out / "train.parquet").values()
    ]
    assert len(taken) == 12
    assert sum("Fracture" in names for names in taken) == 4
    assert sum("Support Devices" in names for names in taken) in (5, 6)
    assert len(read_rows(out / "val.parquet")) == 1  # not balanced
    card = json.loads((out / "train.json").read_text())["balance"]
    assert (card["asked"], card["taken"], card["pool"]) == (12, 12, 40)
    assert card["labels"]["Fracture"] == {"pool": 4, "sample": 4, "exhausted": True}
    assert card["labels"]["No Finding"]["pool"] == 24
    text = capsys.readouterr().out
    for place in (text, (out / "train.md").read_text()):
        assert "| Fracture | 4 | 4 |" in place
        assert "all studies that carry it are taken: Fracture (4)" in place
        assert "no study carries it: Enlarged Cardiomediastinum" in place
    assert "balance" not in json.loads((out / "val.json").read_text())


def test_a_smaller_sample_is_a_part_of_the_larger_and_a_seed_draws_another(tail: Release) -> None:
    def drawn(*options: str) -> set[str]:
        return set(truths(tail.run(*options)[1] / "train.parquet"))

    assert drawn("--balance", "6") < drawn("--balance", "14")
    assert drawn("--balance", "14") != drawn("--balance", "14", "--seed", "1")
    assert drawn("--balance", "99") == drawn()
    assert drawn("--limit", "5") < drawn("--limit", "9")
    assert drawn("--limit", "9") != drawn("--limit", "9", "--seed", "1")


def test_rows_and_reasons_are_in_the_order_of_the_study_names(tail: Release) -> None:
    tail.add("patient00003/study2/view1_frontal", texts=("", "Fine."))
    tail.add("patient00039/study2/view1_frontal", texts=("", "Fine."))
    (tail.folder / "PNG/train/patient00005/study1/view1_frontal.png").write_bytes(b"torn")
    tail.write()
    _, out = tail.run("--limit", "40")
    names = [row["extra_info"]["study_id"] for row in read_rows(out / "train.parquet")]
    assert len(names) == 39
    assert names == sorted(names)
    assert list(skips(out)) == ["patient00003/study2", "patient00005/study1", "patient00039/study2"]


def test_images_of_studies_that_are_not_drawn_are_not_opened(tail: Release) -> None:
    _, out = tail.run("--balance", "12")
    first, drawn = files(out), truths(out / "train.parquet").keys() | truths(out / "val.parquet").keys()
    for file in (tail.folder / "PNG").rglob("*.png"):
        if "/".join(file.parts[-3:-1]) not in drawn:
            file.write_bytes(b"no picture")
    assert tail.run("--balance", "12")[0] == 0
    assert files(out) == first
    assert not skips(out)


def test_a_drawn_study_with_a_bad_image_is_replaced_and_listed(tail: Release) -> None:
    _, out = tail.run("--balance", "12")
    before = set(truths(out / "train.parquet"))
    normal = min(name for name, truth in truths(out / "train.parquet").items() if truth["labels"]["No Finding"])
    (tail.folder / "PNG" / "train" / normal / "view1_frontal.png").write_bytes(b"no picture")
    _, out = tail.run("--balance", "12")
    after = truths(out / "train.parquet")
    assert len(after) == 12
    assert before - set(after) == {normal}
    assert skips(out) == {normal: "not an image"}
    (new,) = set(after) - before
    assert after[new]["labels"]["No Finding"] == 1
    card = json.loads((out / "train.json").read_text())["balance"]
    assert card["pool"] == 39


def test_too_many_asked_for(tail: Release, capsys: pytest.CaptureFixture[str]) -> None:
    assert tail.run("--balance", "1000")[0] == 0
    assert (
        "Balanced: 40 of 40 studies; uncertain labels count as present. 1000 were asked for" in capsys.readouterr().out
    )


def test_uncertain_labels_are_kept_and_counted_as_asked(release: Release) -> None:
    for number in range(4):
        release.add(f"patient{number}/study1/view1_frontal", labels=())
        release.labels[-1] |= {"Edema": -1.0, "Pneumonia": 0.0}
    release.write()
    for policy, pool in (("ones", 4), ("zeros", 0)):
        _, out = release.run("--balance", "2", "--uncertain", policy)
        assert json.loads((out / "train.json").read_text())["balance"]["labels"]["Edema"]["pool"] == pool
        for truth in truths(out / "train.parquet").values():
            assert (truth["labels"]["Edema"], truth["labels"]["Pneumonia"]) == (-1, 0)


def test_splits_are_the_releases_own_and_by_subject(release: Release) -> None:
    for number in range(40):
        for study in range(2):
            release.add(f"patient{number:05d}/study{study}/view1_frontal")
    release.add("patient50000/study1/view1_frontal", split="valid")
    release.add("patient00007/study9/view1_frontal", split="valid")  # a leak: this subject is in both
    release.write()
    options = ("--test-fraction", "0.3", "--val-fraction", "0.3")
    status, out = release.run(*options)
    assert status == 0
    subjects = {
        split: {row["extra_info"]["subject_id"] for row in read_rows(out / f"{split}.parquet")}
        for split in ("train", "val", "test")
    }
    assert subjects["val"] > {"patient50000", "patient00007"}
    assert len(subjects["train"]) + len(subjects["val"]) + len(subjects["test"]) == 41
    assert min(map(len, subjects.values())) > 3
    lost = {
        name for split in subjects for name, why in skips(out, split).items() if why == "subject of a held-out split"
    }
    assert lost == {"patient00007/study0", "patient00007/study1"}
    _, out = release.run(*options, "--seed", "5", "--official-valid", "test", "--limit", "200")
    assert {row["extra_info"]["subject_id"] for row in read_rows(out / "train.parquet")} == subjects["train"]
    assert "patient50000" in {row["extra_info"]["subject_id"] for row in read_rows(out / "test.parquet")}


@pytest.mark.parametrize(("folder", "column", "split"), [
    ("train", "valid", "val"), ("valid", "train", "val"), ("valid", "", "val"), ("test", "test", "test"),
])  # fmt: skip
def test_a_study_that_is_held_out_by_folder_or_column_is_not_trained_on(
    release: Release, folder: str, column: str, split: str
) -> None:
    release.add("patient1/study1/view1_frontal", split=folder)
    release.rows[0]["split"] = column
    release.write()
    assert release.run()[0] == 0
    assert [path.name for path in (release.folder / "out").glob("[tv]*.parquet")] == [f"{split}.parquet"]


def test_split_writes_some_files_and_leaves_the_others(tail: Release) -> None:
    _, out = tail.run("--split", "train", "--balance", "4")
    train = (out / "train.parquet").read_bytes()
    assert not (out / "val.parquet").exists()
    _, out = tail.run("--split", "val")
    assert (out / "train.parquet").read_bytes() == train
    assert len(read_rows(out / "val.parquet")) == 1
    assert (out / "sft_train.parquet").exists()


def test_views(release: Release) -> None:
    for number, view in enumerate(
        [("Lateral", ""), ("Frontal", "AP"), ("Frontal", "PA"), ("Frontal", ""), ("", "")], 1
    ):
        release.add(f"patient1/study1/view{number}", view=view)
    release.write()
    expected = {"frontal": [3], "lateral": [1], "pair": [3, 1], "all": [3, 2, 4, 1, 5]}
    for option, views in expected.items():
        _, out = release.run("--views", option)
        (row,) = read_rows(out / "train.parquet")
        assert [int(image["image"][-5]) for image in row["images"]] == views
        assert row["prompt"][0]["content"].startswith("<image>" * len(views) + "Write the findings and impression")


def test_a_blank_view_is_read_from_the_name_and_never_guessed(release: Release) -> None:
    release.add("patient1/study1/view1_frontal", view=("", ""))
    release.add("patient2/study1/view1", view=("", ""))
    release.write()
    _, out = release.run()
    assert truths(out / "train.parquet").keys() == {"patient1/study1"}
    assert skips(out) == {"patient2/study1": "no frontal view"}


def test_dicom_and_jpeg_images(release: Release) -> None:
    first, second = (release.add(f"patient{n}/study1/view1_frontal", image=False) for n in (1, 2))
    for file in (first, second):
        file.parent.mkdir(parents=True)
    first.with_suffix(".dcm").write_bytes((DATA / "dicom" / "mono1_window.dcm").read_bytes())
    Image.fromarray(np.arange(9600).reshape(80, 120).astype(np.uint8)).save(second.with_suffix(".jpg"))
    release.write()
    _, out = release.run()
    assert [(picture.format, picture.mode, picture.size) for picture in pictures(out)] == [
        ("PNG", "L", (64, 48)),
        ("JPEG", "L", (120, 80)),
    ]
    _, out = release.run("--embed-images", "--max-pixels", "100")
    for row in read_rows(out / "train.parquet"):
        assert row["images"][0]["bytes"].startswith(b"\x89PNG")
        assert row["extra_info"]["width"] * row["extra_info"]["height"] <= 100
    assert not list(out.glob(".images*"))


def test_labels_of_our_rules(release: Release) -> None:
    release.add("patient1/study1/view1_frontal", texts=("Large right pneumothorax.", "No effusion."))
    release.write()
    for workers in ("1", "2"):
        _, out = release.run("--labels", "rules", "--workers", workers)
        (truth,) = truths(out / "train.parquet").values()
        assert (truth["labels"]["Pneumothorax"], truth["labels"]["Pleural Effusion"]) == (1, 0)
    assert json.loads((out / "train.json").read_text())["settings"]["labels"] == "rules"


def test_labels_in_columns_of_the_table_by_name(release: Release) -> None:
    release.add("patient1/study1/view1_frontal")
    release.rows[0] |= {"Edema": "1.0", "Pneumonia": "-1", "Fracture": ""}
    release.write((*COLUMNS, *reversed(CHEXPERT_14)))
    for file in (release.folder / "chexbert_labels").iterdir():
        file.unlink()
    (release.folder / "chexbert_labels").rmdir()
    _, out = release.run()
    (truth,) = truths(out / "train.parquet").values()
    assert truth["labels"] == dict.fromkeys(CHEXPERT_14) | {"Edema": 1, "Pneumonia": -1}


def test_labels_read_by_people_replace_those_of_the_release(release: Release) -> None:
    release.add("patient64541/study1/view1_frontal", split="valid")
    release.write()
    path = "CheXpert-v1.0/valid/patient64541/study1/view1_frontal.jpg"  # how CheXpert's own valid.csv writes it
    names = ["Path", "Sex", "Age", *CHEXPERT_14]
    values = [path, "Male", "73", *["1.0" if name == "Edema" else "0.0" for name in CHEXPERT_14]]
    (release.folder / "valid.csv").write_text(",".join(names) + "\n" + ",".join(values) + "\n")
    _, out = release.run("--labels", str(release.folder / "valid.csv"), "--split", "val")
    (truth,) = truths(out / "val.parquet").values()
    assert truth["labels"] == dict.fromkeys(CHEXPERT_14, 0) | {"Edema": 1}


def test_prior_references_and_marks_of_deidentification(release: Release) -> None:
    release.add("patient1/study1/view1_frontal", texts=("Stable small effusion.", "No pneumothorax since ___."))
    release.write()
    found = {}
    for priors, blanks in (("keep", "keep"), ("drop", "keep"), ("keep", "drop")):
        (row,) = read_rows(release.run("--priors", priors, "--blanks", blanks)[1] / "train.parquet")
        assert row["extra_info"]["priors"] == priors
        found[priors, blanks] = (
            json.loads(row["reward_model"]["ground_truth"])["report"], row["extra_info"]["original_report"]
        )  # fmt: skip
    whole = "Findings: Stable small effusion. Impression: No pneumothorax since ___."
    assert found["keep", "keep"] == (whole, "")
    assert found["drop", "keep"] == ("Findings: Small effusion. Impression: No pneumothorax.", whole)
    assert found["keep", "drop"] == ("Findings: Stable small effusion. Impression: No pneumothorax.", whole)


def test_prompt_file_and_supervised_twin(release: Release) -> None:
    release.add("patient1/study1/view1_frontal")
    release.write()
    prompt = release.folder / "prompt.txt"
    prompt.write_text("<image>Report this\nradiograph.\n")
    _, out = release.run("--prompt-file", str(prompt))
    (row,), (twin,) = read_rows(out / "train.parquet"), read_rows(out / "sft_train.parquet")
    assert row["prompt"][0]["content"] == "<image>Report this\nradiograph."
    report = "Findings: The lungs are clear. Impression: 1. Normal chest."
    assert twin["messages"][1] == {"role": "assistant", "content": report}
    assert twin["images"] == row["images"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--csv", "/nowhere.csv"], "/nowhere.csv: no such file"),
        (["--image-root", "/nowhere/at/all"], "no such folder"),
        (["--labels", "/nowhere.json"], "/nowhere.json: no such file"),
        (["--prompt", "see <image>"], "--prompt contains <image>"),
        (["--prompt", " "], "--prompt is"),
        (["--prompt-file", "/nowhere.txt"], "--prompt-file '/nowhere.txt': cannot be read"),
        (["--test-fraction", "1"], "sum to less than 1"),
        (["--split", "val", "--balance", "3"], "--split does not name train"),
        (["--out", "/dev/null/x"], "/dev/null"),
    ],
)
def test_bad_input_is_one_sentence_and_status_2(
    tail: Release, options: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert tail.run(*options)[0] == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{broken", "line 3 cannot be read (not JSON"),
        ("[1]", "line 3 cannot be read (not a JSON object)"),
        (labels_line(Edema=3), "line 3: label 'Edema' has value"),
        (labels_line(Edema=1), "line 3 has other labels"),
        (labels_line(fracture=0, Fracture=1), "line 3: label 'Fracture' is given twice with values"),
        ('{"path_to_image": "train/patient00001/study1/view1_frontal.jpg", "Edema": 1}', "line 3 has no label"),
        (json.dumps(dict.fromkeys(CHEXBERT)), "line 3: has no path_to_image or Path"),
    ],
)
def test_a_damaged_label_file_is_named_by_line(
    tail: Release, line: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tail.folder / "chexbert_labels" / "report_fixed.json"
    lines = file.read_text().splitlines()
    file.write_text("\n".join([*lines[:2], line, *lines[2:]]))
    assert tail.run()[0] == 2
    error = capsys.readouterr().err
    assert f"{file}: {message}" in error
    assert error.count("\n") == 1


def test_other_inputs_that_cannot_be_used(tail: Release, capsys: pytest.CaptureFixture[str]) -> None:
    file = tail.folder / "chexbert_labels" / "report_fixed.json"
    file.write_text('{"path_to_image": "x", "Edema": 1}\n')
    assert tail.run()[0] == 2
    assert "has no label 'No Finding'" in capsys.readouterr().err
    file.write_text(json.dumps(dict.fromkeys(CHEXBERT)))
    assert tail.run()[0] == 2
    assert "line 1: has no path_to_image or Path" in capsys.readouterr().err
    file.write_text("\n")
    assert tail.run()[0] == 2
    assert "report_fixed.json: has no rows" in capsys.readouterr().err
    for path in [*file.parent.iterdir()]:
        path.unlink()
    file.parent.rmdir()
    assert tail.run()[0] == 2
    assert "pass --labels FILE, or --labels rules" in capsys.readouterr().err
    tail.write(("path_to_image", "section_impression"))
    assert tail.run()[0] == 2
    assert "has no column 'section_findings'" in capsys.readouterr().err
    assert tail.run("--image-root", str(tail.folder))[0] == 2
    tail.write()
    assert tail.run("--image-root", str(tail.folder))[0] == 2
    assert f"{tail.folder / 'PNG'} has)" in capsys.readouterr().err


@pytest.mark.parametrize("option", [("--balance", "0"), ("--limit", "x"), ("--max-pixels", "63"), ("--workers", "0")])
def test_numbers_must_be_positive(release: Release, option: tuple[str, str]) -> None:
    with pytest.raises(SystemExit) as stop:
        release.run(*option)
    assert stop.value.code == 2


def test_nothing_usable_fails_and_removes_what_an_earlier_run_left(
    release: Release, capsys: pytest.CaptureFixture[str]
) -> None:
    release.add("patient1/study1/view1_frontal")
    release.write()
    assert release.run()[0] == 0
    release.rows[0]["section_findings"] = ""
    release.write()
    status, out = release.run()
    assert status == 1
    assert "no usable row" in capsys.readouterr().err
    assert not list(out.glob("*.parquet"))


def test_the_console_script_finds_it_and_its_files_pass_the_check(
    tail: Release, capsys: pytest.CaptureFixture[str]
) -> None:
    from radverl.data_cli import main as data

    with pytest.raises(SystemExit) as stop:
        data(["chexpert_plus", "--help"])
    assert stop.value.code == 0
    assert "--balance 1000" in capsys.readouterr().out
    _, out = tail.run("--balance", "12")
    for name in ("train", "val", "sft_train"):
        assert data(["check", str(out / f"{name}.parquet")]) == 0


def test_a_row_that_cannot_be_read_leaves_no_study_behind(release: Release) -> None:
    for number in range(3):
        release.add(f"patient{number:05d}/study1/view1_frontal")
    release.write()
    bad = [{**release.rows[0], "section_findings": ["a"]}, {**release.rows[1], "split": True}, release.rows[2]]
    table = release.folder / "table.jsonl"
    table.write_text("\n".join(json.dumps(row) for row in bad))
    status, out = release.run("--csv", str(table))
    assert status == 0
    assert list(truths(out / "train.parquet")) == ["patient00002/study1"]
    assert [entry["reason"] for entry in skipped(out / "train.skipped.jsonl")] == ["not text", "not text"]


@pytest.mark.parametrize(("word", "file"), [("val", "val"), ("Validation", "val"), ("test", "test"), ("weird", None)])
def test_another_word_for_a_split_never_means_training(release: Release, word: str, file: str | None) -> None:
    """The folder says train; the column goes first where it holds a study out, and an unknown word might."""
    release.add("patient00000/study1/view1_frontal")
    release.add("patient00001/study1/view1_frontal")
    release.rows[1]["split"] = word
    release.write()
    status, out = release.run()
    assert status == 0
    assert list(truths(out / "train.parquet")) == ["patient00000/study1"]
    if file:
        assert list(truths(out / f"{file}.parquet")) == ["patient00001/study1"]
    else:
        assert [entry["reason"] for entry in skipped(out / "train.skipped.jsonl")] == ["unknown split"]


@pytest.mark.parametrize(("text", "kept"), [("a\0b", False), ("a\x1bb", False), ("a\x7f", False), ("it\x92s", True)])
def test_control_characters_are_no_report(release: Release, text: str, kept: bool) -> None:
    release.add("patient00000/study1/view1_frontal")
    release.add("patient00001/study1/view1_frontal", texts=(f"The lungs are clear {text}.", "Normal."))
    release.write()
    _, out = release.run()
    assert len(truths(out / "train.parquet")) == 1 + kept
    assert [entry["reason"] for entry in skipped(out / "train.skipped.jsonl")] == ["malformed text"] * (not kept)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: data.split(b"\n")[0], "table.csv: has a header and no rows"),
        (lambda data: gzip.compress(data)[:-20], "is damaged after line"),
        (lambda data: b"PK\x03\x04\xff", "it is packed; unpack it first"),
        (lambda data: data.replace(b"clear", b"cl\xe9ar"), "save the table as UTF-8"),
    ],
)
def test_a_table_that_is_none(tail: Release, change: Any, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    table = tail.folder / "table.csv"
    table.write_bytes(change(table.read_bytes()))
    assert tail.run()[0] == 2
    assert message in capsys.readouterr().err


def test_a_gzipped_table_is_a_table(tail: Release) -> None:
    _, out = tail.run()
    plain = files(out)
    table = tail.folder / "table.csv"
    table.write_bytes(gzip.compress(table.read_bytes()))
    assert tail.run()[0] == 0
    assert files(out) == plain


@pytest.mark.parametrize("option", ["--csv", "--image-root", "--labels"])
def test_an_empty_shell_variable_is_no_choice(tail: Release, option: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert tail.run(option, "")[0] == 2
    assert f"{option} is ''; write something there." in capsys.readouterr().err


@pytest.mark.parametrize("name", ["train.parquet", "sft_val.parquet", "test.json", "train.skipped.jsonl"])
def test_a_folder_in_the_way_is_named_before_the_work(
    tail: Release, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tail.folder / "out" / name).mkdir(parents=True)
    assert tail.run()[0] == 2
    assert f"{name} is a folder" in capsys.readouterr().err
    assert not any((tail.folder / "out" / "images").iterdir())


def skipped(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.parametrize("target", ["both", "any"])
def test_a_table_of_another_data_set(release: Release, target: str, capsys: pytest.CaptureFixture[str]) -> None:
    (release.folder / "table.csv").write_text("image_id,class_name,rad_id\na,b,c\n")
    assert release.run("--labels", "rules", "--target", target)[0] == 2
    assert "that is a table for data_preprocess.vindr_cxr" in capsys.readouterr().err
