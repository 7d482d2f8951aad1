"""IU X-ray: the three forms come to the same rows, no view is guessed, and no XML file stops a run."""

import csv
import json
import os
import random
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from data_preprocess.core.candidates import Intake
from data_preprocess.core.rows import read_rows
from data_preprocess.core.skiplog import SkipLog
from data_preprocess.iu_xray import main
from data_preprocess.releases.iu_films import film_key, index_files
from data_preprocess.releases.iu_forms import subject_of, unescape
from data_preprocess.releases.iu_tables import read_views
from data_preprocess.releases.iu_xml import read_xml
from radverl.labels import CHEXPERT_14
from tests.written_files import files, skips

DATA = Path(__file__).parent / "data" / "iu_xray"
XML = '<?xml version="1.0" encoding="utf-8"?>\n'
REPORT = (
    '<eCitation><uId id="CXR{n}"/><AbstractText Label="FINDINGS">{text}</AbstractText>'
    '<AbstractText Label="IMPRESSION">Clear lungs.</AbstractText><parentImage id="CXR{n}_IM-0001-1001"/></eCitation>'
)
TRUTH_9001 = {
    "findings": "The heart is large. There is a small left effusion.",
    "impression": "1. Cardiomegaly. 2. Left effusion.",
    "report": "Findings: The heart is large. There is a small left effusion. "
    "Impression: 1. Cardiomegaly. 2. Left effusion.",
    "labels": dict.fromkeys(CHEXPERT_14)
    | {"Cardiomegaly": 1, "Enlarged Cardiomediastinum": None, "Pleural Effusion": 1},
    "regions": [],
    "boxes": [],
    "mesh": ["Cardiomegaly", "Pleural Effusion/left/small"],
}


@pytest.fixture
def openi(tmp_path: Path) -> Path:
    """ecgen-radiology/ with four reports and NLMCXR_png/ with their films."""
    shutil.copytree(DATA / "openi", tmp_path / "openi")
    ids = [f"CXR900{n}_IM-000{n}-{k}001" for n in (1, 4) for k in (1, 2)]
    ids += ["CXR9002_IM-0002-1001-0001", "CXR9002_IM-0002-1001-0002", "CXR9002_IM-0002-2001"]
    draw(tmp_path / "openi" / "NLMCXR_png", [f"{name}.png" for name in ids])
    return tmp_path / "openi"


@pytest.fixture
def kaggle(tmp_path: Path) -> Path:
    """The two tables and images/images_normalized/."""
    shutil.copytree(DATA / "kaggle", tmp_path / "kaggle")
    rows = csv.DictReader((DATA / "kaggle" / "indiana_projections.csv").open(newline=""))
    draw(tmp_path / "kaggle" / "images" / "images_normalized", [row["filename"] for row in rows])
    return tmp_path / "kaggle"


@pytest.fixture
def r2gen(tmp_path: Path) -> Path:
    shutil.copytree(DATA / "r2gen", tmp_path / "r2gen")
    return tmp_path / "r2gen"


def draw(folder: Path, names: list[str]) -> None:
    folder.mkdir(parents=True)
    for seed, name in enumerate(names):
        pixels = np.random.default_rng(seed).integers(0, 256, (24, 30), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / name)


def run(data: Path, *options: str, out: str = "out") -> tuple[int, Path]:
    folder = data.parent / out
    return main(["--root", str(data), "--out", str(folder), "--contact-sheet", "0", *options]), folder


def run_all(data: Path, *options: str, out: str = "out") -> tuple[int, Path]:
    """All reports in train."""
    return run(data, "--val-fraction", "0", "--test-fraction", "0", *options, out=out)


def rows(out: Path, split: str = "train") -> dict[str, dict[str, Any]]:
    path = out / f"{split}.parquet"
    return {row["extra_info"]["study_id"]: row for row in read_rows(path)} if path.is_file() else {}


def truth(row: dict[str, Any]) -> dict[str, Any]:
    return json.loads(row["reward_model"]["ground_truth"])  # type: ignore[no-any-return]


def names(row: dict[str, Any]) -> list[str]:
    return [Path(image["image"].removeprefix("file://")).name for image in row["images"]]


def change(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")


def test_kaggle_rows(kaggle: Path) -> None:
    code, out = run_all(kaggle)
    assert code == 0
    found = rows(out)
    assert found.keys() == {"CXR9001", "CXR9005"}
    assert skips(out) == {"CXR9002": "no findings"}
    row = found["CXR9001"]
    assert truth(row) == TRUTH_9001
    assert names(row) == ["9001_IM-0001-1001.dcm.png"]
    extra = row["extra_info"]
    assert (extra["subject_id"], extra["view"], extra["width"], extra["height"]) == ("CXR9001", "FRONTAL", 30, 24)
    assert row["data_source"] == "iu_xray"
    assert extra["prompt_id"] == "iu_xray/CXR9001"
    assert names(found["CXR9005"]) == ["9005_IM-0005-1001.dcm.png"]  # its lateral film comes first in the table
    assert truth(found["CXR9005"])["findings"] == "The lungs are clear, the heart is normal."
    assert "XXXX" not in truth(found["CXR9005"])["impression"]


def test_xml_and_kaggle_come_to_the_same(openi: Path, kaggle: Path) -> None:
    projections = str(kaggle / "indiana_projections.csv")
    for target in ("both", "impression"):
        options = ("--target", target, "--views", "pair")
        _, by_xml = run_all(openi, "--projections", projections, *options, out=f"xml_{target}")
        _, by_table = run_all(kaggle, *options, out=f"table_{target}")
        mine, theirs = rows(by_xml), rows(by_table)
        shared = mine.keys() & theirs.keys()
        assert shared == ({"CXR9001"} if target == "both" else {"CXR9001", "CXR9002"})
        for study in shared:
            assert truth(mine[study]) == truth(theirs[study])
            assert mine[study]["prompt"] == theirs[study]["prompt"]
            assert mine[study]["extra_info"]["view"] == theirs[study]["extra_info"]["view"] == "FRONTAL LATERAL"
    assert truth(mine["CXR9001"]) == TRUTH_9001 | {"findings": "", "report": f"Impression: {TRUTH_9001['impression']}"}


def test_xml_without_views(openi: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for views in ([], ["--views", "pair"], ["--views", "lateral"]):
        code, out = run_all(openi, *views)
        error = capsys.readouterr().err
        assert (code, error.count("\n")) == (2, 1)
        assert "--projections" in error
        assert "--views all" in error
        assert not out.exists()
    code, out = run_all(openi, "--views", "all", "--target", "any")
    assert code == 0
    found = rows(out)
    assert names(found["CXR9001"]) == ["CXR9001_IM-0001-1001.png", "CXR9001_IM-0001-2001.png"]
    assert found["CXR9001"]["extra_info"]["view"] == "UNKNOWN UNKNOWN"
    assert found["CXR9001"]["prompt"][0]["content"].count("<image>") == 2
    assert len(names(found["CXR9002"])) == 3
    assert skips(out) == {"CXR9003": "no image", "CXR9004": "no findings and no impression"}


def test_entities_escaped_twice_are_read(openi: Path) -> None:
    _, out = run_all(openi, "--views", "all", "--target", "impression", "--priors", "keep")
    assert truth(rows(out)["CXR9002"])["impression"] == "No pneumothorax.>] Lungs < 50 percent expanded."


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("a &gt; b &amp; c", "a > b & c"), ("&#8217;s", "\u2019s"), ("AT&T; R&D", "AT&T; R&D"),
        ("50 &lt 60", "50 &lt 60"), ("no &copy", "no &copy"), ("&#0;", "\ufffd"), ("&#99999999999;", "&#99999999999;"),
    ],
)  # fmt: skip
def test_unescape(text: str, read: str) -> None:
    assert unescape(text) == read


@given(st.text(alphabet="CXR0123456789_IM-. abc&;#", max_size=30))
def test_any_text_is_an_id_or_none(text: str) -> None:
    assert subject_of(text) == "" or subject_of(text).removeprefix("CXR").isdigit()
    assert film_key(film_key(text)) == film_key(text)
    assert isinstance(unescape(text), str)


@pytest.mark.parametrize(
    "name",
    [
        "CXR10_IM-0002-1001", "CXR10_IM-0002-1001.png", "10_IM-0002-1001.dcm.png", "10_IM-0002-1001.dcm",
        "10/10_IM-0002-1001.dcm", "CXR10_10_IM-0002-1001", "cxr10_im-0002-1001.PNG",
    ],
)  # fmt: skip
def test_one_film_has_one_key(name: str) -> None:
    assert film_key(name) == "10_IM-0002-1001"


@pytest.mark.parametrize(
    ("name", "subject"),
    [
        ("1", "CXR1"),
        ("CXR1", "CXR1"),
        ("CXR1_1_IM-0001", "CXR1"),
        ("1.0", "CXR1"),
        ("0010", "CXR10"),
        ("PMC12", ""),
        ("", ""),
    ],
)
def test_subject(name: str, subject: str) -> None:
    assert subject_of(name) == subject


def test_r2gen_rows(r2gen: Path) -> None:
    code, out = run(r2gen, "--target", "any", "--blanks", "keep")
    assert code == 0
    train, val, test = (rows(out, split) for split in ("train", "val", "test"))
    assert (list(train), list(val), list(test)) == (["CXR9001_IM-9001"], ["CXR9002_IM-9002"], ["CXR9003_IM-9003"])
    row = train["CXR9001_IM-9001"]
    assert truth(row) == {
        "findings": "The heart is normal in size. The lungs are clear.",
        "impression": "",
        "report": "Findings: The heart is normal in size. The lungs are clear.",
        "labels": truth(row)["labels"],
        "regions": [],
        "boxes": [],
    }
    assert truth(row)["labels"]["Cardiomegaly"] == 0
    assert [Path(image["image"]).parts[-2:] for image in row["images"]] == [
        ("CXR9001_IM-9001", "0.png"), ("CXR9001_IM-9001", "1.png"),
    ]  # fmt: skip
    assert (row["extra_info"]["subject_id"], row["extra_info"]["view"]) == ("CXR9001", "UNKNOWN UNKNOWN")
    assert truth(val["CXR9002_IM-9002"])["findings"] == "There is a XXXX left effusion."
    record = json.loads((out / "subjects.json").read_text())
    assert (record["cohort"], record["splits"]["test"]) == ("openi", ["CXR9003"])


@pytest.mark.parametrize(
    ("options", "say"),
    [
        ([], "--target findings"), (["--target", "impression"], "--target findings"),
        (["--target", "any", "--views", "frontal"], "--views all"),
        (["--target", "any", "--test-fraction", "0"], "own splits"),
    ],
)  # fmt: skip
def test_r2gen_cannot_answer(r2gen: Path, options: list[str], say: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out = run(r2gen, *options)
    assert code == 2
    assert say in capsys.readouterr().err
    assert not out.exists()


def test_r2gen_of_mimic_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    entry = {"id": "a", "study_id": 50999901, "subject_id": 10999901, "report": "Clear.", "image_path": ["p10/a.jpg"]}
    (tmp_path / "d").mkdir()
    # The second is too long to be recognised by its first bytes.
    for first in (entry, {"id": "x", "report": "A " * 50_000, "image_path": []}):
        (tmp_path / "d" / "annotation.json").write_text(json.dumps({"train": [first, entry], "val": [], "test": []}))
        code, _ = run(tmp_path / "d", "--target", "any")
        assert code == 2
        assert "mimic_cxr" in capsys.readouterr().err


def test_r2gen_entries_that_are_damaged(r2gen: Path) -> None:
    loaded = json.loads((r2gen / "annotation.json").read_text())
    good = loaded["train"][0]
    films = good["image_path"]
    loaded["train"] += [
        good | {"id": "CXR9010_a", "image_path": ["../../secret.png"]},
        good | {"id": "CXR9011_a", "image_path": ["C:\\films\\0.png"]},
        good | {"id": "CXR9012_a", "image_path": []},
        good | {"id": "CXR9013_a", "report": float("nan")},
        good | {"id": "CXR9014_a", "report": ["no", "text"]},
        good | {"id": "CXR9015_a", "split": "holdout"},
        good | {"id": "nobody", "image_path": ["nobody/0.png"]},
        good | {"id": "CXR9016_a", "split": "test"},  # the list says train: it stays out of training
        good | {"id": "CXR9017_a", "image_path": films[0]},
        good | {"id": "CXR9018_a", "report": "A <image> in it."},
        good | {"id": "CXR9019_a", "report": "\ud800 half a sign"},
        "no entry",
    ]
    loaded["val"] += [good | {"split": "val"}]  # the same id as in train
    loaded["validation"] = [good | {"id": "CXR9020_a", "split": "valid"}]
    (r2gen / "annotation.json").write_text(json.dumps(loaded))
    code, out = run(r2gen, "--target", "any")
    assert code == 0
    assert rows(out).keys() == {"CXR9017_a"}
    assert rows(out, "val").keys() == {"CXR9001_IM-9001", "CXR9002_IM-9002", "CXR9020_a"}
    assert rows(out, "test").keys() == {"CXR9003_IM-9003", "CXR9016_a"}
    reasons = skips(out)
    assert reasons.pop(13) == "malformed row"
    assert reasons == {
        "CXR9001_IM-9001": "duplicate row", "CXR9010_a": "no image", "CXR9010_a image 0": "image outside image root",
        "CXR9011_a": "no image", "CXR9011_a image 0": "image outside image root", "CXR9012_a": "no image",
        "CXR9013_a": "no findings and no impression", "CXR9014_a": "not text", "CXR9015_a": "unknown split",
        "nobody": "unknown id", "CXR9018_a": "placeholder in report", "CXR9019_a": "malformed text",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "say"),
    [
        ('{"train": [', "half downloaded"), ("[" * 200_000, "is not JSON"), ('{"train": {}}', "list of reports"),
        ('{"train": [], "test": []}', "no entries"), ("7", "list of reports"), ("[]", "no entries"),
    ],
)  # fmt: skip
def test_json_that_is_no_annotation(tmp_path: Path, text: str, say: str, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "annotation.json").write_text(text)
    code, _ = run(tmp_path / "d", "--target", "any")
    assert code == 2
    assert say in capsys.readouterr().err


BOMB = "".join(f'<!ENTITY a{n} "{f"&a{n - 1};" * 10 if n else "lol"}">' for n in range(10))
BAD_XML = {
    "bomb": (f"<!DOCTYPE eCitation [{BOMB}]>" + REPORT.format(n=1, text="&a9;"), "forbidden XML"),
    "external": (
        '<!DOCTYPE eCitation [<!ENTITY e SYSTEM "file:///etc/passwd">]>' + REPORT.format(n=2, text="&e;"),
        "forbidden XML",
    ),
    "outside": (
        '<!DOCTYPE eCitation SYSTEM "http://localhost:9/a.dtd">' + REPORT.format(n=3, text="&e;"), "malformed XML",
    ),
    "truncated": (REPORT.format(n=4, text="Half a report")[:60], "malformed XML"),
    "empty": ("", "malformed XML"),
    "page": ("<html><body>404</body></html>", "no Open-i report"),
    "pmc": (REPORT.format(n=5, text="Clear.").replace("CXR5", "PMC5"), "unknown id"),
    "no_id": ("<eCitation/>", "unknown id"),
    "control": (REPORT.format(n=6, text="Clear\x01."), "malformed XML"),
    "encoding": ('<?xml version="1.0" encoding="klingon"?>' + REPORT.format(n=7, text="Clear."), "malformed XML"),
    "multibyte": ('<?xml version="1.0" encoding="shift_jis"?>' + REPORT.format(n=8, text="Clear."), "malformed XML"),
    "entity": (REPORT.format(n=9, text="A &nbsp; B"), "malformed XML"),
    "deep": ("<eCitation>" + "<a>" * 300_000, "malformed XML"),
}  # fmt: skip


def test_xml_that_is_damaged(openi: Path) -> None:
    folder = openi / "ecgen-radiology"
    for name, (text, _) in BAD_XML.items():
        start = "" if text.startswith("<?xml") or not text else XML
        (folder / f"{name}.xml").write_text(start + text, encoding="utf-8")
    (folder / "latin.xml").write_bytes(REPORT.format(n=20, text="Clear \xe9.").encode("latin-1"))  # said to be UTF-8
    (folder / "again.xml").write_text(XML + REPORT.format(n=9001, text="Later."))
    (folder / "huge.xml").write_text(XML + REPORT.format(n=21, text="Clear. " * 1_500_000))  # 10 MB
    (folder / "giant.xml").write_text(" " * 21_000_000)
    (folder / "folder.xml").mkdir()
    (folder / "loop.xml").symlink_to("loop.xml")
    (folder / "._1.xml").write_bytes(b"\x00\x05\x16\x07")  # left by an archive, no report
    code, out = run_all(openi, "--views", "all")
    assert code == 0
    assert rows(out).keys() == {"CXR9001"}
    assert skips(out) == {f"{name}.xml": reason for name, (_, reason) in BAD_XML.items()} | {
        "latin.xml": "malformed XML", "CXR21": "report too long",
        "giant.xml": "XML too large", "folder.xml": "XML unreadable", "loop.xml": "XML unreadable",
        "again.xml": "duplicate row", "CXR9002": "no findings", "CXR9003": "no image",
        "CXR9004": "no findings and no impression",
    }  # fmt: skip
    assert "root:" not in (out / "train.skipped.jsonl").read_text()


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "latin-1"])
def test_xml_encodings(tmp_path: Path, encoding: str) -> None:
    declared = {"utf-8-sig": "utf-8"}.get(encoding, encoding)
    text = f'<?xml version="1.0" encoding="{declared}"?>\r\n' + REPORT.format(n=1, text="Caf\xe9 au lait.")
    (tmp_path / "1.xml").write_bytes(text.encode(encoding))
    (study,) = read_xml(tmp_path, Intake({"train": SkipLog()}))
    assert study.texts == {"findings": "Caf\xe9 au lait.", "impression": "Clear lungs.", "indication": ""}
    assert study.images == ["CXR1_IM-0001-1001"]


@pytest.mark.parametrize(
    ("said", "read"), [("nan", ""), (" NaN ", ""), ("None.", "None."), ("", ""), (" a<b>c</b> ", "ac")]
)
def test_xml_text(tmp_path: Path, said: str, read: str) -> None:
    (tmp_path / "1.xml").write_text(XML + REPORT.format(n=1, text=said))
    (study,) = read_xml(tmp_path, Intake({"train": SkipLog()}))
    assert study.texts["findings"] == read


def test_headers_that_call_every_film_frontal(tmp_path: Path) -> None:
    table = tmp_path / "nlmcxr_dicom_metadata.csv"
    said = ["1_IM-1-1,PA", "1_IM-1-2,PA", "2_IM-1-1,PA", "2_IM-1-2,LL", "2_IM-1-3,AP", "3_IM-1-1,AP", "3_IM-1-2,"]
    table.write_text("imageid,Rows,View Position\n" + "".join(f"CXR{line.replace(',', ',9,')}\n" for line in said))
    views = read_views(table, Intake({"train": SkipLog()}))
    assert views == {
        "1_IM-1-1": "", "1_IM-1-2": "", "2_IM-1-1": "PA", "2_IM-1-2": "LL", "2_IM-1-3": "AP", "3_IM-1-1": "AP",
        "3_IM-1-2": "",
    }  # fmt: skip


def test_headers_as_projections(openi: Path, kaggle: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = openi.parent / "headers.csv"
    table.write_text("View Position,imageid\nLL,CXR9001_IM-0001-1001\nPA,CXR9001_IM-0001-2001\n")
    for data, film in ((openi, "CXR9001_IM-0001-2001.png"), (kaggle, "9001_IM-0001-2001.dcm.png")):
        code, out = run_all(data, "--projections", str(table), out=f"out_{data.name}")
        assert code == 0
        assert names(rows(out)["CXR9001"]) == [film]
        assert rows(out)["CXR9001"]["extra_info"]["view"] == "PA"
    table.write_text("View Position,imageid\nPA,CXR777_IM-0001-1001\n")
    assert run_all(openi, "--projections", str(table), out="none")[0] == 2
    assert "none of the reports' films" in capsys.readouterr().err
    table.write_text("view,image\nPA,CXR9001_IM-0001-1001\n")
    assert run_all(openi, "--projections", str(table), out="none")[0] == 2
    assert "has no column 'filename'" in capsys.readouterr().err


def test_views_that_contradict_are_unknown(kaggle: Path) -> None:
    with (kaggle / "indiana_projections.csv").open("a") as file:
        file.write("9005,9005_IM-0005-1001.dcm.png,Lateral\n")
    _, out = run_all(kaggle)
    assert skips(out) == {"CXR9002": "no findings", "CXR9005": "no frontal view"}


def test_kaggle_tables_that_are_damaged(kaggle: Path) -> None:
    with (kaggle / "indiana_reports.csv").open("a") as file:
        file.write("9006,,,,,,nan,\n")  # no text, and no film either
        file.write("9001,,,,,,The heart is large.,\n")  # the other row of this report says more
        file.write("x,,,,,,Clear.,Clear.\n,,,,,,Clear.,Clear.\n9007,,,,Clear.\n")
    with (kaggle / "indiana_projections.csv").open("a") as file:
        file.write("9001,../../secret.png,Frontal\n9009,9009_IM-0009-1001.dcm.png,Frontal\n,a.png,Frontal\n9001,b\n")
    code, out = run_all(kaggle)
    assert code == 0
    assert truth(rows(out)["CXR9001"]) == TRUTH_9001
    assert skips(out) == {
        6: "unknown id", 7: "unknown id", 8: "malformed row", "CXR9001": "duplicate row", "CXR9002": "no findings",
        "CXR9006": "no findings and no impression", "CXR9009": "no report",
        "CXR9001 image 0": "image outside image root", "indiana_projections.csv row 10": "unknown id",
        "indiana_projections.csv row 11": "malformed row",
    }  # fmt: skip


def test_windows_line_ends_bom_gzip_and_other_columns(kaggle: Path) -> None:
    import gzip

    _, plain = run_all(kaggle, out="plain")
    for name in ("indiana_reports.csv", "indiana_projections.csv"):
        table = list(csv.reader((kaggle / name).open(newline="", encoding="utf-8")))
        order = random.Random(0).sample(range(len(table[0])), len(table[0]))
        table[1:] = random.Random(1).sample(table[1:], len(table) - 1)
        with gzip.open(kaggle / f"{name}.gz", "wt", newline="", encoding="utf-8-sig") as file:
            csv.writer(file, lineterminator="\r\n").writerows([row[i] for i in order] for row in table)
        (kaggle / name).unlink()
    code, other = run_all(kaggle, out="other")
    assert code == 0
    assert files(plain)["train.parquet"] == files(other)["train.parquet"]


@pytest.mark.parametrize("form", ["openi", "kaggle", "r2gen"])
def test_same_bytes(form: str, request: pytest.FixtureRequest) -> None:
    data: Path = request.getfixturevalue(form)
    options = ["--views", "all", "--target", "any"]
    _, one = run(data, *options, out="one")
    for table in data.glob("*.csv"):
        head, *lines = table.read_text().splitlines(keepends=True)
        random.Random(0).shuffle(lines)
        table.write_text(head + "".join(lines))
    code, two = run(data, *options, "--workers", "2", out="one2")
    assert code == 0
    assert any(name.endswith(".parquet") for name in files(one))
    assert files(one) == files(two)


def test_splits_by_hash_are_the_same_in_both_forms_and_guarded(openi: Path, kaggle: Path, r2gen: Path) -> None:
    options = ["--target", "any", "--views", "all", "--val-fraction", "0.5", "--test-fraction", "0.3"]
    _, by_xml = run(openi, *options, out="xml")
    code, by_table = run(kaggle, *options, out="table")
    assert code == 0  # the guard would refuse, did a report lie in another split
    for split in ("train", "val", "test"):
        shared = {"CXR9001", "CXR9002"}
        assert rows(by_xml, split).keys() & shared == rows(by_table, split).keys() & shared
    (by_xml / "subjects.json").write_text(json.dumps({"data": "x", "cohort": "openi", "splits": {"test": ["CXR9001"]}}))
    assert run(r2gen, "--target", "any", out="leak")[0] == 2  # CXR9001 is in R2Gen's training split


def test_two_reports_of_one_number_do_not_cross_splits(r2gen: Path) -> None:
    loaded = json.loads((r2gen / "annotation.json").read_text())
    loaded["train"].append(loaded["train"][0] | {"id": "CXR9003_IM-0001"})
    (r2gen / "annotation.json").write_text(json.dumps(loaded))
    _, out = run(r2gen, "--target", "any")
    assert skips(out) == {"CXR9003_IM-0001": "subject of a held-out split"}


def test_wrong_places(
    tmp_path: Path, openi: Path, kaggle: Path, r2gen: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def says(data: Path, word: str, *options: str) -> None:
        assert run(data, "--target", "any", *options)[0] == 2
        error = capsys.readouterr().err
        assert word in error
        assert error.count("\n") == 1

    empty = tmp_path / "empty"
    empty.mkdir()
    says(tmp_path / "nowhere", "no such file or folder")
    says(empty, "annotation.json")
    says(kaggle, "ecgen-radiology", "--form", "openi")
    says(kaggle / "indiana_projections.csv", "pass indiana_reports.csv")
    says(openi, "no such folder", "--views", "all", "--image-root", str(tmp_path / "nowhere"))
    says(openi, "check --image-root", "--views", "all", "--image-root", str(empty))
    (empty / "NLMCXR_reports.tgz").write_bytes(b"\x1f\x8b")
    says(empty, "unpack it")
    says(empty / "NLMCXR_reports.tgz", "unpack it")
    (empty / "NLMCXR_reports.tgz").unlink()
    (empty / "mimic-cxr-2.0.0-split.csv.gz").touch()
    says(empty, "data_preprocess.mimic_cxr")
    (empty / "reports.csv").write_text("path_to_image,section_findings\n")
    says(empty, "data_preprocess.chexpert_plus")
    (kaggle / "indiana_projections.csv").rename(tmp_path / "moved.csv")
    says(kaggle, "indiana_projections.csv")
    assert run(kaggle, "--target", "any", "--projections", str(tmp_path / "moved.csv"))[0] == 0
    shutil.copytree(openi / "ecgen-radiology", r2gen / "ecgen-radiology")
    says(r2gen, "--form")
    collection = tmp_path / "bioc"
    collection.mkdir()
    (collection / "1.xml").write_text("<collection/>")
    says(collection, "'collection'", "--views", "all")


def test_where_the_films_lie(openi: Path, tmp_path: Path) -> None:
    options = ("--views", "all")
    nested = tmp_path / "nested" / "NLMCXR_reports"
    shutil.copytree(openi / "ecgen-radiology", nested / "ecgen-radiology")
    shutil.copytree(openi / "NLMCXR_png", tmp_path / "nested" / "NLMCXR_png")
    for number, data in enumerate((nested.parent, nested, nested / "ecgen-radiology", openi / "ecgen-radiology")):
        folder = tmp_path / f"out{number}"
        assert main(["--root", str(data), "--out", str(folder), *options, "--contact-sheet", "0"]) == 0
        assert rows(folder, "test").keys() == {"CXR9001"}
    other = tmp_path / "other"
    draw(other / "9001", ["9001_IM-0001-1001.dcm.png", "9001_IM-0001-2001.dcm.png"])
    (other / "loop").symlink_to(other)
    draw(other / "a" / "b" / "c" / "d", ["9001_IM-0001-3001.png"])
    assert index_files(other) == {
        f"9001_IM-0001-{n}001": os.path.join(other, "9001", f"9001_IM-0001-{n}001.dcm.png") for n in (1, 2)
    }
    code, out = run(openi, *options, "--image-root", str(other))
    assert code == 0
    assert names(rows(out, "test")["CXR9001"]) == ["9001_IM-0001-1001.dcm.png", "9001_IM-0001-2001.dcm.png"]


@pytest.mark.parametrize(
    ("reports", "films"), [("ecgen-radiology", ""), ("reports/ecgen-radiology", "png"), ("reports/ecgen-radiology", "")]
)
def test_archives_unpacked_into_any_folder(openi: Path, tmp_path: Path, reports: str, films: str) -> None:
    data = tmp_path / "data"
    shutil.copytree(openi / "ecgen-radiology", data / reports)
    shutil.copytree(openi / "NLMCXR_png", data / films, dirs_exist_ok=True)  # the archive has no folder of its own
    code, out = run(data, "--views", "all")
    assert code == 0
    assert names(rows(out, "test")["CXR9001"]) == ["CXR9001_IM-0001-1001.png", "CXR9001_IM-0001-2001.png"]


def test_films_that_are_missing(openi: Path) -> None:
    change(
        openi / "ecgen-radiology" / "9003.xml", "</eCitation>", '<parentImage id="CXR9003_IM-0003-1001"/></eCitation>'
    )
    _, out = run_all(openi, "--views", "all")
    assert skips(out)["CXR9003"] == "image missing"
    film = openi / "NLMCXR_png" / "CXR9001_IM-0001-2001.png"
    film.write_bytes(film.read_bytes()[:300])
    (openi / "NLMCXR_png" / "CXR9003_IM-0003-1001.png").write_bytes(b"")
    code, out = run_all(openi, "--views", "all", out="out2")
    assert code == 1
    assert skips(out)["CXR9001"] == "image truncated"
    assert skips(out)["CXR9003"] == "image file empty"


def test_indication_and_its_blanks(kaggle: Path) -> None:
    _, out = run_all(kaggle, "--indication", "--blanks", "keep")
    asked = {study: row["prompt"][0]["content"] for study, row in rows(out).items()}
    assert asked["CXR9001"].startswith("<image>Indication: XXXX-year-old with a cough\n")
    assert asked["CXR9005"].startswith("<image>Indication: Fall\n")


def test_help_and_no_skip_bad(openi: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["--help"])
    assert stop.value.code == 0
    assert "python -m data_preprocess.iu_xray --root" in capsys.readouterr().out
    assert run_all(openi, "--views", "all", "--no-skip-bad")[0] == 0  # no film, no findings: unwanted, not damaged
    (openi / "ecgen-radiology" / "1.xml").write_text(XML + "<eCit")
    assert run_all(openi, "--views", "all", "--no-skip-bad", out="stopped")[0] == 1
    assert "1.xml" in capsys.readouterr().err
