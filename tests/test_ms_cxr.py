"""MS-CXR: boxes of a phrase in one row, in 0-1, whatever the order of the table and the size of the images' copy."""

import csv
import gzip
import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from data_preprocess.core.rows import read_rows
from data_preprocess.ms_cxr import main
from radverl.labels import CHEXPERT_14
from tests.written_files import files, skips

DATA = Path(__file__).parent / "data" / "ms_cxr"
CSV_10, CSV_11 = (DATA / f"MS_CXR_Local_Alignment_v1.{n}.0.csv" for n in (0, 1))
COCO = DATA / "MS_CXR_Local_Alignment_v1.0.0.json"
ONE, EIGHT = ("-".join([f"{n:08d}"] * 5) for n in (1, 8))
SIZES = {f"p10/p10999901/s50999901/{ONE}": (254, 305), f"p11/p11999904/s50999907/{EIGHT}": (305, 254)}
BASE = {
    "dicom_id": "d1", "category_name": "Edema", "label_text": "mild edema",
    "path": "files/p10/p10000001/s50000001/d1.jpg", "x": "10", "y": "20", "w": "30", "h": "40",
    "image_width": "100", "image_height": "200", "split": "train",
}  # fmt: skip


def draw(root: Path, sizes: dict[str, tuple[int, int]], scale: float = 1.0) -> Path:
    for name, (width, height) in sizes.items():
        file = root / "files" / f"{name}.jpg"
        file.parent.mkdir(parents=True, exist_ok=True)
        shape = round(height * scale), round(width * scale)
        Image.fromarray(np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)).save(file)
    return root


@pytest.fixture
def images(tmp_path: Path) -> Path:
    return draw(tmp_path / "jpg", SIZES)


def made_up(folder: Path, *rows: dict[str, str], drawn: bool = True) -> list[str]:
    """A table of rows that differ from `BASE`, with their images; returns the options that name both."""
    table = folder / "table.csv"
    full = [BASE | row for row in rows]
    with table.open("w", newline="") as file:
        writer = csv.DictWriter(file, BASE)
        writer.writeheader()
        writer.writerows(full)
    names = {
        row["path"].removeprefix("files/").removesuffix(".jpg") for row in full if row["path"].startswith("files/p")
    }
    draw(folder / "jpg", dict.fromkeys(names if drawn else {"p10/p10000009/s50000009/d9"}, (100, 200)))
    return ["--csv", str(table), "--image-root", str(folder / "jpg"), "--out", str(folder / "out")]


def truths(out: Path, split: str) -> dict[str, dict[str, Any]]:
    rows = read_rows(out / f"{split}.parquet")
    return {row["extra_info"]["prompt_id"]: json.loads(row["reward_model"]["ground_truth"]) for row in rows}


def test_a_whole_row(tmp_path: Path, images: Path) -> None:
    out = tmp_path / "out"
    assert main(["--csv", str(CSV_11), "--image-root", str(images), "--out", str(out)]) == 0
    (row,) = read_rows(out / "test.parquet")
    truth = json.loads(row["reward_model"].pop("ground_truth"))
    # 30 / 305, 60 / 254, 130 / 305, 180 / 254; the second box starts at 165.
    assert truth == {
        "phrase": "mild pulmonary edema",
        "boxes": [
            {"label": "Edema", "box": [0.0984, 0.2362, 0.4262, 0.7087]},
            {"label": "Edema", "box": [0.541, 0.2362, 0.8689, 0.7087]},
        ],
        "labels": dict.fromkeys(CHEXPERT_14) | {"Edema": 1},
    }
    question = row["prompt"][0].pop("content")
    assert question.startswith("<image>")
    assert '"mild pulmonary edema"' in question
    assert row == {
        "data_source": "ms_cxr_phrase",
        "prompt": [{"role": "user"}],
        "images": [{"image": f"file://{images}/files/p11/p11999904/s50999907/{EIGHT}.jpg"}],
        "ability": "phrase",
        "reward_model": {"style": "rule"},
        "extra_info": {
            "index": 0, "split": "test", "prompt_id": f"ms_cxr_phrase/{EIGHT}/edema/e780a62d", "subject_id": "11999904",
            "study_id": "50999907", "width": 305, "height": 254, "box_space": "unit", "view": "",
            "priors": row["extra_info"]["priors"], "original_report": "",
        },
    }  # fmt: skip
    assert [truth["phrase"] for truth in truths(out, "val").values()] == [
        "mildly enlarged heart", "small right pleural effusion",
    ]  # fmt: skip
    (answer,) = read_rows(out / "sft_val.parquet")[0]["messages"][1:]
    assert answer["content"] == "[0.35, 0.43, 0.79, 0.79]"
    record = json.loads((out / "subjects.json").read_text())
    assert record["cohort"] == "mimic"
    assert record["splits"] == {"train": [], "val": ["10999901"], "test": ["11999904"]}
    assert not (out / "train.parquet").exists()


def test_csv_and_coco_say_the_same(tmp_path: Path, images: Path) -> None:
    common = ["--image-root", str(images), "--test-fraction", "0"]
    for name, table in (("csv", CSV_10), ("coco", COCO)):
        assert main([*common, "--csv", str(table), "--out", str(tmp_path / name)]) == 0
    assert len(read_rows(tmp_path / "csv" / "train.parquet")) == 3
    assert read_rows(tmp_path / "csv" / "train.parquet") == read_rows(tmp_path / "coco" / "train.parquet")


def test_without_a_split_a_patient_stays_whole(tmp_path: Path) -> None:
    rows = [
        {"path": f"files/p10/p100000{s:02d}/s5000000{n}/d{s}{n}.jpg", "dicom_id": f"d{s}{n}"}
        for s in range(30) for n in range(2)
    ]  # fmt: skip
    options = made_up(tmp_path, *rows)
    table = tmp_path / "table.csv"
    table.write_text("\n".join(line.rpartition(",")[0] for line in table.read_text().splitlines()) + "\n")
    assert main([*options, "--val-fraction", "0.2", "--test-fraction", "0.3"]) == 0
    subjects = json.loads((tmp_path / "out" / "subjects.json").read_text())["splits"]
    assert sum(map(len, subjects.values())) == 30
    assert all(subjects.values())
    assert [len(read_rows(tmp_path / "out" / f"{split}.parquet")) for split in subjects] == [
        2 * len(known) for known in subjects.values()
    ]


def test_the_splits_of_mimic_instead_of_its_own(tmp_path: Path, images: Path) -> None:
    official = tmp_path / "mimic-cxr-2.0.0-split.csv.gz"
    with gzip.open(official, "wt") as file:
        file.write(f"dicom_id,study_id,subject_id,split\n{ONE},50999901,10999901,train\n")
    common = ["--csv", str(CSV_11), "--image-root", str(images), "--split-file", str(official)]
    assert main([*common, "--out", str(tmp_path / "out")]) == 0
    assert len(truths(tmp_path / "out", "train")) == 2
    assert skips(tmp_path / "out") == {f"{EIGHT}/edema/e780a62d": "no split"}


@pytest.mark.parametrize("words", [("train", "test"), ("test", "train"), ("validate", "test")])
def test_of_two_splits_of_an_image_the_one_further_from_training_counts(
    tmp_path: Path, images: Path, words: tuple[str, str]
) -> None:
    official = tmp_path / "split.csv"
    official.write_text("dicom_id,split\n" + "".join(f"{ONE},{word}\n" for word in words))
    common = ["--csv", str(CSV_11), "--image-root", str(images), "--split-file", str(official)]
    assert main([*common, "--out", str(tmp_path / "out")]) == 0
    assert len(truths(tmp_path / "out", "test")) == 2


@pytest.mark.parametrize("orientation", [3, 6])
def test_boxes_of_an_image_that_exif_turns_are_refused(tmp_path: Path, orientation: int) -> None:
    """Nobody says whether they were drawn on it as it is stored or as a viewer shows it."""
    options = made_up(tmp_path, {}, {"dicom_id": "d2", "path": "files/p10/p10000001/s50000001/d2.jpg"})
    path = tmp_path / "jpg/files/p10/p10000001/s50000001/d1.jpg"
    exif = Image.Exif()
    exif[0x0112] = orientation
    Image.open(path).save(path, exif=exif)
    assert main(options) == 0
    assert [name.split("/")[1] for name in truths(tmp_path / "out", "train")] == ["d2"]
    assert list(skips(tmp_path / "out").values()) == ["image turned"]
    assert main([*options, "--check-images", "exists"]) == 0  # as it is stored: then nobody turns it
    assert len(truths(tmp_path / "out", "train")) == 2


def test_a_patient_of_test_stays_out_of_train_even_where_the_test_row_is_damaged(tmp_path: Path) -> None:
    path = "files/p10/p10000002/s50000002/d2.jpg"
    damaged = {"label_text": "other", "split": "test", "w": "wide"}
    assert main(made_up(tmp_path, {}, damaged, {"dicom_id": "d2", "path": path})) == 0
    assert [name.split("/")[1] for name in truths(tmp_path / "out", "train")] == ["d2"]
    assert list(skips(tmp_path / "out").values()) == ["subject of a held-out split"]
    assert list(skips(tmp_path / "out", "test").values()) == ["malformed box"]


def test_boxes_hold_for_a_smaller_copy_but_not_for_another_shape(tmp_path: Path, images: Path) -> None:
    small = draw(tmp_path / "small", SIZES, 0.5)
    for root in (images, small):
        assert main(["--csv", str(CSV_11), "--image-root", str(root), "--out", str(tmp_path / root.name)]) == 0
    assert truths(tmp_path / "jpg", "test") == truths(tmp_path / "small", "test")
    (row,) = read_rows(tmp_path / "small" / "test.parquet")
    assert (row["extra_info"]["width"], row["extra_info"]["height"]) == (152, 127)
    square = draw(tmp_path / "square", dict.fromkeys(SIZES, (224, 224)))
    assert main(["--csv", str(CSV_11), "--image-root", str(square), "--out", str(tmp_path / "out")]) == 1
    assert set(skips(tmp_path / "out", "test").values()) == {"image shape differs"}


def test_every_row_is_a_row_or_a_reason(tmp_path: Path) -> None:
    def image(n: int) -> dict[str, str]:
        return {"dicom_id": f"d{n}", "path": f"files/p10/p10000001/s50000001/d{n}.jpg"}

    options = made_up(
        tmp_path,
        {},
        {},  # 2
        {"x": "50.5", "label_text": "mild\n  edema "},  # the same phrase
        image(2) | {"x": ""},
        image(2) | {"x": "60"},  # good, but the phrase has lost a box
        image(3) | {"w": "0"},
        image(4) | {"image_width": "nan"},
        image(5) | {"image_width": "101"},
        image(5),
        image(6) | {"label_text": "nan"},  # 10
        image(7) | {"path": "../files/p10/p10000001/s50000001/d7.jpg"},
        image(8) | {"path": "/files/p10/p10000001/s50000001/d8.jpg"},
        image(9) | {"path": "files\\p10\\p10000001\\s50000001\\d9.jpg"},
        image(10) | {"path": "files/d10.jpg"},
        image(11) | {"dicom_id": "other"},
        image(12) | {"split": "holdout"},
        image(13) | {"label_text": "see <image>"},
        image(14) | {"category_name": "Ödem", "label_text": "Ödem \u2265 2 cm"},
        image(15) | {"x": "-5", "w": "400"},  # reaches beyond the image on both sides
    )
    with (tmp_path / "table.csv").open("a") as file:
        file.write("d1,Edema\n")
    (tmp_path / "jpg/files/p10/p10000001/s50000001/d14.jpg").write_bytes(b"\xff\xd8\xff torn")
    assert main(options) == 0
    made = truths(tmp_path / "out", "train")
    assert {name.split("/")[1]: [mark["box"] for mark in truth["boxes"]] for name, truth in made.items()} == {
        "d1": [[0.1, 0.1, 0.4, 0.3], [0.505, 0.1, 0.805, 0.3]],
        "d15": [[0.0, 0.1, 1.0, 0.3]],
    }
    found = skips(tmp_path / "out")
    assert {n: reason for n, reason in found.items() if isinstance(n, int)} == {
        2: "duplicate row", 10: "no phrase", 20: "malformed row",
    }  # fmt: skip
    assert sorted((name.split("/")[0], reason) for name, reason in found.items() if isinstance(name, str)) == [
        ("d10", "unknown path"), ("d12", "unknown split"), ("d13", "placeholder in report"),
        ("d14", "not an image"),
        ("d2", "malformed box"), ("d3", "box without area"), ("d4", "no image size"), ("d5", "contradicting rows"),
        ("d7", "image outside image root"), ("d8", "image outside image root"), ("d9", "image outside image root"),
        ("other", "contradicting ids"),
    ]  # fmt: skip


def test_priors_are_kept_unless_dropped(tmp_path: Path) -> None:
    options = made_up(tmp_path, {"label_text": "unchanged small left effusion"}, {"label_text": "unchanged"})
    assert main(options) == 0
    assert sorted(truth["phrase"] for truth in truths(tmp_path / "out", "train").values()) == [
        "unchanged", "unchanged small left effusion",
    ]  # fmt: skip
    assert main([*options, "--priors", "drop"]) == 0
    (row,) = read_rows(tmp_path / "out" / "train.parquet")
    assert json.loads(row["reward_model"]["ground_truth"])["phrase"] == "small left effusion"
    assert row["extra_info"]["original_report"] == "unchanged small left effusion"
    assert list(skips(tmp_path / "out").values()) == ["only prior references"]


def test_balance_goes_by_category(tmp_path: Path) -> None:
    rows = [{"label_text": f"edema number {word}"} for word in "abcdefgh"]
    options = made_up(tmp_path, *rows, {"category_name": "Pneumothorax", "label_text": "air"})
    assert main([*options, "--balance", "3"]) == 0
    labels = [mark["boxes"][0]["label"] for mark in truths(tmp_path / "out", "train").values()]
    assert sorted(labels) == ["Edema", "Edema", "Pneumothorax"]


def test_same_bytes_whatever_the_order_the_workers_and_the_line_ends(tmp_path: Path) -> None:
    rows = [
        {"dicom_id": f"d{n % 5}", "path": f"files/p10/p10000001/s50000001/d{n % 5}.jpg", "x": str(n), "y": str(30 - n)}
        for n in range(20)
    ]
    options = made_up(tmp_path, *rows)
    assert main([*options, "--max-pixels", "400"]) == 0
    first = files(tmp_path / "out")
    assert len(read_rows(tmp_path / "out" / "train.parquet")) == 5
    random.Random(1).shuffle(rows)
    made_up(tmp_path, *rows)
    table = tmp_path / "table.csv"
    head, *lines = (line.split(",") for line in table.read_text().splitlines())
    swapped = [",".join(reversed(cells)) for cells in (head, *lines)]  # columns in another order, too
    table.write_bytes("\ufeff".encode() + "\r\n".join(swapped).encode() + b"\r\n")
    assert main([*options, "--max-pixels", "400", "--workers", "2"]) == 0
    assert files(tmp_path / "out") == first


@pytest.mark.parametrize(
    ("table", "text", "message"),
    [
        ("t.csv", "image_id,rad_id,class_name,x_min,y_min,x_max,y_max\n", "data_preprocess.vindr_cxr"),
        ("t.csv", "dicom_id,subject_id,study_id,ViewPosition\n", "data_preprocess.mimic_cxr"),
        ("t.csv", ",".join(name for name in BASE if name != "w") + "\n", "no column 'w'"),
        ("t.csv", "", "is empty"),
        ("t.csv", ",".join(BASE) + "\n", "hold no rows"),
        ("t.json", "{", "is no COCO file"),
        ("t.json", "[" * 100_000, "is no COCO file"),
        ("t.json", '[{"ImageID": "a.png"}]', "is no COCO file"),
        ("t.json", '{"categories": [], "images": []}', "lacks 'annotations'"),
        ("absent.csv", None, "no such file"),
        ("absent.json", None, "no such file"),
    ],
)
def test_what_is_no_table_of_ms_cxr(
    tmp_path: Path, images: Path, capsys: pytest.CaptureFixture[str], table: str, text: str | None, message: str
) -> None:
    if text is not None:
        (tmp_path / table).write_text(text)
    assert main(["--csv", str(tmp_path / table), "--image-root", str(images), "--out", str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not (tmp_path / "out" / "train.parquet").exists()


def test_a_damaged_annotation_of_coco_is_listed(tmp_path: Path, images: Path) -> None:
    coco = json.loads(COCO.read_text())
    coco["annotations"][0]["image_id"] = 99
    coco["annotations"][1]["bbox"] = [1, 2, 3]
    coco["images"][1]["split"] = "train"
    coco["annotations"].append("text")
    (tmp_path / "t.json").write_text(json.dumps(coco))
    assert main(["--csv", str(tmp_path / "t.json"), "--image-root", str(images), "--out", str(tmp_path / "out")]) == 0
    assert skips(tmp_path / "out") == {1: "malformed row", 2: "malformed row", 5: "malformed row"}
    assert len(truths(tmp_path / "out", "train")) == 1


def test_images_that_are_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = made_up(tmp_path, {}, drawn=False)
    assert main(options) == 2
    assert "d1.jpg; check --image-root" in capsys.readouterr().err
    assert main([*options[:2], "--image-root", str(tmp_path / "nowhere"), *options[4:]]) == 2
    assert "no such folder" in capsys.readouterr().err
    assert main([*options, "--check-images", "no"]) == 0  # believes the table
    (row,) = read_rows(tmp_path / "out" / "train.parquet")
    assert (row["extra_info"]["width"], row["extra_info"]["height"]) == (100, 200)


def test_no_skip_bad_stops_at_damage(tmp_path: Path) -> None:
    options = made_up(tmp_path, {}, {"label_text": "other", "w": "0"})
    assert main([*options, "--no-skip-bad"]) == 1


def test_test_patients_of_mimic_are_refused_in_train(
    tmp_path: Path, images: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mimic").mkdir()
    record = {"data": "mimic_cxr", "cohort": "mimic", "splits": {"test": ["10999901"]}}
    (tmp_path / "mimic" / "subjects.json").write_text(json.dumps(record))
    command = [
        "--csv",
        str(CSV_10),
        "--image-root",
        str(images),
        "--out",
        str(tmp_path / "out"),
        "--test-fraction",
        "0",
    ]
    assert main(command) == 2
    assert "10999901" in capsys.readouterr().err
    assert main([*command, "--on-leak", "drop"]) == 0
    assert [truth["phrase"] for truth in truths(tmp_path / "out", "train").values()] == ["mild pulmonary edema"]
