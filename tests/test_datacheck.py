"""The data check names every row that verl would stop at, drop or score wrongly, and crashes on none."""

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from data_preprocess.core.rows import DEFAULT_PROMPT, report_row, schema, sft_row, write_rows
from radverl.datacheck import DataFileError, check_parquet, main
from radverl.datacheck.report import Report
from radverl.labels import CHEXPERT_14

Row = dict[str, Any]
Write = Callable[..., Path]


def picture(mode: str = "L", size: tuple[int, int] = (56, 56)) -> Image.Image:
    pixels = np.arange(size[0] * size[1], dtype=np.uint32).reshape(size[1], size[0]) * 7
    return (
        Image.fromarray((pixels % 65536).astype(np.uint16))
        if mode == "I;16"
        else Image.fromarray((pixels % 251).astype(np.uint8)).convert(mode)
    )


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., Row]:
    picture().save(tmp_path / "x.png")

    def build(index: int = 0, truth: dict[str, Any] | None = None, **changes: Any) -> Row:
        values: dict[str, Any] = {
            "data_source": "table", "split": "train", "index": index, "prompt_id": f"table/train/{index}",
            "subject_id": f"p{index}", "study_id": f"s{index}", "images": [str(tmp_path / "x.png")],
            "prompt": DEFAULT_PROMPT, "width": 56, "height": 56,
            "ground_truth": {
                "findings": "Lungs are clear.", "impression": "", "report": "Findings: Lungs are clear.", "regions": [],
                "labels": dict.fromkeys(CHEXPERT_14), "boxes": [{"label": "Edema", "name": "e", "box": [0, 0.1, 1, 1]}],
            } | (truth or {}),
        }  # fmt: skip
        return report_row(**(values | changes))

    return build


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes rows as they are, right or wrong; Arrow chooses the types unless `like_ours`."""

    def save(rows: list[Row], name: str = "train.parquet", like_ours: bool = False) -> Path:
        table = pa.Table.from_pylist(rows, schema=schema("rl", "image") if like_ours else None)
        pq.write_table(table, tmp_path / name)
        return tmp_path / name

    return save


def kinds(report: Report, severity: str = "error") -> set[tuple[int | None, str]]:
    return {(problem.row, problem.kind) for problem in report.problems if problem.severity == severity}


def test_our_own_files_are_clean(tmp_path: Path, make: Callable[..., Row]) -> None:
    rows = [make(i) for i in range(70)]
    write_rows(tmp_path / "train.parquet", rows, kind="rl")
    write_rows(tmp_path / "sft.parquet", [sft_row(row, "Findings: Clear.") for row in rows], kind="sft")
    buffer = io.BytesIO()
    picture().save(buffer, "PNG")
    write_rows(tmp_path / "bytes.parquet", [make(i, images=[buffer.getvalue()]) for i in range(3)], kind="rl")
    for name, role, count in (("train", "rl", 70), ("sft", "sft", 70), ("bytes", "rl", 3)):
        report = check_parquet(tmp_path / f"{name}.parquet")
        assert (report.role, report.rows, report.problems) == (role, count, [])
    assert main([str(tmp_path / "train.parquet"), str(tmp_path / "sft.parquet")]) == 0


def at(row: Row, *keys: Any, value: Any) -> Row:
    copy: Any = json.loads(json.dumps(row))
    inner = copy
    for key in keys[:-1]:
        inner = inner[key]
    inner[keys[-1]] = value
    return copy


@pytest.mark.parametrize(
    ("keys", "value", "kind"),
    [
        (("prompt", 0, "content"), "No image.", "image count"),
        (("prompt", 0, "content"), "<image><image>Two.", "image count"),
        (("images",), [], "image count"),
        (("images", 0, "image"), "file:///nowhere/x.png", "image missing"),
        (("images", 0, "image"), None, "image form"),
        (("prompt",), [], "no messages"),
        (("reward_model", "ground_truth"), None, "empty ground truth"),
        (("reward_model", "ground_truth"), "  ", "empty ground truth"),
        (("extra_info", "prompt_id"), "table/train/0", "duplicate prompt_id"),
    ],
)
def test_the_spoiled_row_is_named(
    make: Callable[..., Row], write: Write, keys: tuple[Any, ...], value: Any, kind: str
) -> None:
    path = write([make(0), make(1), at(make(2), *keys, value=value), make(3)], like_ours=True)
    assert kinds(check_parquet(path)) == {(2, kind)}


@pytest.mark.parametrize(
    ("truth", "kind"),
    [
        ({"report": "", "findings": " ", "impression": "nan"}, "empty report"),
        ({"labels": {**dict.fromkeys(CHEXPERT_14), "Oedema": 1}}, "unknown label"),
        ({"labels": {**dict.fromkeys(CHEXPERT_14), "Edema": 2}}, "label value"),
        ({"labels": {**dict.fromkeys(CHEXPERT_14), "Edema": True}}, "label value"),
        ({"labels": {**dict.fromkeys(CHEXPERT_14), "Edema": "1"}}, "label value"),
        ({"labels": [1, 0]}, "labels type"),
        ({"boxes": [{"label": "Edema", "box": [0.5, 0.1, 0.2, 1]}]}, "box out of bounds"),
        ({"boxes": [{"label": "Edema", "box": [0, 0, 0.5, 1.01]}]}, "box out of bounds"),
        ({"boxes": [{"label": "Edema", "box": [0, 0, 300, 400]}]}, "box out of bounds"),
        ({"regions": [{"name": "left lung", "box": [-0.1, 0, 0.5, 1]}]}, "box out of bounds"),
        ({"boxes": [{"label": "Edema", "box": [0, 0, 1]}]}, "box shape"),
        ({"boxes": [[0, 0, 1, 1]]}, "box shape"),
        ({"boxes": {"Edema": [0, 0, 1, 1]}}, "boxes type"),
    ],
)
def test_ground_truth(make: Callable[..., Row], write: Write, truth: dict[str, Any], kind: str) -> None:
    path = write([make(0), make(1, truth)], like_ours=True)
    assert kinds(check_parquet(path)) == {(1, kind)}


PHRASE = {"phrase": "small left effusion", "boxes": [{"label": "small left effusion", "box": [0.1, 0.2, 0.3, 0.4]}]}


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        ({}, None),
        ({"boxes": []}, None),  # nothing to be found
        ({"labels": dict.fromkeys(CHEXPERT_14)}, None),
        ({"phrase": " "}, "empty phrase"),
        ({"phrase": 3}, "empty phrase"),
        ({"boxes": None}, "no boxes"),
        ({"boxes": [{"label": "x", "box": [0.3, 0.2, 0.1, 0.4]}]}, "box out of bounds"),
        ({"labels": {"Oedema": 1}}, "unknown label"),
    ],
)
def test_grounding_truth(make: Callable[..., Row], write: Write, change: dict[str, Any], kind: str | None) -> None:
    row = at(make(1), "reward_model", "ground_truth", value=json.dumps(PHRASE | change))
    report = check_parquet(write([make(0), row], like_ours=True))
    assert kinds(report) == ({(1, kind)} if kind else set())
    assert kind or not report.problems


def test_pixel_boxes_are_held_against_the_image(make: Callable[..., Row], write: Write) -> None:
    boxes = [{"label": "Edema", "box": [0, 0, 56, 56]}, {"label": "Edema", "box": [0, 0, 57, 56]}]
    row = at(make(0, {"boxes": boxes}), "extra_info", "box_space", value="pixel")
    report = check_parquet(write([row], like_ours=True))
    assert [problem.message.split()[0] for problem in report.errors] == ["boxes[1]"]


@pytest.mark.parametrize(
    ("image", "name", "kind", "severity"),
    [
        (picture("I;16"), "y.png", "image not 8-bit", "error"),
        (Image.new("L", (56, 56), 255), "y.png", "image blank", "warning"),
        (picture(size=(3000, 10)), "y.png", "image shape", "error"),
        (picture(size=(60, 56)), "y.png", "image size", "warning"),
        (picture(), "turned.png", "image turned", "warning"),
    ],
)
def test_images_are_opened_as_verl_opens_them(
    tmp_path: Path, make: Callable[..., Row], write: Write, image: Image.Image, name: str, kind: str, severity: str
) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6 if name == "turned.png" else 1
    image.save(tmp_path / name, exif=exif)
    row = make(1, images=[str(tmp_path / name)], width=56, height=56)
    if kind == "image shape":
        row = at(at(row, "extra_info", "width", value=3000), "extra_info", "height", value=10)
    report = check_parquet(write([make(0), row], like_ours=True))
    assert (1, kind) in kinds(report, severity)
    assert {row for row, _ in kinds(report) | kinds(report, "warning")} == {1}


def test_truncated_image_names_row_and_path(tmp_path: Path, make: Callable[..., Row], write: Write) -> None:
    (tmp_path / "cut.png").write_bytes((tmp_path / "x.png").read_bytes()[:120])
    report = check_parquet(write([make(0), make(1, images=[str(tmp_path / "cut.png")])], like_ours=True))
    (problem,) = report.errors
    assert (problem.row, problem.kind) == (1, "image truncated")
    assert str(tmp_path / "cut.png") in str(problem)


def test_mixed_image_forms_and_types_of_other_writers(make: Callable[..., Row], write: Write) -> None:
    mixed = at(make(1), "images", value=[])
    mixed["images"] = [{"bytes": b"x", "image": None}]
    report = check_parquet(write([make(0), mixed]))
    assert (None, "image form") in kinds(report)
    report = check_parquet(write([at(make(0), "extra_info", "index", value="s1")]))
    assert kinds(report) == {(None, "index type")}
    report = check_parquet(write([at(make(0), "reward_model", "ground_truth", value={"report": "Clear."})]))
    assert kinds(report) == {(0, "ground truth type")}


def test_files_of_others_get_warnings(make: Callable[..., Row], write: Write) -> None:
    geometry = {
        "data_source": "hiyouga/geometry3k",
        "prompt": [{"role": "user", "content": "<image>Find x."}],
        "images": make(0)["images"],
        "reward_model": {"style": "rule", "ground_truth": "48"},
        "extra_info": {"index": 0, "answer": "48"},
        "difficulty": 3,
    }
    report = check_parquet(write([geometry]))
    assert report.ok
    assert kinds(report, "warning") == {(0, "plain ground truth"), (None, "no prompt_id")}
    text_only = {key: value for key, value in geometry.items() if key not in ("images", "extra_info")}
    text_only["prompt"] = [{"role": "user", "content": "Find x."}]
    report = check_parquet(write([text_only]))
    assert report.ok
    assert kinds(report, "warning") >= {(None, "missing column")}


def test_missing_columns_are_named_with_what_there_is(write: Write) -> None:
    report = check_parquet(write([{"question": "x", "images": [{"image": "file:///x"}]}]), role="rl")
    messages = [p.message for p in report.errors if p.kind == "missing column"]
    assert len(messages) == 3
    assert "has no column 'data_source'; its columns are question, images (written by parquet-cpp-arrow" in messages[0]


def test_sft_targets(tmp_path: Path, make: Callable[..., Row]) -> None:
    good = sft_row(make(0), "Findings: Clear.")
    empty = json.loads(json.dumps(good))
    empty["messages"][1]["content"] = " "
    unanswered = {"messages": good["messages"][:1], "images": good["images"]}
    write_rows(tmp_path / "sft.parquet", [good, empty, unanswered], kind="sft")
    assert kinds(check_parquet(tmp_path / "sft.parquet")) == {(1, "empty target"), (2, "empty target")}


def test_splits_must_not_share_subjects_or_prompts(make: Callable[..., Row], write: Write) -> None:
    train = write([make(0), make(1), make(2)], like_ours=True)
    clean = write([make(8), make(9)], "val.parquet", like_ours=True)
    assert check_parquet(train, others=[clean]).problems == []
    leaky = write([make(8), make(9, subject_id="p1"), make(2, subject_id="new")], "leaky.parquet", like_ours=True)
    report = check_parquet(train, others=[leaky])
    assert kinds(report) == {(1, "shared subject_id"), (2, "shared prompt_id")}
    odd = write([at(make(8), "extra_info", "index", value="s8")], "odd.parquet")
    assert (None, "column type") in kinds(check_parquet(train, others=[odd]))


class WordProcessor:
    """Stands for a Hugging Face processor: a token a word, 16 for each image."""

    class image_processor:
        patch_size = 14

    def apply_chat_template(self, messages: list[Row], add_generation_prompt: bool, tokenize: bool) -> str:
        parts = [
            part for m in messages for part in (m["content"] if isinstance(m["content"], list) else [m["content"]])
        ]
        words = [" I" * 16 if p["type"] == "image" else " " + p["text"] for p in parts]
        return "".join(words) + (" A" if add_generation_prompt else "")

    def __call__(self, text: list[str], images: list[Any]) -> dict[str, Any]:
        assert all(isinstance(image, Image.Image) for image in images)
        return {"input_ids": [text[0].split()]}


def test_too_long_prompts_are_listed_with_their_lengths(
    make: Callable[..., Row], write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("radverl.datacheck.lengths._pictures", lambda messages, patch_size: [picture()])
    rows = [make(0), make(1, prompt="<image>" + "word " * 50), make(2)]
    report = check_parquet(write(rows, like_ours=True), processor=WordProcessor(), max_prompt_length=60)
    (problem,) = report.errors
    assert (problem.row, problem.kind) == (1, "too long")
    assert problem.message.startswith("67 tokens, more than 60")
    report = check_parquet(write(rows, like_ours=True), processor=WordProcessor(), max_prompt_length=67)
    assert report.problems == []
    with pytest.raises(ValueError, match="needs a processor"):
        check_parquet(write(rows, like_ours=True), max_prompt_length=60)


@pytest.mark.slow
def test_lengths_are_those_of_verl(tmp_path: Path, make: Callable[..., Row], write: Write) -> None:
    import datasets
    from omegaconf import OmegaConf
    from transformers import AutoProcessor
    from verl.utils.dataset.rl_dataset import RLHFDataset

    from radverl.tiny_model import make_tiny_model

    model = make_tiny_model("qwen2_5_vl", tmp_path / "model", ["Findings: the lungs are clear."] * 20)
    rows = [make(i, prompt="<image>" + "clear " * i) for i in range(0, 60, 6)]
    path = write(rows, like_ours=True)
    processor = AutoProcessor.from_pretrained(model)
    longest = len(rows) // 2
    for limit in (40, 60, 80):
        config = OmegaConf.create(
            {"cache_dir": str(tmp_path), "filter_overlong_prompts_workers": None, "max_prompt_length": limit}
        )
        datasets.disable_caching()
        kept = {row["index"] for row in RLHFDataset(str(path), processor.tokenizer, config, processor)}
        report = check_parquet(path, processor=model, max_prompt_length=limit)
        assert {rows[p.row]["extra_info"]["index"] for p in report.errors if p.row is not None} == {
            row["extra_info"]["index"] for row in rows
        } - kept
        longest = min(longest, len(kept))
    assert longest < len(rows)


@pytest.mark.parametrize("content", [None, b"", b"PAR1", b"not parquet" * 20])
def test_unreadable_input_is_status_2(
    tmp_path: Path, content: bytes | None, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "x.parquet"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(DataFileError, match=r"x\.parquet"):
        check_parquet(path)
    assert main([str(path)]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_command_line(make: Callable[..., Row], write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    good = write([make(0)], like_ours=True)
    bad = write([at(make(i), "images", value=[]) for i in range(30)], "bad.parquet", like_ours=True)
    assert main([str(good), str(bad)]) == 1
    printed = capsys.readouterr().out
    assert "1 rl rows, clean" in printed
    assert "and 20 more: image count" in printed
    assert printed.endswith("bad.parquet: 30 rl rows, 30 errors, 0 warnings\n")
    assert main([str(good), "--model", "/nowhere"]) == 2
    with pytest.raises(SystemExit) as stop:
        main([str(good), "--max-prompt-length", "5"])
    assert stop.value.code == 2
    with pytest.raises(ValueError, match="role is 'ppo'"):
        check_parquet(good, role="ppo")


SCALARS = st.one_of(
    st.none(), st.text(max_size=8), st.integers(-9, 9), st.floats(), st.booleans(), st.binary(max_size=4)
)
FIELDS = st.sampled_from(["role", "content", "image", "bytes", "ground_truth", "index", "prompt_id", "box_space", "x"])
STRUCTS = st.dictionaries(FIELDS, SCALARS, min_size=1, max_size=3)
CELLS = st.one_of(SCALARS, STRUCTS, st.lists(SCALARS, max_size=2), st.lists(STRUCTS, max_size=2))
COLUMNS = st.sampled_from(["prompt", "messages", "images", "reward_model", "extra_info", "data_source"])


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(place=st.floats(0, 1, exclude_max=True), value=st.integers(0, 255), keep=st.floats(0.5, 1))
def test_damage_to_a_file_is_reported_not_raised(
    make: Callable[..., Row], write: Write, place: float, value: int, keep: float
) -> None:
    path = write([make(i) for i in range(3)], like_ours=True)
    content = bytearray(path.read_bytes())
    content[int(place * len(content))] = value
    path.write_bytes(bytes(content[: int(keep * len(content))]) if value % 2 else bytes(content))
    try:
        assert check_parquet(path).rows >= 0
    except DataFileError as error:
        assert str(path) in str(error)  # noqa: PT017


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(COLUMNS, CELLS, max_size=6), st.sampled_from([None, "rl", "sft"]))
def test_no_parquet_file_makes_it_crash(tmp_path: Path, row: Row, role: str | None) -> None:
    try:
        table = pa.Table.from_pylist([row, {}, row])
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, UnicodeEncodeError):
        return  # Arrow cannot hold such a row
    pq.write_table(table, tmp_path / "x.parquet")
    report = check_parquet(tmp_path / "x.parquet", role=role, others=[tmp_path / "x.parquet"])
    assert not report.ok
    assert report.lines()


KEYS = st.sampled_from(["report", "labels", "boxes", "regions", "box", "label", "Edema"])
JSON = st.recursive(
    SCALARS.filter(lambda value: not isinstance(value, bytes)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(KEYS, inner, max_size=3)),
    max_leaves=8,
)


@settings(max_examples=150, deadline=None)
@given(JSON, st.dictionaries(st.sampled_from(["width", "height", "box_space"]), SCALARS))
def test_no_ground_truth_makes_it_crash(truth: Any, extra: Row) -> None:
    from radverl.datacheck.truth import check_truth

    for severity, kind, message in check_truth(json.dumps(truth), extra):
        assert severity in ("error", "warning")
        assert kind
        assert message


@pytest.mark.parametrize(
    ("text", "severity", "kind"),
    [
        ("<image> <video> x", "error", "media placeholder"),
        ("<image> <|image_pad|> x", "error", "special token"),
        ("<image> <|im_end|> x", "warning", "special token"),
        (None, "error", "no messages"),
    ],
)
def test_prompts_that_verl_would_drop_are_named_without_a_model(
    make: Callable[..., Row], write: Write, text: str | None, severity: str, kind: str
) -> None:
    report = check_parquet(write([make(0), at(make(1), "prompt", 0, "content", value=text)]))
    assert [(p.row, p.severity, p.kind) for p in report.problems] == [(1, severity, kind)]


def test_a_file_with_videos_may_say_so(make: Callable[..., Row], write: Write) -> None:
    row = at(make(0), "prompt", 0, "content", value="<image> <video> x") | {"videos": ["x.mp4"]}
    assert not [p for p in check_parquet(write([row])).problems if p.kind == "media placeholder"]


def test_a_truth_without_a_fact_is_a_warning(make: Callable[..., Row], write: Write) -> None:
    rows = [make(0, truth={"findings": "See dictation.", "report": "Findings: See dictation."})]
    assert [p.kind for p in check_parquet(write(rows)).problems] == ["nothing to compare"]


def test_a_comparison_with_nothing_is_no_clean_bill(make: Callable[..., Row], write: Write) -> None:
    sft = write([sft_row(make(1), "No effusion.")], "sft.parquet")
    assert [p.kind for p in check_parquet(write([make(0)]), others=[sft]).problems] == ["not compared"]


def test_a_folder_is_its_files_and_its_splits_are_compared(
    tmp_path: Path, make: Callable[..., Row], write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    for name, number in (("train", 0), ("val", 1), ("test", 0)):
        write([make(number)], like_ours=True).rename(folder / f"{name}.parquet")
    assert main([str(folder)]) == 1
    printed = capsys.readouterr().out
    assert printed.count(" is also in row 0 of ") == 2  # subject and prompt of test and train, once
    (folder / "test.parquet").unlink()
    assert main([str(folder)]) == 0
    (tmp_path / "empty").mkdir()
    assert main([str(tmp_path / "empty")]) == 2
