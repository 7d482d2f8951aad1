"""The summary of a run says what its files say, and refuses a run that is not there."""

import json
import shutil
from pathlib import Path

import pytest

from data_preprocess import simulated
from radverl.evaluation.before_after import main, summarise, table
from radverl.evaluation.run import evaluate


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eight studies; before RL every report is "No effusion.", after it every report is the true one."""
    folder = tmp_path_factory.mktemp("run")
    arguments = ["--n-train", "8", "--n-val", "0", "--n-test", "0", "--size", "64", "--style", "template", "--quiet"]
    assert simulated.main(["--out", str(folder / "data"), *arguments]) == 0
    data = folder / "data/train.parquet"

    def writes(perfect: bool):
        def generate(_model, rows, *, images_from=None, **_):
            order = images_from or range(len(rows))
            truths = [json.loads(row["reward_model"]["ground_truth"])["report"] for row in rows]
            return [truths[i] if perfect else "No effusion." for i in order]

        return generate

    for name, perfect in (("before", False), ("after", True)):
        evaluate("model", data, blind=True, out=folder / f"{name}.json", generate=writes(perfect), progress=False)
    (folder / "stats.json").write_text(json.dumps({"seconds": 40.0, "peak_rss_gb": 9.5, "exit_code": 0, "lost": None}))
    (folder / "rl/rollouts").mkdir(parents=True)
    scores = {1: [0.0, 0.0, 1.0, 0.0], 2: [0.0, 1.0, 1.0, 0.0], 3: [1.0, 1.0, 1.0, 1.0], 4: [1.0, 1.0, 0.0, 1.0]}
    seconds = {1: 30.0, 2: 4.0, 3: 5.0, 4: 9.0}
    with (folder / "rl/metrics.jsonl").open("w") as log:
        for step, values in scores.items():
            data_of_step = {"timing_s/step": seconds[step], "critic/score/mean": sum(values) / 4}
            log.write(json.dumps({"step": step, "data": data_of_step}) + "\n")
            lines = [
                {"input": "x", "output": "y", "gts": "{}", "score": v, "step": step, "uid": f"p{i // 2}_{i % 2}_0"}
                for i, v in enumerate(values)
            ]
            (folder / f"rl/rollouts/{step}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def test_numbers_are_those_of_the_files(run: Path) -> None:
    summary = summarise(run, seconds_total=123.0)
    assert summary["steps"] == 4
    assert summary["seconds_total"] == 123.0
    assert summary["seconds_per_step"] == 5.0  # median of 4, 5 and 9: the first step warms up
    assert summary["facts_after"] == 1.0
    assert summary["macro_f1_after"] > summary["macro_f1_before"]
    assert summary["facts_before"] < 0.2
    assert summary["zrr_first"] == 0.75
    assert summary["zrr_last"] == 0.25
    assert summary["peak_rss_gb"] == 9.5
    assert summary["studies"] == 8
    assert summary["facts_gain"] == pytest.approx(summary["facts_after"] - summary["facts_before"], abs=1e-3)
    low, high = summary["facts_gain_ci"]
    assert 0 < low <= summary["facts_gain"] <= high


def test_command_writes_summary_and_pictures(run: Path, capsys) -> None:
    assert main(["--run", str(run), "--data", str(run / "data/train.parquet"), "--seconds", "60"]) == 0
    out = capsys.readouterr().out
    assert "8 held-out studies" in out
    assert json.loads((run / "summary.json").read_text())["seconds_total"] == 60.0
    for name in ("curves.png", "samples.png"):
        assert (run / name).stat().st_size > 10_000
    assert table(run, summarise(run, 60.0)) in out


def test_a_missing_file_is_named(tmp_path: Path, capsys) -> None:
    assert main(["--run", str(tmp_path), "--data", "x.parquet"]) == 2
    assert "before.json" in capsys.readouterr().err


def test_a_training_without_a_step_is_said_to_be_one(run: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(run, copy)
    (copy / "rl/metrics.jsonl").write_text('{"step": 0, "data": {"val": 1.0}}\n')
    for dump in (copy / "rl/rollouts").iterdir():
        dump.unlink()
    (copy / "rl/rollouts/0.jsonl").write_text('{"input": "x", "output": "y", "gts": "{}", "score": 0.0, "step": 0}\n')
    with pytest.raises(ValueError, match="no training step"):
        summarise(copy, 1.0)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("stats.json", "[]", "stats.json has no seconds"),
        ("stats.json", '{"seconds": null, "peak_rss_gb": 1}', "stats.json has no seconds"),
        ("before.json", '{"facts": 1}', "before.json has no n"),
        ("after.json", "{", "after.json cannot be read"),
        ("before.predictions.jsonl", "x\n", "before.predictions.jsonl cannot be read"),
        ("before.predictions.jsonl", '{"prediction": "x"}\n', "not written by this version"),
        ("before.predictions.jsonl", "", "no study was scored both times"),
    ],
)
def test_a_damaged_file_is_named(run: Path, tmp_path: Path, name: str, content: str, words: str, capsys) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(run, copy)
    (copy / name).write_text(content)
    assert main(["--run", str(copy), "--data", str(run / "data/train.parquet")]) == 2
    error = capsys.readouterr().err
    assert words in error
    assert error.count("\n") == 1


def test_studies_are_matched_by_their_row_although_some_were_skipped(run: Path, tmp_path: Path, monkeypatch) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(run, copy)
    for name in ("before", "after"):
        path = copy / f"{name}.predictions.jsonl"
        kept = "\n".join(path.read_text().split("\n")[2:])  # as if the evaluation could not use the first two rows
        path.write_text(kept.replace("No effusion.", "No\u2028effusion.") if name == "before" else kept)
    drawn: list[tuple[dict, str]] = []

    def note(rows: list[dict], before: list[str], after: list[str], *_: object) -> None:
        drawn.extend(zip(rows, after, strict=True))
        assert before == ["No\u2028effusion."] * len(rows)

    monkeypatch.setattr("radverl.evaluation.pictures.samples", note)
    assert main(["--run", str(copy), "--data", str(run / "data/train.parquet")]) == 0
    assert len(drawn) == 4
    for row, report in drawn:
        assert json.loads(row["reward_model"]["ground_truth"])["report"] == report
