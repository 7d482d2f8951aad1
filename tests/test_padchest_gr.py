"""PadChest-GR: sentences with their boxes, or whole reports, in English and Spanish, from 16-bit images."""

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image

from data_preprocess import ms_cxr, vindr_cxr
from data_preprocess.core.rows import read_rows, schema
from data_preprocess.padchest_gr import main
from radverl.labels import CHEXPERT_14
from tests.written_files import files

DATA = Path(__file__).parent / "data" / "padchest_gr"
JSON = DATA / "grounded_reports_20240819.json"
BOX, EXTRA = [0.1, 0.2, 0.3, 0.4], [0.5, 0.5, 0.6, 0.6]
HEAD = "StudyID,ImageID,PatientID,split,label\n"


def finding(text: str, boxes: Any = (), abnormal: Any = True, **more: Any) -> dict[str, Any]:
    return {"sentence_en": text, "sentence_es": f"es {text}", "abnormal": abnormal, "boxes": list(boxes), **more}


def made_up(
    folder: Path, reports: dict[str, Any], splits: dict[str, str] | None = None, draw: bool = True
) -> list[str]:
    """Reports by image, each of a patient of its own; returns the options that name all files."""
    rows = [{"StudyID": f"s-{name}", "ImageID": f"{name}.png", "findings": list_} for name, list_ in reports.items()]
    (folder / "reports.json").write_text(json.dumps(rows, ensure_ascii=False), encoding="utf-8")
    lines = [f"s-{name},{name}.png,p-{name},{(splits or {}).get(name, 'train')},x\n" for name in reports]
    (folder / "master_table.csv").write_text(HEAD + "".join(lines), encoding="utf-8")
    for number, name in enumerate(reports if draw else ()):
        file = folder / "root" / "Padchest_GR_files" / "PadChest_GR" / f"{name}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        pixels = np.random.default_rng(number).integers(0, 4096, (40, 50), dtype=np.uint16)
        Image.fromarray(pixels).save(file)
    return ["--json", str(folder / "reports.json"), "--image-root", str(folder / "root"), "--out", str(folder / "out")]


def truths(out: Path, split: str = "train") -> list[dict[str, Any]]:
    return [json.loads(row["reward_model"]["ground_truth"]) for row in read_rows(out / f"{split}.parquet")]


def phrases(out: Path, split: str = "train") -> dict[str, list[list[float]]]:
    return {truth["phrase"]: [mark["box"] for mark in truth["boxes"]] for truth in truths(out, split)}


def skips(out: Path, split: str = "train") -> list[tuple[str, str]]:
    lines = (out / f"{split}.skipped.jsonl").read_text(encoding="utf-8").splitlines()
    return [(str(entry["row"]), entry["reason"]) for entry in map(json.loads, lines)]


def test_a_whole_phrase_row(tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert main(["--json", str(JSON), "--image-root", str(DATA), "--out", str(out)]) == 0
    (row,) = read_rows(out / "train.parquet")
    assert json.loads(row["reward_model"].pop("ground_truth")) == {
        "phrase": "Right pleural effusion.",
        "boxes": [{"label": "Pleural Effusion", "box": [0.06, 0.72, 0.24, 0.85]}],
        "labels": dict.fromkeys(CHEXPERT_14) | {"Pleural Effusion": 1},
    }
    assert '"Right pleural effusion."' in row["prompt"][0].pop("content")
    stored = Path(row["images"][0].pop("image").removeprefix("file://"))
    assert stored.parent == out / "images"
    assert row == {
        "data_source": "padchest_gr_phrase",
        "prompt": [{"role": "user"}],
        "images": [{}],
        "ability": "phrase",
        "reward_model": {"style": "rule"},
        "extra_info": {
            "index": 0, "split": "train", "prompt_id": "padchest_gr_phrase/900001/900001_img1/d94ff52d",
            "subject_id": "p1", "study_id": "900001", "width": 260, "height": 300, "box_space": "unit", "view": "",
            "priors": row["extra_info"]["priors"], "original_report": "",
        },
    }  # fmt: skip
    pixels = np.asarray(Image.open(stored))  # 16 bits scaled, not clipped to white
    assert (pixels.dtype, pixels.min(), pixels.max()) == (np.uint8, 0, 255)
    assert [reason for _, reason in skips(out)] == ["normal finding", "normal finding"]
    record = json.loads((out / "subjects.json").read_text())
    assert (record["cohort"], record["splits"]["train"]) == ("padchest", ["p1"])


def test_a_whole_report_row(tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert main(["--json", str(JSON), "--image-root", str(DATA), "--out", str(out), "--task", "report"]) == 0
    row, normal = read_rows(out / "train.parquet")
    assert json.loads(row["reward_model"]["ground_truth"]) == {
        "findings": "Right pleural effusion. No pneumothorax.",
        "impression": "",
        "report": "Findings: Right pleural effusion. No pneumothorax.",
        "labels": dict.fromkeys(CHEXPERT_14) | {"Pleural Effusion": 1, "Pneumothorax": 0},
        "regions": [],
        "boxes": [{"label": "Pleural Effusion", "box": [0.06, 0.72, 0.24, 0.85]}],
    }
    assert row["data_source"] == "padchest_gr"
    assert row["prompt"][0]["content"] == "<image>Write the findings of this chest radiograph."
    assert row["extra_info"]["prompt_id"] == "padchest_gr/900001/900001_img1"
    assert row["extra_info"]["priors"] == "drop"
    assert json.loads(normal["reward_model"]["ground_truth"])["labels"]["No Finding"] == 1


def test_spanish_keeps_the_labels_of_the_english_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["--json", str(JSON), "--image-root", str(DATA), "--out", str(tmp_path / "out"), "--language", "es"]
    assert main([*command, "--task", "report"]) == 2
    assert "pass --priors keep" in capsys.readouterr().err
    assert main([*command, "--task", "report", "--priors", "keep"]) == 0
    first, _ = truths(tmp_path / "out")
    assert first["findings"] == "Derrame pleural derecho. Sin neumotórax."
    assert {name: value for name, value in first["labels"].items() if value is not None} == {
        "Pleural Effusion": 1, "Pneumothorax": 0,
    }  # fmt: skip
    assert main([*command, "--priors", "keep"]) == 0
    assert phrases(tmp_path / "out") == {"Derrame pleural derecho.": [[0.06, 0.72, 0.24, 0.85]]}


def test_splits_are_the_official_ones_by_patient(tmp_path: Path) -> None:
    reports = {name: [finding("Nodule.", [BOX])] for name in "abcde"}
    options = made_up(tmp_path, reports, {"b": "validation", "c": "test", "d": "held back"})
    table = tmp_path / "master_table.csv"
    text = table.read_text().replace("p-a,", "p-c,")  # a patient of test has a train image, too
    table.write_text(text + "s-c,c.png,p-c,test,another label\ns-e,e.png,p-e,test,x\ns-f,f.png,p-f,test,x\n")
    assert main(options) == 0
    assert phrases(tmp_path / "out", "val") == phrases(tmp_path / "out", "test") == {"Nodule.": [BOX]}
    assert not (tmp_path / "out" / "train.parquet").exists()
    assert sorted(reason for _, reason in skips(tmp_path / "out")) == [
        "contradicting rows", "no split", "no split", "subject of a held-out split", "unknown split",
    ]  # fmt: skip
    assert skips(tmp_path / "out", "test") == [("f.png", "no report")]
    record = json.loads((tmp_path / "out" / "subjects.json").read_text())
    assert record["splits"] == {"train": [], "val": ["p-b"], "test": ["p-c", "p-e", "p-f"]}


def test_every_sentence_is_a_row_or_a_reason(tmp_path: Path) -> None:
    reports = {
        "a": [
            finding("Nodule  in the\nleft lung.", [BOX], labels=["nodule", "Odd thing"], extra_boxes=[EXTRA]),
            finding("Nodule in the left lung.", [[0.6, 0.6, 0.7, 0.7], BOX], labels=["nodule"]),
            finding("Rib fracture."),
            finding("Normal heart.", abnormal=False),
            finding("", [BOX]),
            finding("Mass.", [[0.1, 0.2, 0.3]]),
            finding("Edema.", [[10, 20, 300, 400]]),
            finding("Hernia.", [[0.5, 0.5, 0.5, 0.6]]),
            finding("Air.", [[-0.01, 0, 1.01, 0.5]], labels=None, progression="worsening"),
            "text",
            finding("Wire.", [BOX], labels="wire"),
            finding("Pump.", [[0, 0, float("nan"), 1]]),
            finding("See <image>.", [BOX]),
        ],
        "b": [],
        "c": "none",
        "d": [finding("Nodule has increased in size since the prior study.", [BOX]), finding("Unchanged.", [BOX])],
    }  # fmt: skip
    options = made_up(tmp_path, reports)
    rows = json.loads((tmp_path / "reports.json").read_text())
    rows += [rows[3], 7, {"ImageID": "../a.png", "findings": []}, {"ImageID": "unlisted.png", "findings": []}]
    (tmp_path / "reports.json").write_text(json.dumps(rows))
    assert main(options) == 0
    found = phrases(tmp_path / "out")
    changed = next(name for name in found if name.startswith("Nodule") and "left" not in name)
    assert "increased" not in changed
    assert "prior" not in changed
    assert found == {
        "Nodule in the left lung.": [BOX, [0.6, 0.6, 0.7, 0.7]], "Air.": [[0.0, 0.0, 1.0, 0.5]], changed: [BOX],
    }  # fmt: skip
    (nodule,) = (truth for truth in truths(tmp_path / "out") if "left" in truth["phrase"])
    assert {mark["label"] for mark in nodule["boxes"]} == {"Lung Lesion, Odd thing"}
    assert nodule["labels"]["Lung Lesion"] == 1
    (row,) = (row for row in read_rows(tmp_path / "out" / "train.parquet") if row["extra_info"]["study_id"] == "s-d")
    assert row["extra_info"]["original_report"] == "Nodule has increased in size since the prior study."
    reasons = [reason for _, reason in skips(tmp_path / "out")]
    assert sorted(reasons) == sorted([
        "no boxes", "normal finding", "no sentence", "malformed box", "box outside image", "box without area",
        "malformed report", "malformed report", "malformed box", "placeholder in report", "malformed report",
        "malformed report", "only prior references", "duplicate row", "no image id", "image outside image root",
        "no split",
    ])  # fmt: skip
    assert main([*options, "--extra-boxes", "--negatives", "--priors", "keep"]) == 0
    found = phrases(tmp_path / "out")
    assert found["Nodule in the left lung."] == [BOX, EXTRA, [0.6, 0.6, 0.7, 0.7]]
    assert found["Normal heart."] == []
    assert "Unchanged." in found
    assert "Rib fracture." not in found


def test_boxes_of_a_second_reader_are_fused_where_they_overlap(tmp_path: Path) -> None:
    second = [[0.12, 0.22, 0.32, 0.42], EXTRA]
    options = made_up(tmp_path, {"a": [finding("Nodule.", [BOX], extra_boxes=second), finding("Mass.", [BOX])]})
    assert main(options) == 0
    assert phrases(tmp_path / "out") == {"Nodule.": [BOX], "Mass.": [BOX]}
    assert main([*options, "--extra-boxes"]) == 0
    assert phrases(tmp_path / "out") == {"Nodule.": [[0.11, 0.21, 0.31, 0.41], EXTRA], "Mass.": [BOX]}


@pytest.mark.parametrize(
    ("label", "name"),
    [
        ("NSG tube", "Support Devices"),
        ("central venous catheter via jugular vein", "Support Devices"),
        ("atelectasis basal", "Atelectasis"),
        ("loculated pleural effusion", "Pleural Effusion"),
        ("superior mediastinal enlargement", "Enlarged Cardiomediastinum"),
        ("calcified pleural plaques", "Pleural Other"),
        ("pseudonodule", None),
    ],
)
def test_labels_as_the_release_spells_them(tmp_path: Path, label: str, name: str | None) -> None:
    assert main(made_up(tmp_path, {"a": [finding("Seen.", [BOX], labels=[label])]})) == 0
    (truth,) = truths(tmp_path / "out")
    assert [mark["label"] for mark in truth["boxes"]] == [name or label]
    assert {key for key, value in truth["labels"].items() if value} == {name} - {None}


def test_a_release_that_is_still_packed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = made_up(tmp_path, {"a": [finding("Nodule.", [BOX])]})
    table, folder = tmp_path / "master_table.csv", tmp_path / "root" / "Padchest_GR_files"
    text = table.read_text(encoding="utf-8")
    table.rename(tmp_path / "master_table.csv.zip")
    assert main(options) == 2
    assert "master_table.csv.zip: is packed" in capsys.readouterr().err
    table.write_text(text, encoding="utf-8")
    (folder / "PadChest_GR" / "PadChest_GR").mkdir()  # as one unpacks into a folder of that name
    (folder / "PadChest_GR" / "a.png").rename(folder / "PadChest_GR" / "PadChest_GR" / "a.png")
    (folder / "PadChest_GR.zip.001").touch()
    assert main(options) == 0
    (folder / "PadChest_GR" / "PadChest_GR" / "a.png").unlink()
    (folder / "PadChest_GR.zip.002").touch()
    assert main(options) == 2
    assert "PadChest_GR.zip.001: none of the images is there" in capsys.readouterr().err


def test_a_report_with_a_damaged_finding_is_none(tmp_path: Path) -> None:
    reports = {
        "a": [finding("No effusion", abnormal=False), finding("Rib fracture")],
        "b": [finding("Nodule.", [BOX]), finding("Mass.", [[0.1]])],
        "c": [finding("Nodule.", [BOX]), finding("")],
    }
    assert main([*made_up(tmp_path, reports), "--task", "report"]) == 0
    (only,) = truths(tmp_path / "out")
    assert only["report"] == "Findings: No effusion. Rib fracture."
    assert [reason for _, reason in skips(tmp_path / "out")] == ["malformed box", "no sentence"]


def test_same_bytes_whatever_the_order_and_the_workers(tmp_path: Path) -> None:
    reports = {f"i{n}": [finding(f"Nodule {m}.", [BOX]) for m in range(3)] for n in range(6)}
    options = made_up(tmp_path, reports)
    table = tmp_path / "master_table.csv"
    table.write_text(table.read_text() + "s-i1,i1.png,p-i1,train,another label\n")
    assert main(options) == 0
    first = files(tmp_path / "out")
    rows = json.loads((tmp_path / "reports.json").read_text())
    head, *lines = table.read_text().splitlines()
    for order in (rows, lines):
        random.Random(1).shuffle(order)
    (tmp_path / "reports.json").write_bytes("\ufeff".encode() + json.dumps(rows).encode())
    table.write_bytes("\ufeff".encode() + "\r\n".join([head, *lines]).encode() + b"\r\n")
    assert main([*options, "--workers", "2"]) == 0
    assert files(tmp_path / "out") == first


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("reports.json", '{"images": []}', "is no list of reports"),
        ("reports.json", "[1, 2]", "is no list of reports"),
        ("reports.json", "[" * 100_000, "cannot be read as JSON"),
        ("reports.json", "[", "cannot be read as JSON"),
        ("reports.json", '[{"ImageID": "z.png"}]', "no ImageID is in the master table"),
        ("master_table.csv", "image_id,rad_id,class_name\n", "data_preprocess.vindr_cxr"),
        ("master_table.csv", "ImageID,PatientID,Labels\n", "no column 'split'"),
        ("master_table.csv", HEAD, "no ImageID is in the master table"),
        ("master_table.csv", None, "no such file"),
        ("reports.json", None, "no such file"),
    ],
)
def test_what_is_no_file_of_padchest_gr(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, text: str | None, message: str
) -> None:
    options = made_up(tmp_path, {"a": [finding("Nodule.", [BOX])]})
    (tmp_path / name).unlink()
    if text is not None:
        (tmp_path / name).write_text(text)
    assert main(options) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_images_that_are_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = made_up(tmp_path, {"a": [finding("Nodule.", [BOX])]}, draw=False)
    assert main(options) == 2
    assert "no such folder" in capsys.readouterr().err
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "loop").symlink_to(tmp_path / "root")
    (tmp_path / "root" / "self").symlink_to("self")
    assert main(options) == 2
    assert "check --image-root" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--task", "report", "--target", "impression"), "have findings only"),
        (("--priors", "llm"), "--priors llm rewrites reports"),
        (("--prompt", "Where is it?"), "{name}"),
    ],
)
def test_options_that_make_no_sense(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: tuple[str, ...], message: str
) -> None:
    assert main([*made_up(tmp_path, {"a": [finding("Nodule.", [BOX])]}), *options]) == 2
    assert message in capsys.readouterr().err


def test_files_of_all_grounding_scripts_have_one_schema(tmp_path: Path) -> None:
    assert main([*made_up(tmp_path, {"a": [finding("Nodule.", [BOX])]}), "--task", "report"]) == 0
    image = tmp_path / "jpg" / "p10" / "p10000001" / "s50000001" / "d1.jpg"
    image.parent.mkdir(parents=True)
    Image.fromarray(np.arange(20_000, dtype=np.uint8).reshape(200, 100)).save(image)
    table = tmp_path / "ms.csv"
    table.write_text(
        "dicom_id,category_name,label_text,path,x,y,w,h,image_width,image_height,split\n"
        "d1,Edema,edema,files/p10/p10000001/s50000001/d1.jpg,1,2,30,40,100,200,train\n"
    )
    common = ["--image-root", str(tmp_path / "jpg")]
    assert ms_cxr.main([*common, "--csv", str(table), "--out", str(tmp_path / "ms")]) == 0
    table = tmp_path / "annotations_train.csv"
    table.write_text("image_id,rad_id,class_name,x_min,y_min,x_max,y_max\nd1,R1,ILD,1,2,30,40\n")
    common[1] = str(image.parent)
    assert vindr_cxr.main([*common, "--csv", str(table), "--out", str(tmp_path / "vindr")]) == 0
    for name in ("out", "ms", "vindr"):
        for file, kind in (("train", "rl"), ("sft_train", "sft")):
            assert pq.read_schema(tmp_path / name / f"{file}.parquet").equals(
                schema(kind, "image"), check_metadata=False
            )


def test_numbers_and_names_of_json_that_no_file_holds(tmp_path: Path) -> None:
    whole, odd = finding("Effusion.", [BOX]), finding("Mass.", [[0, 0, 10**400, 1]])
    half = json.loads(json.dumps(finding("Nodule.", [BOX], labels=["half"])))
    options = made_up(tmp_path, {"a": [whole], "b": [odd], "c": [half]})
    file = tmp_path / "reports.json"
    file.write_text(file.read_text().replace('"half"', '"half \\ud800"'))
    assert main(options) == 0
    assert phrases(tmp_path / "out") == {"Effusion.": [BOX]}
    assert [reason for _, reason in skips(tmp_path / "out")] == ["malformed box", "malformed text"]
