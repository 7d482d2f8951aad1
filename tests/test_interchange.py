"""Files of every data script join: verl's two data sets, `datasets` and TRL read them together."""

import importlib
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image

from radverl.datacheck import check_parquet

DATA = Path(__file__).parent / "data"
MIMIC = str(DATA / "mimic_cxr")


def draw(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(len(path.name)).integers(0, 256, (320, 320), dtype=np.uint8)
    Image.fromarray(pixels).save(path)


def releases(folder: Path) -> dict[str, tuple[str, list[str]]]:
    """Folder of the output -> data script and its command line, on the look-alikes in tests/data."""
    for name in ("train/patient99001/study1/view1_frontal", "train/patient99002/study1/view1_frontal"):
        draw(folder / "PNG" / f"{name}.png")
    for letter in "ab":
        draw(folder / "vindr" / f"{letter * 32}.png")
    draw(folder / "mine" / "film.png")
    (folder / "mine" / "t.csv").write_text("image,report,who\nfilm.png,FINDINGS: Clear lungs.,p1\n")
    shutil.copytree(DATA / "iu_xray" / "r2gen", folder / "r2gen")
    graph = ["--root", str(DATA / "imagenome"), "--mimic-root", MIMIC, "--reports", MIMIC, "--target", "any"]
    chexpert = str(DATA / "chexpert_plus" / "df_chexpert_plus_240401.csv")
    padchest = DATA / "padchest_gr"
    no_split = ["--val-fraction", "0", "--test-fraction", "0"]
    return {
        "chexpert_plus": (
            "chexpert_plus",
            ["--csv", chexpert, "--image-root", str(folder / "PNG"), "--target", "any", "--test-fraction", "0"],
        ),
        "mimic_cxr": ("mimic_cxr", ["--root", MIMIC, "--target", "any"]),
        "iu_xray": ("iu_xray", ["--root", str(folder / "r2gen"), "--target", "findings"]),
        "trace": ("chest_imagenome", graph),
        "anatomy": ("chest_imagenome", [*graph[:4], "--task", "anatomy", "--regions-per-image", "5"]),
        "ms_cxr": (
            "ms_cxr",
            ["--csv", str(DATA / "ms_cxr" / "MS_CXR_Local_Alignment_v1.0.0.csv"), "--image-root", MIMIC],
        ),
        "vindr": (
            "vindr_cxr",
            ["--csv", str(DATA / "vindr" / "kaggle" / "train.csv"), "--image-root", str(folder / "vindr"), *no_split],
        ),
        "phrases": ("padchest_gr", ["--root", str(padchest)]),
        "padchest": ("padchest_gr", ["--root", str(padchest), "--task", "report"]),
        "table": (
            "table",
            ["--csv", str(folder / "mine" / "t.csv"), "--subject-column", "who", *no_split],
        ),
    }


@pytest.fixture(scope="module", params=["paths", "bytes"])
def files(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp(request.param)
    extra = ["--embed-images"] if request.param == "bytes" else []
    out = []
    for name, (script, options) in releases(folder).items():
        main = importlib.import_module(f"data_preprocess.{script}").main
        assert main([*options, "--out", str(folder / "data" / name), "--on-leak", "allow", *extra]) == 0, name
        out += sorted((folder / "data" / name).glob("*.parquet"))
    simulated = importlib.import_module("data_preprocess.simulated").main
    options = ["--out", str(folder / "data" / "sim"), "--n-train", "4", "--size", "112", "--quiet", *extra]
    assert simulated(options) == 0
    return [*out, *sorted((folder / "data" / "sim").glob("*.parquet"))]


def of_kind(files: Sequence[Path], kind: str) -> list[Path]:
    return [file for file in files if file.name.startswith("sft_") == (kind == "sft")]


def test_every_script_wrote_rows(files: list[Path]) -> None:
    sources = {
        source for file in of_kind(files, "rl") for source in pq.read_table(file).column("data_source").to_pylist()
    }
    assert sources == {
        "chexpert_plus", "mimic_cxr", "iu_xray", "chest_imagenome_trace", "chest_imagenome_anatomy", "ms_cxr_phrase",
        "vindr_cxr_abnormality", "padchest_gr_phrase", "padchest_gr", "table", "simulated",
    }  # fmt: skip


@pytest.mark.parametrize("kind", ["rl", "sft"])
def test_one_schema(files: list[Path], kind: str) -> None:
    first, *others = (pq.read_schema(file) for file in of_kind(files, kind))
    assert others
    assert all(first.equals(other) for other in others)


def test_data_check_finds_no_error(files: list[Path]) -> None:
    for file in files:
        assert check_parquet(file).errors == [], file


def test_datasets_joins_them(files: list[Path], tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    mine = of_kind(files, "rl")
    together = datasets.load_dataset("parquet", data_files=[str(f) for f in mine], cache_dir=str(tmp_path))["train"]
    assert len(together) == sum(pq.read_metadata(file).num_rows for file in mine)


def test_trl_reads_them(files: list[Path]) -> None:
    datasets = pytest.importorskip("datasets")
    from radverl.trl import read_dataset

    mine = of_kind(files, "rl")
    together = datasets.concatenate_datasets([read_dataset(file) for file in mine])
    assert len(together) == sum(pq.read_metadata(file).num_rows for file in mine)
    for row in together:
        assert row["images"]
        assert "<image>" not in row["prompt"][0]["content"]


@pytest.mark.slow
def test_verl_reads_them_together(files: list[Path], tmp_path: Path) -> None:
    from omegaconf import OmegaConf
    from transformers import AutoProcessor
    from verl.utils.dataset.multiturn_sft_dataset import MultiTurnSFTDataset
    from verl.utils.dataset.rl_dataset import RLHFDataset

    from radverl.tiny_model import make_tiny_model

    model = make_tiny_model("qwen2_5_vl", tmp_path / "model", ["Findings: the lungs are clear."] * 20)
    processor = AutoProcessor.from_pretrained(model)
    config = OmegaConf.create(
        {"cache_dir": str(tmp_path), "filter_overlong_prompts_workers": None, "max_prompt_length": 4096}
    )
    mine = of_kind(files, "rl")
    data = RLHFDataset([str(file) for file in mine], processor.tokenizer, config, processor)
    assert len(data) == sum(pq.read_metadata(file).num_rows for file in mine)
    for number in range(len(data)):
        row = data[number]
        images, _, _ = data._process_multi_modal_info(row["raw_prompt"], 14, config)
        assert images
        assert images[0].mode == "RGB"
        assert row["reward_model"]["ground_truth"]
    supervised = MultiTurnSFTDataset(
        [str(file) for file in of_kind(files, "sft")],
        processor.tokenizer,
        OmegaConf.create({"max_length": 4096}),
        processor,
    )
    assert len(supervised) == sum(pq.read_metadata(file).num_rows for file in of_kind(files, "sft"))
    assert all(supervised[number]["loss_mask"].sum() > 0 for number in range(len(supervised)))
