"""The three stages of the gated reward on Qwen3-VL-8B: the paper's values, the switches, and the dry runs."""

import io
import re
import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.recipe_runs import ROOT, arguments_of, recipe, settings_of

SFT, COLDSTART, GRPO = "gated_qwen3vl8b_sft", "gated_qwen3vl8b_coldstart", "gated_qwen3vl8b_grpo"
CONFIG = {SFT: "sft_trainer_engine", COLDSTART: "sft_trainer_engine", GRPO: "ppo_trainer"}
MODEL = "Qwen/Qwen3-VL-8B-Instruct"
PAPER = [
    (SFT, "model.path", MODEL),
    (SFT, "data.train_max_samples", 120_000),
    (SFT, "trainer.total_epochs", 2),
    (SFT, "optim.optimizer", "AdamW"),
    (SFT, "optim.lr", 1e-5),
    (SFT, "optim.lr_scheduler_type", "cosine"),
    (SFT, "optim.lr_warmup_steps_ratio", 0.1),
    (SFT, "data.train_batch_size", 128),
    (SFT, "trainer.n_gpus_per_node", 8),
    (COLDSTART, "model.path", str(ROOT / "outputs/gated_qwen3vl8b_sft/model")),
    (COLDSTART, "data.train_max_samples", 13_000),
    (COLDSTART, "trainer.total_epochs", 1),
    (COLDSTART, "optim.lr", 5e-6),
    (COLDSTART, "data.train_batch_size", 64),
    (COLDSTART, "trainer.n_gpus_per_node", 8),
    (GRPO, "actor_rollout_ref.model.path", str(ROOT / "outputs/gated_qwen3vl8b_coldstart/model")),
    (GRPO, "data.train_max_samples", 74_000),
    (GRPO, "data.train_batch_size", 32),
    (GRPO, "data.max_response_length", 1024),
    (GRPO, "trainer.n_gpus_per_node", 8),
    (GRPO, "algorithm.adv_estimator", "grpo"),
    (GRPO, "algorithm.norm_adv_by_std_in_grpo", True),
    (GRPO, "actor_rollout_ref.rollout.n", 8),
    (GRPO, "actor_rollout_ref.rollout.dtype", "bfloat16"),
    (GRPO, "actor_rollout_ref.actor.fsdp_config.dtype", "bfloat16"),
    (GRPO, "actor_rollout_ref.actor.optim.lr", 1e-6),
    (GRPO, "actor_rollout_ref.actor.optim.lr_warmup_steps_ratio", 0.1),
    (GRPO, "actor_rollout_ref.actor.optim.lr_warmup_steps", -1),  # above 0 it would take the place of the ratio
    (GRPO, "actor_rollout_ref.actor.clip_ratio_low", 0.2),
    (GRPO, "actor_rollout_ref.actor.clip_ratio_high", 0.28),
    (GRPO, "actor_rollout_ref.actor.use_kl_loss", True),
    (GRPO, "actor_rollout_ref.actor.kl_loss_coef", 0.04),
    (GRPO, "actor_rollout_ref.actor.kl_loss_type", "low_var_kl"),
    (GRPO, "actor_rollout_ref.actor.entropy_coeff", 0),
    (GRPO, "reward.radverl.reward", "gated"),
    (GRPO, "reward.radverl.kwargs.reward", "both"),
    (GRPO, "reward.radverl.kwargs.verify", "both"),
    (GRPO, "reward.radverl.kwargs.gate", "region"),
    (GRPO, "reward.radverl.kwargs.tau", 0.25),
    (GRPO, "reward.radverl.kwargs.annotator", "radgraph-xl"),
]


@cache
def plain(name: str) -> tuple[str, ...]:
    """The recipe's own arguments, nothing set."""
    return tuple(arguments_of(name))


def composed(name: str, **environment: str) -> dict[str, Any]:
    return settings_of(arguments_of(name, **environment) if environment else list(plain(name)), CONFIG[name])


@pytest.fixture(scope="module")
def studies(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """140 training and 130 validation studies in our schema, for RL and for supervised training."""
    from PIL import Image

    from data_preprocess.core.rows import DEFAULT_PROMPT, report_row, sft_row, write_rows

    folder = tmp_path_factory.mktemp("studies")
    picture = io.BytesIO()
    Image.new("L", (64, 64), 90).save(picture, "PNG")
    for split, count in (("train", 140), ("val", 130)):
        rows = [
            report_row(
                data_source="test",
                split=split,
                index=index,
                prompt_id=f"test/{split}/{index}",
                subject_id=f"{split}{index}",
                study_id="1",
                images=[picture.getvalue()],
                prompt=DEFAULT_PROMPT,
                ground_truth={"report": "Small left pleural effusion.", "labels": {"Pleural Effusion": 1}},
                width=64,
                height=64,
            )
            for index in range(count)
        ]
        write_rows(folder / f"{split}.parquet", rows, kind="rl")
        twins = [sft_row(row, "Small left pleural effusion.") for row in rows]
        write_rows(folder / f"sft_{split}.parquet", twins, kind="sft")
    return folder


def dry_run(capsys: pytest.CaptureFixture[str], name: str, arguments: list[str]) -> tuple[int, str, str]:
    from radverl.verl_plugin.dry_run import main as rl
    from radverl.verl_plugin.dry_run_sft import main as sft

    code = (rl if name == GRPO else sft)(arguments)
    captured = capsys.readouterr()
    return code, captured.out, captured.err


# ---- values and switches


@pytest.mark.parametrize(("name", "key", "value"), PAPER, ids=lambda part: str(part).removeprefix("gated_qwen3vl8b_"))
def test_values_of_the_paper(name: str, key: str, value: Any) -> None:
    assert composed(name)[key] == value


def test_every_value_of_the_paper_is_in_the_document() -> None:
    text = (ROOT / "docs/gated.md").read_text()
    for name, key, value in PAPER:
        written = {1e-5: "1e-5", 5e-6: "5e-6", 1e-6: "1e-6"}.get(value) if isinstance(value, float) else None
        written = written or (f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value))
        short = key.split(".")[-1]
        rows = [line for line in text.splitlines() if line.startswith("|") and f"`{short}`" in line]
        shown = written.replace(f"{ROOT}/", "")
        assert any(shown in line for line in rows), (name, short, shown)


def test_the_cold_start_differs_from_stage_1_only_in_what_the_paper_says() -> None:
    first, second = composed(SFT, DATA="/d"), composed(COLDSTART, DATA="/d", MAX_LENGTH="1536")
    changed = {key for key in first.keys() | second.keys() if first.get(key) != second.get(key)}
    assert changed == {
        "model.path", "data.train_max_samples", "data.train_batch_size", "trainer.total_epochs", "optim.lr",
    }  # fmt: skip


KWARGS = "reward.radverl.kwargs"


@pytest.mark.parametrize(
    ("name", "environment", "changed"),
    [
        (GRPO, {"REWARD": "spatial"}, {f"{KWARGS}.reward": "spatial"}),
        (GRPO, {"REWARD": "factual"}, {f"{KWARGS}.reward": "factual"}),
        (GRPO, {"REWARD": "none"}, {f"{KWARGS}.reward": "none"}),
        (GRPO, {"VERIFY": "answer"}, {f"{KWARGS}.verify": "answer"}),
        (GRPO, {"VERIFY": "reasoning"}, {f"{KWARGS}.verify": "reasoning"}),
        (GRPO, {"GATE": "sample"}, {f"{KWARGS}.gate": "sample"}),
        (GRPO, {"TAU": "0"}, {f"{KWARGS}.tau": 0}),
        (GRPO, {"TAU": "0.5"}, {f"{KWARGS}.tau": 0.5}),
        (
            GRPO,
            {"ANNOTATOR": "rules"},
            {f"{KWARGS}.annotator": "rules", f"{KWARGS}.annotator_settings.checkpoint": None},
        ),
        (GRPO, {"ROWS": "18500"}, {"data.train_max_samples": 18_500}),
        (GRPO, {"SEED": "3"}, {"data.seed": 3, "actor_rollout_ref.rollout.seed": 3}),
        (GRPO, {"STEPS": "7"}, {"trainer.total_training_steps": 7}),
        (GRPO, {"LR": "2e-6"}, {"actor_rollout_ref.actor.optim.lr": 2e-6}),
        (SFT, {"SEED": "3"}, {"data.seed": 3, "engine.seed": 3, "trainer.seed": 3}),
        (SFT, {"LR": "2e-5"}, {"optim.lr": 2e-5}),
        (SFT, {"WARMUP": "0"}, {"optim.lr_warmup_steps_ratio": 0}),
        (SFT, {"EPOCHS": "3"}, {"trainer.total_epochs": 3}),
        (SFT, {"STEPS": "7"}, {"trainer.total_training_steps": 7}),
        (SFT, {"MAX_LENGTH": "2048"}, {"data.max_length": 2048}),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) and len(value) == 1 else "",
)
def test_a_switch_changes_its_own_settings_and_no_other(
    name: str, environment: dict[str, str], changed: dict[str, Any]
) -> None:
    given = {"CHECKPOINT": str(ROOT), **environment} if environment != {"ANNOTATOR": "rules"} else environment
    base, other = composed(name, CHECKPOINT=str(ROOT)), composed(name, **given)
    assert {key: other.get(key) for key in base.keys() | other.keys() if base.get(key) != other.get(key)} == changed
    assert all(key in base or key in other for key in changed)


def test_folders_tell_the_ablations_apart() -> None:
    """Two ablations in one folder would resume each other; the paths contain every switch that is not the default."""
    switches = [{}, {"REWARD": "spatial"}, {"VERIFY": "answer"}, {"GATE": "sample"}, {"TAU": "0"}, {"ROWS": "18500"}]
    switches += [{"ANNOTATOR": "rules"}, {"ANNOTATOR": "radgraph"}, {"TAU": "0", "ROWS": "18500"}]
    lines = [next(a for a in arguments_of(GRPO, OUT="", **s) if "local_dir" in a) for s in switches]
    assert len(set(lines)) == len(switches)
    assert "outputs/gated_qwen3vl8b_grpo/checkpoints" in lines[0]


@pytest.mark.parametrize(("name", "least"), [(SFT, 5), (COLDSTART, 5), (GRPO, 75), ("gated_sft", 30)])
def test_every_setting_has_a_source(name: str, least: int) -> None:
    """Each line with an override says where the value is from: the paper, ours and why, or the user."""
    lines = (ROOT / f"recipes/{name}.sh").read_text().splitlines()
    sections = "data|algorithm|reward|trainer|hydra|actor_rollout_ref|model|engine|optim|checkpoint"
    override = re.compile(rf"(^|[ (+'])({sections})\.[\w.{{}},]+=")
    default = re.compile(
        r"(MODEL|ROWS|B|BATCH|LR|WARMUP|EPOCHS|MAX_\w+|GPUS|SEED|REWARD|VERIFY|GATE|TAU|ANNOTATOR|CHECKPOINT)=\$\{"
    )
    found = [line for line in lines if override.search(line.split("#")[0]) or default.match(line)]
    assert len(found) >= least
    for line in found:
        assert re.search(r"# (Gated, (training settings|method|data|objective|reward|Table \d)|ours|yours)", line), line


@pytest.mark.parametrize(
    ("name", "environment", "says"),
    [
        (GRPO, {"REWARD": "facts"}, "REWARD=facts is unknown; use one of: both spatial factual none."),
        (GRPO, {"VERIFY": "all"}, "VERIFY=all is unknown"),
        (GRPO, {"GATE": "word"}, "GATE=word is unknown"),
        (GRPO, {"TAU": "1"}, "TAU=1 is not an IoU"),
        (GRPO, {"TAU": "a quarter"}, "TAU=a quarter is not an IoU"),
        (GRPO, {"ANNOTATOR": "chexbert"}, "ANNOTATOR=chexbert is unknown"),
        (GRPO, {"ANNOTATOR": "files"}, "ANNOTATOR=files cannot train"),
        (GRPO, {"REWARD": "spatial", "TAU": "0.5"}, "TAU and GATE do nothing with REWARD=spatial"),
        (GRPO, {"REWARD": "none", "VERIFY": "reasoning"}, "rewards nothing"),
        (GRPO, {"ANNOTATOR": "rules", "CHECKPOINT": "/x"}, "CHECKPOINT does nothing with ANNOTATOR=rules"),
        (GRPO, {"DATA": "{studies}", "MODEL": MODEL}, "CHECKPOINT= is no checkpoint of radgraph-xl; name yours"),
        (GRPO, {"DATA": "{studies}", "MODEL": MODEL, "CHECKPOINT": "no/such"}, "no/such is no checkpoint"),
        (GRPO, {"MODEL": MODEL}, "radverl data chest_imagenome --root"),
        (GRPO, {}, "run recipes/gated_qwen3vl8b_coldstart.sh first"),
        (GRPO, {"K": "1"}, "K=1 rollouts have no group"),
        (GRPO, {"GPUS": "7"}, "do not divide among GPUS=7"),
        (GRPO, {"MAX_RESPONSE": "long"}, "MAX_RESPONSE=long is not a whole number"),
        (COLDSTART, {}, "run recipes/gated_qwen3vl8b_sft.sh first"),
        (COLDSTART, {"MODEL": "{tmp}"}, "MODEL={tmp} holds no config.json"),
        (COLDSTART, {"MODEL": MODEL}, "--splits-of mimic"),
        (SFT, {}, "radverl data mimic_cxr --root"),
        (SFT, {"DATA": "{tmp}"}, "{tmp} has no sft_train.parquet"),
        (SFT, {"BATCH": "100"}, "BATCH=100 rows do not divide among GPUS=8"),
        (SFT, {"ROWS": "100"}, "ROWS=100 is less than a batch of BATCH=128"),
        (SFT, {"LR": "small"}, "LR=small is not a number such as 1e-5"),
        (SFT, {"WARMUP": "10"}, "WARMUP=10 is not a share"),
        (SFT, {"SEED": "-1"}, "SEED=-1"),
        (SFT, {"DRY_RUN": "yes"}, "DRY_RUN=yes is unknown"),
        (SFT, {"PYTHON": "/nope"}, "PYTHON=/nope"),
        (SFT, {"OUT": "{tmp}/file"}, "is a file"),
        (SFT, {"DATA": "{tmp}/${{x}}"}, "holds ${{ or a line break"),
    ],
)
def test_bad_switches_are_one_sentence(
    tmp_path: Path, studies: Path, name: str, environment: dict[str, str], says: str
) -> None:
    (tmp_path / "file").touch()
    filled = {key: value.format(tmp=tmp_path, studies=studies) for key, value in environment.items()}
    run = recipe(name, **{"OUT": str(tmp_path / "out"), **filled})
    assert run.returncode == 2
    assert says.format(tmp=tmp_path) in run.stderr
    assert len(run.stderr.strip().splitlines()) == 1
    assert not (tmp_path / "out").exists()


def test_the_data_commands_are_understood() -> None:
    """What a recipe tells to run parses: a folder that is not there is the first thing the data scripts name."""
    for name, script in ((SFT, "mimic_cxr"), (COLDSTART, "chest_imagenome")):
        told = recipe(name, **({"MODEL": MODEL} if name == COLDSTART else {})).stderr
        command = told[told.index(f"radverl data {script} ") :].split()[3:]
        run = subprocess.run(
            [str(ROOT / ".venv/bin/python"), "-m", "radverl.cli", "data", script, *command],
            capture_output=True, text=True, check=False, cwd=ROOT, timeout=60,
        )  # fmt: skip
        assert run.returncode == 2
        assert "usage:" not in run.stderr
        assert "chest-imagenome-dataset-1.0.0" in run.stderr or "mimic-cxr-jpg-2.1.0" in run.stderr


# ---- supervised dry run


@pytest.mark.parametrize(("name", "update"), [(SFT, "45.0"), (COLDSTART, "42.6")])
def test_the_supervised_dry_run_checks_config_data_and_memory(
    studies: Path, capsys, monkeypatch, name: str, update: str
) -> None:
    monkeypatch.setenv("GPU_MEMORY_GB", "80")
    monkeypatch.setenv("SHAPES_OF", MODEL)
    code, out, err = dry_run(capsys, name, [*arguments_of(name, DATA=str(studies)), "data.train_max_samples=140"])
    assert code == 0, err
    assert f"{studies}/sft_train.parquet has 140 rows." in out
    assert f"  update          {update} of 73.6" in out  # the table of docs/gated.md
    assert f"| {name.rsplit('_')[-1]} | {update} |" in (ROOT / "docs/gated.md").read_text()
    assert "valid for the installed verl; nothing was started" in out
    assert "train_max_samples asks" not in out


@pytest.mark.parametrize(
    ("overrides", "says"),
    [
        (["data.train_batch_sizes=3"], "train_batch_sizes"),
        (["+engine.no_such_key=1"], "no_such_key"),
        (["+optim.no_such_key=1"], "no_such_key"),
        (["+model.no_such_key=1"], "model.no_such_key is no setting of verl's HFModelConfig"),
        (["engine.strategy=deepspeed"], "strategy deepspeed not supported"),
        (["optim.lr_scheduler_type=linear"], "lr_scheduler_type"),
        (["optim.lr=fast"], "optim.lr='fast': give a number"),
        (["data.train_batch_size=0"], "data.train_batch_size=0: give a whole number above 0"),
        (["data.train_batch_size=60"], "data.train_batch_size=60 does not divide among 8 groups of GPUS"),
        (["data.train_batch_size=136"], "the validation files give 130 rows"),
        (["data.train_batch_size=144", "data.val_files=null", "trainer.test_freq=-1"], "give 140 rows"),
        (["data.use_dynamic_bsz=False", "data.micro_batch_size_per_gpu=3"], "does not divide the 16 rows"),
        (["data.max_token_len_per_gpu=1000"], "less than a row of data.max_length=1536"),
        (["data.truncation=middle"], "data.truncation='middle': choose one of error, left, right"),
        (["data.pad_mode=left"], "data.pad_mode='left': choose one of"),
        (["data.use_dynamic_bsz='False'"], "use_dynamic_bsz='False': give True or False"),
        (["trainer.save_freq=0"], "trainer.save_freq=0: give a whole number of steps"),
        (["trainer.test_freq=each"], "trainer.test_freq='each': give a whole number"),
        (["data.val_files=null"], "trainer.test_freq=after_each_epoch without data.val_files"),
        (["data.train_files=null"], "data.train_files=None: give the path"),
        (["trainer.total_training_steps=0"], "total_training_steps=0: give a whole number"),
        (["engine.ulysses_sequence_parallel_size=3"], "does not divide 8 GPUs"),
        (["trainer.nnodes=2"], "torchrun starts GPUS=8 processes"),
        (["model.path=/proc"], "/proc is a folder without config.json"),
        (["data.train_files=a=b"], "hydra cannot read the override 'data.train_files=a=b'"),
        (["data.train_files={studies}/train.parquet"], "messages"),
        (
            ["data.max_token_len_per_gpu=65536", "data.max_length=8192"],
            "lower data.max_token_len_per_gpu (65536",
        ),
        (["trainer.profile_interval=[1]"], "profile_interval"),
    ],
)
def test_the_supervised_dry_run_refuses_what_a_run_would_fail_at(
    studies: Path, capsys, monkeypatch, overrides: list[str], says: str
) -> None:
    monkeypatch.setenv("GPU_MEMORY_GB", "80")
    monkeypatch.setenv("GPUS", "8")
    base = [*plain(SFT), f"data.train_files={studies}/sft_train.parquet", f"data.val_files={studies}/sft_val.parquet"]
    base += ["data.train_max_samples=140"]
    code, _, err = dry_run(capsys, SFT, base + [override.format(studies=studies) for override in overrides])
    assert code == 2
    assert says.lower() in err.splitlines()[-1].lower()


def test_films_that_fill_a_row_are_found_before_training(tmp_path: Path, studies: Path, capsys) -> None:
    from data_preprocess.core.rows import read_rows, write_rows

    rows = read_rows(studies / "train.parquet")
    for name in ("sft_train.parquet", "sft_val.parquet"):
        (tmp_path / name).symlink_to(studies / name)
    rows[7]["extra_info"] |= {"width": 2544, "height": 3056}  # as released: 7,592 tokens of 32 x 32 pixels
    write_rows(tmp_path / "train.parquet", rows, kind="rl")
    code, _, err = dry_run(capsys, SFT, arguments_of(SFT, DATA=str(tmp_path)))
    assert code == 2
    assert "1 of 140 films need more than data.max_length=1536 tokens (up to 7592)" in err


# ---- memory


def test_memory_of_the_8b_by_hand() -> None:
    from omegaconf import OmegaConf

    from radverl.verl_plugin.dry_run_parts import compose_named
    from radverl.verl_plugin.memory import estimate_supervised, host_bytes_per_weight, read_architecture

    a = read_architecture(MODEL)
    assert a.parameters == 8_767_123_696  # the number the checkpoint's publisher gives, 8.77 billion
    config = compose_named(CONFIG[SFT], list(plain(SFT)))
    parts = {part.name: part.size for part in estimate_supervised(config, a, 80)[0].parts}
    assert parts["weights"] == parts["gradients"] == 4 * a.parameters / 8
    assert parts["Adam"] == 8 * a.parameters / 8
    assert parts["logits"] == 2 * 2 * 16_384 * 151_936
    assert parts["activations"] == 2 * 16_384 * (36 * 4096 + 4 * 27 * 1152)
    assert host_bytes_per_weight(config.engine, 8, a.tied) == 4  # only rank 0 of a node loads
    OmegaConf.update(config, "engine.offload_policy", True)
    assert {part.name: part.size for part in estimate_supervised(config, a, 80)[0].parts}["Adam"] == 0
    assert host_bytes_per_weight(config.engine, 8, a.tied) == 16
    for key, value in (("data.use_dynamic_bsz", False), ("data.micro_batch_size_per_gpu", 2)):
        OmegaConf.update(config, key, value)
    parts = {part.name: part.size for part in estimate_supervised(config, a, 80)[0].parts}
    assert parts["logits"] == 2 * 2 * (2 * 1536) * 151_936


@pytest.mark.parametrize(
    ("override", "says"),
    [
        ("model.lora_rank=16", "LoRA is not covered"),
        ("model.path=somebody/some-model", "no config.json in somebody/some-model"),
        ("trainer.device=cpu", "not judged for trainer.device=cpu"),
    ],
)
def test_supervised_memory_that_cannot_be_judged_is_said_so(override: str, says: str) -> None:
    from radverl.verl_plugin.dry_run_sft import check_memory, compose

    assert says in check_memory(compose([*plain(SFT), override]), "80")


def test_squares_of_qwen3_vl() -> None:
    from radverl.verl_plugin.film_tokens import _limits

    assert _limits(MODEL) == (32 * 32, 16_777_216)  # its preprocessor_config.json: patches of 16, merged two by two


# ---- GRPO dry run


@pytest.fixture(scope="module")
def whole_command(tmp_path_factory: pytest.TempPathFactory) -> tuple[subprocess.CompletedProcess[str], Path]:
    """DRY_RUN=1 as a user types it, from another folder, with nothing there yet."""
    folder = tmp_path_factory.mktemp("elsewhere")
    run = subprocess.run(
        ["env", "-u", "RADVERL_RADGRAPH", "DRY_RUN=1", "DATA=mine", "bash", str(ROOT / f"recipes/{GRPO}.sh")],
        cwd=folder, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    return run, folder


def test_the_grpo_dry_run_names_what_is_not_there_and_judges_the_rest(
    whole_command: tuple[subprocess.CompletedProcess[str], Path],
) -> None:
    run, folder = whole_command
    assert run.returncode == 0, run.stderr
    for sentence in (
        "run recipes/gated_qwen3vl8b_coldstart.sh first",
        f"--out {folder}/mine",
        "hf download StanfordAIMI/RRG_scorers radgraph-xl.tar.gz",
    ):
        assert sentence in run.stderr
    assert f"data: {folder}/mine/train.parquet is not there" in run.stdout
    assert "reward: tried with the annotator rules; the run's own is not on this machine." in run.stdout
    assert "annotator: radgraph-xl" in run.stdout
    assert "  update          46.8 of 73.6" in run.stdout
    assert "| update | 46.8 |" in (ROOT / "docs/gated.md").read_text()
    assert "valid for the installed verl; nothing was started" in run.stdout
    assert not list(folder.iterdir())


def test_the_cost_estimate_reads_the_grpo_recipe(
    whole_command: tuple[subprocess.CompletedProcess[str], Path],
) -> None:
    from radverl.recipe_plan import read_plan

    plan = read_plan(whole_command[0].stdout)
    assert (plan.batch, plan.rollouts, plan.epochs, plan.steps) == (32, 8, 1, None)
    assert plan.total_steps(74_000) == 2312
    assert plan.validations(74_000) == 25


@pytest.mark.parametrize(
    ("overrides", "says"),
    [
        (["reward.radverl.kwargs.tau=2"], "tau"),
        (["reward.radverl.kwargs.reward=iou"], "iou"),
        (["+reward.radverl.kwargs.taus=0.1"], "taus"),
        (["reward.radverl.kwargs.annotator=nobody"], "nobody"),
        (["actor_rollout_ref.actor.ppo_max_token_len_per_gpu=1000"], "less than 1792 tokens: a row is not cut"),
        (["actor_rollout_ref.rollout.gpu_memory_utilization=0.95"], "lower actor_rollout_ref.rollout.gpu_memory"),
        (["data.train_batch_size=160", "actor_rollout_ref.actor.ppo_mini_batch_size=160"], "give 140 rows"),
    ],
)
def test_the_grpo_dry_run_refuses_what_a_run_would_fail_at(
    studies: Path, capsys, monkeypatch, overrides: list[str], says: str
) -> None:
    monkeypatch.setenv("GPU_MEMORY_GB", "80")
    monkeypatch.setenv("SHAPES_OF", MODEL)
    code, _, err = dry_run(capsys, GRPO, arguments_of(GRPO, ANNOTATOR="rules", DATA=str(studies)) + overrides)
    assert code == 2
    assert says in err.splitlines()[-1]


@pytest.mark.parametrize("environment", [{"REWARD": "none"}, {"REWARD": "factual"}, {"VERIFY": "answer"}, {"TAU": "0"}])
def test_every_ablation_has_a_reward_that_works(environment: dict[str, str]) -> None:
    from radverl.verl_plugin.config_values import check_reward
    from radverl.verl_plugin.dry_run import compose

    check_reward(compose(arguments_of(GRPO, ANNOTATOR="rules", **environment)))


# ---- what a run does


@pytest.fixture
def noting(tmp_path: Path) -> Callable[..., tuple[subprocess.CompletedProcess[str], list[str]]]:
    """Runs a recipe with a PYTHON that writes down how it was called, so the shell's own part is seen."""
    program, log = tmp_path / "note", tmp_path / "calls"
    program.write_text(f"#!/bin/sh\nprintf '%s\\n' \"$*\" >>{log}\n")
    program.chmod(0o755)

    def call(name: str, **environment: str) -> tuple[subprocess.CompletedProcess[str], list[str]]:
        log.unlink(missing_ok=True)
        run = recipe(name, PYTHON=str(program), **environment)
        return run, log.read_text().splitlines() if log.exists() else []

    return call


def test_a_supervised_run_is_checked_first_and_leaves_a_model(tmp_path: Path, studies: Path, noting) -> None:
    out = tmp_path / "out"
    model = out / "checkpoints/global_step_1875/huggingface"
    model.mkdir(parents=True)
    (model / "config.json").write_text("{}")
    (out / "checkpoints/latest_checkpointed_iteration.txt").write_text("1875")
    run, calls = noting(SFT, DATA=str(studies), OUT=str(out))
    assert run.returncode == 0, run.stderr
    assert [line.split(" data.train_files")[0] for line in calls] == [
        "-m radverl.verl_plugin.dry_run_sft",
        "-m radverl.doctor",
        f"-m radverl.cli data check {studies}/sft_train.parquet --role sft",
        f"-m radverl.cli data check {studies}/sft_val.parquet --role sft",
        f"-m radverl.watchdog --stats {out}/stats.json -- {tmp_path}/note -m torch.distributed.run --standalone "
        "--nnodes=1 --nproc_per_node=8 -m verl.trainer.sft_trainer",
    ]
    assert (out / "model/config.json").exists()
    again, calls = noting(SFT, DATA=str(studies), OUT=str(out))
    assert again.returncode == 0, again.stderr
    assert not any("data check" in line for line in calls)  # the same files were read before
    assert (out / "model/config.json").exists()
    other, calls = noting(SFT, DATA=str(studies), OUT=str(out), LR="1e-4")
    assert other.returncode == 2
    assert "holds a run with other settings" in other.stderr
    assert calls == []
    # the next stage takes the model from there
    second, _ = noting(COLDSTART, DATA=str(studies), OUT=str(tmp_path / "second"), MODEL=str(out / "model"))
    assert "MODEL=" not in second.stderr


def test_a_grpo_run_is_resumed_only_as_itself(tmp_path: Path, studies: Path, noting) -> None:
    out = tmp_path / "out"
    (out / "checkpoints").mkdir(parents=True)
    (out / "checkpoints/latest_checkpointed_iteration.txt").write_text("2312")
    given = {"DATA": str(studies), "OUT": str(out), "MODEL": MODEL, "ANNOTATOR": "rules"}
    run, calls = noting(GRPO, **given)
    assert run.returncode == 0, run.stderr
    assert [line.split(" ")[1] for line in calls] == [
        "radverl.verl_plugin.dry_run", "radverl.doctor", "radverl.cli", "radverl.cli", "radverl.watchdog",
    ]  # fmt: skip
    assert f"--local_dir {out}/checkpoints/global_step_2312/actor --target_dir {out}/model" in run.stdout
    assert noting(GRPO, **given)[0].returncode == 0
    for other in ({"REWARD": "spatial"}, {"TAU": "0.5"}, {"SEED": "1"}):
        assert "holds a run with other settings" in noting(GRPO, **given, **other)[0].stderr
