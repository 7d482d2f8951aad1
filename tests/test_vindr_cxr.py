"""VinDr-CXR: three readers' pixel boxes become one set in 0-1, from both releases, by the size of the DICOM image."""

import csv
import json
import os
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from data_preprocess.core.rows import read_rows
from data_preprocess.vindr_cxr import main
from radverl.labels import CHEXPERT_14
from tests.written_files import files, skips

DATA = Path(__file__).parent / "data" / "vindr"
KAGGLE, PHYSIONET = DATA / "kaggle" / "train.csv", DATA / "physionet"
A, B, C, D = (letter * 32 for letter in "abcd")
COLUMNS = ("image_id", "rad_id", "class_name", "x_min", "y_min", "x_max", "y_max")
BOX = (10, 20, 40, 60)


def picture(path: Path, width: int = 100, height: int = 200) -> None:
    """A PNG, JPEG or DICOM file, by its ending; its pixels follow from its name."""
    path.parent.mkdir(parents=True, exist_ok=True)
    seed = int.from_bytes(path.stem.encode()[-4:], "big")
    pixels = np.random.default_rng(seed).integers(0, 4096, (height, width), dtype=np.uint16)
    if path.suffix not in (".dicom", ".dcm"):
        Image.fromarray((pixels // 16).astype(np.uint8)).save(path)
        return
    from pydicom.dataset import Dataset, FileMetaDataset
    from pydicom.uid import ExplicitVRLittleEndian

    data = Dataset()
    data.file_meta = FileMetaDataset()
    data.file_meta.TransferSyntaxUID = ExplicitVRLittleEndian
    data.Rows, data.Columns, data.SamplesPerPixel = height, width, 1
    data.BitsAllocated, data.BitsStored, data.HighBit, data.PixelRepresentation = 16, 12, 11, 0
    data.PhotometricInterpretation = "MONOCHROME2"
    data.PixelData = pixels.tobytes()
    data.save_as(path, enforce_file_format=False, implicit_vr=False, little_endian=True)


def made_up(
    folder: Path, rows: Sequence[Sequence[Any]], name: str = "annotations_train.csv", ending: str = ".png"
) -> list[str]:
    """A table of rows (image, reader, class, box) and 100 x 200 images; returns the options that name both."""
    with (folder / name).open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        writer.writerows([*row[:3], *(row[3] if len(row) > 3 else ("", "", "", ""))] for row in rows)
    for image_id in {str(row[0]) for row in rows}:
        if image_id and image_id.isalnum():
            picture(folder / "images" / "train" / f"{image_id}{ending}")
    return ["--csv", str(folder / name), "--image-root", str(folder / "images"), "--out", str(folder / "out")]


def truths(out: Path, split: str = "train") -> dict[str, dict[str, Any]]:
    rows = read_rows(out / f"{split}.parquet")
    return {
        row["extra_info"]["prompt_id"].partition("/")[2]: json.loads(row["reward_model"]["ground_truth"])
        for row in rows
    }


def boxes(out: Path, split: str = "train") -> dict[str, list[list[float]]]:
    return {name: [mark["box"] for mark in truth["boxes"]] for name, truth in truths(out, split).items()}


def test_both_tables_of_physionet(tmp_path: Path) -> None:
    for split, names in (("train", (A, B)), ("test", (C, D))):
        for name in names:
            picture(tmp_path / "vindr" / split / f"{name}.dicom", 250, 300)
    out = tmp_path / "out"
    assert main(["--csv", str(PHYSIONET), "--image-root", str(tmp_path / "vindr"), "--out", str(out)]) == 0
    aortic, heart = read_rows(out / "train.parquet")
    truth = json.loads(aortic["reward_model"].pop("ground_truth"))
    # IoU of the two readers 57 * 60 / (3600 + 64 * 57 - 57 * 60) = .89; mean (119, 61, 181, 119.5) of 250 x 300.
    assert truth == {
        "phrase": "Aortic enlargement",
        "boxes": [{"label": "Aortic enlargement", "box": [0.476, 0.2033, 0.724, 0.3983]}],
    }
    question = aortic["prompt"][0].pop("content")
    assert question.startswith("<image>")
    assert "Aortic enlargement" in question
    image = aortic["images"][0].pop("image")
    assert image.startswith(f"file://{out}/images/")
    assert image.endswith(".png")
    assert aortic == {
        "data_source": "vindr_cxr_abnormality",
        "prompt": [{"role": "user"}],
        "images": [{}],
        "ability": "abnormality",
        "reward_model": {"style": "rule"},
        "extra_info": {
            "index": 0, "split": "train", "prompt_id": f"vindr_cxr_abnormality/{A}/aortic-enlargement", "subject_id": A,
            "study_id": A, "width": 250, "height": 300, "box_space": "unit", "view": "",
            "priors": "", "original_report": "",
        },
    }  # fmt: skip
    # One reader alone saw it: no second box to fuse.
    assert json.loads(heart["reward_model"]["ground_truth"]) == {
        "phrase": "Cardiomegaly",
        "boxes": [{"label": "Cardiomegaly", "box": [0.32, 0.4333, 0.88, 0.7667]}],
        "labels": dict.fromkeys(CHEXPERT_14) | {"Cardiomegaly": 1},
    }
    assert skips(out) == {B: "no finding"}
    assert boxes(out, "test") == {f"{C}/nodule-mass": [[0.122, 0.1342, 0.243, 0.2333]]}
    assert truths(out, "test")[f"{C}/nodule-mass"]["labels"]["Lung Lesion"] == 1
    assert skips(out, "test") == {D: "no finding"}
    record = json.loads((out / "subjects.json").read_text())
    assert record["cohort"] == "vindr"
    assert record["splits"] == {"train": [A], "val": [], "test": [C, D]}


def test_the_table_of_kaggle_with_a_smaller_copy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in (A, B):
        picture(tmp_path / "png" / f"{name}.png", 125, 150)
    (tmp_path / "train_meta.csv").write_text(f"image_id,dim0,dim1\n{A},300,250\n{B},300,250\n")
    command = ["--csv", str(KAGGLE), "--image-root", str(tmp_path / "png"), "--out", str(tmp_path / "out")]
    command += ["--test-fraction", "0"]
    assert main([*command, "--sizes", str(tmp_path / "train_meta.csv")]) == 0
    assert boxes(tmp_path / "out") == {
        f"{A}/aortic-enlargement": [[0.476, 0.2033, 0.724, 0.3983]],
        f"{A}/cardiomegaly": [[0.32, 0.4333, 0.88, 0.7667]],
    }
    capsys.readouterr()
    assert main(command) == 1  # one image says little; its rows are refused each
    assert set(skips(tmp_path / "out").values()) == {"box outside image", "no finding"}
    assert "pass --sizes" in (tmp_path / "out" / "train.skipped.jsonl").read_text()


@pytest.mark.parametrize("columns", ["width,height", "dim1,dim0", "Columns,Rows", "columns,rows"])
def test_tables_of_sizes(tmp_path: Path, columns: str) -> None:
    options = made_up(tmp_path, [("i0", "R1", "ILD", (10, 20, 40, 60))])
    (tmp_path / "sizes.csv").write_text(f"image_id,{columns}\ni0,1000,2000\n")
    assert main([*options, "--sizes", str(tmp_path / "sizes.csv")]) == 0
    assert boxes(tmp_path / "out") == {"i0/ild": [[0.01, 0.01, 0.04, 0.03]]}


def test_smaller_copies_without_sizes_are_refused_as_a_whole(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    far = (150, 300, 190, 390)  # in an image of 200 x 400, of which the copy is half
    rows = [(f"i{n}", "R1", "ILD", far if n % 10 == 0 else BOX) for n in range(30)]
    options = made_up(tmp_path, rows)
    assert main(options) == 2
    error = capsys.readouterr().err
    assert "boxes of 3 in 30 images lie outside" in error
    assert "--sizes" in error
    # A table that states the sizes itself, as some copies' do.
    table = tmp_path / "annotations_train.csv"
    head, *lines = table.read_text().splitlines()
    table.write_text("\n".join([f"{head},width,height", *(f"{line},200,400" for line in lines)]))
    assert main(options) == 0
    assert boxes(tmp_path / "out")["i0/ild"] == [[0.75, 0.75, 0.95, 0.975]]
    assert boxes(tmp_path / "out")["i1/ild"] == [[0.05, 0.05, 0.2, 0.15]]


def test_a_dicom_header_is_believed_before_a_table(tmp_path: Path) -> None:
    options = made_up(tmp_path, [("i0", "R1", "ILD", BOX)], ending=".dicom")
    (tmp_path / "sizes.csv").write_text("image_id,width,height\ni0,1000,1000\n")
    assert main([*options, "--sizes", str(tmp_path / "sizes.csv")]) == 0
    assert boxes(tmp_path / "out") == {"i0/ild": [[0.1, 0.1, 0.4, 0.3]]}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ((), [[0.11, 0.1, 0.41, 0.3], [0.6, 0.6, 0.8, 0.8]]),
        (("--fusion", "union"), [[0.1, 0.1, 0.42, 0.3], [0.6, 0.6, 0.8, 0.8]]),
        (("--fusion", "majority"), [[0.11, 0.1, 0.41, 0.3]]),
        (("--fusion", "none"), [[0.1, 0.1, 0.4, 0.3], [0.12, 0.1, 0.42, 0.3], [0.6, 0.6, 0.8, 0.8]]),
        (("--min-readers", "2"), [[0.11, 0.1, 0.41, 0.3]]),
        (("--fusion-iou", "0.9"), [[0.1, 0.1, 0.4, 0.3], [0.12, 0.1, 0.42, 0.3], [0.6, 0.6, 0.8, 0.8]]),
    ],
)
def test_ways_of_fusion(tmp_path: Path, options: tuple[str, ...], expected: list[list[float]]) -> None:
    rows = [
        ("i0", "R1", "ILD", BOX), ("i0", "R2", "ILD", (12, 20, 42, 60)), ("i0", "R2", "ILD", (60, 120, 80, 160)),
        ("i0", "R3", "No finding"),
    ]  # fmt: skip
    assert main([*made_up(tmp_path, rows), *options]) == 0
    assert boxes(tmp_path / "out") == {"i0/ild": expected}


def test_a_finding_that_too_few_readers_saw(tmp_path: Path) -> None:
    rows = [("i0", "R1", "ILD", BOX), ("i0", "R2", "No finding"), ("i1", "R1", "ILD", BOX), ("i1", "R2", "ILD", BOX)]
    assert main([*made_up(tmp_path, rows), "--min-readers", "2", "--no-skip-bad"]) == 0
    assert boxes(tmp_path / "out") == {"i1/ild": [[0.1, 0.1, 0.4, 0.3]]}
    assert skips(tmp_path / "out") == {"i0/ild": "too few readers"}


def test_a_consensus_is_not_fused_again(tmp_path: Path) -> None:
    rows = [("i0", "", "Nodule/Mass", BOX), ("i0", "", "Nodule/Mass", (12, 20, 42, 60))]
    assert main([*made_up(tmp_path, rows, "annotations_test.csv"), "--min-readers", "2"]) == 0
    assert boxes(tmp_path / "out", "test") == {"i0/nodule-mass": [[0.1, 0.1, 0.4, 0.3], [0.12, 0.1, 0.42, 0.3]]}


def test_negatives_are_absent_classes_with_an_empty_answer(tmp_path: Path) -> None:
    rows = [("i0", "R1", "Pneumothorax", BOX), *((f"i{n}", "R1", "No finding") for n in range(1, 8))]
    options = made_up(tmp_path, rows)
    assert main([*options, "--negatives", "2"]) == 0
    two = truths(tmp_path / "out")
    assert len(two) == 1 + 16
    assert [name for name, truth in two.items() if truth["boxes"]] == ["i0/pneumothorax"]
    assert not any(name.endswith("/other-lesion") for name in two)
    assert len({name.partition("/")[2] for name in two}) > 6  # not the same for all
    for truth in two.values():
        assert all(
            value == (1 if truth["boxes"] else 0) for value in truth.get("labels", {}).values() if value is not None
        )
    answers = [row["messages"][1]["content"] for row in read_rows(tmp_path / "out" / "sft_train.parquet")]
    assert answers.count("None") == 16
    assert main([*options, "--negatives", "1"]) == 0
    assert truths(tmp_path / "out").keys() < two.keys()


def test_every_row_is_a_row_or_a_reason(tmp_path: Path) -> None:
    rows = [
        ("i0", "R1", "pleural Effusion", BOX),
        ("i0", "R1", "Pleural effusion", (10.0, 20, 40, 60)),  # 2: the same
        ("i1", "R1", "ILD", (10, 20, 10, 60)),
        ("i2", "R1", "ILD", ("", 20, 40, 60)),
        ("i2", "R2", "ILD", BOX),  # good, but the finding has lost a box
        ("i2", "R2", "Edema", (98, 190, 101.5, 203)),  # within 2 % of the border
        ("i3", "R1", "ILD", (10, 20, 103, 60)),
        ("../i4", "R1", "ILD", BOX),  # 8
        ("c:\\i4", "R1", "ILD", BOX),
        ("", "R1", "ILD", BOX),  # 10
        ("i5", "R1", "nan", BOX),
        ("i6", "R1", "See <image>", BOX),
        ("i7", "R1", "Größe", BOX),
        ("i8", "R1", "ILD", BOX),
        ("i9", "R1", "ILD", BOX),
    ]
    options = made_up(tmp_path, rows)
    with (tmp_path / "annotations_train.csv").open("a") as file:
        file.write("i10,R1\n")
    (tmp_path / "images" / "train" / "i8.png").write_bytes(b"<html>")
    (tmp_path / "images" / "train" / "i9.png").unlink()
    assert main(options) == 0
    assert boxes(tmp_path / "out") == {
        "i0/pleural-effusion": [[0.1, 0.1, 0.4, 0.3]],
        "i2/edema": [[0.98, 0.95, 1.0, 1.0]],
        "i7/gr-e": [[0.1, 0.1, 0.4, 0.3]],
    }
    assert skips(tmp_path / "out") == {
        2: "duplicate row", 8: "image outside image root", 9: "image outside image root", 10: "no image id",
        11: "no class", 16: "malformed row", "i1/ild": "box without area", "i2/ild": "malformed box",
        "i3/ild": "box outside image", "i6/see-image-": "placeholder in report", "i8/ild": "image is text",
        "i9/ild": "image missing",
    }  # fmt: skip


def test_an_image_of_train_and_test_is_neither(tmp_path: Path) -> None:
    test = made_up(tmp_path, [("i0", "", "ILD", BOX), ("i2", "", "ILD", BOX)], "annotations_test.csv")
    made_up(tmp_path, [("i0", "R1", "ILD", BOX), ("i1", "R1", "ILD", BOX)])
    assert main(["--csv", str(tmp_path), *test[2:]]) == 0
    assert (boxes(tmp_path / "out").keys(), boxes(tmp_path / "out", "test").keys()) == ({"i1/ild"}, {"i2/ild"})
    assert skips(tmp_path / "out", "test") == {"i0": "contradicting rows"}


def test_hash_splits(tmp_path: Path) -> None:
    options = made_up(tmp_path, [(f"i{n}", "R1", "ILD", BOX) for n in range(40)])
    assert main([*options, "--val-fraction", "0.3", "--contact-sheet", "0"]) == 0
    parts = json.loads((tmp_path / "out" / "subjects.json").read_text())["splits"]
    assert parts["val"]
    assert not parts["test"]  # PhysioNet has its own
    table = tmp_path / "annotations_train.csv"
    head, *lines = table.read_text().splitlines()
    table.write_text("\n".join([f"{head},class_id", *(f"{line},5" for line in lines)]))
    assert main([*options, "--val-fraction", "0.3", "--test-fraction", "0.3", "--contact-sheet", "0"]) == 0
    kaggle = json.loads((tmp_path / "out" / "subjects.json").read_text())["splits"]
    assert kaggle["val"] == parts["val"]
    assert kaggle["test"]


def test_same_bytes_whatever_the_order_the_workers_and_the_line_ends(tmp_path: Path) -> None:
    rows: list[tuple[Any, ...]] = [
        (f"i{n % 4}", f"R{n % 3}", ("ILD", "Edema")[n % 2], (n, 2 * n, n + 20, 2 * n + 30)) for n in range(24)
    ]
    rows.append(("i5", "R1", "No finding"))
    options = [*made_up(tmp_path, rows, ending=".dicom"), "--negatives", "1"]
    assert main(options) == 0
    first = files(tmp_path / "out")
    random.Random(1).shuffle(rows)
    made_up(tmp_path, rows, ending=".dicom")
    table = tmp_path / "annotations_train.csv"
    table.write_bytes("\ufeff".encode() + table.read_bytes())  # csv.writer ends lines as Windows does
    assert b"\r\n" in table.read_bytes()
    assert main([*options, "--workers", "2"]) == 0
    assert files(tmp_path / "out") == first


def test_links_in_the_image_folder(tmp_path: Path) -> None:
    options = made_up(tmp_path, [("i0", "R1", "ILD", BOX), ("i1", "R1", "ILD", BOX)])
    images = tmp_path / "images"
    os.symlink(images, images / "train" / "loop")
    os.symlink("self", images / "self")
    (images / "train" / "i1.png").unlink()
    os.symlink(images / "train" / "i1.png", images / "train" / "i1.png")
    assert main(options) == 0
    assert boxes(tmp_path / "out").keys() == {"i0/ild"}
    assert skips(tmp_path / "out") == {"i1/ild": "image missing"}


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("annotations_train.csv", "image_id,rad_id,Aortic enlargement,No finding\n", "image_labels_*.csv"),
        ("annotations_train.csv", "dicom_id,category_name,label_text,x,y,w,h\n", "data_preprocess.ms_cxr"),
        ("annotations.csv", ",".join(COLUMNS) + "\n", "neither train nor test"),
        ("annotations_train.csv", ",".join(COLUMNS) + "\n", "hold no rows"),
        ("annotations_train.csv", "", "is empty"),
        ("sample_submission.csv", "image_id,PredictionString\n", "no column 'class_name'"),
        ("absent.csv", None, "no such file"),
        ("", None, "has no annotations_train.csv"),
    ],
)
def test_what_is_no_table_of_vindr(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, text: str | None, message: str
) -> None:
    (tmp_path / "images").mkdir()
    if text is not None:
        (tmp_path / name).write_text(text)
    command = ["--csv", str(tmp_path / name), "--image-root", str(tmp_path / "images"), "--out", str(tmp_path / "out")]
    assert main(command) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ("image_id,w,h\n", "needs image_id"),
        ("image_id,width,height\ni0,100,\n", "row 1 has no size"),
        ("image_id,dim0,dim1\ni0,200,100\ni0,100,200\n", "row 2 has another size"),
    ],
)
def test_tables_of_sizes_that_are_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], sizes: str, message: str
) -> None:
    options = made_up(tmp_path, [("i0", "R1", "ILD", BOX)])
    (tmp_path / "sizes.csv").write_text(sizes)
    assert main([*options, "--sizes", str(tmp_path / "sizes.csv")]) == 2
    assert message in capsys.readouterr().err


def test_an_image_without_a_stated_size(tmp_path: Path) -> None:
    options = made_up(tmp_path, [("i0", "R1", "ILD", BOX), ("i1", "R1", "ILD", BOX)])
    (tmp_path / "sizes.csv").write_text("image_id,width,height\ni0,100,200\n")
    assert main([*options, "--sizes", str(tmp_path / "sizes.csv")]) == 0
    assert skips(tmp_path / "out") == {"i1": "no image size"}


def test_options_that_make_no_sense(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = made_up(tmp_path, [("i0", "R1", "ILD", BOX)])
    assert main([*options, "--fusion-iou", "1.5"]) == 2
    assert "--fusion-iou is 1.5" in capsys.readouterr().err
    assert main([*options[:2], "--image-root", str(tmp_path / "nowhere"), *options[4:]]) == 2
    assert "no such folder" in capsys.readouterr().err
    assert main([*options[:2], "--image-root", str(tmp_path / "images" / "train"), *options[4:]]) == 0
    for file in (tmp_path / "images" / "train").iterdir():
        file.unlink()
    assert main(options) == 2
    assert "check --image-root" in capsys.readouterr().err
