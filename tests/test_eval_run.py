"""`radverl eval`: a model that sees scores above its blind self, one that does not scores the same; files and exits."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from data_preprocess.core.rows import DEFAULT_PROMPT, report_row, sft_row, write_rows
from radverl.evaluation.run import evaluate, main, predictions_path
from radverl.labels import CHEXPERT_14
from radverl.rewards.facts import compute_score

SENTENCES = {
    "Cardiomegaly": "Impression: Cardiomegaly.",
    "Pleural Effusion": "Impression: Pleural effusion.",
    "Pneumothorax": "Impression: Pneumothorax.",
}
NAMES = list(SENTENCES)


def make_rows(folder, n=12, subjects=6):
    """Studies whose finding is written in the grey value of the image."""
    rows = []
    for i in range(n):
        name = NAMES[i % 3]
        path = folder / f"{i}.png"
        Image.fromarray(np.full((40, 40), 50 * (i % 3) + 30, dtype=np.uint8)).save(path)
        truth = {
            "findings": "",
            "impression": SENTENCES[name],
            "report": SENTENCES[name],
            "labels": dict.fromkeys(CHEXPERT_14) | {name: 1},
            "regions": [],
            "boxes": [],
        }
        rows.append(
            report_row(
                data_source="toy",
                split="test",
                index=i,
                prompt_id=f"toy/test/{i}",
                subject_id=f"p{i % subjects}",
                study_id=f"s{i}",
                images=[str(path)],
                prompt=DEFAULT_PROMPT,
                ground_truth=truth,
                width=40,
                height=40,
            )
        )
    return rows


@pytest.fixture
def parquet(tmp_path):
    write_rows(tmp_path / "test.parquet", make_rows(tmp_path), kind="rl")
    return tmp_path / "test.parquet"


def seeing(model_dir, rows, *, images_from=None, **options):
    """A perfect reader of grey values."""
    donors = range(len(rows)) if images_from is None else images_from
    reports = []
    for donor in donors:
        with Image.open(rows[donor]["images"][0]["image"].removeprefix("file://")) as picture:
            reports.append(SENTENCES[NAMES[(int(np.asarray(picture)[0, 0]) - 30) // 50]])
    return reports


def guessing(model_dir, rows, **options):
    return [SENTENCES["Cardiomegaly"]] * len(rows)


def test_a_model_that_sees(parquet, tmp_path):
    result = evaluate("model", parquet, blind=True, out=tmp_path / "eval.json", generate=seeing)
    assert (result["n"], result["skipped"], result["facts_failed"]) == (12, {}, 0)
    assert result["macro_f1_present"] == 1.0
    assert result["macro_f1"] == pytest.approx(3 / 14)
    assert result["facts"] == pytest.approx(1.0, abs=1e-6)
    assert result["facts_ci"] == pytest.approx([1.0, 1.0], abs=1e-6)
    assert result["facts_blind"] < 0.7
    assert result["macro_f1_blind"] < result["macro_f1"]
    assert result["macro_f1_gain_ci"][0] > 0
    assert result["distinct_predictions"] == 3
    assert json.loads((tmp_path / "eval.json").read_text()) == result
    lines = [json.loads(line) for line in predictions_path(tmp_path / "eval.json").read_text().splitlines()]
    assert [line["prompt_id"] for line in lines] == [f"toy/test/{i}" for i in range(12)]
    assert all(line["prediction"] == line["reference"] for line in lines)
    for i, line in enumerate(lines):
        donor = int(line["blind_images_of"].rsplit("/", 1)[1])
        assert donor % 6 != i % 6, "an image of the same subject is not blind"
        assert line["prediction_blind"] == SENTENCES[NAMES[donor % 3]]
    assert result["examples"] == lines[:8]


def test_a_model_that_guesses_gains_nothing(parquet):
    result = evaluate("model", parquet, blind=True, generate=guessing)
    second = result["examples"][1]
    assert [name for name, value in second["labels_true"].items() if value] == ["Pleural Effusion"]
    assert [name for name, value in second["labels_predicted"].items() if value] == ["Cardiomegaly"]
    assert result["macro_f1_blind"] == result["macro_f1"]
    assert result["macro_f1_gain_ci"] == [0.0, 0.0]
    assert result["facts_blind"] == result["facts"] == pytest.approx(1 / 3)
    assert result["distinct_predictions"] == 1
    assert result["per_label"]["Cardiomegaly"]["precision"] == pytest.approx(1 / 3)


def test_without_blind_nothing_blind_is_claimed(parquet):
    result = evaluate("model", parquet, limit=5, generate=guessing)
    assert result["n"] == 5
    for name in ("blind", "macro_f1_blind", "macro_f1_present_blind", "facts_blind", "macro_f1_gain_ci"):
        assert result[name] is None


def test_facts_is_the_reward_of_training(parquet):
    result = evaluate("model", parquet, limit=2, generate=guessing, beta=1.0, uncertain="zeros")
    truths = [row["reward_model"]["ground_truth"] for row in pq.read_table(parquet).to_pylist()[:2]]
    text = SENTENCES["Cardiomegaly"]
    scores = [compute_score("toy", text, truth, beta=1.0, uncertain="zeros")["score"] for truth in truths]
    assert result["facts"] == pytest.approx(sum(scores) / 2)


def test_the_same_run_gives_the_same_numbers(parquet):
    first, second = (evaluate("model", parquet, blind=True, seed=3, generate=seeing) for _ in range(2))
    assert {**first, "seconds": 0} == {**second, "seconds": 0}


def test_truth_from_the_report(tmp_path):
    rows = make_rows(tmp_path, 3)
    truth = json.loads(rows[0]["reward_model"]["ground_truth"])
    truth["labels"] |= {"Cardiomegaly": 0, "Edema": 1}
    rows[0]["reward_model"]["ground_truth"] = json.dumps(truth)
    write_rows(tmp_path / "x.parquet", rows, kind="rl")
    assert evaluate("m", tmp_path / "x.parquet", generate=seeing)["macro_f1_present"] < 1
    assert evaluate("m", tmp_path / "x.parquet", generate=seeing, truth="report")["macro_f1_present"] == 1


def test_bad_rows_are_skipped_and_counted(tmp_path):
    rows = make_rows(tmp_path)
    (tmp_path / "0.png").write_bytes((tmp_path / "0.png").read_bytes()[:40])
    (tmp_path / "1.png").unlink()
    rows[2]["reward_model"]["ground_truth"] = "not JSON"
    rows[3]["prompt"][0]["content"] = "no tag"
    write_rows(tmp_path / "x.parquet", rows, kind="rl")
    result = evaluate("model", tmp_path / "x.parquet", generate=seeing)
    assert result["n"] == 8
    assert result["skipped"] == {
        "not an image": 1,
        "image missing": 1,
        "ground truth unreadable": 1,
        "prompt and images disagree": 1,
    }
    assert result["macro_f1_present"] == 1.0


def test_command_end_to_end_with_a_tiny_model(parquet, tmp_path, capsys):
    pytest.importorskip("transformers")
    from radverl.tiny_model import make_tiny_model

    make_tiny_model("qwen2_5_vl", tmp_path / "tiny", [DEFAULT_PROMPT, *SENTENCES.values()] * 20, image_size=56)
    out = tmp_path / "out" / "eval.json"
    arguments = ["--model", str(tmp_path / "tiny"), "--data", str(parquet), "--out", str(out), "--limit", "3"]
    assert main([*arguments, "--blind", "--max-new-tokens", "4", "--batch-size", "2"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("3 studies\n")
    assert "macro F1 gained by seeing the right image" in printed
    result = json.loads(out.read_text())
    assert result["n"] == 3
    assert result["settings"]["max_new_tokens"] == 4
    assert len(predictions_path(out).read_text().splitlines()) == 3


def test_bad_input_exits_2_with_one_sentence(parquet, tmp_path, capsys):
    row = make_rows(tmp_path, 1)[0]
    write_rows(tmp_path / "sft.parquet", [sft_row(row, "target")], kind="sft")
    write_rows(tmp_path / "gone.parquet", [row], kind="rl")
    (tmp_path / "0.png").unlink()
    (tmp_path / "text.parquet").write_text("hello")
    for data, words in [
        (tmp_path / "none.parquet", "does not exist"),
        (tmp_path / "text.parquet", "cannot be read as Parquet"),
        (tmp_path / "sft.parquet", "it looks like an SFT file"),
        (tmp_path / "gone.parquet", "has no usable row. toy/test/0: "),
        (parquet, "is not a folder"),
    ]:
        assert main(["--model", str(tmp_path / "no"), "--data", str(data), "--out", str(tmp_path / "o.json")]) == 2
        error = capsys.readouterr().err
        assert words in error
        assert error.count("\n") == 1
    assert not (tmp_path / "o.json").exists()


def test_out_of_memory_exits_1(parquet, tmp_path, capsys, monkeypatch):
    def full(*args, **options):
        raise RuntimeError("CUDA out of memory")

    monkeypatch.setattr("radverl.evaluation.run.evaluate", full)
    assert main(["--model", "m", "--data", str(parquet), "--out", str(tmp_path / "o.json")]) == 1
    assert "CUDA out of memory" in capsys.readouterr().err


def test_settings_that_make_no_sense(parquet, tmp_path):
    with pytest.raises(ValueError, match="limit=0"):
        evaluate("m", parquet, limit=0, generate=guessing)
    with pytest.raises(ValueError, match="truth='guess'"):
        evaluate("m", parquet, truth="guess", generate=guessing)
    with pytest.raises(ValueError, match="at least 2"):
        evaluate("m", parquet, limit=1, blind=True, generate=guessing)


@pytest.mark.parametrize(
    ("path", "value", "reason"),
    [
        (("prompt",), "<image>text", "prompt and images disagree"),
        (("prompt", 0, "content"), None, "prompt and images disagree"),
        (("prompt", 0, "content"), "<image> <|image_pad|>", "special token"),
        (("images",), 5, "prompt and images disagree"),
        (("images",), ["/nowhere.png"], "image missing"),
        (("images",), [{"image": "http://x/y.png"}], "image not checked"),
        (("reward_model",), "text", "ground truth unreadable"),
        (("reward_model", "ground_truth"), "[" * 100_000, "ground truth unreadable"),
        (("reward_model", "ground_truth"), '{"labels": {"Oedema": 1}}', "ground truth unreadable"),
        (("reward_model", "ground_truth"), '{"labels": {}}', "ground truth unreadable"),
    ],
)
def test_files_of_others_are_refused_row_by_row(tmp_path, path, value, reason):
    rows = make_rows(tmp_path, 2)
    for row in rows:
        inner = row
        for key in path[:-1]:
            inner = inner[key]
        inner[path[-1]] = value
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "x.parquet")
    with pytest.raises(ValueError, match=r"no usable row\. .*toy/test/0"):
        evaluate("m", tmp_path / "x.parquet", generate=guessing)


def test_a_file_without_extra_info_is_measured(tmp_path):
    pq.write_table(
        pa.Table.from_pylist([row | {"extra_info": "x"} for row in make_rows(tmp_path, 3)]), tmp_path / "x.parquet"
    )
    assert [e["prompt_id"] for e in evaluate("m", tmp_path / "x.parquet", generate=guessing)["examples"]] == [
        "row 0", "row 1", "row 2",
    ]  # fmt: skip


def test_what_cannot_be_written_is_refused_before_generation(parquet, tmp_path):
    def never(*_, **__):
        raise AssertionError("generated for nothing")

    for out, words in (
        (tmp_path, "no name for a file"),
        (parquet, "the data file itself"),
        (parquet / "x", "is a file"),
    ):
        with pytest.raises(ValueError, match=words):
            evaluate("m", parquet, out=out, generate=never)
    with pytest.raises(ValueError, match="seed"):
        evaluate("m", parquet, seed=-1, generate=never)


def test_records_keep_the_position_in_the_file(tmp_path):
    rows = make_rows(tmp_path, 4)
    (tmp_path / "1.png").unlink()
    write_rows(tmp_path / "x.parquet", rows, kind="rl")
    assert [e["row"] for e in evaluate("m", tmp_path / "x.parquet", generate=guessing)["examples"]] == [0, 2, 3]
