"""The memory estimate: against counted tensors, against sums by hand, and in the direction each setting moves it."""

import json
import weakref
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from omegaconf import DictConfig, OmegaConf

from radverl.verl_plugin.memory import (
    GB,
    Architecture,
    NotEstimated,
    estimate,
    host_bytes,
    micro_batch_tokens,
    read_architecture,
    refusal,
    report,
)
from radverl.verl_plugin.memory.architecture import activation_bytes, kv_bytes_per_token

MODEL = "Qwen/Qwen2.5-VL-3B-Instruct"
# Four FSDP2 ranks, vLLM beside them, nothing offloaded; as the recipe otherwise.
BASE = """
trainer: {device: cuda, n_gpus_per_node: 4, nnodes: 1, v1: {trainer_mode: orapo_sync}}
data: {train_batch_size: 16, max_prompt_length: 768, max_response_length: 512}
actor_rollout_ref:
  model: {enable_gradient_checkpointing: true, use_fused_kernels: false, lora_rank: 0, lora: {rank: 0}}
  actor:
    {strategy: fsdp2, ppo_mini_batch_size: 16, use_dynamic_bsz: true, ppo_max_token_len_per_gpu: 5120,
    ppo_micro_batch_size_per_gpu: null, ulysses_sequence_parallel_size: 1,
    entropy_from_logits_with_chunking: true, entropy_from_logits_chunk_size: 512,
    fsdp_config: {fsdp_size: -1, model_dtype: fp32, offload_policy: false, param_offload: false,
    optimizer_offload: false},
    optim: {main_grads_dtype: fp32, override_optimizer_config: null},
    megatron: {tensor_model_parallel_size: 2, pipeline_model_parallel_size: 1, context_parallel_size: 1,
    use_distributed_optimizer: true, param_offload: false, optimizer_offload: false,
    override_transformer_config: {recompute_granularity: full}}}
  ref: {fsdp_config: {model_dtype: bf16}}
  rollout:
    {name: vllm, n: 8, gpu_memory_utilization: 0.6, tensor_model_parallel_size: 1, max_num_batched_tokens: 4096,
    max_num_seqs: 64, max_model_len: 1280, enforce_eager: true, free_cache_engine: true,
    log_prob_max_token_len_per_gpu: 7680, log_prob_micro_batch_size_per_gpu: null,
    checkpoint_engine: {update_weights_bucket_megabytes: 1280}}
"""
ACTOR, ROLLOUT, FSDP = "actor_rollout_ref.actor", "actor_rollout_ref.rollout", "actor_rollout_ref.actor.fsdp_config"
IDLE = {f"{FSDP}.param_offload": True, f"{FSDP}.optimizer_offload": True}
HOST = {f"{FSDP}.offload_policy": True}


@pytest.fixture(scope="module")
def qwen() -> Architecture:
    return read_architecture(MODEL)


def config(**changes: Any) -> DictConfig:
    made = OmegaConf.create(BASE)
    for key, value in changes.items():
        assert key.split(".")[0] in made
        OmegaConf.update(made, key, value, force_add=False)
    return made


def sizes(a: Architecture, gpu_gb: float = 24, **changes: Any) -> dict[str, float]:
    """Phase -> bytes."""
    return {phase.name: phase.total for phase in estimate(config(**changes), a, gpu_gb)}


def parts(a: Architecture, phase: str, gpu_gb: float = 24, **changes: Any) -> dict[str, float]:
    """Part -> bytes of one phase."""
    found = {p.name: p for p in estimate(config(**changes), a, gpu_gb)}[phase]
    return {part.name: part.size for part in found.parts}


# ---- shapes


def test_shapes_of_the_3b(qwen: Architecture) -> None:
    assert qwen.parameters == 3_754_622_976  # the number the checkpoint's publisher gives
    assert (qwen.layers, qwen.hidden, qwen.kv_heads, qwen.vocabulary, qwen.tied) == (36, 2048, 2, 151_936, True)
    assert qwen.largest == 151_936 * 2048
    # q, o: 2048 x 2048; k, v: 2048 x 256; three biases; three projections of the MLP; two norms
    assert qwen.layer == 2 * 2048**2 + 2 * 2048 * 256 + 2048 + 2 * 256 + 3 * 2048 * 11_008 + 2 * 2048
    assert qwen.parameters == 36 * qwen.layer + 32 * 19_702_200 + qwen.root
    assert kv_bytes_per_token(qwen) == 36_864
    assert kv_bytes_per_token(qwen, 2) == kv_bytes_per_token(qwen, 4) == 18_432


def test_parameters_of_the_7b() -> None:
    assert read_architecture("Qwen/Qwen2.5-VL-7B-Instruct").parameters == 8_292_166_656


def test_config_of_a_folder_in_the_hubs_flat_form(tmp_path: Path, qwen: Architecture) -> None:
    flat = {
        "architectures": ["Qwen2_5_VLForConditionalGeneration"],
        "model_type": "qwen2_5_vl",
        "hidden_size": 2048,
        "intermediate_size": 11008,
        "num_attention_heads": 16,
        "num_hidden_layers": 36,
        "num_key_value_heads": 2,
        "tie_word_embeddings": True,
        "vocab_size": 151936,
        "rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]},
        "vision_config": {"depth": 32, "hidden_size": 1280, "intermediate_size": 3420, "num_heads": 16}
        | {"out_hidden_size": 2048, "patch_size": 14, "spatial_merge_size": 2},
    }
    (tmp_path / "config.json").write_text(json.dumps(flat))
    assert read_architecture(str(tmp_path)) == qwen


@pytest.mark.parametrize("text", [None, "{}", "no json", '{"model_type": "qwen9"}'])
def test_a_model_that_cannot_be_read_is_named(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / "config.json").write_text(text)
    with pytest.raises(NotEstimated, match=str(tmp_path)):
        read_architecture(str(tmp_path))


# ---- activations, counted


class LiveBytes:
    """Bytes of the tensors that operations made and that are still alive; `peak` is their most."""

    def __init__(self, known: list[Any]) -> None:
        from torch.utils._python_dispatch import TorchDispatchMode
        from torch.utils._pytree import tree_leaves

        self.now = self.peak = 0
        seen = {tensor.untyped_storage()._cdata for tensor in known}
        outer = self

        def freed(key: int, size: int) -> None:
            seen.discard(key)
            outer.now -= size

        class Count(TorchDispatchMode):
            def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
                out = function(*args, **(kwargs or {}))
                for tensor in tree_leaves(out):
                    if hasattr(tensor, "untyped_storage") and tensor.untyped_storage()._cdata not in seen:
                        storage = tensor.untyped_storage()
                        seen.add(storage._cdata)
                        outer.now += storage.nbytes()
                        weakref.finalize(storage, freed, storage._cdata, storage.nbytes())
                outer.peak = max(outer.peak, outer.now)
                return out

        self.mode = Count()


def use_linear_attention() -> None:
    """Register "linear_attn", which keeps what flash attention keeps.

    Without a GPU, PyTorch's own would hold T x T scores on the meta device, which has sizes and no data.
    """
    import torch
    from transformers import AttentionInterface

    class Flash(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *qkv: Any) -> Any:
            out, log_sum_exp = torch.empty_like(qkv[0]), qkv[0].new_empty(qkv[0].shape[:3], dtype=torch.float32)
            ctx.save_for_backward(*qkv, out, log_sum_exp)
            return out

        @staticmethod
        def backward(ctx: Any, gradient: Any) -> Any:
            return tuple(torch.empty_like(saved) for saved in ctx.saved_tensors[:3])

    def attend(module: Any, q: Any, k: Any, v: Any, mask: Any, **rest: Any) -> Any:
        return Flash.apply(*(x.transpose(1, 2).contiguous() for x in (q, k, v))), None

    AttentionInterface.register("linear_attn", attend)


def counted_peak(tokens: int, image_side: int, shape: dict[str, int], checkpointing: bool) -> tuple[int, Architecture]:
    """Most live bytes in forward and backward of a small Qwen2.5-VL in bf16, and its shapes.

    With an image it computes; without one it has sizes and no data (the meta device).
    """
    import torch
    from transformers import Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration

    from radverl.verl_plugin.memory.architecture import _shapes

    image = 5
    text = {"vocab_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": shape["layers"]}
    text |= {"hidden_size": shape["hidden"], "intermediate_size": shape["intermediate"]}
    text |= {"bos_token_id": 1, "eos_token_id": 2}
    rope = {
        "rope_scaling": {"type": "mrope", "mrope_section": [shape["hidden"] // 32, *[shape["hidden"] * 3 // 64] * 2]}
    }
    vision = {"depth": 4, "hidden_size": 64, "intermediate_size": 256, "num_heads": 4, "patch_size": 14}
    vision |= {"out_hidden_size": shape["hidden"], "fullatt_block_indexes": [0]}
    made = Qwen2_5_VLConfig(
        text_config=text | rope, vision_config=vision, tie_word_embeddings=True, image_token_id=image
    )
    if not image_side:
        use_linear_attention()
        made._attn_implementation = "linear_attn"
    device = torch.device("cpu" if image_side else "meta")
    with device:
        network = Qwen2_5_VLForConditionalGeneration(made).to(torch.bfloat16).train()
    if checkpointing:
        network.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    ids_1T = torch.arange(tokens, device=device)[None] % 50 + 10
    inputs: dict[str, Any] = {"input_ids": ids_1T}
    if image_side:
        ids_1T[:, : image_side**2 // 4] = image
        inputs |= {
            "pixel_values": torch.zeros(image_side**2, 3 * 2 * 14 * 14, dtype=torch.bfloat16),
            "image_grid_thw": torch.tensor([[1, image_side, image_side]]),
            "mm_token_type_ids": (ids_1T == image).int(),
        }
    else:
        inputs |= {"position_ids": torch.arange(tokens, device=device).expand(3, 1, tokens)}
    for parameter in network.parameters():
        parameter.grad = torch.zeros_like(parameter)
    grads = [parameter.grad for parameter in network.parameters()]
    live = LiveBytes([*network.parameters(), *network.buffers(), *grads, *inputs.values()])
    with live.mode:
        logits_TV = network(**inputs, use_cache=False).logits[0]
        torch.nn.functional.cross_entropy(logits_TV, ids_1T[0]).backward()
    return live.peak, _shapes(network, made)


@pytest.mark.parametrize("checkpointing", [True, False])
@pytest.mark.parametrize(
    ("tokens", "image_side", "shape"),
    [
        (1024, 0, {"hidden": 256, "intermediate": 1376, "layers": 8}),
        (768, 0, {"hidden": 512, "intermediate": 1376, "layers": 4}),
        (272, 32, {"hidden": 64, "intermediate": 64, "layers": 1}),  # the vision tower decides
    ],
)
def test_activations_are_those_counted(
    tokens: int, image_side: int, shape: dict[str, int], checkpointing: bool
) -> None:
    """Forward and backward hold at their peak what is estimated, within 10 %; without checkpointing up to 30 % less."""
    peak, a = counted_peak(tokens, image_side, shape, checkpointing)
    kept, work = activation_bytes(a, tokens, image_side**2, checkpointing)
    assert 0.9 * peak <= kept + work <= (1.1 if checkpointing else 1.3) * peak


@pytest.mark.parametrize(("model", "tokens"), [(MODEL, 5120), ("Qwen/Qwen3-VL-8B-Instruct", 16_384)])
def test_activations_of_the_models_themselves(model: str, tokens: int) -> None:
    """Language models on the meta device, at their recipes' tokens: within 3 %."""
    import torch
    from transformers import AutoConfig, AutoModelForImageTextToText

    from radverl.verl_plugin.memory.architecture import KNOWN

    use_linear_attention()
    made = AutoConfig.for_model(**{"model_type": "qwen2_5_vl"} | KNOWN[model])
    made._attn_implementation = "linear_attn"
    made.text_config.rope_parameters["mrope_section"] = [16, 24, 24]
    with torch.device("meta"):
        network = AutoModelForImageTextToText.from_config(made).to(torch.bfloat16).train()
        network.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        for parameter in network.parameters():
            parameter.grad = torch.empty_like(parameter)
        inputs_1TH = torch.empty(1, tokens, made.text_config.hidden_size, dtype=torch.bfloat16)
        positions_31T = torch.empty(3, 1, tokens, dtype=torch.long)
        grads = [parameter.grad for parameter in network.parameters()]
        live = LiveBytes([*network.parameters(), *network.buffers(), *grads, inputs_1TH, positions_31T])
        inputs_1TH.requires_grad_(True)
        with live.mode:
            language = network.model.language_model
            language(inputs_embeds=inputs_1TH, position_ids=positions_31T, use_cache=False)[0].sum().backward()
    assert sum(activation_bytes(read_architecture(model), tokens, 0, True)) == pytest.approx(live.peak, rel=0.03)


# ---- numbers by hand


def test_update_by_hand(qwen: Architecture) -> None:
    found = parts(qwen, "update")
    assert found["weights"] == found["gradients"] == 3_754_622_976  # 4 bytes over 4 GPUs
    assert found["Adam"] == 2 * 3_754_622_976
    assert found["logits"] == 2 * 5120 * 151_936 * 2
    assert found["activations"] == 2 * 5120 * (36 * 2048 + 4 * 32 * 1280)
    assert parts(qwen, "update", **HOST)["weights"] == 0


def test_vllm_by_hand(qwen: Architecture) -> None:
    share = parts(qwen, "vLLM's share")
    assert share["vLLM's weights"] == 2 * 3_754_622_976
    assert share["KV cache of one sequence"] == 1280 * 36_864
    sync = parts(qwen, "weight sync", **HOST)
    assert sync["transfer bucket"] == 1280 * 2**20 >= sync["one whole parameter"] == 4 * 151_936 * 2048


def test_host_by_hand(qwen: Architecture) -> None:
    p = qwen.parameters
    assert host_bytes(config(**HOST), qwen) == p * (2 + 16)  # reference, and all of the actor; loading takes as much
    assert host_bytes(config(**IDLE), qwen) == p * (2 + 16)  # four ranks load 4 bytes each
    assert host_bytes(config(**IDLE | {"trainer.n_gpus_per_node": 2}), qwen) == p * (2 + 12)  # weights and Adam


def test_micro_batches(qwen: Architecture) -> None:
    assert micro_batch_tokens(config(), "update") == 5120
    small = {"data.train_batch_size": 4, f"{ACTOR}.ppo_mini_batch_size": 4, f"{ROLLOUT}.n": 2}
    assert micro_batch_tokens(config(**small), "update") == 3 * 1280  # 4 prompts x (2 + 1 rows) over 4 GPUs
    assert micro_batch_tokens(config(**small | {"trainer.v1.trainer_mode": "sync"}), "update") == 2 * 1280
    fixed = {f"{ACTOR}.use_dynamic_bsz": False, f"{ACTOR}.ppo_micro_batch_size_per_gpu": 3}
    assert micro_batch_tokens(config(**fixed), "update") == 3 * 1280


# ---- directions

GROWING = {
    "prompts": ("data.train_batch_size", f"{ACTOR}.ppo_mini_batch_size"),
    "rollouts": (f"{ROLLOUT}.n",),
    "response": ("data.max_response_length",),
    "prompt": ("data.max_prompt_length",),
    "tokens": (f"{ACTOR}.ppo_max_token_len_per_gpu", f"{ROLLOUT}.log_prob_max_token_len_per_gpu"),
    "micro-batch": (f"{ACTOR}.ppo_micro_batch_size_per_gpu", f"{ROLLOUT}.log_prob_micro_batch_size_per_gpu"),
    "batched": (f"{ROLLOUT}.max_num_batched_tokens",),
    "sequences": (f"{ROLLOUT}.max_num_seqs",),
    "bucket": (f"{ROLLOUT}.checkpoint_engine.update_weights_bucket_megabytes",),
}


@settings(deadline=None, max_examples=60)
@given(st.sampled_from(sorted(GROWING)), st.integers(1, 4000), st.integers(1, 4000), st.booleans(), st.booleans())
def test_no_phase_shrinks_when_there_is_more_to_do(name: str, a: int, b: int, dynamic: bool, fsdp1: bool) -> None:
    qwen = read_once()
    less, more = sorted((a, b))
    fixed = {f"{ACTOR}.use_dynamic_bsz": dynamic, f"{ACTOR}.strategy": "fsdp" if fsdp1 else "fsdp2"}
    small, large = (sizes(qwen, **fixed, **dict.fromkeys(GROWING[name], value)) for value in (less, more))
    assert all(small[phase] <= large[phase] for phase in small)


@pytest.mark.parametrize(
    ("name", "phase", "less", "more"),
    [
        ("prompts", "update", 4, 8),
        ("rollouts", "update", 4, 8),
        ("response", "update", 256, 512),
        ("prompt", "log-probs", 256, 512),
        ("tokens", "update", 4096, 5120),
        ("tokens", "log-probs", 4096, 5120),
        ("batched", "vLLM's share", 2048, 4096),
        ("sequences", "vLLM's share", 32, 64),
        ("bucket", "weight sync", 512, 1024),
    ],
)
def test_what_should_grow_grows(qwen: Architecture, name: str, phase: str, less: int, more: int) -> None:
    cap = {} if name == "tokens" else dict.fromkeys(GROWING["tokens"], 2**20)  # else the cap decides
    small, large = (sizes(qwen, **cap | dict.fromkeys(GROWING[name], value)) for value in (less, more))
    assert small[phase] < large[phase]


@pytest.mark.parametrize("strategy", ["fsdp", "fsdp2", "megatron"])
def test_more_gpus_take_less_each(qwen: Architecture, strategy: str) -> None:
    few, many = (sizes(qwen, **{f"{ACTOR}.strategy": strategy, "trainer.n_gpus_per_node": gpus}) for gpus in (4, 8))
    assert all(many[phase] <= few[phase] for phase in few)
    assert many["update"] < few["update"]
    nodes = sizes(qwen, **{f"{ACTOR}.strategy": strategy, "trainer.nnodes": 2})
    assert nodes == many


def test_offloads_are_ordered(qwen: Architecture) -> None:
    none, idle, host = sizes(qwen), sizes(qwen, **IDLE), sizes(qwen, **HOST)
    param = sizes(qwen, **{f"{FSDP}.param_offload": True})
    for phase in ("rollout", "weight sync", "log-probs"):  # while the optimizer is idle
        assert none[phase] >= param[phase] >= idle[phase] >= host[phase]
    assert none["rollout"] - param["rollout"] == pytest.approx(qwen.parameters)
    assert param["rollout"] - idle["rollout"] == pytest.approx(2 * qwen.parameters)
    assert idle["rollout"] == host["rollout"]
    assert none["update"] == param["update"] == idle["update"]  # idle offloads are back for the update
    assert idle["update"] - host["update"] == pytest.approx(4 * qwen.parameters)


def test_fsdp1_copies_in_adam_and_ignores_the_offload_policy(qwen: Architecture) -> None:
    one = {f"{ACTOR}.strategy": "fsdp"}
    assert sizes(qwen, **one)["optimizer step"] - sizes(qwen)["optimizer step"] > 0.9 * qwen.parameters
    assert sizes(qwen, **one, **HOST) == sizes(qwen, **one)
    assert sizes(qwen, **one, **IDLE)["weight sync"] == pytest.approx(
        sizes(qwen, **IDLE)["weight sync"] + qwen.parameters
    )


def test_other_settings_that_save(qwen: Architecture) -> None:
    base = sizes(qwen)
    assert sizes(qwen, **{"actor_rollout_ref.model.use_fused_kernels": True})["update"] < base["update"]
    assert (
        sizes(qwen, **{"actor_rollout_ref.model.enable_gradient_checkpointing": False})["update"] > 2 * base["update"]
    )
    assert sizes(qwen, **{f"{ACTOR}.entropy_from_logits_with_chunking": False})["log-probs"] > base["log-probs"]
    awake = sizes(qwen, **{f"{ROLLOUT}.free_cache_engine": False})
    assert awake["update"] - base["update"] == pytest.approx(0.6 * 24 * GB)
    assert sizes(qwen, **{f"{ROLLOUT}.enforce_eager": False})["update"] > base["update"]
    halved = parts(qwen, "vLLM's share", **{f"{ROLLOUT}.tensor_model_parallel_size": 2})
    assert halved["vLLM's weights"] == qwen.parameters


def test_megatron(qwen: Architecture) -> None:
    engine = {f"{ACTOR}.strategy": "megatron"}
    found = parts(qwen, "update", **engine)
    mine = (qwen.parameters - qwen.vision_parameters) / 2 + qwen.vision_parameters
    assert (found["weights"], found["gradients"]) == (2 * mine, 4 * mine)
    assert found["Adam"] == 12 * mine / 2  # two replicas share it
    on_host = {f"{ACTOR}.optim.override_optimizer_config": {"optimizer_cpu_offload": True}}
    on_host[f"{ACTOR}.optim.override_optimizer_config"]["optimizer_offload_fraction"] = 0.75
    assert parts(qwen, "update", **engine, **on_host)["Adam"] == found["Adam"] / 4
    wider = parts(qwen, "update", **engine, **{f"{ACTOR}.megatron.tensor_model_parallel_size": 4})
    assert wider["weights"] < found["weights"]
    assert wider["logits"] < found["logits"]


# ---- verdict


def test_a_run_fits_or_is_refused_by_its_largest_parts(qwen: Architecture) -> None:
    assert refusal(estimate(config(**HOST), qwen, 24), 24) is None
    sentence = refusal(estimate(config(**IDLE), qwen, 24), 24)
    assert sentence is not None
    assert sentence.startswith("update needs about 24.5 GB per GPU, and GPU_MEMORY_GB=24 leaves 22.1; Adam takes 7.5:")
    assert (
        "offload_policy=True; logits takes 3.1: lower actor_rollout_ref.actor.ppo_max_token_len_per_gpu (5120 "
        in sentence
    )
    assert refusal(estimate(config(**IDLE | {f"{ACTOR}.ppo_max_token_len_per_gpu": 1536}), qwen, 24), 24) is None
    assert refusal(estimate(config(**IDLE), qwen, 40), 40) is None
    tiny = refusal(estimate(config(**HOST | {f"{ROLLOUT}.gpu_memory_utilization": 0.3}), qwen, 24), 24)
    assert tiny is not None
    assert tiny.startswith("vLLM's share needs about 8.4 GB per GPU, and GPU_MEMORY_GB=24 leaves 7.2")


@settings(deadline=None, max_examples=60)
@given(st.floats(4, 200), st.floats(1, 4), st.booleans())
def test_what_fits_also_fits_a_larger_gpu(gpu_gb: float, factor: float, on_host: bool) -> None:
    qwen, changes = read_once(), HOST if on_host else IDLE
    if refusal(estimate(config(**changes), qwen, gpu_gb), gpu_gb) is None:
        assert refusal(estimate(config(**changes), qwen, gpu_gb * factor), gpu_gb * factor) is None


def test_report_has_every_phase_and_its_sum(qwen: Architecture) -> None:
    phases = estimate(config(**HOST), qwen, 24)
    text = report(phases, 24)
    for phase in phases:
        assert f"  {phase.name:<14} {phase.total / GB:5.1f} of" in text
    assert "not measured" in text


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({f"{ACTOR}.strategy": "veomni"}, "veomni"),
        ({f"{ROLLOUT}.name": "sglang"}, "sglang"),
        ({"actor_rollout_ref.model.lora_rank": 8}, "LoRA"),
    ],
)
def test_what_is_not_covered_is_said(qwen: Architecture, change: dict[str, Any], says: str) -> None:
    with pytest.raises(NotEstimated, match=says):
        estimate(config(**change), qwen, 24)


_READ: list[Architecture] = []


def read_once() -> Architecture:
    """For hypothesis, which takes no fixture of a module's scope."""
    if not _READ:
        _READ.append(read_architecture(MODEL))
    return _READ[0]
