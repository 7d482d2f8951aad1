"""A result that cannot be written is refused before the work, in one sentence that names the option."""

from pathlib import Path

import pytest

from data_preprocess.core.outputs import output_file, output_folder, usable_text
from data_preprocess.core.skiplog import write_text


@pytest.mark.parametrize("name", ["", " ", "a\0b", "caf\udce9"])
def test_names_that_no_file_or_parquet_can_hold(name: str) -> None:
    with pytest.raises(ValueError, match=r"^--out .*\.$"):
        usable_text(name, "--out")
    with pytest.raises(ValueError, match="--out"):
        output_folder(name)


def test_folders_are_made_and_left_empty(tmp_path: Path) -> None:
    folder = output_folder(tmp_path / "a b'c=\"é,{}" / "x")
    assert folder.is_dir()
    assert list(folder.iterdir()) == []


def test_a_file_is_no_folder_and_a_folder_no_file(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("kept")
    for name in (tmp_path / "f", tmp_path / "f" / "x"):
        with pytest.raises(ValueError, match="--out"):
            output_folder(name)
    with pytest.raises(ValueError, match="no name for a file"):
        output_file(tmp_path)
    with pytest.raises(ValueError, match="the folder of --log"):
        output_file(tmp_path / "f" / "x.log", "--log")
    assert output_file(tmp_path / "new" / "x.log").parent.is_dir()
    assert (tmp_path / "f").read_text() == "kept"


def test_a_place_nobody_can_write_to() -> None:
    with pytest.raises(ValueError, match="cannot be written to"):
        output_folder("/proc/radverl")


def test_half_a_surrogate_pair_is_written_as_json_escapes_it(tmp_path: Path) -> None:
    import json

    write_text(tmp_path / "x.json", json.dumps("a\ud800é", ensure_ascii=False))
    assert json.loads((tmp_path / "x.json").read_text(encoding="utf-8")) == "a\ud800é"
