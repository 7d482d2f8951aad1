"""The OraPO reproduction: what is read from run folders, what is compared, and what the page and picture show."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

pytest.importorskip("matplotlib")

from hypothesis import given
from hypothesis import strategies as st

from data_preprocess.core.rows import report_row, write_rows
from radverl.evaluation import pictures
from radverl.evaluation.pages import to_json
from radverl.evaluation.reproduce_orapo import evaluate_checkpoints, main, write
from radverl.evaluation.reproduce_orapo_report import draw, explanation, markdown, remarks, verdict
from radverl.evaluation.reproduce_orapo_runs import compare, cumulative_share, label_shares, rarest_labels
from radverl.labels import CHEXPERT_14

ROOT = Path(__file__).parents[1]
# Rewards by step of two prompts with two rollouts each; all-zero groups a step: 2, 1, 0, 0 and 1, 0, 0, 0.
GRPO = [[0, 0, 0, 0], [0, 0, 0, 1], [0, 1, 0, 1], [1, 1, 1, 1]]
ORAPO = [[0, 0, 0, 1], [0, 1, 0, 1], [0, 1, 0, 1], [1, 1, 1, 1]]
RARE = ["Pneumonia", "Fracture"]


def parquet(path: Path, studies: list[list[str]], image: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = [
        report_row(
            data_source="toy",
            split="train",
            index=i,
            prompt_id=f"toy/{i}",
            subject_id=str(i),
            study_id=str(i),
            images=[str(image)],
            ground_truth={
                "findings": "Toy.",
                "impression": "Toy.",
                "report": "Toy.",
                "labels": dict.fromkeys(CHEXPERT_14) | dict.fromkeys(names, 1),
            },
            width=8,
            height=8,
            prompt="<image>\nReport.",
        )
        for i, names in enumerate(studies)
    ]
    write_rows(path, iter(rows), kind="rl")


def evaluation(folder: Path, step: int, facts: float, f1: dict[str, float]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    value = {
        "n": 40,
        "facts": facts,
        "macro_precision": 0.5,
        "macro_recall": facts / 2,
        "macro_f1": facts / 4,
        "facts_blind": 0.05 if step == 0 else None,
        "macro_f1_blind": 0.02 if step == 0 else None,
        "per_label": {name: {"f1": f1.get(name, 0.0), "recall": 0.0, "support": 7} for name in CHEXPERT_14},
    }
    (folder / f"step_{step}.json").write_text(json.dumps(value))


def training(folder: Path, rewards: list[list[float]], f1: float, preference: bool) -> None:
    (folder / "rollouts").mkdir(parents=True)
    with (folder / "metrics.jsonl").open("w") as log:
        log.write(json.dumps({"step": 0, "data": {"actor/grad_norm": 99.0}}) + "\n")
        for step, values in enumerate(rewards, 1):
            lines = [
                {"input": "x", "output": "y", "gts": "{}", "score": v, "step": step, "uid": f"p{i // 2}_{i % 2}_0"}
                | {"output": f"report {i if preference else i // 2}"}
                for i, v in enumerate(values)
            ]
            if step == 3:  # verl fills a batch up, here because a rollout failed
                lines.append(lines[0] | {"score": 0.0, "uid": f"pad{'0a' * 16}_0_0"})
            (folder / f"rollouts/{step}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
            logged = {"actor/grad_norm": 0.1 * step, "timing_s/step": 3.0 + step}
            if preference:
                logged |= {"orapo/w/mean": 0.15 - 0.02 * step, "orapo/dpo_loss": 0.69}
            log.write(json.dumps({"step": step, "data": logged}) + "\n")
    for step, scale in ((2, 0.5), (4, 1.0)):
        evaluation(folder / "eval", step, 0.4 + f1, {"Pneumonia": f1 * scale, "Fracture": f1 * scale / 2})


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two seeds of both arms; in seed 1 OraPO is worse on the rare labels."""
    out = tmp_path_factory.mktemp("experiment")
    image = out / "film.png"
    from PIL import Image

    Image.new("L", (8, 8)).save(image)
    parquet(out / "cohort/train.parquet", [["Edema"]] * 5 + [["Edema", "Fracture"]] * 3 + [["Pneumonia"]] * 2, image)
    parquet(out / "pool/train.parquet", [["Pneumonia"]] * 2 + [["Fracture"]] + [["Edema"]], image)
    evaluation(out / "warm_start/eval", 0, 0.4, {"Edema": 0.9})
    share = {"prompts": 64, "ratio": {"0.1": 0.125, "1": 1.25}, "cosine": 0.1}
    (out / "warm_start/gradient_share.json").write_text(json.dumps(share))
    for seed, gain in ((0, 0.2), (1, -0.1)):
        training(out / f"runs/grpo_seed{seed}", GRPO, 0.2, preference=False)
        training(out / f"runs/orapo_seed{seed}", ORAPO, 0.2 + gain, preference=True)
    return out


@pytest.fixture
def result(made: Path) -> dict:
    return compare(made, ["grpo", "orapo"], [0, 1], {"tau": "5"})


@pytest.fixture
def figures(monkeypatch: pytest.MonkeyPatch) -> list:
    kept: list = []
    save = pictures._save
    monkeypatch.setattr(pictures, "_save", lambda figure, path, dpi: (kept.append(figure), save(figure, path, dpi)))
    return kept


def test_cumulative_share_counts_groups_not_steps() -> None:
    """4 groups all zero of 4, then 0 of 12: 1.0 and 4/16, although the mean of the steps is 0.5."""
    rates = [{"groups": 4, "all_zero_groups": 1.0}, {"groups": 12, "all_zero_groups": 0.0}, {"groups": 0}]
    assert cumulative_share(rates) == [1.0, 0.25, 0.25]
    assert cumulative_share([{"groups": 0}]) == [0.0]


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(0, 9)).map(lambda t: (t[0], min(t))), min_size=1))
def test_cumulative_share_ends_at_the_share_of_all_groups(steps: list[tuple[int, int]]) -> None:
    rates = [{"groups": groups, "all_zero_groups": zero / groups} for groups, zero in steps]
    shares = cumulative_share(rates)
    assert shares[-1] == pytest.approx(sum(zero for _, zero in steps) / sum(groups for groups, _ in steps))
    assert all(0 <= share <= 1 + 1e-9 for share in shares)


def test_rarest_labels_are_those_of_the_training_studies(made: Path) -> None:
    assert rarest_labels(made / "cohort/train.parquet") == {"Pneumonia": 0.2, "Fracture": 0.3}
    assert label_shares(made / "cohort/train.parquet")["Edema"] == 0.8
    with pytest.raises(ValueError, match="of 3 labels only; 4 are compared"):
        rarest_labels(made / "cohort/train.parquet", 4)


def test_numbers_are_those_of_the_files(result: dict) -> None:
    run = result["runs"]["grpo"]["0"]
    assert run["steps"] == [1, 2, 3, 4]
    assert run["all_zero_share"] == [1.0, 0.5, 0.0, 0.0]
    assert run["cumulative_share"] == [1.0, 0.75, 0.5, 0.375]
    assert run["zero_reward_rate"] == [1.0, 0.75, 0.5, 0.0]
    assert result["runs"]["orapo"]["1"]["cumulative_share"] == [0.5, 0.25, 0.1667, 0.125]
    assert run["checkpoints"] == [0, 2, 4]
    assert run["rare_f1"] == {"Pneumonia": [0.0, 0.1, 0.2], "Fracture": [0.0, 0.05, 0.1]}
    assert run["first_and_last_quarter"] == {"distinct reports a group": [1.0, 1.0], "actor/grad_norm": [0.1, 0.4]}
    assert run["seconds_per_step"] == 6.0  # median of 5, 6 and 7: the first step warms up
    assert result["rare_labels"][0] == {
        "label": "Pneumonia",
        "share": 0.2,
        "share_pool": 0.5,
        "positives_test": 7,
    }


def test_differences_are_orapo_minus_grpo_seed_by_seed(result: dict) -> None:
    differences = result["differences"]
    assert differences["cumulative share of all-zero groups"] == [-0.25, -0.25]
    assert differences["all-zero groups, last quarter of the steps"] == [0.0, 0.0]
    assert differences["FactS"] == pytest.approx([0.2, -0.1])
    assert differences["macro precision"] == [0.0, 0.0]
    assert differences["macro F1"] == pytest.approx([0.05, -0.025])
    assert differences["F1 Pneumonia"] == pytest.approx([0.2, -0.1])
    assert differences["F1 Fracture, mean of the checkpoints"] == pytest.approx([0.075, -0.0375])


@pytest.mark.parametrize(
    ("name", "gains", "words"),
    [
        ("macro F1", [0.1, 0.3], "yes, in every seed (+0.200)"),
        ("macro F1", [-0.1, -0.3], "no, the reverse in every seed (-0.200)"),
        ("macro F1", [0.2, 0.0], "not shown: better in 1 of 2 seeds (+0.100)"),
        ("cumulative share of all-zero groups", [-0.1, -0.1], "yes, in every seed (-0.100)"),
        ("cumulative share of all-zero groups", [0.1, 0.1], "no, the reverse in every seed (+0.100)"),
    ],
)
def test_verdict(name: str, gains: list[float], words: str) -> None:
    assert verdict(name, gains) == words


def test_page_says_what_the_result_says(result: dict) -> None:
    page = markdown(result)
    assert (
        "| cumulative share of all-zero groups |  | 0.375 (0.375 to 0.375) | 0.125 (0.125 to 0.125) "
        "| -0.250 | -0.250, -0.250 |" in page
    )
    assert "| FactS | 0.400 | 0.600 (0.600 to 0.600) | 0.650 (0.500 to 0.800) | +0.050 | +0.200, -0.100 |" in page
    assert "| F1 Pneumonia | 0.000 | 0.200 (0.200 to 0.200) | 0.250 (0.100 to 0.400) |" in page
    assert "| macro F1 | 0.100 |" in page
    assert "cumulative share of all-zero groups: yes, in every seed (-0.250)" in page
    assert "F1 Pneumonia: not shown: better in 1 of 2 seeds (+0.050)" in page
    assert "Pneumonia: 20.0% of the cohort, 50.0% of the RL studies, 7 held-out positives" in page
    assert "| `orapo/w/mean` | OraPO + FactS | 0.1300 | 0.0700 |" in page
    assert "on 64 RL prompts" in page
    assert "is 0.12 at tau 0.1, 1.25 at tau 1 (" in page
    assert "| tau | 5 |" in page


def test_what_a_mean_would_hide_is_said(result: dict) -> None:
    assert remarks(result) == []
    for runs in result["runs"].values():
        for run in runs.values():
            run["rare_f1"]["Fracture"] = [0.0, 0.0, 0.0]
    result["runs"]["grpo"]["1"]["evaluations"][-1]["facts"] = 0.25
    unseen, fell = remarks(result)
    assert unseen.startswith("F1 Fracture is 0 at every checkpoint of every run")
    assert fell.startswith("GRPO + FactS, seed 1, fell from FactS 0.400 to 0.250")
    assert f"- {unseen}\n- {fell}\n" in markdown(result)


def test_explanation_is_given_only_where_the_runs_show_it(result: dict) -> None:
    why = explanation(result)
    assert "loss is still 0.690 at the end" in why
    assert "has 2.0 distinct reports at the end, with GRPO alone 1.0" in why
    assert "mean reward of the rollouts is 1.000 against 1.000" in why
    assert why in markdown(result)
    for run in result["runs"]["orapo"].values():
        run["first_and_last_quarter"]["orapo/dpo_loss"] = [0.69, 0.5]
    assert explanation(result) == ""


def test_one_arm_is_shown_but_not_compared(made: Path, tmp_path: Path) -> None:
    one = compare(made, ["grpo"], [0], {})
    assert "differences" not in one
    page = markdown(one)
    assert "nothing is compared" in page
    assert "OraPO + FactS" not in page
    assert len(draw(one, tmp_path / "a.png")) == 3


def test_picture_has_both_arms_at_their_values(result: dict, tmp_path: Path, figures: list) -> None:
    assert draw(result, tmp_path / "a.png") == [
        "All-zero groups",
        "Pneumonia (20.0% of the cohort)",
        "Fracture (30.0% of the cohort)",
    ]
    left, centre, right = figures[0].axes
    means = {line.get_label(): line for line in left.get_lines() if not line.get_label().startswith("_")}
    assert list(means["GRPO + FactS"].get_ydata()) == [1.0, 0.75, 0.5, 0.375]
    assert list(means["OraPO + FactS"].get_ydata()) == [0.5, 0.25, 0.1667, 0.125]
    assert len(left.get_lines()) == 6  # two seeds and their mean, twice
    mean = {line.get_label(): line for line in centre.get_lines()}["OraPO + FactS"]
    assert list(mean.get_xdata()) == [0, 2, 4]
    assert list(mean.get_ydata()) == pytest.approx([0.0, 0.125, 0.25])
    assert [text.get_text() for text in right.get_legend().get_texts()] == ["GRPO + FactS", "OraPO + FactS"]
    assert left.get_ylim()[0] == 0


def test_report_writes_three_files_that_can_be_written_anew(made: Path, tmp_path: Path, capsys) -> None:
    out, docs = tmp_path / "copy", tmp_path / "docs"
    shutil.copytree(made, out)
    assert main(["report", str(out), "--seeds", "0", "1", "--setting", "tau=5=x", "--docs", str(docs)]) == 0
    written = {path.name: path.read_bytes() for path in docs.iterdir()}
    assert sorted(written) == ["reproduce_orapo.json", "reproduce_orapo.md", "reproduce_orapo.png"]
    assert json.loads(written["reproduce_orapo.json"])["settings"] == {"tau": "5=x"}
    (docs / "reproduce_orapo.md").unlink()
    assert main(["page", str(docs / "reproduce_orapo.json")]) == 0
    assert {path.name: path.read_bytes() for path in docs.iterdir()} == written
    capsys.readouterr()


@pytest.mark.parametrize(
    ("gone", "words"),
    [
        ("runs/orapo_seed1", "runs/orapo_seed1 is missing: run recipes/orapo_cpu.sh"),
        ("runs/orapo_seed1/eval", "holds no evaluation"),
        ("runs/orapo_seed1/rollouts", "holds no rollout dump"),
        ("runs/orapo_seed1/rollouts/4.jsonl", "has the steps 1 to 3 (3 of them)"),
        ("runs/orapo_seed1/eval/step_2.json", "has the checkpoints 0 to 4 (2 of them)"),
        ("runs/orapo_seed1/metrics.jsonl", "metrics.jsonl does not exist"),
        ("warm_start/eval", "warm_start/eval holds no evaluation"),
        ("warm_start/gradient_share.json", "gradient_share.json cannot be read"),
        ("cohort/train.parquet", "cohort/train.parquet does not exist"),
    ],
)
def test_what_is_missing_is_named(made: Path, tmp_path: Path, gone: str, words: str, capsys) -> None:
    out = tmp_path / "copy"
    shutil.copytree(made, out)
    target = out / gone
    shutil.rmtree(target) if target.is_dir() else target.unlink()
    assert main(["report", str(out), "--seeds", "0", "1"]) == 2
    error = capsys.readouterr().err
    assert words in error
    assert error.count("\n") == 1
    assert not (out / "reproduce_orapo.json").exists()


@pytest.mark.parametrize("content", ["{", "[]", '{"n": 3}'])
def test_a_damaged_evaluation_is_named(made: Path, tmp_path: Path, content: str, capsys) -> None:
    out = tmp_path / "copy"
    shutil.copytree(made, out)
    (out / "runs/grpo_seed0/eval/step_2.json").write_text(content)
    assert main(["report", str(out), "--seeds", "0"]) == 2
    assert "step_2.json is no evaluation of this version" in capsys.readouterr().err


def test_every_checkpoint_is_evaluated_once(made: Path, tmp_path: Path, capsys) -> None:
    run = tmp_path / "run"
    for step in (10, 5):
        (run / f"checkpoints/global_step_{step}/actor/huggingface").mkdir(parents=True)
    seen = []

    def generate(model, rows, *, images_from=None, **_):
        seen.append((Path(model).parts[-3], images_from is not None))
        return ["Pneumonia."] * len(rows)

    settings = {"max_new_tokens": 4, "generate": generate}
    data = made / "pool/train.parquet"
    assert evaluate_checkpoints(run, data, run / "eval", **settings) == [5, 10]
    assert evaluate_checkpoints(run, data, run / "eval", **settings) == [5, 10]
    assert seen == [("global_step_5", False), ("global_step_10", False)]
    value = json.loads((run / "eval/step_10.json").read_text())
    assert value["per_label"]["Pneumonia"]["recall"] == 1.0
    assert "step 10: 4 held-out studies" in capsys.readouterr().out

    model = tmp_path / "a/b/model"
    model.mkdir(parents=True)
    (model / "config.json").write_text("{}")
    assert evaluate_checkpoints(model, data, tmp_path / "eval", **settings) == [0]
    assert [blind for _, blind in seen[2:]] == [False, True]
    with pytest.raises(ValueError, match="neither a model folder nor a run"):
        evaluate_checkpoints(tmp_path, data, tmp_path / "x", **settings)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
        max_leaves=12,
    )
)
def test_json_says_the_same_in_whatever_lines(value: object) -> None:
    assert json.loads(to_json(value)) == value


def test_committed_page_is_that_of_the_committed_result(tmp_path: Path) -> None:
    """docs/reproduce_orapo.md comes from its JSON and was not edited."""
    source = ROOT / "docs/reproduce_orapo.json"
    if not source.exists():
        pytest.skip("the experiment was not run yet")
    write(json.loads(source.read_text()), tmp_path)
    for name in ("reproduce_orapo.md", "reproduce_orapo.json"):
        assert (tmp_path / name).read_text() == (ROOT / "docs" / name).read_text()


def recipe(*overrides: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", str(ROOT / "recipes/orapo_cpu.sh"), *overrides],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def test_dry_run_validates_both_arms_and_starts_nothing(tmp_path: Path) -> None:
    run = recipe(DRY_RUN="1", OUT=str(tmp_path / "out"), TAU="2.5")
    assert run.returncode == 0, run.stderr
    assert run.stdout.count("valid for the installed verl") == 2
    grpo, orapo = run.stdout.split("# arm orapo")
    assert "trainer_mode: sync" in grpo
    assert "w_min" not in grpo
    assert "trainer_mode: orapo_sync" in orapo
    assert "tau: 2.5" in orapo
    assert "w_min: 0.05" in orapo
    for line in ("train_batch_size: 8", "kl_loss_coef: 0.003", "seed: 0"):
        assert line in grpo
        assert line in orapo
    assert not (tmp_path / "out").exists()


def test_dry_run_refuses_what_an_arm_would_refuse(tmp_path: Path) -> None:
    run = recipe("+algorithm.orapo.w_min=0.9", DRY_RUN="1", ARMS="orapo", OUT=str(tmp_path / "out"))
    assert run.returncode == 2
    assert "w_min" in run.stderr


@pytest.mark.parametrize(
    ("environment", "says"),
    [
        ({"ARMS": "grpo ppo"}, "ARMS holds ppo"),
        ({"ARMS": " "}, "SEEDS or ARMS is empty"),
        ({"SEEDS": "0 x"}, "SEEDS holds x"),
        ({"STEPS": "50"}, "no multiple of SAVE_EVERY=20"),
        ({"TAU": "-1"}, "TAU=-1"),
        ({"N_POOL": "4"}, "N_POOL=4 is less than one step"),
        ({"K": "x"}, "K=x is not a whole number"),
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
    (out / "cohort").mkdir(parents=True)
    (out / "cohort/settings").write_text("seed=0 something else")
    (out / "cohort/train.parquet").write_text("mine")
    run = recipe(OUT=str(out))
    assert run.returncode == 2
    assert "set OUT to another folder" in run.stderr
    assert (out / "cohort/train.parquet").read_text() == "mine"
