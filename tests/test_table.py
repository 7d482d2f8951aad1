"""Bring your own table: every row becomes a study or a counted reason, and the exit status tells which."""

import csv
import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from data_preprocess.core.reports import findings_and_impression, report_text
from data_preprocess.core.rows import read_rows
from data_preprocess.core.skiplog import SkipRow
from data_preprocess.core.splits import hash_split, split_name
from data_preprocess.core.tabular import MalformedRow, TableError, cell, read_table
from data_preprocess.table import main
from tests.written_files import skips

DICOM = Path(__file__).parent / "data" / "dicom"
CLEAR = "FINDINGS: The lungs are clear. No pleural effusion.\nIMPRESSION: Normal chest."
LARGE = "FINDINGS: The heart is enlarged.\nIMPRESSION: Cardiomegaly."
PRIMES = np.arange(3600, dtype=np.uint16).reshape(60, 60)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "images"
    folder.mkdir()
    Image.fromarray((PRIMES % 251).astype(np.uint8)).save(folder / "a.png")
    Image.fromarray((PRIMES % 241).astype(np.uint8)).save(folder / "b.jpg")
    Image.fromarray(PRIMES * 9).save(folder / "deep.png")
    Image.new("L", (60, 60), 255).save(folder / "white.png")
    whole = (folder / "a.png").read_bytes()
    (folder / "broken.png").write_bytes(whole[: len(whole) // 2])
    (folder / "c.dcm").write_bytes((DICOM / "mono1_window.dcm").read_bytes())
    return folder


def write_csv(path: Path, rows: list[list[str]], header: tuple[str, ...] = ("image", "report")) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([header, *rows])
    return path


def run(root: Path, table: Path, *options: str) -> tuple[int, Path]:
    out = root.parent / "out"
    return main(["--csv", str(table), "--image-root", str(root), "--out", str(out), *options]), out


def only_train(*options: str) -> tuple[str, ...]:
    return ("--val-fraction", "0", "--test-fraction", "0", *options)


def test_rows_become_studies(root: Path) -> None:
    table = write_csv(root.parent / "t.csv", [["a.png", CLEAR], ["c.dcm", LARGE]])
    status, out = run(root, table, *only_train())
    assert status == 0
    clear, large = read_rows(out / "train.parquet")
    truth = json.loads(clear["reward_model"]["ground_truth"])
    assert truth["report"] == ("Findings: The lungs are clear. No pleural effusion. Impression: Normal chest.")
    assert truth["findings"] == "The lungs are clear. No pleural effusion."
    assert truth["labels"]["Pleural Effusion"] == 0
    assert json.loads(large["reward_model"]["ground_truth"])["labels"]["Cardiomegaly"] == 1
    assert clear["images"] == [{"image": f"file://{root}/a.png"}]  # plain: stays where it is
    picture = Image.open(large["images"][0]["image"].removeprefix("file://"))
    assert (picture.format, picture.mode, picture.size) == ("PNG", "L", (64, 48))
    assert (large["extra_info"]["width"], large["extra_info"]["height"]) == (64, 48)
    assert [row["extra_info"]["index"] for row in (clear, large)] == [0, 1]
    twins = read_rows(out / "sft_train.parquet")
    assert [twin["messages"][1]["content"] for twin in twins] == [
        json.loads(row["reward_model"]["ground_truth"])["report"] for row in (clear, large)
    ]


def test_bad_rows_are_counted_by_row_and_reason(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [
        ["a.png", CLEAR], ["gone.png", CLEAR], ["broken.png", CLEAR], ["white.png", CLEAR], ["a.png", ""],
        ["a.png", " NaN "], ["a.png", "INDICATION: Cough."], ["", CLEAR], ["a.png", "FINDINGS: <image> Clear."],
        ["a.png", CLEAR], ["a.png", CLEAR, "one field too many"], ["../secret.png", CLEAR], ["/etc/hosts", CLEAR],
        ["a.png", "FINDINGS: ___.\nIMPRESSION:"], ["x" * 5000, CLEAR],
    ]  # fmt: skip
    status, out = run(root, write_csv(root.parent / "t.csv", rows), *only_train())
    assert status == 0
    assert skips(out) == {
        2: "image missing",
        3: "image truncated",
        4: "image blank",
        5: "empty report",
        6: "empty report",
        7: "no findings or impression",
        8: "no image",
        9: "placeholder in report",
        10: "duplicate row",
        11: "malformed row",
        12: "image outside image root",
        13: "image outside image root",
        14: "no findings and no impression",
        15: "image missing",  # a name too long for the file system
    }
    assert "train.parquet: 1 row;" in (printed := capsys.readouterr().out)
    assert "skipped 14 rows (empty report 2" in printed
    card = json.loads((out / "train.json").read_text())
    assert card["rows"] == 1
    assert card["skipped"]["rows"] == 14
    assert card["sha256"] == hashlib.sha256((out / "train.parquet").read_bytes()).hexdigest()
    assert "| empty report | 2 |" in (out / "train.md").read_text()


def test_no_skip_bad_stops_at_the_row(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = write_csv(root.parent / "t.csv", [["a.png", CLEAR], ["gone.png", CLEAR]])
    status, out = run(root, table, "--no-skip-bad")
    assert status == 1
    assert "row 2: image missing" in capsys.readouterr().err
    assert not list(out.glob("*.parquet"))
    assert run(root, table, "--no-skip-bad")[0] == 1  # the journal knows the row, and that is no way past it
    assert not list(out.glob("*.parquet"))


def test_nothing_usable_fails_and_removes_what_an_earlier_run_left(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(root, write_csv(root.parent / "t.csv", [["a.png", CLEAR]]), *only_train())[0] == 0
    status, out = run(root, write_csv(root.parent / "t.csv", [["a.png", "nan"]]), *only_train())
    assert status == 1
    assert "no usable row" in capsys.readouterr().err
    assert not list(out.glob("*.parquet"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--report-column", "text"], "no column 'text' (set by --report-column); the columns are 'image', 'report'"),
        (["--subject-column", "patient"], "no column 'patient' (set by --subject-column)"),
        (["--image-root", "/nowhere/at/all"], "no such folder"),
        (["--val-fraction", "0.6", "--test-fraction", "0.5"], "sum to less than 1"),
        (["--csv", "/nowhere.csv"], "/nowhere.csv: no such file"),
        (["--out", "/dev/null/x"], "/dev/null"),
    ],
)
def test_bad_input_is_one_sentence_and_status_2(
    root: Path, capsys: pytest.CaptureFixture[str], options: list[str], message: str
) -> None:
    table = write_csv(root.parent / "t.csv", [["a.png", CLEAR]])
    assert run(root, table, *options)[0] == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


@pytest.mark.parametrize("option", ["--max-pixels", "--limit"])
def test_numbers_must_be_positive(root: Path, option: str) -> None:
    with pytest.raises(SystemExit) as stop:
        run(root, root / "t.csv", option, "0")
    assert stop.value.code == 2


def test_max_pixels_and_16_bit(root: Path) -> None:
    table = write_csv(root.parent / "t.csv", [["deep.png", CLEAR], ["b.jpg", CLEAR]])
    _, out = run(root, table, *only_train("--max-pixels", "900"))
    for row in read_rows(out / "train.parquet"):
        picture = Image.open(row["images"][0]["image"].removeprefix("file://"))
        assert (picture.size, picture.mode) == ((30, 30), "L")
        low, high = picture.getextrema()
        assert low < 60 < 150 < high  # type: ignore[operator]


def test_embedded_images_need_no_folder(root: Path) -> None:
    table = write_csv(root.parent / "t.csv", [["a.png", CLEAR], ["c.dcm", LARGE]])
    status, out = run(root, table, *only_train("--embed-images"))
    assert status == 0
    plain, converted = read_rows(out / "train.parquet")
    assert plain["images"] == [{"bytes": (root / "a.png").read_bytes()}]
    assert converted["images"][0]["bytes"].startswith(b"\x89PNG")
    assert not list((out / "images").iterdir())
    assert not list(out.glob(".images*"))
    before = (out / "train.parquet").read_bytes()
    assert run(root, table, *only_train("--embed-images"))[0] == 0  # in the same process
    assert (out / "train.parquet").read_bytes() == before


def test_two_runs_write_the_same_bytes(root: Path) -> None:
    table = write_csv(root.parent / "t.csv", [["a.png", CLEAR], ["c.dcm", LARGE], ["deep.png", "Clear lungs."]])
    contents = []
    for _ in range(2):
        _, out = run(root, table)
        contents.append({p.relative_to(out): p.read_bytes() for p in sorted(out.rglob("*")) if p.is_file()})
    assert contents[0] == contents[1]


def test_splits_do_not_depend_on_the_seed(root: Path) -> None:
    rows = [["a.png", f"FINDINGS: Effusion of {n} cm.", f"p{n}"] for n in range(30)]
    table = write_csv(root.parent / "t.csv", rows, ("image", "report", "patient"))
    said = []
    for seed in ("0", "1"):
        _, out = run(root, table, "--subject-column", "patient", "--seed", seed)
        said.append((out / "subjects.json").read_bytes())
    assert said[0] == said[1]


def test_a_patient_of_test_stays_out_of_train_whatever_row_says_so(root: Path) -> None:
    header = ("image", "report", "patient", "split")
    rows = [["a.png", CLEAR, "p1", "train"], ["a.png", CLEAR, "p1", "test"], ["b.jpg", LARGE, "p2", "train"]]
    rows.append(["white.png", "nan", "p2", "test"])  # no report
    for order in (rows, rows[::-1]):
        table = write_csv(root.parent / "t.csv", order, header)
        status, out = run(root, table, "--subject-column", "patient", "--split-column", "split")
        assert status == 0
        assert not (out / "train.parquet").exists()
        (row,) = read_rows(out / "test.parquet")
        assert row["extra_info"]["subject_id"] == "p1"
        assert json.loads((out / "subjects.json").read_text())["splits"]["test"] == ["p1", "p2"]


def test_a_patient_stays_in_one_split_whatever_else_is_in_the_table(root: Path) -> None:
    def subjects(rows: list[list[str]]) -> dict[str, str]:
        table = write_csv(root.parent / "t.csv", rows, ("image", "report", "patient"))
        _, out = run(root, table, "--subject-column", "patient", "--val-fraction", "0.3", "--test-fraction", "0.3")
        found: dict[str, str] = {}
        for path in out.glob("[tv]*.parquet"):
            for row in read_rows(path):
                assert found.setdefault(row["extra_info"]["subject_id"], path.stem) == path.stem
        return found

    rows = [["a.png", f"FINDINGS: Study {study}.", f"p{patient}"] for patient in range(12) for study in range(2)]
    every = subjects(rows)
    assert set(every.values()) == {"train", "val", "test"}
    assert subjects(rows[:7]) == {patient: every[patient] for patient in ("p0", "p1", "p2", "p3")}


def test_split_column_and_separate_sections(root: Path) -> None:
    rows = [
        ["a.png", "Clear lungs.", "None", "training", "s1"],
        ["b.jpg", "", "Edema.", "validate", "s2"],
        ["c.dcm", "Clear.", "Normal.", "holdout", "s3"],
        ["b.jpg", "Clear.", "Normal.", "train", "s4"],  # without a subject column the image is the subject
    ]
    table = write_csv(root.parent / "t.csv", rows, ("image", "F", "I", "part", "study"))
    status, out = run(
        root, table, "--findings-column", "F", "--impression-column", "I", "--split-column", "part",
        "--study-column", "study",
    )  # fmt: skip
    assert status == 0
    train, val = read_rows(out / "train.parquet")[0], read_rows(out / "val.parquet")[0]
    assert json.loads(train["reward_model"]["ground_truth"])["report"] == "Findings: Clear lungs."
    assert json.loads(val["reward_model"]["ground_truth"])["report"] == "Impression: Edema."
    assert train["extra_info"]["study_id"] == "s1"
    assert skips(out) == {3: "unknown split", 4: "subject of a held-out split"}


def test_json_lines_and_several_images(root: Path) -> None:
    rows: list[Any] = [
        {"image": ["a.png", "b.jpg"], "report": CLEAR},
        {"image": "a.png; b.jpg", "report": LARGE},
        {"image": "a.png", "report": None},
        {"image": "a.png", "report": float("nan")},
        {"image": "a.png"},
        {"image": "a.png", "report": "FINDINGS: \ud800 clear."},
        {"image": {"x": 1}, "report": CLEAR},
        [1],
    ]
    table = root.parent / "t.jsonl"
    table.write_text("\n".join(map(json.dumps, rows)) + "\n\n{broken\n")
    status, out = run(root, table, *only_train())
    assert status == 0
    for row in read_rows(out / "train.parquet"):
        assert row["prompt"][0]["content"].startswith("<image><image>Write")
        assert len(row["images"]) == 2
    assert skips(out) == {
        3: "empty report",
        4: "empty report",
        5: "empty report",
        6: "malformed text",
        7: "not text",
        8: "malformed row",
        9: "malformed row",
    }


def test_outside_paths_and_links(root: Path) -> None:
    outside = root.parent / "elsewhere"
    outside.mkdir()
    (outside / "a.png").write_bytes((root / "a.png").read_bytes())
    (root / "linked").symlink_to(outside)  # the user's own link is followed
    table = write_csv(root.parent / "t.csv", [[str(outside / "a.png"), CLEAR], ["linked/a.png", LARGE]])
    _, out = run(root, table, *only_train())
    assert skips(out) == {1: "image outside image root"}
    _, out = run(root, table, *only_train("--allow-outside-root"))
    assert skips(out) == {}


def test_limit_reads_the_first_rows(root: Path) -> None:
    table = write_csv(root.parent / "t.csv", [["a.png", f"FINDINGS: Study {i}."] for i in range(9)])
    _, out = run(root, table, *only_train("--limit", "4"))
    assert len(read_rows(out / "train.parquet")) == 4


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_delimiters_byte_order_mark_and_line_breaks_in_cells(tmp_path: Path, delimiter: str) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(f'\ufeffimage{delimiter}report\r\na.png{delimiter}"x, y;\r\nz"\r\n\r\n'.encode())
    assert read_table(path) == (["image", "report"], [{"image": "a.png", "report": "x, y;\r\nz"}])


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"", "is empty"), (b"image,image\n", "more than once"), (b"image,report\n\xff\xfe,x\n", "not UTF-8")],
)
def test_tables_that_cannot_be_used(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "t.csv").write_bytes(content)
    with pytest.raises(TableError, match=message):
        read_table(tmp_path / "t.csv")


@pytest.mark.parametrize("row", ['b.png,"never closed', '"b.png,never closed'])
def test_a_quote_that_is_never_closed_does_not_swallow_the_rest(tmp_path: Path, row: str) -> None:
    (tmp_path / "t.csv").write_text(f"image,report\na.png,fine\n{row}\nc.png,x\n")
    with pytest.raises(TableError, match=r"row 2 \(line 3\) is never closed"):
        read_table(tmp_path / "t.csv")


def test_a_lost_quote_is_a_malformed_row_with_its_lines(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text('image,report\n"a.png,lost\nb.png,"x"\nc.png,fine\n')
    malformed, row = read_table(tmp_path / "t.csv")[1]
    assert isinstance(malformed, MalformedRow)
    assert "lines 2-3" in malformed.detail
    assert row == {"image": "c.png", "report": "fine"}


@pytest.mark.parametrize(
    "text", ["image;report\ra.png;fine\r", "\ufeffimage,report\r\n\r\na.png,fine", "image\treport\na.png\tfine"]
)
def test_line_ends_and_delimiters_of_other_programs(tmp_path: Path, text: str) -> None:
    (tmp_path / "t.csv").write_bytes(text.encode("utf-8"))
    assert read_table(tmp_path / "t.csv") == (["image", "report"], [{"image": "a.png", "report": "fine"}])


@pytest.mark.parametrize("value", [None, "", " ", "nan", "NaN", "None", "N/A", "null", float("nan")])
def test_missing_cells(value: Any) -> None:
    assert cell({"x": value}, "x") == ""
    assert cell({}, "x") == cell({"x": 1}, None) == ""


def test_section_rules() -> None:
    assert findings_and_impression("The lungs are clear.") == ("The lungs are clear.", "")
    assert findings_and_impression(CLEAR)[1] == "Normal chest."
    with pytest.raises(SkipRow, match="only the sections"):
        findings_and_impression("INDICATION: Cough.")
    assert report_text(" a\n b ", "") == "Findings: a b"
    assert report_text("", "c") == "Impression: c"


def test_splits_have_about_their_share_and_known_names() -> None:
    counts = {"train": 0, "val": 0, "test": 0}
    for number in range(4000):
        counts[hash_split(f"p{number}", val_fraction=0.1, test_fraction=0.2)] += 1
    assert abs(counts["val"] - 400) < 60
    assert abs(counts["test"] - 800) < 80
    # Known values: a split that moved would put somebody's test patients into training.
    assert [hash_split(f"p{number}") for number in (1, 2, 10, 30)] == ["train", "val", "test", "val"]
    assert [split_name(n) for n in ("Training", "validate", " TEST", "", "all")] == ["train", "val", "test", None, None]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.tuples(st.sampled_from(["a.png", "b.jpg", "gone.png", "..", "", "a.png;", "\0"]), st.text(max_size=40)),
        max_size=4,
    )
)
def test_any_text_ends_in_a_status(root: Path, rows: list[tuple[str, str]]) -> None:
    table = root.parent / "t.jsonl"
    table.write_text("\n".join(json.dumps({"image": a, "report": b}) for a, b in [*rows, ("a.png", CLEAR)]))
    status, out = run(root, table, *only_train())
    assert status == 0
    kept = len(read_rows(out / "train.parquet"))
    assert kept + len(skips(out)) == len(rows) + 1


@pytest.mark.parametrize(
    "option",
    [
        ("--max-pixels", "63"), ("--max-pixels", "abc"), ("--limit", "0"), ("--limit", "1e3"),
        ("--val-fraction", "nan"), ("--prompt", "see <image> now"), ("--prompt", "<|image_pad|> x"), ("--prompt", " "),
        ("--prompt", "caf\udce9"), ("--out", ""), ("--out", "caf\udce9"), ("--out", "/proc/x"),
    ],
)  # fmt: skip
def test_bad_options_exit_2_before_any_work(root: Path, option: tuple[str, str], capsys: Any) -> None:
    table = write_csv(root / "t.csv", [["a.png", CLEAR]])
    try:
        status = run(root, table, *option)[0]
    except SystemExit as exit_:
        status = exit_.code
    assert status == 2
    assert option[0] in (error := capsys.readouterr().err.replace("val_fraction", "--val-fraction"))
    assert "Traceback" not in error
    assert not list((root.parent / "out").glob("*.parquet"))


@pytest.mark.parametrize("value", [True, ["a"], {"findings": "The heart is enlarged."}])
def test_a_json_value_that_is_no_text_is_not_spelled_out(root: Path, value: Any) -> None:
    table = root / "t.jsonl"
    rows = [{"image": "a.png", "report": value, "who": "p"}, {"image": "a.png", "report": CLEAR, "who": {"id": 1}}]
    rows += [{"image": [{"path": "a.png"}], "report": CLEAR, "who": "p"}]
    table.write_text("".join(json.dumps(row) + "\n" for row in rows))
    status, out = run(root, table, *only_train("--subject-column", "who"))
    assert (status, skips(out)) == (1, {1: "not text", 2: "not text", 3: "not text"})


def test_half_a_surrogate_pair_anywhere_is_a_counted_row(root: Path) -> None:
    good = {"image": "a.png", "report": CLEAR, "who": "p"}
    table = root / "t.jsonl"
    rows = [good | {key: "x\ud800"} for key in good]
    table.write_text("".join(json.dumps(row) + "\n" for row in [*rows, good]))
    status, out = run(root, table, *only_train("--subject-column", "who"))
    assert (status, skips(out)) == (0, dict.fromkeys((1, 2, 3), "malformed text"))
    assert len(read_rows(out / "train.parquet")) == 1


@pytest.mark.parametrize("word", ["<image>", "<|image_pad|>", "<|im_end|>"])
def test_words_a_model_takes_for_something_else_are_skipped_in_reports(root: Path, word: str) -> None:
    table = write_csv(root / "t.csv", [["a.png", f"{CLEAR} {word}"], ["b.jpg", f"{CLEAR} <5 mm, |x|"]])
    status, out = run(root, table, *only_train())
    assert (status, skips(out)) == (0, {1: "placeholder in report"})


def test_an_image_that_processors_refuse_is_skipped(root: Path) -> None:
    Image.fromarray(np.tile(np.arange(9000) % 251, (40, 1)).astype(np.uint8)).save(root / "strip.png")
    status, out = run(root, write_csv(root / "t.csv", [["strip.png", CLEAR], ["a.png", CLEAR]]), *only_train())
    assert (status, skips(out)) == (0, {1: "image shape"})


def test_an_interrupted_second_run_leaves_no_mixture(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = write_csv(
        root / "t.csv", [["a.png", CLEAR, "train"], ["b.jpg", LARGE, "test"]], ("image", "report", "split")
    )
    _, out = run(root, table, "--split-column", "split")
    assert (out / "test.parquet").is_file()

    def stop(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("data_preprocess.core.split_files.write_card", stop)
    assert run(root, table, "--split-column", "split")[0] == 130  # as a shell counts Ctrl-C
    assert sorted(path.name for path in out.glob("*.parquet")) == ["train.parquet"]


def test_one_unreadable_image_in_a_hundred(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole = (root / "a.png").read_bytes()
    for number in range(300):
        cut = whole[: len(whole) // 2] if number % 100 == 7 else whole
        (root / f"film{number:03d}.png").write_bytes(cut)
    table = write_csv(root / "t.csv", [[f"film{number:03d}.png", CLEAR] for number in range(300)])
    status, out = run(root, table, *only_train(), "--workers", "2")
    assert status == 0
    assert len(read_rows(out / "train.parquet")) == 297
    assert skips(out) == dict.fromkeys((8, 108, 208), "image truncated")
    assert "297 rows; skipped 3 rows (image truncated 3)" in capsys.readouterr().out
