"""How large is the preference term of OraPO beside GRPO's: gradient norms of both on groups that a model samples.

    python -m radverl.evaluation.gradient_share --model DIR --data train.parquet --out share.json

    g_GRPO = grad of (1/P) sum_i (1 - w_i) L_GRPO(x_i)        g_DPO = grad of (1/P) sum_i w_i L_DPO(x_i)      (eq. 11)

Measured before any update, where policy and reference are one: the KL has no gradient there, and LN-DPO's is
proportional to tau, so one pass gives every tau. Plain transformers, no verl; for models that fit one process.

Shapes: P prompts of a step, K rollouts, R = P K rows, T response tokens.
"""

import argparse
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from data_preprocess.core.outputs import output_file
from radverl.evaluation.files import extra_info, read_parquet, row_name, truth_of, write_json
from radverl.evaluation.generate import chat_messages, load_model, open_image
from radverl.orapo import mixing_weight, zero_reward_rate
from radverl.rewards.facts import compute_score

TAUS = (0.1, 1.0, 5.0)


def gradient_share(
    model_dir: str | Path,
    rows: Sequence[dict],
    *,
    prompts: int = 8,
    rollouts: int = 8,
    max_new_tokens: int = 64,
    taus: Sequence[float] = TAUS,
    seed: int = 0,
) -> dict[str, Any]:
    """Sample groups for all rows, `prompts` at a time as in a training step, and compare the two gradients.

    Args:
        rows: rows of our RL Parquet with a true report; a last step that is not full is left out.
    Returns:
        {"prompts", "all_zero_groups", "grpo_norm", "dpo_norm": {tau: norm}, "ratio": {tau: DPO / GRPO}, "cosine"};
        norms and cosine are means over the steps, the ratio that of the mean norms.
    Raises:
        ValueError: fewer rows than one step takes, or a row without a true report.
    """
    import torch

    if len(rows) < prompts:
        raise ValueError(f"{len(rows)} rows do not fill one step of {prompts} prompts: give more.")
    torch.manual_seed(seed)
    processor, model = load_model(model_dir, "cpu")
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    grpo_norms, dpo_norms, cosines, all_zero = [], [], [], 0
    for start in range(0, len(rows) - prompts + 1, prompts):
        step = rows[start : start + prompts]
        grpo, dpo, n_zero = _losses(processor, model, step, rollouts, max_new_tokens)
        all_zero += n_zero
        flat = []
        for loss in (grpo, dpo):
            gradients = torch.autograd.grad(loss, parameters, retain_graph=loss is grpo, allow_unused=True)
            flat.append(torch.cat([gradient.flatten() for gradient in gradients if gradient is not None]))
        grpo_norms.append(float(flat[0].norm()))
        dpo_norms.append(float(flat[1].norm()))
        if grpo_norms[-1] and dpo_norms[-1]:  # a step of all-zero groups has no GRPO gradient
            cosines.append(float(torch.nn.functional.cosine_similarity(flat[0], flat[1], dim=0)))
    grpo_norm, dpo_norm = statistics.fmean(grpo_norms), statistics.fmean(dpo_norms)
    n_prompts = len(grpo_norms) * prompts
    return {
        "prompts": n_prompts,
        "all_zero_groups": all_zero / n_prompts,
        "grpo_norm": grpo_norm,
        "dpo_norm": {f"{tau:g}": tau * dpo_norm for tau in taus},
        "ratio": {f"{tau:g}": tau * dpo_norm / grpo_norm if grpo_norm else None for tau in taus},
        "cosine": statistics.fmean(cosines) if cosines else None,
    }


def _losses(
    processor: Any, model: Any, step: Sequence[dict], rollouts: int, max_new_tokens: int
) -> tuple[Any, Any, int]:
    """(GRPO term, DPO term at tau 1, number of all-zero groups) of one step; both terms share one graph."""
    import torch

    from radverl.orapo import dpo_group_loss, group_advantages, grpo_loss, log_ratio_sums

    tokenizer = processor.tokenizer
    end = tokenizer.eos_token_id
    repeated = [row for row in step for _ in range(rollouts)]
    responses = _sample(processor, model, repeated, max_new_tokens)
    texts = [tokenizer.decode(response, skip_special_tokens=True) for response in responses]
    rewards_PK = torch.tensor(
        [
            compute_score("gradient_share", text, row["reward_model"]["ground_truth"], extra_info(row))["score"]
            for row, text in zip(repeated, texts, strict=True)
        ],
        dtype=torch.float32,
    ).view(len(step), rollouts)
    weights_P = torch.from_numpy(mixing_weight([zero_reward_rate(r) for r in rewards_PK.tolist()])).float()
    reports = [truth_of(row, row_name(row, i)).get("report") for i, row in enumerate(step)]
    if not all(reports):
        raise ValueError("a row has no true report: re-run data_preprocess.")
    true = [[*tokenizer(report)["input_ids"], end][:max_new_tokens] for report in reports]

    log_probs, mask = _log_probs(processor, model, [*repeated, *step], [*responses, *true])
    n = len(repeated)
    grpo = grpo_loss(
        log_probs[:n],
        log_probs[:n].detach(),
        mask[:n],
        group_advantages(rewards_PK).flatten(),
        row_weights_R=(1 - weights_P).repeat_interleave(rollouts),
        kl_coef=0.0,
        loss_scale_factor=max_new_tokens,
    )
    delta, lengths = log_ratio_sums(log_probs, log_probs.detach(), mask)
    shape = (len(step), rollouts)
    dpo_P = dpo_group_loss(delta[n:], delta[:n].view(shape), lengths[n:], lengths[:n].view(shape), tau=1.0)
    all_zero = int((rewards_PK == 0).all(-1).sum())
    return grpo, (weights_P * dpo_P).mean(), all_zero


def _inputs(processor: Any, rows: Sequence[dict]) -> Any:
    prompts = [
        processor.apply_chat_template(chat_messages(row), add_generation_prompt=True, tokenize=False) for row in rows
    ]
    images = [[open_image(image) for image in row["images"]] for row in rows]
    return processor(text=prompts, images=images, padding=True, return_tensors="pt")


def _sample(processor: Any, model: Any, rows: Sequence[dict], max_new_tokens: int) -> list[list[int]]:
    """Token ids of one response per row at temperature 1, end of turn included."""
    import torch

    inputs = _inputs(processor, rows)
    end = processor.tokenizer.eos_token_id
    media = [model.config.image_token_id, model.config.video_token_id]
    with torch.inference_mode():
        tokens = model.generate(
            **inputs,
            do_sample=True,
            temperature=1.0,
            top_p=1.0,
            top_k=0,
            suppress_tokens=media,  # the model would look for an image behind such a token
            max_new_tokens=max_new_tokens,
            pad_token_id=processor.tokenizer.pad_token_id,
        )
    responses = tokens[:, inputs["input_ids"].shape[1] :].tolist()
    return [response[: response.index(end) + 1] if end in response else response for response in responses]


def _log_probs(processor: Any, model: Any, rows: Sequence[dict], responses: Sequence[list[int]]) -> tuple[Any, Any]:
    """(log_probs_RT, mask_RT) of given responses, prompts padded on the left."""
    import torch

    inputs = dict(_inputs(processor, rows))
    longest = max(map(len, responses))
    pad = processor.tokenizer.pad_token_id
    tokens_RT = torch.tensor([[*response, *[pad] * (longest - len(response))] for response in responses])
    mask_RT = torch.tensor([[1] * len(response) + [0] * (longest - len(response)) for response in responses])
    n_prompt = inputs["input_ids"].shape[1]
    for name, tail in (
        ("input_ids", tokens_RT),
        ("attention_mask", mask_RT),
        ("mm_token_type_ids", torch.zeros_like(tokens_RT)),
    ):
        if name in inputs:
            inputs[name] = torch.cat([inputs[name], tail], dim=1)
    logits = model(**inputs).logits[:, n_prompt - 1 : -1].float()
    return torch.log_softmax(logits, dim=-1).gather(-1, tokens_RT[..., None])[..., 0], mask_RT


def main(argv: list[str] | None = None) -> int:
    """0 measured, 2 bad input."""
    parser = argparse.ArgumentParser(
        prog="python -m radverl.evaluation.gradient_share",
        description="Gradient norms of OraPO's two terms, before any update.",
    )
    parser.add_argument("--model", required=True, help="Hugging Face folder of the model RL starts from")
    parser.add_argument("--data", required=True, help="RL Parquet file")
    parser.add_argument("--out", required=True, help="JSON file to write")
    parser.add_argument("--limit", type=int, default=64, help="only the first so many prompts")
    parser.add_argument("--max-new-tokens", type=int, default=64)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(argv)
    try:
        path = output_file(args.out)
        rows = read_parquet(args.data)[: args.limit]
        share = gradient_share(args.model, rows, max_new_tokens=args.max_new_tokens, seed=args.seed)
        write_json(path, share)
    except (ValueError, OSError) as error:
        print(f"gradient_share: {error}", file=sys.stderr)
        return 2
    ratios = ", ".join(f"{ratio:.2f} at tau {tau}" for tau, ratio in share["ratio"].items() if ratio is not None)
    print(f"{share['prompts']} prompts, gradient norm of DPO / GRPO: {ratios}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
