"""GPU memory of a run, estimated from its composed config and the model's shapes before anything is started.

    a = read_architecture(config.actor_rollout_ref.model.path)
    phases = estimate(config, a, gpu_gb=24)
    print(report(phases, gpu_gb=24)); sentence = refusal(phases, gpu_gb=24)

    architecture.py   shapes of a model, read from its config; activations of a micro-batch
    engines.py        what FSDP, FSDP2 and Megatron keep on the GPU, and how many tokens a micro-batch has
    phases.py         the phases of a step of RL, each a sum of parts; report and refusal
    supervised.py     those of a step of verl's SFT trainer

An estimate, and an upper one where it had to choose: every token counts as a visual one too, packed micro-batches as
full. Activations were compared with live tensors on a CPU (tests/test_memory.py), nothing with a GPU. What each part is
made of: docs/orapo_memory.md. All sizes are bytes; GB are 10^9 bytes.
"""

from radverl.verl_plugin.memory.architecture import Architecture, NotEstimated, read_architecture
from radverl.verl_plugin.memory.engines import host_bytes, host_bytes_per_weight, micro_batch_tokens
from radverl.verl_plugin.memory.phases import GB, Part, Phase, estimate, refusal, report
from radverl.verl_plugin.memory.supervised import estimate_supervised

__all__ = [
    "GB",
    "Architecture",
    "NotEstimated",
    "Part",
    "Phase",
    "estimate",
    "estimate_supervised",
    "host_bytes",
    "host_bytes_per_weight",
    "micro_batch_tokens",
    "read_architecture",
    "refusal",
    "report",
]
