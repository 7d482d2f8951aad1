"""Accuracy reward: 1 if the report gets every CheXpert label of the study right, else 0.

The reward of OraPO's plain GRPO baseline (arXiv 2509.18600, sec. 4.3 and Table 3, second row), which "uses accuracy as
reward (as in DeepSeek-R1)": an answer is right or wrong. What a right report is the paper does not say. Ours: its 14
labels are those of the truth, nothing missed and nothing invented. So

    score = 1[fp = 0 and fn = 0],    fp, fn counted over the labels as in radverl.rewards.facts

Range {0, 1}, higher is better. Sparse: a report with 13 labels right of 14 scores as an empty one. A label that is
denied, or not mentioned, is absent; denying a finding that is there is a miss (fn), not also a false positive. What is
scored, and what an empty report is worth, is decided as for FactS, so that an ablation changes the reward and nothing
else. Blind to side, place and severity.
"""

from collections.abc import Mapping
from typing import Any

from radverl.facts import Judge
from radverl.labels import UncertainPolicy
from radverl.rewards import facts
from radverl.rewards.base import FAILURES, Score, check_keywords, scored

COMPONENTS = (
    "tp", "fp", "fn", "n_predicted", "has_content", "judge_calls", "judge_cached", "judge_tokens", *FAILURES,
)  # fmt: skip
GOLD = facts.GOLD


def compute_score(
    data_source: str,
    solution_str: str,
    ground_truth: str | Mapping[str, Any],
    extra_info: Mapping[str, Any] | None = None,
    *,
    uncertain: UncertainPolicy = "ones",
    judge: str | Judge = "rules",
    judge_settings: Mapping[str, Any] | None = None,
    **verl_keywords: Any,
) -> Score:
    """Score one generated report.

    Args:
        solution_str: the generated report.
        ground_truth: as for `radverl.rewards.facts.compute_score`: JSON with "labels", or with the true report.
        uncertain: what -1 means, for the ground truth and for hedged facts: ones | zeros | ignore (not scored).
        judge, judge_settings: as for facts.
    Returns:
        {"score", "failed", *COMPONENTS}; where the judge raised, failed is True, its cause 1.0, and the rest 0.0.
    Raises:
        ValueError: bad ground truth (names the row) or a bad setting.
        TypeError: an unknown keyword.
    """
    check_keywords(verl_keywords, "accuracy reward")
    settings: dict[str, Any] = {"uncertain": uncertain, "judge": judge, "judge_settings": judge_settings}
    return _accuracy(
        facts.compute_score(data_source, solution_str, ground_truth, extra_info, contradiction_fp="never", **settings)
    )


async def compute_score_async(
    data_source: str,
    solution_str: str,
    ground_truth: str | Mapping[str, Any],
    extra_info: Mapping[str, Any] | None = None,
    **settings: Any,
) -> Score:
    """`compute_score` for callers in an event loop, which goes on while the judge is waited for."""
    check_keywords(settings.keys() - (compute_score.__kwdefaults__ or {}).keys(), "accuracy reward")
    return _accuracy(
        await facts.compute_score_async(
            data_source, solution_str, ground_truth, extra_info, contradiction_fp="never", **settings
        )
    )


def _accuracy(result: Score) -> Score:
    numbers = {name: float(result[name]) for name in COMPONENTS}
    if result["failed"]:
        return {"score": 0.0, "failed": True, **numbers}
    right = result["precision"] == result["recall"] == 1.0  # also 1 for "normal, and said so": see facts
    return scored(float(right), numbers)
