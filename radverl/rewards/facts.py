"""FactS reward: facts of the generated report against the label set of the study (arXiv 2509.18600, sec. 3.3).

    F_beta = (1 + beta^2) P R / (beta^2 P + R + xi)                                                   (eq. 15)

P and R count labels, at most 14 per study, so repeating a sentence gains nothing. Range [0, 1], higher is better;
blind to side, place and severity. beta > 1 favours recall; the paper gives neither beta nor xi (ours: 2.0, 1e-8).

Undefined cases (ours):
  | labels with a positive | labels entailed by the report | score |
  |---|---|---|
  | some | none | 0 (P = R = 0) |
  | none | some | 0 (P = R = 0) |
  | none | none | 1 if the report speaks about a chest image, else 0 |
An empty or senseless report entails nothing, not even "No Finding", and scores 0. Where the ground truth leaves "No
Finding" blank and has no positive label, nothing is known about normality and the label "No Finding" is not scored.
A report that states and plainly denies the same label is taken to contradict it.

The judge is `rules` (default, offline), `openai`, a language model behind a server, or `chexbert`, your checkpoint
(docs/judge.md). Where it gives no answer the sample is `failed`, one of `failed_timeout`, `failed_rate_limit`, ...
(`radverl.rewards.base.FAILURES`) is 1, and every other number is 0.

A contradicted label counts as a false positive (the paper) by `contradiction_fp`:
  gt_positive  only where the label is truly present (default): denying an absent finding is right, not an error;
  always       for every contradicted label; a report that says "no pneumothorax" for a study without one loses
               precision, so this teaches not to mention absent findings;
  never        contradictions cost recall only.
"""

import asyncio
import logging
from collections.abc import Mapping
from typing import Any, Literal, get_args

from radverl.chexpert import has_clinical_content, label_report
from radverl.facts import CONTRADICTED, ENTAILED, NOT_MENTIONED, Judge, State, check_states, extract_facts, get_judge
from radverl.labels import (
    CHEXPERT_14,
    NO_FINDING,
    SUPPORT_DEVICES,
    Labels,
    UncertainPolicy,
    apply_uncertain,
    normalise_labels,
)
from radverl.rewards.base import FAILURES, Score, check_keywords, failed, read_ground_truth, row_name, scored

ContradictionFp = Literal["gt_positive", "always", "never"]
# A report and the ground truth it is perfect for; reward managers score it once before a run.
GOLD = (
    "Findings: Small left pleural effusion. No pneumothorax.",
    '{"labels": {"Pleural Effusion": 1, "Pneumothorax": 0}}',
)
COMPONENTS = (
    "precision", "recall", "tp", "fp", "fn", "n_predicted", "n_facts", "contradictions", "has_content",
    "judge_calls", "judge_cached", "judge_tokens", *FAILURES,
)  # fmt: skip

_FINDINGS = tuple(label for label in CHEXPERT_14 if label not in (NO_FINDING, SUPPORT_DEVICES))
_log = logging.getLogger(__name__)


def f_beta(precision: float, recall: float, beta: float, xi: float = 1e-8) -> float:
    """Eq. 15. Precision and recall in [0, 1], beta > 0; 0.0 where both are 0."""
    return (1 + beta**2) * precision * recall / (beta**2 * precision + recall + xi)


def compute_score(
    data_source: str,
    solution_str: str,
    ground_truth: str | Mapping[str, Any],
    extra_info: Mapping[str, Any] | None = None,
    *,
    beta: float = 2.0,
    uncertain: UncertainPolicy = "ones",
    contradiction_fp: ContradictionFp = "gt_positive",
    judge: str | Judge = "rules",
    judge_settings: Mapping[str, Any] | None = None,
    xi: float = 1e-8,
    **verl_keywords: Any,
) -> Score:
    """Score one generated report.

    Args:
        solution_str: the generated report.
        ground_truth: JSON string with "labels" (name -> 1 | 0 | -1 | null); without labels, "report" or "findings" and
            "impression" are labelled by `radverl.chexpert.label_report`.
        beta: weight of recall in eq. 15.
        uncertain: what -1 means, for the ground truth and for hedged facts: ones | zeros | ignore (not scored).
        judge: "rules", "openai", "chexbert", or any object with the `radverl.facts.Judge` interface.
        judge_settings: of a judge given by name, see `radverl.facts.get_judge`.
    Returns:
        {"score", "failed", *COMPONENTS}; where the judge raised, failed is True, its cause 1.0, and the rest 0.0.
    Raises:
        ValueError: bad ground truth (names the row by extra_info["prompt_id"]) or a bad setting.
        TypeError: an unknown keyword.
    """
    check_keywords(verl_keywords, "facts reward")
    study = _Study(solution_str, ground_truth, extra_info, beta, uncertain, contradiction_fp, xi)
    judging = get_judge(judge, uncertain, judge_settings)
    try:
        answer = check_states(judging.states(solution_str))
    except Exception as error:  # whatever a judge raises is its failure, never a zero for the report
        return study.failed(error, judging)
    return study.scored(answer)


async def compute_score_async(
    data_source: str,
    solution_str: str,
    ground_truth: str | Mapping[str, Any],
    extra_info: Mapping[str, Any] | None = None,
    **settings: Any,
) -> Score:
    """`compute_score` for callers in an event loop, which goes on while the judge is waited for."""
    settings = {**(compute_score.__kwdefaults__ or {}), **settings}
    judge, judge_settings = settings.pop("judge"), settings.pop("judge_settings")
    judging = get_judge(judge, settings["uncertain"], judge_settings)
    if (ask := getattr(judging, "states_async", None)) is None:
        arguments = (data_source, solution_str, ground_truth, extra_info)
        return await asyncio.to_thread(compute_score, *arguments, judge=judging, **settings)
    known = {name: settings.pop(name) for name in ("beta", "uncertain", "contradiction_fp", "xi")}
    check_keywords(settings, "facts reward")
    study = _Study(solution_str, ground_truth, extra_info, **known)
    try:
        answer = check_states(await ask(solution_str))
    except Exception as error:
        return study.failed(error, judging)
    return study.scored(answer)


def true_labels(ground_truth: str | Mapping[str, Any], extra_info: Mapping[str, Any] | None = None) -> Labels:
    """The 14 labels of a row: its "labels", else those of its report text.

    Raises:
        ValueError: no JSON object, bad label names or values, or neither labels nor text; names the row.
    """
    truth = read_ground_truth(ground_truth, extra_info)
    labels = truth.get("labels")
    if labels is not None and not isinstance(labels, Mapping):
        raise ValueError(f'{row_name(extra_info)}: ground_truth["labels"] is not an object; rebuild the data set.')
    if labels and any(value is not None for value in labels.values()):
        try:
            return normalise_labels(labels)
        except ValueError as error:
            raise ValueError(f"{row_name(extra_info)}: {error}") from error
    text = true_text(truth)
    if not text.strip():
        raise ValueError(
            f'{row_name(extra_info)}: ground_truth has neither "labels" nor report text, and this reward needs one of '
            "them; a row for grounding has boxes instead: take another reward, or leave such rows out."
        )
    return label_report(text)


def true_text(truth: Mapping[str, Any]) -> str:
    """The true report in a ground-truth object: its "report", else its sections; "" where it has none."""
    return str(truth.get("report") or "\n\n".join(str(truth[k]) for k in ("findings", "impression") if truth.get(k)))


def count_labels(
    states: Mapping[str, State],
    truth: Labels,
    unscored: frozenset[str] = frozenset(),
    contradiction_fp: str = "gt_positive",
) -> dict[str, int]:
    """tp, fp, fn, n_predicted and contradictions over the labels that are scored."""
    tp = fp = fn = predicted = contradictions = 0
    for label in CHEXPERT_14:
        if label in unscored:
            continue
        positive, state = truth[label] == 1, states[label]
        predicted += state == ENTAILED
        contradictions += state == CONTRADICTED and positive
        tp += state == ENTAILED and positive
        fn += state != ENTAILED and positive
        fp += state == ENTAILED and not positive
        if state == CONTRADICTED:
            fp += contradiction_fp == "always" or (contradiction_fp == "gt_positive" and positive)
    return {"tp": tp, "fp": fp, "fn": fn, "n_predicted": predicted, "contradictions": contradictions}


class _Study:
    """A report with its truth, before and after the judge's word."""

    def __init__(
        self,
        report: str,
        ground_truth: str | Mapping[str, Any],
        extra_info: Mapping[str, Any] | None,
        beta: float,
        uncertain: UncertainPolicy,
        contradiction_fp: ContradictionFp,
        xi: float,
    ) -> None:
        _check_settings(beta, xi, contradiction_fp)
        raw = true_labels(ground_truth, extra_info)
        self.truth = apply_uncertain(raw, uncertain)
        self.unscored = _unscored(raw, self.truth, uncertain)
        self.report, self.extra_info = report, extra_info
        self.beta, self.xi, self.contradiction_fp = beta, xi, contradiction_fp

    def scored(self, answer: Mapping[str, State]) -> Score:
        """Eq. 15 of the judge's states."""
        states = dict(answer)
        content = has_clinical_content(self.report)
        if not content or any(states[label] == ENTAILED for label in _FINDINGS):
            states[NO_FINDING] = NOT_MENTIONED  # a judge may be lenient, the definition is not
        counts = count_labels(states, self.truth, self.unscored, self.contradiction_fp)
        if not counts["n_predicted"] and not counts["tp"] + counts["fn"]:
            precision = recall = float(content and not counts["fp"])
        else:
            precision = counts["tp"] / (counts["tp"] + counts["fp"]) if counts["tp"] else 0.0
            recall = counts["tp"] / (counts["tp"] + counts["fn"]) if counts["tp"] else 0.0
        perfect = precision == recall == 1.0  # xi guards an empty denominator and should not cost the gold report 1e-9
        facts = getattr(answer, "facts", None)
        judged = {f"judge_{name}": getattr(answer, name, 0.0) for name in ("calls", "cached", "tokens")}
        return scored(
            1.0 if perfect else f_beta(precision, recall, self.beta, self.xi),
            {
                "precision": precision,
                "recall": recall,
                **counts,
                "n_facts": len(extract_facts(self.report) if facts is None else facts),
                "has_content": content,
                **judged,
                **dict.fromkeys(FAILURES, 0.0),
            },
        )

    def failed(self, error: Exception, judge: Judge) -> Score:
        """The sample whose judge raised, with the cause in the log and in the numbers."""
        name = getattr(judge, "name", judge)
        _log.warning("%s: judge %s failed: %s: %s", row_name(self.extra_info), name, type(error).__name__, error)
        return failed(COMPONENTS, error)


def _check_settings(beta: Any, xi: Any, contradiction_fp: Any) -> None:
    for name, value, highest in (("beta", beta, 1e6), ("xi", xi, 1.0)):  # eq. 15 squares beta
        if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value <= highest:  # NaN too
            raise ValueError(f"facts reward: {name} is {value!r:.40}; use a number above 0 and up to {highest:g}.")
    if contradiction_fp not in get_args(ContradictionFp):
        known = ", ".join(get_args(ContradictionFp))
        raise ValueError(f"facts reward: contradiction_fp is {contradiction_fp!r}; use one of {known}.")


def _unscored(raw: Labels, truth: Labels, uncertain: UncertainPolicy) -> frozenset[str]:
    out = {label for label in CHEXPERT_14 if raw[label] == -1} if uncertain == "ignore" else set()
    if raw[NO_FINDING] is None and not any(truth[label] == 1 for label in _FINDINGS):
        out.add(NO_FINDING)
    return frozenset(out)
