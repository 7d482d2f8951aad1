"""No subject in two splits, within a data set and across those of one cohort."""

import gzip
import json
from pathlib import Path

import pytest

from data_preprocess.core.rows import read_rows
from tests.test_pipeline import reports, run, table, write
from tests.written_files import skips

__all__ = ["table"]  # a fixture


def lines(**splits: list[str]) -> list[str]:
    """One row for each subject of each split."""
    return [f"{split}-{name} {name} {split} Effusion." for split, names in splits.items() for name in names]


def test_a_subject_has_one_split_and_test_goes_first(table: Path) -> None:
    write(table, lines(train=["a", "b", "c"], val=["b", "d"], test=["c", "d"]))
    _, out = run(table)
    assert reports(out / "train.parquet").keys() == {"train-a"}
    assert reports(out / "val.parquet").keys() == {"val-b"}
    assert reports(out / "test.parquet").keys() == {"test-c", "test-d"}
    overlap = "subject of a held-out split"
    assert skips(out, "train") == {"train-b": overlap, "train-c": overlap}
    assert skips(out, "val") == {"val-d": overlap}
    record = json.loads((out / "subjects.json").read_text())
    assert record == {"data": "tiny", "cohort": "tiny", "splits": {"test": ["c", "d"], "train": ["a"], "val": ["b"]}}


def test_held_out_subjects_count_when_only_train_is_written(table: Path) -> None:
    write(table, lines(train=["a", "b"], test=["b"]))
    _, out = run(table, "--split", "train")
    assert reports(out / "train.parquet").keys() == {"train-a"}
    assert json.loads((out / "subjects.json").read_text())["splits"] == {"test": ["b"], "train": ["a"]}


@pytest.mark.parametrize("first", ["train", "test"])
def test_a_leak_across_data_sets_is_refused(table: Path, first: str, capsys: pytest.CaptureFixture[str]) -> None:
    second = {"train": "test", "test": "train"}[first]
    write(table, lines(**{first: ["a", "b"]}))
    assert run(table, out="one")[0] == 0
    write(table, lines(**{second: ["b", "c"]}))
    status, out = run(table, out="two")
    assert status == 2
    assert f"1 subject (b; rows: {second} 1) is in one ({first})" in capsys.readouterr().err
    assert not list(out.glob("*"))  # nothing was begun

    assert run(table, "--on-leak", "drop", out="two")[0] == 0
    assert reports(out / f"{second}.parquet").keys() == {f"{second}-c"}
    assert skips(out, second) == {f"{second}-b": "known held-out subject"}
    assert run(table, "--on-leak", "allow", out="two")[0] == 0
    assert len(reports(out / f"{second}.parquet")) == 2


def test_another_cohort_names_other_people(table: Path) -> None:
    write(table, lines(test=["a"]))
    assert run(table, out="one", cohort="here")[0] == 0
    write(table, lines(train=["a"]))
    assert run(table, out="two", cohort="there")[0] == 0
    assert run(table, out="three", cohort="")[0] == 0  # nobody knows whose ids these are
    assert run(table, out="four", cohort="here")[0] == 2


def test_a_data_set_made_again_does_not_stand_in_its_own_way(table: Path) -> None:
    write(table, lines(train=["a"], test=["b"]))
    assert run(table)[0] == 0
    write(table, lines(train=["b"], test=["a"]))
    _, out = run(table)
    assert reports(out / "train.parquet").keys() == {"train-b"}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("ids.txt", "\ufeffb\r\n\r\n"),
        ("t.csv", "dicom_id,subject_id,split\r\nx,b,test\r\ny,a,train\r\n"),
        ("ms.csv.gz", "dicom_id,path,split\nx,files/p10/p12345678/s5/x.jpg,val\n"),
        ("p.csv", "ImageID,PatientID\nx,b\n"),
        ("gold.txt", "patient_id\timage_id\nb\tx.dcm\n"),  # as in Chest ImaGenome's gold_dataset
        ("gold.txt", 'image_id\tpatient_id\tsentence\nx.dcm\tb\t"opened, and\nnever closed\n'),
        ("subjects.json", '{"cohort": "else", "splits": {"train": ["a"], "test": ["b"]}}'),
    ],
)
def test_lists_of_held_out_subjects(table: Path, name: str, text: str) -> None:
    file = table.parent / name
    file.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    subject = "12345678" if name.startswith("ms") else "b"
    write(table, lines(train=["a", subject]))
    assert run(table, "--held-out", str(file))[0] == 2
    _, out = run(table, "--held-out", str(file), "--on-leak", "drop")
    assert reports(out / "train.parquet").keys() == {"train-a"}


def test_a_parquet_file_as_a_list(table: Path) -> None:
    write(table, lines(test=["b"], train=["c"]))
    _, out = run(table, out="one", cohort="else")
    write(table, lines(train=["a", "b", "c"]))
    files = [str(out / f"{split}.parquet") for split in ("train", "test")]
    _, two = run(table, "--held-out", *files, "--on-leak", "drop", out="two")
    assert {row["extra_info"]["subject_id"] for row in read_rows(two / "train.parquet")} == {"a", "c"}


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("gone.csv", None, "no such file"),
        ("gone.txt", None, "cannot be read"),
        ("t.csv", b"image,report\na,b\n", "none of the columns"),
        ("t.csv", b"path,split\nx.jpg,test\n", "names no subject"),
        ("t.csv", b"subject_id,split\n,test\n", "names no subject"),
        ("t.parquet", b"PAR1", "no Parquet file of ours"),
        ("t.txt", b"\xff\xfe", "cannot be read"),
        ("t.json", b'["b"]', "is no list of subjects"),
    ],
)
def test_a_list_that_is_none(
    table: Path, name: str, data: bytes | None, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if data is not None:
        (table.parent / name).write_bytes(data)
    assert run(table, "--held-out", str(table.parent / name))[0] == 2
    assert message in capsys.readouterr().err


def test_a_damaged_record_is_named(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (table.parent / "other").mkdir()
    (table.parent / "other" / "subjects.json").write_text("[1]")
    assert run(table)[0] == 2
    assert "other/subjects.json: is no list of subjects" in capsys.readouterr().err


def test_our_own_damaged_record_is_named_before_the_work(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = table.parent / "out"
    (out / "subjects.json").mkdir(parents=True)
    assert run(table)[0] == 2
    assert "out/subjects.json: is no list of subjects" in capsys.readouterr().err
    assert not list(out.glob("*.parquet"))


def test_a_linked_folder_does_not_stand_in_its_own_way(table: Path) -> None:
    write(table, lines(train=["a"], test=["b"]))
    run(table)
    (table.parent / "link").symlink_to("out")
    write(table, lines(train=["b"], test=["a"]))
    assert run(table, out="link")[0] == 0


@pytest.mark.parametrize("spelled", ["p12345678", "12345678", "12345678.0"])
def test_patients_of_mimic_are_spelled_in_several_ways(table: Path, spelled: str) -> None:
    """As the folders, the tables and what pandas makes of a column with a gap."""
    (table.parent / "ids.txt").write_text(f"{spelled}\n")
    for subject in ("12345678", "p12345678"):
        write(table, lines(train=["87654321", subject]))
        assert run(table, "--held-out", str(table.parent / "ids.txt"), cohort="mimic")[0] == 2


def test_a_split_made_again_alone_is_held_against_those_that_stay(
    table: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(table, lines(train=["a"], test=["b"]))
    assert run(table, cohort="")[0] == 0  # a table of one's own: nobody knows its patients
    write(table, lines(train=["a", "b"]))
    status, out = run(table, "--split", "train", cohort="")
    assert status == 2
    assert "1 subject (b; rows: train 1) is in out (test)" in capsys.readouterr().err
    assert run(table, "--split", "train", "--on-leak", "drop", cohort="")[0] == 0
    assert reports(out / "train.parquet").keys() == {"train-a"}
    assert json.loads((out / "subjects.json").read_text())["splits"] == {"test": ["b"], "train": ["a"]}


def test_who_was_dropped_is_not_claimed(table: Path) -> None:
    write(table, lines(train=["a", "b"]))
    assert run(table, out="one")[0] == 0
    write(table, lines(val=["b", "c"]))
    _, out = run(table, "--on-leak", "drop", out="two")
    assert json.loads((out / "subjects.json").read_text())["splits"]["val"] == ["c"]
    write(table, lines(train=["a", "b"]))
    assert run(table, out="one")[0] == 0  # can be made again


def test_a_run_without_rows_holds_nobody_out(table: Path) -> None:
    write(table, ["x a test 1 2 3"])
    status, out = run(table, out="one")
    assert status == 1
    assert json.loads((out / "subjects.json").read_text())["splits"] == {}
    write(table, lines(train=["a"]))
    assert run(table, out="two")[0] == 0


def test_subjects_held_out_without_rows_are_told_where_they_train(
    table: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write(table, lines(train=["a", "gold"]))
    assert run(table, out="one")[0] == 0
    write(table, lines(train=["a"]))
    monkeypatch.setenv("HELD_OUT", "gold")
    assert run(table, out="two")[0] == 2
    assert "1 subject (gold; held out by this data set) is in one (train)" in capsys.readouterr().err
    assert run(table, "--on-leak", "drop", out="two")[0] == 0
    assert "make that data set again" in capsys.readouterr().err
    monkeypatch.delenv("HELD_OUT")
    write(table, lines(train=["a", "gold"]))
    assert run(table, out="one")[0] == 2
    _, out = run(table, "--on-leak", "drop", out="one")
    assert reports(out / "train.parquet").keys() == {"train-a"}


def test_training_rows_of_a_listed_file_count_too(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(table, lines(train=["a"]))
    _, one = run(table, out="one", cohort="")
    write(table, lines(val=["a", "b"]))
    assert run(table, "--held-out", str(one / "train.parquet"), out="two")[0] == 2
    assert run(table, "--held-out", str(one / "subjects.json"), out="two")[0] == 2
    assert run(table, "--held-out", str(one / "subjects.json"), "--on-leak", "allow", out="two")[0] == 0
    assert "--on-leak allow: 1 subject (a; rows: val 1) is in" in capsys.readouterr().err


def test_subjects_are_known_before_the_files_are_there(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(table, lines(train=["a"], test=["b"]))

    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("data_preprocess.core.pipeline.write_split", stop)
        assert run(table, out="one")[0] == 130
    write(table, lines(train=["b"]))
    assert run(table, out="two")[0] == 2
