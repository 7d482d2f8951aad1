"""Recipes refuse bad input with one sentence, and their dry run composes and validates the whole config."""

import io
import os
import re
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.recipe_runs import arguments_of, recipe, settings_of, values_of

ROOT = Path(__file__).parents[1]


def demo(*overrides: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", str(ROOT / "recipes/demo_cpu.sh"), *overrides],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_dry_run_prints_the_resolved_config_and_starts_nothing(tmp_path: Path) -> None:
    run = demo("data.train_batch_size=16", DRY_RUN="1", OUT=str(tmp_path / "out"))
    assert run.returncode == 0, run.stderr
    assert "train_batch_size: 16" in run.stdout
    assert "reward: facts" in run.stdout
    assert "valid for the installed verl" in run.stdout
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("override", "says"),
    [
        ("data.train_batch_sizes=3", "train_batch_sizes"),
        ("data.train_batch_size=7", "ppo_mini_batch_size"),
        ("reward.radverl.reward=fact", "choose one of accuracy"),
        ("actor_rollout_ref.actor.no_such_key=1", "no_such_key"),
        ("+reward.radverl.kwargs.judge=nobody", "nobody"),
        ("+reward.radverl.kwargs.beat=2", "beat"),
    ],
)
def test_dry_run_refuses_what_verl_would_refuse(capsys, override: str, says: str) -> None:
    code, _, err = dry_run(capsys, arguments_of("demo_cpu", override))
    assert code == 2
    assert says in err


@pytest.mark.parametrize(
    ("environment", "says"),
    [
        ({"DATA": "no/such/folder"}, "no/such/folder"),
        ({"DATA": "{tmp}"}, "there is no file {tmp}/train.parquet"),
        ({"MODEL": "{tmp}"}, "config.json"),
        ({"MODEL": "no/such/model"}, "no/such/model"),
        ({"B": "abc"}, "B=abc is not a whole number"),
        ({"K": "0"}, "K=0 is not a whole number"),
        ({"RANKS": "0"}, "RANKS=0"),
        ({"RANKS": "3"}, "do not divide"),
        ({"LR": "fast"}, "LR=fast"),
        ({"SEED": "-1"}, "SEED=-1"),
        ({"PYTHON": "/nope"}, "PYTHON=/nope"),
    ],
)
def test_bad_input_is_one_sentence_before_anything_starts(tmp_path: Path, environment: dict, says: str) -> None:
    filled = {key: value.format(tmp=tmp_path) for key, value in environment.items()}
    run = demo(**filled, OUT=str(tmp_path / "out"))
    assert run.returncode == 2
    assert says.format(tmp=tmp_path) in run.stderr
    assert "Traceback" not in run.stderr
    assert not list(tmp_path.rglob("rl"))


def test_paths_may_hold_what_hydra_gives_meaning_to(tmp_path: Path) -> None:
    found = settings_of(arguments_of("demo_cpu", OUT=str(tmp_path / "lr=3e-4, it's here")))
    assert found["trainer.default_local_dir"] == f"{tmp_path}/lr=3e-4, it's here/rl/checkpoints"


def test_relative_paths_are_the_callers(tmp_path: Path) -> None:
    run = subprocess.run(
        ["bash", str(ROOT / "recipes/demo_cpu.sh")],
        env={**os.environ, "DATA": "mine"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert f"there is no file {tmp_path}/mine" in run.stderr


def test_a_model_that_the_run_would_delete_is_refused(tmp_path: Path) -> None:
    model = tmp_path / "out/rl/checkpoints/global_step_1/actor/huggingface"
    model.mkdir(parents=True)
    (model / "config.json").write_text("{}")
    run = demo(MODEL=str(model), OUT=str(tmp_path / "out"))
    assert run.returncode == 2
    assert "set OUT to another folder" in run.stderr
    assert (model / "config.json").exists()


def test_warm_start_says_how_it_is_called() -> None:
    run = subprocess.run(["bash", str(ROOT / "recipes/warm_start_cpu.sh")], capture_output=True, text=True, check=False)
    assert run.returncode == 2
    assert "SFT_TRAIN.parquet OUT_DIR" in run.stderr


# ---- OraPO on Qwen2.5-VL-3B


FSDP, MEGATRON = "orapo_qwen25vl3b", "orapo_qwen25vl3b_megatron"
ORAPO_SETTINGS = (
    *("alpha", "w_min", "w_max", "gamma", "length_normalised", "negatives"),  # the paper's
    *("tau", "init", "scope", "mode", "oracle_loss"),  # ours
)


# verl's offloading of an idle engine in place of the recipe's
IDLE_OFFLOAD = ("offload_policy=False", "param_offload=True", "optimizer_offload=True")


@pytest.fixture(scope="module")
def arguments() -> Callable[..., list[str]]:
    return lambda name=FSDP, *overrides, **environment: arguments_of(name, *overrides, **environment)


@pytest.fixture(scope="module")
def studies(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """20 training and 4 validation studies in our schema."""
    from PIL import Image

    from data_preprocess.core.rows import DEFAULT_PROMPT, report_row, write_rows

    folder = tmp_path_factory.mktemp("studies")
    picture = io.BytesIO()
    Image.new("L", (56, 56), 90).save(picture, "PNG")
    for split, count in (("train", 20), ("val", 4)):
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
                width=56,
                height=56,
            )
            for index in range(count)
        ]
        write_rows(folder / f"{split}.parquet", rows, kind="rl")
    return folder


def test_values_of_the_paper(arguments: Callable[..., list[str]]) -> None:
    config = settings_of(arguments())
    paper = {
        "data.train_batch_size": 16,
        "data.train_max_samples": 1000,
        "actor_rollout_ref.model.path": "Qwen/Qwen2.5-VL-3B-Instruct",
        "actor_rollout_ref.rollout.n": 8,
        "actor_rollout_ref.rollout.temperature": 1.0,
        "actor_rollout_ref.actor.optim.lr": 2.5e-7,
        "actor_rollout_ref.actor.ppo_mini_batch_size": 16,
        "actor_rollout_ref.actor.ppo_epochs": 1,
        "actor_rollout_ref.actor.use_kl_loss": True,
        "actor_rollout_ref.actor.loss_agg_mode": "seq-mean-token-sum-norm",
        "actor_rollout_ref.actor.loss_scale_factor": 512,
        "algorithm.norm_adv_by_std_in_grpo": False,
        "algorithm.orapo.alpha": 0.5,
        "algorithm.orapo.w_min": 0.05,
        "algorithm.orapo.w_max": 0.15,
        "algorithm.orapo.gamma": 2.0,
        "algorithm.orapo.length_normalised": True,
        "algorithm.orapo.negatives": "all",
        "trainer.v1.trainer_mode": "orapo_sync",
        "trainer.n_gpus_per_node": 4,
        "trainer.resume_mode": "auto",
        "reward.radverl.reward": "facts",
    }
    assert {key: config[key] for key in paper} == paper


def test_orapo_takes_the_settings_and_rows_are_exact(arguments: Callable[..., list[str]]) -> None:
    from radverl.verl_plugin.dry_run import compose
    from radverl.verl_plugin.orapo.settings import OrapoSettings, settings_from

    assert settings_from(compose(arguments())) == replace(OrapoSettings(), mode="row")


@pytest.mark.parametrize(
    ("environment", "changed"),
    [
        (
            {"REWARD": "accuracy"},
            {
                "reward.radverl.reward": "accuracy",
                "reward.radverl.kwargs.beta": None,
                "reward.radverl.kwargs.contradiction_fp": None,
            },
        ),
        (
            {"ORAPO": "0"},
            {"trainer.v1.trainer_mode": "sync"} | dict.fromkeys(f"algorithm.orapo.{name}" for name in ORAPO_SETTINGS),
        ),
        ({"STUDIES": "400"}, {"data.train_max_samples": 400}),
        ({"ORACLE": "sft"}, {"algorithm.orapo.oracle_loss": "sft"}),
        ({"SEED": "3"}, {"data.seed": 3, "actor_rollout_ref.rollout.seed": 3}),
        ({"STEPS": "7"}, {"trainer.total_training_steps": 7}),
        ({"EPOCHS": "9"}, {"trainer.total_epochs": 9}),
        ({"LR": "1e-6"}, {"actor_rollout_ref.actor.optim.lr": 1e-6}),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) and len(value) == 1 else "",
)
def test_a_switch_changes_its_own_settings_and_no_other(
    arguments: Callable[..., list[str]], environment: dict[str, str], changed: dict[str, Any]
) -> None:
    base, other = settings_of(arguments(DATA="/data")), settings_of(arguments(DATA="/data", **environment))
    assert {key: other.get(key) for key in base.keys() | other.keys() if base.get(key) != other.get(key)} == changed
    assert all(key in base or key in other for key in changed)


def test_megatron_has_the_same_method(arguments: Callable[..., list[str]]) -> None:
    fsdp, megatron = settings_of(arguments(FSDP)), settings_of(arguments(MEGATRON))
    sections = ("data.", "algorithm.", "reward.", "trainer.", "actor_rollout_ref.rollout.")
    same = {key for key in fsdp.keys() | megatron.keys() if key.startswith(sections) and ".qat." not in key}
    same |= {key for key in fsdp.keys() & megatron.keys() if re.fullmatch(r"actor_rollout_ref\.actor\.\w+", key)}
    same |= {f"actor_rollout_ref.actor.optim.{name}" for name in ("lr", "weight_decay", "lr_warmup_steps", "clip_grad")}
    differ = {key.split(".")[-1] for key in same if fsdp.get(key) != megatron.get(key)}
    assert differ == {"strategy", "_target_", "ppo_max_token_len_per_gpu", "log_prob_max_token_len_per_gpu"}
    assert megatron["actor_rollout_ref.actor.strategy"] == megatron["actor_rollout_ref.ref.strategy"] == "megatron"


@pytest.mark.parametrize("name", [FSDP, MEGATRON])
def test_every_setting_has_a_source(name: str) -> None:
    """Each line with an override says where the value is from: the paper, ours and why, or the user."""
    lines = (ROOT / f"recipes/{name}.sh").read_text().splitlines()
    override = re.compile(r"(^|[ (+'])(\$\w+|data|algorithm|reward|trainer|hydra|actor_rollout_ref)\.[\w.{},]+=")
    default = re.compile(r"(MODEL|STUDIES|B|LR|EPOCHS|MAX_PROMPT|MAX_RESPONSE|GPUS|SEED)=\$\{")
    found = [line for line in lines if override.search(line.split("#")[0]) or default.match(line)]
    assert len(found) > (12 if name == MEGATRON else 70)
    for line in found:
        assert re.search(r"# (OraPO, (sec\.|eqs?|Table|hyper-parameter)|ours|yours)", line), line


@pytest.mark.parametrize(
    ("environment", "says"),
    [
        ({"REWARD": "bleu"}, "REWARD=bleu is unknown; use one of: facts accuracy."),
        ({"ORAPO": "yes"}, "ORAPO=yes is unknown"),
        ({"ORACLE": "ppo"}, "ORACLE=ppo is unknown"),
        ({"ORACLE": "sft", "ORAPO": "0"}, "does nothing with ORAPO=0"),
        ({"STUDIES": "many"}, "STUDIES=many is not a whole number"),
        ({"STUDIES": "8"}, "less than a batch of B=16"),
        ({"DRY_RUN": "config"}, "DRY_RUN=config is unknown"),
        ({"GPUS": "3"}, "do not divide among GPUS=3"),
        ({"STEPS": "0"}, "STEPS=0"),
        ({"LR": "small"}, "LR=small"),
        ({"SEED": "-1"}, "SEED=-1"),
        ({"PYTHON": "/nope"}, "PYTHON=/nope"),
        ({"DATA": "no/such/folder"}, "radverl data chexpert_plus --csv"),
        ({"DATA": "{tmp}"}, "--out {tmp} --balance 1000"),
        ({"STUDIES": "400"}, "--out data/chexpert_plus_400 --balance 400"),
        ({"OUT": "{tmp}/file"}, "is a file"),
        ({"DATA": "{tmp}/${{x}}"}, "DATA, MODEL or OUT holds ${{ or a line break"),
        ({"MODEL": "a\nb"}, "holds ${{ or a line break"),
    ],
)
def test_orapo_refuses_bad_switches(tmp_path: Path, environment: dict[str, str], says: str) -> None:
    (tmp_path / "file").touch()
    filled = {key: value.format(tmp=tmp_path) for key, value in environment.items()}
    run = recipe(FSDP, **{"OUT": str(tmp_path / "out"), **filled})
    assert run.returncode == 2
    assert says.format(tmp=tmp_path) in run.stderr
    assert len(run.stderr.strip().splitlines()) == 1
    assert not (tmp_path / "out").exists()


def dry_run(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> tuple[int, str, str]:
    from radverl.verl_plugin.dry_run import main

    code = main(arguments)
    captured = capsys.readouterr()
    return code, captured.out, captured.err


@pytest.mark.parametrize(("name", "update"), [(FSDP, "9.5"), (MEGATRON, "18.6")])
def test_dry_run_checks_config_data_and_memory(
    arguments: Callable[..., list[str]], studies: Path, capsys, monkeypatch, name: str, update: str
) -> None:
    monkeypatch.setenv("GPU_MEMORY_GB", "24")
    code, out, err = dry_run(capsys, arguments(name, DATA=str(studies)))
    assert code == 0, err
    assert f"{studies}/train.parquet has 20 rows." in out
    assert f"  update          {update.rjust(4)} of 22.1" in out  # the table of docs/orapo_memory.md
    assert "valid for the installed verl; nothing was started" in out


@pytest.mark.parametrize(
    ("overrides", "says"),
    [
        (["actor_rollout_ref.rollout.temperature=0.7"], "allow_temperature"),
        (["algorithm.filter_groups.enable=True"], "learns from"),
        (["actor_rollout_ref.actor.use_kl_loss=False"], "reference log-probs"),
        (["+algorithm.orapo.alhpa=0.5"], "alhpa"),
        (["trainer.v1.trainer_mode=sync"], "trainer_mode=sync does not read +algorithm.orapo.alpha"),
        (["trainer.use_v1=False"], "old trainer, which knows no OraPO"),
        (["actor_rollout_ref.rollout.n=-1"], "rollout.n=-1: give a whole number above 0"),
        (["actor_rollout_ref.actor.use_kl_loss='False'"], "use_kl_loss='False': give True or False"),
        (["data.train_files={a: b}"], "data.train_files={'a': 'b'}: give the path"),
        (["reward.radverl=3"], "radverl takes `reward`"),
        (["reward.radverl.kwargs=3"], "radverl takes `reward`"),
        (["reward.radverl.reward=null"], "was given no reward"),
        (["actor_rollout_ref.model.path=/proc"], "/proc is a folder without config.json"),
        (["data.train_files=/dev/null"], "/dev/null is no file"),
        (["data.train_files=a=b"], "hydra cannot read the override 'data.train_files=a=b'"),
        (["trainer.v1=null"], "not a valid verl config: "),
        (["trainer.v1.trainer_mode=orapo"], "Unknown trainer 'orapo'"),
        (["reward.radverl.reward=fact"], "choose one of accuracy"),
        (["actor_rollout_ref.actor.ppo_max_token_len_per_gpu=1279"], "less than 1280 tokens: a row is not cut"),
        (["algorithm.orapo.mode=group"], "less than 11520 tokens: the 9 rows of a prompt stay together"),
        (["data.train_batch_size=32", "actor_rollout_ref.actor.ppo_mini_batch_size=32"], "give 20 rows"),
        (["actor_rollout_ref.actor.fsdp_config.offload_policy=False"], "fsdp_config.optimizer_offload=True"),
        (
            [f"actor_rollout_ref.actor.fsdp_config.{name}" for name in IDLE_OFFLOAD],
            "update needs about 24.5 GB",
        ),
    ],
)
def test_dry_run_refuses_what_a_run_would_fail_at(
    arguments: Callable[..., list[str]], studies: Path, capsys, monkeypatch, overrides: list[str], says: str
) -> None:
    monkeypatch.setenv("GPU_MEMORY_GB", "24")
    code, _, err = dry_run(capsys, [*arguments(DATA=str(studies)), *overrides])
    assert code == 2
    assert says in err.splitlines()[-1]


@pytest.mark.parametrize(
    ("broken", "says"),
    [
        ("text", "not a readable Parquet file"),
        ("column", "has no column 'reward_model'"),
        ("no extra_info", "training row 0 (no prompt_id): a row of 'test' has neither"),
        ("token in a report", "training row 3 (test/train/3): the true report contains <|image_pad|>"),
        ("report", "row 3: ground_truth has no report"),
        ("report of a file too long to read whole", "training row 3 (test/train/3)"),
        ("twice", "prompt_id"),
    ],
)
def test_dry_run_refuses_data_that_cannot_be_trained_on(
    arguments: Callable[..., list[str]], studies: Path, tmp_path: Path, capsys, monkeypatch, broken: str, says: str
) -> None:
    import pyarrow.parquet as pq

    from data_preprocess.core.rows import read_rows, write_rows
    from radverl.verl_plugin import dry_run_parts as module

    rows = read_rows(studies / "train.parquet")
    if "too long" in broken:
        monkeypatch.setattr(module, "ROWS_READ", 10)
    if "report" in broken:
        rows[3]["reward_model"]["ground_truth"] = '{"labels": {"Edema": 1}}'
    if "token" in broken:
        rows[3]["reward_model"]["ground_truth"] = '{"report": "Clear <|image_pad|>.", "labels": {"Edema": 1}}'
    if broken == "twice":
        rows[5]["extra_info"]["prompt_id"] = rows[4]["extra_info"]["prompt_id"]
    write_rows(tmp_path / "train.parquet", rows, kind="rl")
    if broken in ("column", "no extra_info"):
        lost = "reward_model" if broken == "column" else "extra_info"
        pq.write_table(pq.read_table(tmp_path / "train.parquet").drop_columns(lost), tmp_path / "train.parquet")
    if broken == "text":
        (tmp_path / "train.parquet").write_text("not Parquet")
    code, _, err = dry_run(capsys, arguments(DATA=str(tmp_path)))
    assert code == 2
    assert says in err.splitlines()[-1]
    assert str(tmp_path / "train.parquet") in err


@pytest.mark.parametrize(
    "name", ["it's a place", r"back\slash\'s", "both'' \\", "co,mma=[x] {y}", "röntgen", "$HOME", "~"]
)
def test_names_of_folders_reach_verl_as_they_are(arguments: Callable[..., list[str]], name: str) -> None:
    found = values_of(arguments(OUT=f"/out/{name}", DATA=f"/data/{name}", MODEL=f"/model/{name}"))
    assert found["trainer.experiment_name"] == name
    assert found["trainer.default_local_dir"] == f"/out/{name}/checkpoints"
    assert found["data.train_files"] == f"/data/{name}/train.parquet"
    assert found["actor_rollout_ref.model.path"] == f"/model/{name}"


def test_dry_run_names_data_that_are_not_there_and_judges_the_rest(tmp_path: Path) -> None:
    """The whole command, from another folder: exit code, sentence, estimate, and nothing written."""
    run = subprocess.run(
        ["bash", str(ROOT / "recipes/orapo_qwen25vl3b.sh"), "trainer.nnodes=2"],
        env={**os.environ, "DRY_RUN": "1", "DATA": "mine"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert f"radverl data chexpert_plus --csv df_chexpert_plus_240401.csv --image-root PNG --out {tmp_path}/mine" in (
        run.stderr
    )
    assert f"data: {tmp_path}/mine/train.parquet is not there" in run.stdout
    assert "memory per GPU of 24 GB, estimated, not measured" in run.stdout
    assert "nnodes: 2" in run.stdout
    assert not list(tmp_path.iterdir())


def test_a_run_is_checked_first_and_resumed_only_as_itself(tmp_path: Path, studies: Path) -> None:
    """PYTHON is a program that writes down how it was called, so the shell's own part is seen without training."""
    program, log, out = tmp_path / "note", tmp_path / "calls", tmp_path / "out"
    program.write_text(f"#!/bin/sh\nprintf '%s\\n' \"$*\" >>{log}\n")
    program.chmod(0o755)
    (out / "checkpoints").mkdir(parents=True)
    (out / "checkpoints/latest_checkpointed_iteration.txt").write_text("186")
    environment = {"PYTHON": str(program), "DATA": str(studies), "OUT": str(out)}
    run = recipe(FSDP, "trainer.save_freq=5", **environment)
    assert run.returncode == 0, run.stderr
    called = [line.split(" data.train_files")[0] for line in log.read_text().splitlines()]
    assert called == [
        "-m radverl.verl_plugin.dry_run",
        "-m radverl.doctor",
        f"-m radverl.cli data check {studies}/train.parquet",
        f"-m radverl.cli data check {studies}/val.parquet",
        f"-m radverl.watchdog --stats {out}/stats.json -- {program} -m verl.trainer.main_ppo",
    ]
    assert log.read_text().splitlines()[-1].endswith(" trainer.save_freq=5")
    assert f"--backend fsdp --local_dir {out}/checkpoints/global_step_186/actor --target_dir {out}/model" in run.stdout
    assert recipe(FSDP, "trainer.save_freq=5", **environment).returncode == 0
    for other in ({"SEED": "1"}, {"ORAPO": "0"}, {"REWARD": "accuracy"}):
        changed = recipe(FSDP, "trainer.save_freq=5", **environment, **other)
        assert changed.returncode == 2
        assert "holds a run with other settings" in changed.stderr


@pytest.mark.parametrize("size", ["big", "0", "nan", "-24", "1e9"])
def test_the_size_of_a_gpu_is_a_number(size: str) -> None:
    from radverl.verl_plugin.dry_run import Refused, check_memory

    with pytest.raises(Refused, match=f"GPU_MEMORY_GB={size} is not the size of a GPU"):
        check_memory(None, size)


@pytest.mark.parametrize(
    ("size", "override", "says"),
    [
        (None, "trainer.device=cuda", "memory: not judged; set GPU_MEMORY_GB"),
        ("24", "trainer.device=cpu", "memory: not judged for trainer.device=cpu"),
        ("24", "actor_rollout_ref.model.path=somebody/some-model", "no config.json in somebody/some-model"),
        ("24", "actor_rollout_ref.model.lora_rank=16", "LoRA is not covered"),
    ],
)
def test_memory_that_cannot_be_judged_is_said_so(
    arguments: Callable[..., list[str]], size: str | None, override: str, says: str
) -> None:
    from radverl.verl_plugin.dry_run import check_memory, compose

    assert says in check_memory(compose([*arguments(), override]), size)
