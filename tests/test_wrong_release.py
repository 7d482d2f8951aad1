"""Each data script is pointed at the release of every other one: exit 2, and the message names the script to use."""

from pathlib import Path

import pytest

from radverl.data_cli import main

DATA = Path(__file__).parent / "data"
ROOTS = {
    "mimic_cxr": DATA / "mimic_cxr", "chexpert_plus": DATA / "chexpert_plus", "iu_xray": DATA / "iu_xray" / "kaggle",
    "chest_imagenome": DATA / "imagenome", "ms_cxr": DATA / "ms_cxr", "vindr_cxr": DATA / "vindr" / "physionet",
    "padchest_gr": DATA / "padchest_gr",
}  # fmt: skip
TABLES = {
    "mimic_cxr": "mimic-cxr-2.0.0-metadata.csv.gz", "chexpert_plus": "df_chexpert_plus_240401.csv",
    "iu_xray": "indiana_reports.csv", "ms_cxr": "MS_CXR_Local_Alignment_v1.1.0.csv",
    "vindr_cxr": "annotations/annotations_train.csv", "padchest_gr": "master_table.csv",
}  # fmt: skip


@pytest.mark.parametrize("script", ["mimic_cxr", "iu_xray", "chest_imagenome", "padchest_gr"])
@pytest.mark.parametrize("release", ROOTS)
def test_a_folder(script: str, release: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if script == release:
        return
    more = ["--mimic-root", str(ROOTS["mimic_cxr"])] if script == "chest_imagenome" else []
    assert main([script, "--root", str(ROOTS[release]), "--out", str(tmp_path / "out"), *more]) == 2
    said = capsys.readouterr().err
    assert f"data_preprocess.{release}" in said or "this is MIMIC-CXR-JPG" in said
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("script", ["chexpert_plus", "ms_cxr", "vindr_cxr", "iu_xray"])
@pytest.mark.parametrize("release", TABLES)
def test_a_table(script: str, release: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if script == release:
        return
    option = "--root" if script == "iu_xray" else "--csv"
    more = ["--image-root", str(tmp_path)]
    assert main([script, option, str(ROOTS[release] / TABLES[release]), "--out", str(tmp_path / "out"), *more]) == 2
    assert f"data_preprocess.{release}" in capsys.readouterr().err
