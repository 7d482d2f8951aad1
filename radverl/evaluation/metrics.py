"""Label-wise precision, recall and F1 of generated reports: the table of OraPO (arXiv 2509.18600, sec. 4).

A labeller reads the generated report; its 14 CheXpert labels are compared with the true ones. For each label l over
all studies: P = tp/(tp+fp), R = tp/(tp+fn), F1 = 2PR/(P+R), 0 where undefined. Macro F1 is the unweighted mean of the
per-label F1 (not the F1 of the mean P and R); micro pools the counts of all labels first.

Two macro numbers are given because small test sets miss some labels: `macro_f1` averages all 14 (a label that never
occurs counts as 0, as in the paper's table), `macro_f1_present` only those with at least one true positive case.

Shapes: N studies, L = 14 labels, C clusters (subjects), B bootstrap resamples.
"""

import random
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import numpy as np

from radverl.labels import CHEXPERT_14, check_policy, consistent_no_finding, normalise_labels

Labels = Mapping[str, int | None]


def label_metrics(predicted: Sequence[Labels], true: Sequence[Labels], uncertain: str = "ones") -> dict[str, Any]:
    """Per-label, macro and micro precision, recall and F1.

    Args:
        predicted: N label dicts (1 present, 0 absent, -1 uncertain, None not mentioned) read from generated reports.
        true: N label dicts of the same studies, same order.
        uncertain: what -1 means. "ones": present, on both sides. "zeros": absent, on both sides. "ignore": a study
            whose *true* label is -1 is left out for that label; a *predicted* -1 is then absent, so that a model gains
            nothing by hedging (ours; the paper is silent). "No Finding" beside a finding is blank on both sides.
    Returns:
        {"n", "macro_precision", "macro_recall", "macro_f1", "macro_f1_present", "labels_present", "micro_precision",
        "micro_recall", "micro_f1", "per_label": {label: {"precision", "recall", "f1", "tp", "fp", "fn", "support",
        "predicted"}}}; every rate in [0, 1].
    Raises:
        ValueError: lengths differ, no study, an unknown policy, label name or label value.
    """
    tp_L, fp_L, fn_L = (counts_NL.sum(axis=0) for counts_NL in _counts(predicted, true, uncertain))
    precision_L, recall_L, f1_L = _ratios(tp_L, fp_L, fn_L)
    present_L = tp_L + fn_L > 0
    micro_p, micro_r, micro_f1 = (float(value) for value in _ratios(tp_L.sum(), fp_L.sum(), fn_L.sum()))
    return {
        "n": len(true),
        "macro_precision": float(precision_L.mean()),
        "macro_recall": float(recall_L.mean()),
        "macro_f1": float(f1_L.mean()),
        "macro_f1_present": float(f1_L[present_L].mean()) if present_L.any() else 0.0,
        "labels_present": int(present_L.sum()),
        "micro_precision": micro_p,
        "micro_recall": micro_r,
        "micro_f1": micro_f1,
        "per_label": {
            name: {
                "precision": float(precision_L[i]),
                "recall": float(recall_L[i]),
                "f1": float(f1_L[i]),
                "tp": int(tp_L[i]),
                "fp": int(fp_L[i]),
                "fn": int(fn_L[i]),
                "support": int(tp_L[i] + fn_L[i]),
                "predicted": int(tp_L[i] + fp_L[i]),
            }
            for i, name in enumerate(CHEXPERT_14)
        },
    }


def bootstrap_intervals(
    predicted: Sequence[Labels],
    true: Sequence[Labels],
    *,
    baseline: Sequence[Labels] | None = None,
    clusters: Sequence[Hashable] | None = None,
    uncertain: str = "ones",
    resamples: int = 1000,
    level: float = 0.95,
    seed: int = 0,
) -> dict[str, list[float]]:
    """Percentile bootstrap intervals of the macro and micro F1, and of the gain over a baseline.

    Args:
        baseline: N label dicts of another model or of the blind run on the same studies; the gain is computed on the
            *same* resample (paired), which is far tighter than comparing two separate intervals.
        clusters: N keys, one per study (subject ids, say): studies with one key are drawn together. None: one each.
        level: coverage, in (0, 1).
    Returns:
        {"macro_f1": [low, high], "macro_f1_present": ..., "micro_f1": ...} and, with a baseline, the same three names
        with the suffix "_gain". `macro_f1_present` averages the labels that have a positive in the resample.
    Raises:
        ValueError: as `label_metrics`; also level outside (0, 1), resamples < 1, or a list of another length.
    """
    if not 0 < level < 1 or resamples < 1:
        raise ValueError(f"bootstrap needs 0 < level < 1 and resamples >= 1, not level={level}, resamples={resamples}.")
    keys = list(range(len(true))) if clusters is None else list(clusters)
    if len(keys) != len(true):
        raise ValueError(f"{len(keys)} clusters were given for {len(true)} studies: give one key per study.")
    position = {key: i for i, key in enumerate(dict.fromkeys(keys))}
    cluster_N = np.array([position[key] for key in keys])
    weights_BC = np.random.default_rng(seed).multinomial(
        len(position), np.full(len(position), 1 / len(position)), size=resamples
    )

    def resampled(labels: Sequence[Labels]) -> dict[str, np.ndarray]:
        sums_BL = []
        for counts_NL in _counts(labels, true, uncertain):
            counts_CL = np.zeros((len(position), len(CHEXPERT_14)))
            np.add.at(counts_CL, cluster_N, counts_NL)
            sums_BL.append(weights_BC @ counts_CL)
        tp_BL, fp_BL, fn_BL = sums_BL
        f1_BL = _ratios(tp_BL, fp_BL, fn_BL)[2]
        present_BL = tp_BL + fn_BL > 0
        return {
            "macro_f1": f1_BL.mean(axis=1),
            "macro_f1_present": (f1_BL * present_BL).sum(axis=1) / np.maximum(present_BL.sum(axis=1), 1),
            "micro_f1": _ratios(tp_BL.sum(axis=1), fp_BL.sum(axis=1), fn_BL.sum(axis=1))[2],
        }

    values_B = resampled(predicted)
    if baseline is not None:
        values_B |= {f"{name}_gain": values_B[name] - other_B for name, other_B in resampled(baseline).items()}
    tails = [(1 - level) / 2, (1 + level) / 2]
    return {name: [float(bound) for bound in np.quantile(value_B, tails)] for name, value_B in values_B.items()}


def mean_interval(
    values: Sequence[float],
    *,
    clusters: Sequence[Hashable] | None = None,
    resamples: int = 1000,
    level: float = 0.95,
    seed: int = 0,
) -> list[float]:
    """Percentile bootstrap interval [low, high] of a mean over studies, clusters drawn whole."""
    keys = list(range(len(values))) if clusters is None else list(clusters)
    if not values or len(keys) != len(values):
        raise ValueError(f"a mean interval needs one key per value and a value, not {len(values)} and {len(keys)}.")
    sums: dict[Hashable, list[float]] = {}
    for key, value in zip(keys, values, strict=True):
        total = sums.setdefault(key, [0.0, 0.0])
        total[0] += value
        total[1] += 1
    totals_C2 = np.array(list(sums.values()))
    weights_BC = np.random.default_rng(seed).multinomial(len(sums), np.full(len(sums), 1 / len(sums)), size=resamples)
    means_B = (weights_BC @ totals_C2[:, 0]) / (weights_BC @ totals_C2[:, 1])
    return [float(bound) for bound in np.quantile(means_B, [(1 - level) / 2, (1 + level) / 2])]


def mean_facts(
    predictions: Sequence[str], truths: Sequence[str], score: Callable[..., Mapping] | None = None, **settings: Any
) -> tuple[float | None, list[dict]]:
    """Mean FactS reward (eqs 13-15) over the studies whose judge did not fail.

    Args:
        predictions: N generated reports.
        truths: N ground-truth JSON strings.
        score: a `compute_score`; default `radverl.rewards.facts.compute_score`.
    Returns:
        (mean or None when every study failed, N reward dicts). Count `failed` in the dicts: a failure is no zero.
    """
    if score is None:
        from radverl.rewards.facts import compute_score

        score = compute_score
    results = [
        dict(score("evaluation", text, truth, None, **settings))
        for text, truth in zip(predictions, truths, strict=True)
    ]
    scores = [float(result["score"]) for result in results if not result["failed"]]
    return (sum(scores) / len(scores) if scores else None), results


def derangement(n: int, seed: int = 0, subjects: Sequence[Hashable] | None = None) -> list[int]:
    """For each study the study whose image it gets in the blind run: a permutation without fixed points.

    The studies are laid out subject by subject, both levels shuffled, and turned by a shift no smaller than the largest
    subject and no larger than the rest: then no study meets its own subject. Where one subject holds more than half of
    the studies that is impossible; the shift then leaves the fewest possible same-subject pairs.

    Raises:
        ValueError: fewer than two studies, or `subjects` of another length.
    """
    if n < 2:
        raise ValueError(f"a blind baseline shuffles images between studies and needs at least 2 of them, not {n}.")
    keys = list(range(n)) if subjects is None else list(subjects)
    if len(keys) != n:
        raise ValueError(f"{len(keys)} subjects were given for {n} studies: give one per study.")
    rng = random.Random(seed)
    groups: dict[Hashable, list[int]] = defaultdict(list)
    for index, key in enumerate(keys):
        groups[key].append(index)
    laid_out = list(groups.values())
    rng.shuffle(laid_out)
    for group in laid_out:
        rng.shuffle(group)
    order = [index for group in laid_out for index in group]
    largest = max(Counter(keys).values())
    low, high = sorted((largest, n - largest))
    shift = rng.randint(max(low, 1), min(high, n - 1))
    donor = [0] * n
    for place, index in enumerate(order):
        donor[index] = order[(place + shift) % n]
    return donor


def _counts(
    predicted: Sequence[Labels], true: Sequence[Labels], uncertain: str
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """True positives, false positives and false negatives, each (N, L) of 0 and 1."""
    check_policy(uncertain)
    if len(predicted) != len(true) or not true:
        raise ValueError(f"{len(predicted)} predicted and {len(true)} true label dicts: give one pair per study.")
    predicted_NL, true_NL = _matrix(predicted, "predicted"), _matrix(true, "true")
    counted_NL = true_NL != -1 if uncertain == "ignore" else np.ones_like(true_NL, dtype=bool)
    says_NL = (predicted_NL == 1) | ((predicted_NL == -1) & (uncertain == "ones"))
    is_NL = (true_NL == 1) | ((true_NL == -1) & (uncertain == "ones"))
    return (
        (says_NL & is_NL & counted_NL).astype(np.int64),
        (says_NL & ~is_NL & counted_NL).astype(np.int64),
        (~says_NL & is_NL & counted_NL).astype(np.int64),
    )


def _matrix(labels: Sequence[Labels], side: str) -> np.ndarray:
    """(N, L) of 1, 0, -1; a label not mentioned is 0. Mapped by name: label order differs between data sets."""
    rows = np.zeros((len(labels), len(CHEXPERT_14)), dtype=np.int64)
    for n, row in enumerate(labels):
        try:
            clean = consistent_no_finding(normalise_labels(row))
        except ValueError as error:
            raise ValueError(f"{side} labels of study {n}: {error}") from error
        rows[n] = [clean[name] or 0 for name in CHEXPERT_14]
    return rows


def _ratios(tp: np.ndarray, fp: np.ndarray, fn: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Precision, recall and F1, 0 where the denominator is 0. F1 = 2tp / (2tp + fp + fn)."""
    tp, fp, fn = np.asarray(tp, dtype=float), np.asarray(fp, dtype=float), np.asarray(fn, dtype=float)
    return (
        tp / np.maximum(tp + fp, 1),
        tp / np.maximum(tp + fn, 1),
        2 * tp / np.maximum(2 * tp + fp + fn, 1),
    )
