"""The Parquet files: one schema, whole rows or an error, the same bytes for the same rows."""

import hashlib
import io
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from data_preprocess.core.rows import DEFAULT_PROMPT, read_rows, report_row, schema, sft_row, write_rows
from data_preprocess.core.skiplog import SkipLog


def png(size: tuple[int, int] = (56, 56)) -> bytes:
    buffer = io.BytesIO()
    Image.linear_gradient("L").resize(size).save(buffer, "PNG")
    return buffer.getvalue()


def make_row(index: int = 0, images: list[str | bytes] | None = None, **changes: Any) -> dict[str, Any]:
    values: dict[str, Any] = {
        "data_source": "table",
        "split": "train",
        "index": index,
        "prompt_id": f"table/train/{index}",
        "subject_id": f"p{index}",
        "study_id": f"s{index}",
        "images": ["/data/a b%20é.png"] if images is None else images,
        "prompt": DEFAULT_PROMPT,
        "ground_truth": {"report": "Findings: Clear; é.", "boxes": [{"label": "Edema", "box": [0, 0.5, 1, 1]}]},
        "width": 56,
        "height": 56,
    }
    return report_row(**(values | changes))


@pytest.mark.parametrize("images", [["/data/x.png"], [png()]])
def test_rows_come_back_as_they_were_written(tmp_path: Path, images: list[str | bytes]) -> None:
    rows = [make_row(i, images) for i in range(300)]  # more than one row group
    assert write_rows(tmp_path / "a.parquet", rows, kind="rl") == 300
    assert read_rows(tmp_path / "a.parquet") == rows
    twins = [sft_row(row, "Findings: Clear.") for row in rows]
    write_rows(tmp_path / "b.parquet", iter(twins), kind="sft")
    assert read_rows(tmp_path / "b.parquet") == twins
    assert twins[0]["messages"][-1] == {"role": "assistant", "content": "Findings: Clear."}


def test_same_rows_same_bytes_and_nothing_is_left_beside_them(tmp_path: Path) -> None:
    digests = set()
    for name in ("a", "b"):
        write_rows(tmp_path / f"{name}.parquet", (make_row(i) for i in range(5)), kind="rl")
        digests.add(hashlib.sha256((tmp_path / f"{name}.parquet").read_bytes()).hexdigest())
    assert len(digests) == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.parquet", "b.parquet"]


def test_schema_does_not_depend_on_the_content(tmp_path: Path) -> None:
    write_rows(tmp_path / "full.parquet", [make_row()], kind="rl")
    write_rows(tmp_path / "bare.parquet", [make_row(images=[], prompt="Say normal.", ground_truth={})], kind="rl")
    write_rows(tmp_path / "none.parquet", [], kind="rl")
    schemas = [pq.read_schema(tmp_path / f"{name}.parquet") for name in ("full", "bare", "none")]
    assert schemas[0] == schemas[1] == schemas[2] == schema("rl", "image")
    assert schemas[0].field("extra_info").type.field("index").type == pa.int64()
    assert schemas[0].field("reward_model").type.field("ground_truth").type == pa.string()


def test_an_image_struct_has_one_field() -> None:
    # verl asks `"bytes" in image`: a second field, filled with None, would be decoded.
    for form in ("image", "bytes"):
        element = schema("rl", form).field("images").type.value_type
        assert [field.name for field in element] == [form]


def test_paths_are_absolute_and_not_percent_encoded() -> None:
    # Readers cut "file://" off and open the rest.
    assert make_row()["images"] == [{"image": "file:///data/a b%20é.png"}]
    assert make_row(images=["file:///data/x.png"])["images"] == [{"image": "file:///data/x.png"}]
    assert make_row(images=["x.png"])["images"] == [{"image": f"file://{Path.cwd()}/x.png"}]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"prompt": "No image."}, "one <image> per image"),
        ({"prompt": "<image><image>Two."}, "one <image> per image"),
        ({"prompt": "<image>A <video>."}, "one <image> per image"),
        ({"index": "s1"}, "must be an int"),
        ({"index": True}, "must be an int"),
        ({"images": [b"x", "/x.png"], "prompt": "<image><image>"}, "mixed"),
        ({"images": [""]}, "pass a path"),
        ({"ground_truth": {"x": float("nan")}}, "not JSON"),
        ({"ground_truth": {"x": {1, 2}}}, "not JSON"),
    ],
)
def test_a_row_that_would_break_verl_is_refused_by_name(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message) as error:
        make_row(**({"index": 7, "prompt_id": "table/train/7"} | changes))
    assert "table/train/7" in str(error.value)


@pytest.mark.parametrize("target", ["", " \n", "See <image>."])
def test_a_target_that_teaches_nothing_is_refused(target: str) -> None:
    with pytest.raises(ValueError, match="target text"):
        sft_row(make_row(), target)


def spoil(row: dict[str, Any], *keys: str, value: Any) -> dict[str, Any]:
    copy = json.loads(json.dumps(row))
    inner = copy
    for key in keys[:-1]:
        inner = inner[key]
    inner[keys[-1]] = value
    return copy


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (spoil(make_row(1), "extra", value=1), "columns"),
        (spoil(make_row(1), "extra_info", "note", value="x"), "not in the schema"),
        (spoil(make_row(1), "extra_info", "index", value="s1"), "do not fit"),
        (spoil(make_row(1), "reward_model", "ground_truth", value={"report": "x"}), "do not fit"),
        (spoil(make_row(1), "images", value=[{"image": "file:///x", "bytes": None}]), "mixed"),
        (make_row(1, [png()]), "never mix"),
        (make_row(1, ground_truth={"report": "\ud800"}), "do not fit"),
    ],
)
def test_a_bad_row_stops_the_file_and_leaves_the_old_one(tmp_path: Path, bad: dict[str, Any], message: str) -> None:
    path = tmp_path / "train.parquet"
    write_rows(path, [make_row()], kind="rl")
    before = path.read_bytes()
    with pytest.raises(ValueError, match=message):
        write_rows(path, [make_row(), bad], kind="rl")
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["train.parquet"]


def test_unknown_kind_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="kind is 'ppo'"):
        write_rows(tmp_path / "x.parquet", [], kind="ppo")


def test_skip_log_counts_by_reason_and_names_each_row(tmp_path: Path) -> None:
    log = SkipLog()
    assert log.summary() == "skipped 0 rows"
    for row, reason in ((3, "image missing"), ("s7", "empty report"), (9, "empty report")):
        log.add(row, reason, "détail")
    assert log.counts() == {"empty report": 2, "image missing": 1}
    assert log.summary() == "skipped 3 rows (empty report 2, image missing 1)"
    log.write(tmp_path / "deep" / "x.skipped.jsonl")
    lines = (tmp_path / "deep" / "x.skipped.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["row"] for line in lines] == [3, "s7", 9]
    with pytest.raises(ValueError, match="needs a reason"):
        log.add(1, " ")


@pytest.mark.slow
@pytest.mark.parametrize("form", ["image", "bytes"])
def test_verl_reads_the_files(tmp_path: Path, form: str) -> None:
    from omegaconf import OmegaConf
    from transformers import AutoProcessor
    from verl.utils.dataset.multiturn_sft_dataset import MultiTurnSFTDataset
    from verl.utils.dataset.rl_dataset import RLHFDataset

    from radverl.tiny_model import make_tiny_model

    model = make_tiny_model("qwen2_5_vl", tmp_path / "model", ["Findings: the lungs are clear."] * 20)
    processor = AutoProcessor.from_pretrained(model)
    (tmp_path / "x.png").write_bytes(png())
    rows = [make_row(i, [str(tmp_path / "x.png") if form == "image" else png()]) for i in range(3)]
    write_rows(tmp_path / "rl.parquet", rows, kind="rl")
    write_rows(tmp_path / "sft.parquet", [sft_row(row, "Findings: Clear.") for row in rows], kind="sft")
    config = OmegaConf.create(
        {"cache_dir": str(tmp_path), "filter_overlong_prompts_workers": None, "max_prompt_length": 512}
    )
    data = RLHFDataset(str(tmp_path / "rl.parquet"), processor.tokenizer, config, processor)
    assert [data[i]["index"] for i in range(len(data))] == [0, 1, 2]
    images, _, _ = data._process_multi_modal_info(data[0]["raw_prompt"], 14, config)
    assert images[0].mode == "RGB"
    supervised = MultiTurnSFTDataset(
        str(tmp_path / "sft.parquet"), processor.tokenizer, OmegaConf.create({"max_length": 512}), processor
    )
    item = supervised[0]
    learned = processor.tokenizer.decode(item["input_ids"][item["loss_mask"].bool()])
    assert "Findings: Clear." in learned
    assert "Write the findings" not in learned
