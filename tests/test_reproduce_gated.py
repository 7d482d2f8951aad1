"""The gated reproduction: how traces are measured, what is read from run folders, and what page and picture show."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

pytest.importorskip("matplotlib")

from data_preprocess.core.traces import trace_text
from data_preprocess.simulated import main as simulated
from radverl.evaluation import pictures
from radverl.evaluation.files import read_parquet
from radverl.evaluation.reproduce_gated import evaluate_checkpoints, main, write
from radverl.evaluation.reproduce_gated_picture import draw
from radverl.evaluation.reproduce_gated_report import markdown, remarks
from radverl.evaluation.reproduce_gated_runs import compare, read_rollouts
from radverl.evaluation.trace_metrics import RATES, measure_traces

ROOT = Path(__file__).parents[1]
ANGLES = ("right costophrenic angle", "left costophrenic angle")
REGIONS = ("cardiac silhouette", *ANGLES)
ARMS = ("none", "spatial", "factual", "both")


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> list[dict]:
    """Twelve simulated studies with an effusion on one or both sides."""
    out = tmp_path_factory.mktemp("films")
    films = ["--n-test", "12", "--size", "64", "--style", "template", "--embed-images", "--quiet", "--border", "0.3"]
    shown = ["--task", "trace", "--trace-regions", *REGIONS, "--prevalence", "Pleural Effusion=1", "Cardiomegaly=.5"]
    assert simulated(["--out", str(out), *films, *shown]) == 0
    return read_parquet(out / "test.parquet")


def truth(row: dict) -> dict:
    return json.loads(row["reward_model"]["ground_truth"])


def perfect(row: dict) -> str:
    return trace_text(truth(row)["regions"], truth(row)["report"])


def swapped(row: dict) -> str:
    """The right findings under the right names, the boxes of the two angles exchanged."""
    regions = {region["name"]: dict(region) for region in truth(row)["regions"]}
    right, left = (regions[name] for name in ANGLES)
    right["box"], left["box"] = left["box"], right["box"]
    return trace_text(list(regions.values()), truth(row)["report"])


def copied(row: dict) -> str:
    """The right boxes, the finding of the heart in all of them."""
    regions = truth(row)["regions"]
    return trace_text([region | {"finding": regions[0]["finding"]} for region in regions], "Normal.")


def test_the_truth_is_nearly_perfect(rows: list[dict]) -> None:
    """Nearly: a trace has two decimals, and the angles are small."""
    result = measure_traces([perfect(row) for row in rows], rows)
    for name in ("format", "located", "region_f1", "gated_f1", "answer_f1"):
        assert result[name] == 1.0
    assert 0.85 < result["mean_iou"] < 1.0
    assert result["distinct"] == result["distinct_true"]
    assert result["copied"] == result["swapped"] == 0.0
    assert result["standard_error"]["region_f1"] == 0.0
    assert set(result["regions"]) == set(REGIONS)
    assert result["regions"]["cardiac silhouette"]["mean_iou"] > result["regions"][ANGLES[0]]["mean_iou"]


def test_right_findings_in_wrong_boxes_count_without_the_gate_only(rows: list[dict]) -> None:
    result = measure_traces([swapped(row) for row in rows], rows)
    assert result["region_f1"] == 1.0
    assert result["gated_f1"] == result["located"] == pytest.approx(1 / 3)
    assert result["swapped"] == 2.0
    assert result["regions"][ANGLES[1]] == {"n": 12, "mean_iou": 0.0, "located": 0.0}


def test_one_finding_for_all_regions_is_seen(rows: list[dict]) -> None:
    result = measure_traces([copied(row) for row in rows], rows)
    assert result["mean_iou"] > 0.85
    assert result["copied"] == 1.0
    assert result["distinct"] == pytest.approx(1 / 3)
    assert result["region_f1"] == result["gated_f1"] == pytest.approx(1 / 3)
    assert result["answer_f1"] < 0.5


@pytest.mark.parametrize("text", ["", "Findings: normal.", "<think>[]</think><answer>Normal.</answer>"])
def test_an_output_without_format_counts_nowhere(rows: list[dict], text: str) -> None:
    result = measure_traces([text] * 12, rows)
    assert all(result[name] == 0.0 for name in RATES if name != "distinct_true")
    assert all(region["mean_iou"] == 0.0 for region in result["regions"].values())


def test_half_of_the_outputs_is_half_of_everything(rows: list[dict]) -> None:
    result = measure_traces([perfect(row) if i % 2 else "" for i, row in enumerate(rows)], rows)
    assert result["format"] == result["region_f1"] == 0.5
    assert result["standard_error"]["format"] == pytest.approx(0.5 / 12**0.5)
    assert [study["answer_f1"] for study in result["studies"]] == [0.0, 1.0] * 6


def test_bad_input_of_a_measurement(rows: list[dict]) -> None:
    with pytest.raises(ValueError, match="2 outputs for 12 studies"):
        measure_traces(["", ""], rows)
    with pytest.raises(ValueError, match="0 outputs"):
        measure_traces([], [])
    with pytest.raises(ValueError, match="annotator"):
        measure_traces([perfect(rows[0])], rows[:1], "nobody")


def evaluation(folder: Path, step: int, *, blind: bool = False, **changed: float) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    rates = dict.fromkeys(RATES, 0.5) | {"format": 1.0, "distinct_true": 0.9} | changed
    value = {
        "n": 40,
        "annotator": "rules",
        **rates,
        "standard_error": dict.fromkeys(RATES, 0.01),
        "regions": {name: {"n": 40, "mean_iou": rates["mean_iou"], "located": 0.25} for name in REGIONS},
        **({"blind": dict.fromkeys(RATES, 0.125)} if blind else {}),
    }
    (folder / f"step_{step}.json").write_text(json.dumps(value))


def training(folder: Path, outputs: list[str], gts: str, **last: float) -> None:
    """Two steps of four rollouts, evaluated after each."""
    (folder / "rollouts").mkdir(parents=True)
    with (folder / "metrics.jsonl").open("w") as log:
        for step in (1, 2):
            lines = [
                {
                    "input": "x",
                    "output": text,
                    "gts": gts,
                    "score": 0.25 * step,
                    "step": step,
                    "uid": f"p{i // 2}_{i % 2}_0",
                }
                for i, text in enumerate(outputs)
            ]
            lines.append(lines[0] | {"output": "", "score": 0.0, "uid": f"pad{'0a' * 16}_0_0"})
            (folder / f"rollouts/{step}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
            data = {"actor/grad_norm": 0.1 * step, "actor/kl_loss": 0.01, "timing_s/step": 4.0 * step}
            log.write(json.dumps({"step": step, "data": data}) + "\n")
    evaluation(folder / "eval", 1)
    evaluation(folder / "eval", 2, **last)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, rows: list[dict]) -> Path:
    """Two seeds of four arms that do what the paper says, and a sweep."""
    out = tmp_path_factory.mktemp("experiment")
    gts = rows[0]["reward_model"]["ground_truth"]
    evaluation(out / "cold_start/eval", 0, blind=True)
    good, wrong = perfect(rows[0]), swapped(rows[0])
    for seed in (0, 1):
        ends = {
            "none": {},
            "spatial": {"mean_iou": 0.75, "distinct": 0.375, "copied": 0.625},
            "factual": {"region_f1": 0.75, "mean_iou": 0.375, "gated_f1": 0.25, "answer_f1": 0.375},
            "both": {"mean_iou": 0.75, "region_f1": 0.75, "gated_f1": 0.75, "answer_f1": 0.625 + 0.125 * seed},
        }
        for arm, last in ends.items():
            texts = [good, good, wrong, wrong] if arm == "factual" else [good] * 4
            training(out / f"runs/{arm}_seed{seed}", texts, gts, **last)
    for tau, answer in (("0", 0.25), (".5", 0.5)):
        evaluation(out / f"runs/tau{tau}_seed0/eval", 1, answer_f1=answer, gated_f1=0.5 + answer)
    return out


@pytest.fixture
def result(made: Path) -> dict:
    return compare(made, ARMS, [0, 1], ["0", ".5"], {"films": "112"})


def test_numbers_are_those_of_the_files(result: dict) -> None:
    run = result["runs"]["factual"]["1"]
    assert run["steps"] == [1, 2]
    assert run["reward_mean"] == [0.25, 0.5]
    assert run["rollouts"]["format"] == [1.0, 1.0]  # padding is no rollout
    assert run["rollouts"]["region_f1"] == [1.0, 1.0]
    assert run["rollouts"]["gated_f1"] == pytest.approx([2 / 3, 2 / 3], abs=1e-4)
    assert [one["step"] for one in run["evaluations"]] == [0, 1, 2]
    assert run["evaluations"][-1]["mean_iou"] == 0.375
    assert run["seconds_per_step"] == 8.0  # the first step warms up
    assert result["differences"]["none"]["answer_f1"] == [0.125, 0.25]
    assert result["differences"]["factual"]["mean_iou"] == [0.375, 0.375]
    assert "both" not in result["differences"]
    assert {tau: one["answer_f1"] for tau, one in result["sweep"].items()} == {"0": 0.25, "0.25": 0.5, "0.5": 0.5}


def test_page_says_what_the_result_says(result: dict) -> None:
    page = markdown(result)
    assert "| mean IoU | 0.125 | 0.500 | 0.500 (0.500 to 0.500) | 0.750 (0.750 to 0.750) | 0.375" in page
    assert "| F1 of the answer | 0.125 | 0.500 |" in page
    assert "| 0.688 (0.625 to 0.750) |" in page
    assert "over none: yes, in every seed (+0.188)" in page
    assert "studies with one finding for all regions rise: yes, in every seed (+0.125)" in page
    assert "mean IoU falls: yes, in every seed (-0.125)" in page
    assert "than with factual only: yes, in every seed (+0.500)" in page
    assert "Here tau 0.25 has the best F1 of the answer and tau 0.5 the best F1 of findings" in page
    assert "| cardiac silhouette | 0.500 (0.250) |" in page
    assert "it is not RadGraph-F1" in page
    assert "| films | 112 |" in page


def test_a_claim_that_does_not_show_is_not_made(result: dict) -> None:
    for run in result["runs"]["spatial"].values():
        run["evaluations"][-1] |= {"mean_iou": 0.25, "copied": 0.5}
    page = markdown(result)
    assert "mean IoU rises: no, the reverse in every seed (-0.250)" in page
    assert "rise: not shown: better in 0 of 2 seeds (+0.000)" in page


def test_what_a_table_would_hide_is_said(result: dict) -> None:
    (same,) = remarks(result)
    assert same.startswith("none ends as the cold start, in every number")
    result["runs"]["both"]["1"]["evaluations"][-1]["format"] = 0.5
    result["cold_start"]["located"] = 0.97
    lost, opened = remarks(result)  # what is no longer the cold start is not said to be
    assert lost.startswith("both, gated, seed 1, loses the format")
    assert opened.startswith("The gate is open for 97.0%")
    assert f"- {lost}\n- {opened}\n" in markdown(result)


def test_one_arm_without_sweep_is_shown(made: Path, tmp_path: Path) -> None:
    one = compare(made, ["spatial"], [0], [], {})
    assert "differences" not in one
    page = markdown(one)
    assert "at other tau" not in page
    assert "factual" not in page.split("## What came out")[1]
    assert len(draw(one, tmp_path / "a.png")) == 5
    with pytest.raises(ValueError, match="compared with the arm both"):
        compare(made, ["spatial"], [0], ["0"], {})


def test_picture_has_every_arm_at_its_values(result: dict, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    figures: list = []
    save = pictures._save
    monkeypatch.setattr(pictures, "_save", lambda figure, path, dpi: (figures.append(figure), save(figure, path, dpi)))
    assert len(draw(result, tmp_path / "a.png")) == 6
    _, _, gated, plane, answers, sweep = figures[0].axes
    lines = {line.get_label(): line for line in gated.get_lines()}
    assert list(lines["factual only"].get_ydata()) == pytest.approx([2 / 3, 2 / 3], abs=1e-4)
    places = {line.get_label(): line for line in plane.get_lines()}
    assert places["cold start, blind"].get_xydata().tolist() == [[0.125, 0.125]]
    assert places["both, gated"].get_xydata().tolist() == [[0.75, 0.75]] * 2
    assert list({line.get_label(): line for line in answers.get_lines()}["both, gated"].get_ydata())[-1] == 0.6875
    assert list(sweep.get_lines()[0].get_xdata()) == [0.0, 0.25, 0.5]


def test_report_writes_three_files_that_can_be_written_anew(made: Path, tmp_path: Path, capsys) -> None:
    out, docs = tmp_path / "copy", tmp_path / "docs"
    shutil.copytree(made, out)
    told = ["--seeds", "0", "1", "--taus", "0", ".5", "--setting", "films=a=b", "--docs", str(docs)]
    assert main(["report", str(out), *told]) == 0
    written = {path.name: path.read_bytes() for path in docs.iterdir()}
    assert sorted(written) == ["reproduce_gated.json", "reproduce_gated.md", "reproduce_gated.png"]
    assert json.loads(written["reproduce_gated.json"])["settings"] == {"films": "a=b"}
    (docs / "reproduce_gated.md").unlink()
    assert main(["page", str(docs / "reproduce_gated.json")]) == 0
    assert {path.name: path.read_bytes() for path in docs.iterdir()} == written
    capsys.readouterr()


@pytest.mark.parametrize(
    ("gone", "words"),
    [
        ("runs/both_seed1", "runs/both_seed1 is missing: run recipes/gated_cpu.sh"),
        ("runs/both_seed1/eval", "holds no evaluation"),
        ("runs/none_seed0/rollouts", "holds no rollout dump"),
        ("runs/factual_seed1/rollouts/2.jsonl", "has the steps 1 to 1 (1 of them)"),
        ("runs/factual_seed1/eval/step_1.json", "has the checkpoints 0 to 2 (2 of them)"),
        ("runs/tau0_seed0/eval", "tau0_seed0/eval holds no evaluation"),
        ("runs/both_seed0/metrics.jsonl", "metrics.jsonl does not exist"),
        ("cold_start/eval", "cold_start/eval holds no evaluation"),
    ],
)
def test_what_is_missing_is_named(made: Path, tmp_path: Path, gone: str, words: str, capsys) -> None:
    out = tmp_path / "copy"
    shutil.copytree(made, out)
    target = out / gone
    shutil.rmtree(target) if target.is_dir() else target.unlink()
    assert main(["report", str(out), "--seeds", "0", "1", "--taus", "0", ".5"]) == 2
    error = capsys.readouterr().err
    assert words in error
    assert error.count("\n") == 1
    assert not (out / "reproduce_gated.json").exists()


@pytest.mark.parametrize("content", ["{", "[]", '{"n": 3}'])
def test_a_damaged_evaluation_is_named(made: Path, tmp_path: Path, content: str, capsys) -> None:
    out = tmp_path / "copy"
    shutil.copytree(made, out)
    (out / "runs/none_seed0/eval/step_2.json").write_text(content)
    assert main(["report", str(out), "--seeds", "0"]) == 2
    assert "step_2.json is no evaluation of this version" in capsys.readouterr().err


def test_a_dump_without_rollouts_is_named(tmp_path: Path) -> None:
    (tmp_path / "1.jsonl").write_text("\n")
    with pytest.raises(ValueError, match="holds no rollout"):
        read_rollouts(tmp_path / "1.jsonl")


def test_every_checkpoint_is_evaluated_once_and_the_cold_start_blind_too(tmp_path: Path, capsys) -> None:
    films = ["--n-test", "4", "--size", "64", "--task", "trace", "--embed-images", "--quiet", "--style", "template"]
    assert simulated(["--out", str(tmp_path / "films"), *films]) == 0
    data, run, model = tmp_path / "films/test.parquet", tmp_path / "run", tmp_path / "model"
    for step in (10, 5):
        (run / f"checkpoints/global_step_{step}/actor/huggingface").mkdir(parents=True)
    model.mkdir()
    (model / "config.json").write_text("{}")
    seen = []

    def generate(folder, rows, *, images_from=None, **_):
        seen.append((Path(folder).parts[-3], images_from))
        return [perfect(rows[i]) for i in images_from or range(len(rows))]

    settings = {"max_new_tokens": 4, "generate": generate}
    assert evaluate_checkpoints(run, data, run / "eval", **settings) == [5, 10]
    assert evaluate_checkpoints(run, data, run / "eval", **settings) == [5, 10]
    assert seen == [("global_step_5", None), ("global_step_10", None)]
    assert json.loads((run / "eval/step_10.json").read_text())["region_f1"] == 1.0
    assert evaluate_checkpoints(model, data, tmp_path / "eval", **settings) == [0]
    written = json.loads((tmp_path / "eval/step_0.json").read_text())
    assert written["answer_f1"] == 1.0
    assert written["blind"]["answer_f1"] < 1.0
    predictions = (tmp_path / "eval/step_0.predictions.jsonl").read_text().splitlines()
    assert json.loads(predictions[0])["prediction"].startswith("<think>")
    assert "step 0: 4 held-out studies, format 1.000" in capsys.readouterr().out


def test_committed_page_is_that_of_the_committed_result(tmp_path: Path) -> None:
    """docs/reproduce_gated.md comes from its JSON and was not edited."""
    source = ROOT / "docs/reproduce_gated.json"
    if not source.exists():
        pytest.skip("the experiment was not run yet")
    write(json.loads(source.read_text()), tmp_path)
    for name in ("reproduce_gated.md", "reproduce_gated.json"):
        assert (tmp_path / name).read_text() == (ROOT / "docs" / name).read_text()


def recipe(*overrides: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", str(ROOT / "recipes/gated_cpu.sh"), *overrides],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )


@pytest.mark.slow
def test_dry_run_validates_the_arms_and_starts_nothing(tmp_path: Path) -> None:
    arms = ("none", "both")
    run = recipe(DRY_RUN="1", OUT=str(tmp_path / "out"), ARMS=" ".join(arms))
    assert run.returncode == 0, run.stderr
    assert run.stdout.count("valid for the installed verl") == 2
    for arm, config in zip(arms, run.stdout.split("# arm ")[1:], strict=True):
        assert f"reward: {arm}" in config
        for line in ("clip_ratio_low: 0.2", "clip_ratio_high: 0.28", "kl_loss_coef: 0.04", "tau: 0.25", "n: 8"):
            assert line in config
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("environment", "says"),
    [
        ({"ARMS": "both grpo"}, "ARMS holds grpo"),
        ({"ARMS": " "}, "SEEDS or ARMS is empty"),
        ({"SEEDS": "0 x"}, "SEEDS holds x"),
        ({"STEPS": "50"}, "STEPS=50 is no multiple of SAVE_EVERY"),
        ({"SWEEP_STEPS": "7"}, "SWEEP_STEPS=7 is no multiple"),
        ({"TAUS": "-1"}, "TAUS holds -1"),
        ({"ARMS": "none", "TAUS": "0"}, "needs the arm both"),
        ({"N_POOL": "4"}, "N_POOL=4 is less than one step"),
        ({"JOBS": "x"}, "JOBS=x is not a whole number"),
    ],
)
def test_bad_input_is_one_sentence_before_anything_starts(tmp_path: Path, environment: dict, says: str) -> None:
    run = recipe(**environment, OUT=str(tmp_path / "out"))
    assert run.returncode == 2
    assert says in run.stderr
    assert run.stderr.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_runs_of_other_settings_are_kept_and_named(tmp_path: Path) -> None:
    out = tmp_path / "out"
    (out / "pool").mkdir(parents=True)
    (out / "pool/settings").write_text("seed=0 something else")
    (out / "pool/train.parquet").write_text("mine")
    run = recipe(OUT=str(out))
    assert run.returncode == 2
    assert "set OUT to another folder" in run.stderr
    assert (out / "pool/train.parquet").read_text() == "mine"
