"""OraPO on verl's real trainer: gradients against the written formula, faults, ranks, resume after SIGKILL, LoRA.

Runs share a tiny model with random weights and eight simulated films (tests/orapo_run.sh, tests/orapo_probe.py).
"""

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import psutil
import pytest

pytest.importorskip("vllm")
import torch

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
ROOT = Path(__file__).parents[1]
LARGE = [  # DPO as large a part of the gradient as GRPO, so that an error in it shows
    "+algorithm.orapo.tau=2.0",
    "+algorithm.orapo.w_min=0.5",
    "+algorithm.orapo.w_max=0.9",
]
PROBE = [
    *LARGE,
    "trainer.v1.trainer_mode=orapo_probe",
    "+algorithm.orapo.mode=group",
    "actor_rollout_ref.actor.optim.lr=0",
    "actor_rollout_ref.actor.checkpoint.load_contents=[model]",
    "trainer.resume_mode=resume_path",
    "reward.reward_manager.name=faulty",
]


class Job:
    """One run of tests/orapo_run.sh."""

    def __init__(self, out: Path, data: Path, *overrides: str, **environment: str) -> None:
        self.out = out
        (out / "probe").mkdir(parents=True, exist_ok=True)
        env = {**os.environ, "RADVERL_PROBE_OUT": str(out / "probe"), **environment}
        command = [
            "bash",
            str(ROOT / "tests/orapo_run.sh"),
            str(data / "data/train.parquet"),
            str(data / "model"),
            str(out),
        ]
        with (out / "output").open("ab") as log:
            self.process = subprocess.Popen([*command, *overrides], env=env, stdout=log, stderr=subprocess.STDOUT)

    def printed(self) -> str:
        return (self.out / "output").read_text(errors="replace")

    def done(self) -> "Job":
        assert self.process.wait(timeout=600) == 0, self.printed()[-4000:]
        return self

    def metrics(self) -> list[dict]:
        file = self.out / "metrics.jsonl"
        return [json.loads(line)["data"] for line in file.read_text().splitlines()] if file.exists() else []

    def rollouts(self, step: int) -> list[dict]:
        return [json.loads(line) for line in (self.out / f"rollouts/{step}.jsonl").read_text().splitlines()]

    def weights(self, step: int) -> dict[str, float]:
        return {row["prompt_id"]: row["orapo_weight"] for row in self.rollouts(step)}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("orapo")
    python = ROOT / ".venv/bin/python"
    simulated = ["--n-train", "8", "--n-val", "0", "--n-test", "4", "--size", "112", "--style", "template"]
    subprocess.run(
        [python, "-m", "data_preprocess.simulated", "--out", folder / "data", *simulated], check=True, cwd=ROOT
    )
    tiny = ["--data", folder / "data/sft_train.parquet", "--image-size", "112", "--out", folder / "model"]
    subprocess.run([python, "-m", "radverl.tiny_model", *tiny], check=True, cwd=ROOT)
    return folder


@pytest.fixture(scope="module")
def trained(data: Path) -> Job:
    """Six steps over eight prompts, where half of the prompts get no reward from any rollout."""
    by_prompt = "reward.custom_reward_function.name=by_prompt"
    return Job(data / "whole", data, by_prompt, "+algorithm.orapo.init=zero", "trainer.save_freq=2", STEPS="6").done()


def written_formula(model_folder: Path, rows: list[dict]) -> float:
    """Gradient norm of eq. 11 in float64, from the model, the rewards and the rows of one step alone."""
    from transformers import Qwen2_5_VLForConditionalGeneration

    from radverl.orapo import orapo_loss

    model = Qwen2_5_VLForConditionalGeneration.from_pretrained(
        model_folder, dtype=torch.float64, attn_implementation="sdpa"
    )

    def log_probs(row: dict) -> torch.Tensor:
        ids = torch.cat([row["prompts"], row["responses"]])
        images = {name: row["multi_modal_inputs"][name] for name in ("pixel_values", "image_grid_thw")}
        output = model(
            input_ids=ids[None],
            position_ids=row["position_ids"][:, None],
            attention_mask=torch.ones_like(ids)[None],
            use_cache=False,
            **images,
        )
        n = len(row["prompts"])
        return output.logits[0, n - 1 : -1].log_softmax(-1).gather(-1, ids[n:, None])[:, 0]

    truths = {row["key"].rsplit("_", 2)[0]: row for row in rows if row["key"].endswith("_gt")}
    rollouts: dict[str, list[dict]] = {uid: [] for uid in truths}
    for row in rows:
        if not row["key"].endswith("_gt") and not row["key"].startswith("pad"):
            rollouts[row["key"].rsplit("_", 2)[0]].append(row)
    n_prompts, n_rollouts, length = len(truths), 4, 24
    shape = (n_prompts, n_rollouts, length)
    new, old, ref, mask = (torch.zeros(shape, dtype=torch.float64) for _ in range(4))
    rewards, failed = torch.zeros(shape[:2], dtype=torch.float64), torch.ones(shape[:2], dtype=torch.bool)
    gt = [torch.zeros(n_prompts, length, dtype=torch.float64) for _ in range(3)]
    for p, (uid, truth) in enumerate(truths.items()):
        n = len(truth["responses"])
        gt[0][p, :n], gt[1][p, :n], gt[2][p, :n] = log_probs(truth), truth["ref_log_prob"].double(), 1.0
        for k, row in enumerate(rollouts[uid]):  # a session that failed leaves a row of zeros marked failed
            n = len(row["responses"])
            new[p, k, :n], old[p, k, :n] = log_probs(row), row["old_log_probs"].double()
            ref[p, k, :n], mask[p, k, :n] = row["ref_log_prob"].double(), row["response_mask"].double()
            rewards[p, k], failed[p, k] = row["reward"], row["failed"]
    weights = torch.tensor([float(truth["orapo_dpo_weight"]) for truth in truths.values()], dtype=torch.float64)
    loss = orapo_loss(
        new, old, ref, mask, *gt, rewards, weights, failed_PK=failed, tau=2.0, kl_coef=0.04, dual_clip=3.0,
        loss_scale_factor=24,
    )  # fmt: skip
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    grads = torch.autograd.grad(loss, parameters, allow_unused=True)
    return float(torch.stack([grad.norm() for grad in grads if grad is not None]).norm())


def check_probe(job: Job, step: int, model_folder: Path) -> list[dict]:
    """All variants of the update agree with each other and with the written formula; the rows of the step."""
    record = json.loads((job.out / f"probe/step{step}.json").read_text())
    rows = torch.load(job.out / f"probe/step{step}.pt", weights_only=True)
    expected = written_formula(model_folder, rows)
    assert expected > 1e-3
    assert len(record["norms"]) == 6
    for name, norm in record["norms"].items():
        assert norm == pytest.approx(expected, rel=2e-5), name
    return rows


def test_row_and_group_mode_have_the_gradient_of_the_formula(data: Path, trained: Job) -> None:
    """Also with a failed judge, a failed session and micro-batches of any size; policy and reference differ."""
    checkpoint = trained.out / "checkpoints/global_step_2"
    job = Job(data / "probe1", data, *PROBE, f"trainer.resume_from_path={checkpoint}", STEPS="5").done()
    policy = checkpoint / "actor/huggingface"
    rows = [row for step in (3, 4, 5) for row in check_probe(job, step, policy)]
    moved = [(row["old_log_probs"] - row["ref_log_prob"]).abs().max() for row in rows if row["key"].endswith("_gt")]
    assert max(moved) > 0.01
    failed = [row for row in rows if row.get("failed")]
    assert failed
    assert all(not row["advantages"].any() and not row["orapo_negative"].any() for row in failed)
    assert any(row["key"].startswith("pad") for row in rows)  # in place of the session that failed


def test_two_ranks_have_the_gradient_of_the_formula(data: Path, trained: Job) -> None:
    """Three prompts on two ranks: one slot for a true report is padding on one of them."""
    job = Job(
        data / "two", data, *LARGE, "trainer.save_freq=1", "reward.reward_manager.name=faulty",
        RANKS="2", B="3", STEPS="1",
    ).done()  # fmt: skip
    checkpoint = job.out / "checkpoints/global_step_1"
    probe = Job(
        data / "probe2", data, *PROBE, f"trainer.resume_from_path={checkpoint}", RANKS="2", B="3", STEPS="2"
    ).done()  # fmt: skip
    rows = check_probe(probe, 2, checkpoint / "actor/huggingface")
    assert json.loads((probe.out / "probe/step2.json").read_text())["n_ranks"] == 2
    assert len([row for row in rows if row["key"].endswith("_gt")]) == 3
    assert len([row for row in rows if bool(row["orapo_oracle"])]) == 4


def test_a_killed_run_resumes_with_the_same_weights_and_batches(data: Path, trained: Job) -> None:
    overrides = ["reward.custom_reward_function.name=by_prompt", "+algorithm.orapo.init=zero", "trainer.save_freq=2"]
    killed = Job(data / "killed", data, *overrides, STEPS="500")
    deadline = time.monotonic() + 400
    while len(killed.metrics()) < 3:
        assert killed.process.poll() is None, killed.printed()[-3000:]
        assert time.monotonic() < deadline
        time.sleep(0.1)
    family = psutil.Process(killed.process.pid).children(recursive=True)
    trainer = [p for p in family if "verl.trainer.main_ppo" in p.cmdline() and "radverl.watchdog" not in p.cmdline()]
    trainer[0].send_signal(signal.SIGKILL)
    assert killed.process.wait(timeout=120) != 0
    saved = int((killed.out / "checkpoints/latest_checkpointed_iteration.txt").read_text())
    assert 2 <= saved < 500
    last = max(6, saved + 2)
    resumed = Job(data / "killed", data, *overrides, STEPS=str(last), LOG=str(data / "killed/resumed.jsonl")).done()
    assert json.loads((resumed.out / "resumed.jsonl").read_text().splitlines()[0])["step"] == saved + 1

    seen: dict[str, int] = {}
    for step in range(1, last + 1):
        weights = resumed.weights(step)
        if step <= 6:
            assert weights == trained.weights(step)
        for name, weight in weights.items():
            seen[name] = seen.get(name, 0) + 1
            number = int(name.rsplit("t", 1)[1])
            average = 1 - 0.5 ** seen[name] if number % 2 == 0 else 0.0  # from 0, alpha .5, rate 1 at every visit
            assert weight == pytest.approx(0.05 + 0.1 * average**2, abs=1e-6)
    assert max(seen.values()) >= 3


def test_metrics_and_dump(trained: Job) -> None:
    for step in trained.metrics():
        assert step["orapo/zrr/mean"] == step["orapo/all_zero_groups"]  # a prompt's rewards are all 0 or all 1
        assert 0.05 <= step["orapo/w/min"] <= step["orapo/w/mean"] <= step["orapo/w/max"] <= 0.15
        assert step["orapo/excluded_samples/sum"] == 0
        assert step["orapo/pairs"] == 16
        assert 0 < step["orapo/oracle_length/mean"] <= 24
        assert step["orapo/oracle_truncated"] == 1  # the simulated reports are longer than 24 tokens
    first = trained.metrics()[0]  # policy and reference are one
    assert first["orapo/dpo_loss"] == pytest.approx(0.693147, abs=1e-4)
    assert first["orapo/margin"] == pytest.approx(0, abs=1e-4)
    assert trained.metrics()[-1]["orapo/margin"] != 0
    rows = trained.rollouts(6)
    assert len(rows) == 16
    assert all({"prompt_id", "score", "failed", "orapo_weight"} <= row.keys() for row in rows)


def test_async_with_lora_several_updates_and_dynamic_batches(data: Path) -> None:
    job = Job(
        data / "lora", data, *LARGE,
        "trainer.v1.trainer_mode=orapo_colocate_async", "+trainer.v1.colocate_async.parameter_sync_step=2",
        "reward.reward_manager.name=faulty", "reward.custom_reward_function.name=by_text",
        "actor_rollout_ref.model.lora_rank=4", "actor_rollout_ref.model.lora_alpha=8",
        "actor_rollout_ref.model.target_modules=all-linear", "actor_rollout_ref.model.lora.merge=True",
        "actor_rollout_ref.actor.ppo_mini_batch_size=1", "actor_rollout_ref.actor.use_dynamic_bsz=True",
        "actor_rollout_ref.actor.ppo_max_token_len_per_gpu=900",
        "actor_rollout_ref.rollout.log_prob_use_dynamic_bsz=True",
        "actor_rollout_ref.ref.log_prob_use_dynamic_bsz=True", "trainer.save_freq=2",
        STEPS="3",
    ).done()  # fmt: skip
    steps = job.metrics()
    assert len(steps) == 3
    assert all(step["actor/grad_norm"] > 0 for step in steps)
    # The reference is the policy without its adapter: in step 0's first half policy and reference are one.
    assert abs(steps[0]["orapo/margin"]) < abs(steps[-1]["orapo/margin"])
    assert (job.out / "checkpoints/global_step_2/orapo_state.json").exists()
    rows = job.rollouts(3)  # both halves of a step, but for the sessions that failed
    assert len({row["prompt_id"] for row in rows}) == 4
    assert all(0.5 <= row["orapo_weight"] <= 0.9 for row in rows)


def test_separate_async_is_refused(data: Path) -> None:
    job = Job(data / "refused", data, "trainer.v1.trainer_mode=orapo_separate_async")
    assert job.process.wait(timeout=300) != 0
    assert "use orapo_sync or orapo_colocate_async" in job.printed()
