"""FactS with attributes: a finding counts in full only where side, place and severity agree with the true report.

The paper names this as future work (arXiv 2509.18600); the formula is *ours*. For a label l that is positive in the
truth and entailed by the generated report, A_l are the attributes (side, place, severity) that the true report states:

    m_l = (1 + sum over a in A_l of |G_a & T_a| / |G_a | T_a|) / (1 + |A_l|)
    P = sum of m_l / (tp + fp),  R = sum of m_l / (tp + fn),  score = F_beta(P, R) of radverl.rewards.facts

The 1 is for the finding itself: named with everything wrong it is still better than not named.
T_a and G_a are the sets of values that the facts which entail the label have in the true and in the generated report.
Sides are left and right (bilateral is both). Places are zones: upper, middle, lower, hilar and the like. Severity has
three grades: small or mild, moderate, large or severe. Where the two reports share a side, places and grades are
compared side by side, and only for shared sides, so that "small left, large right" differs from its mirror.

Range [0, 1], higher is better; tp, fp and fn count labels as FactS does, so the score is never above FactS. Facts come
from the rules (`radverl.facts.extract_facts`), offline; the order of sentences and repeating them change nothing.
Undefined cases are those of FactS.

Blind to: attributes that only the generated report states; sizes in numbers, lobes within a zone, positions of a device
and everything else that is no side, zone or grade; the difference of two grades in steps (mild for severe is as wrong
as mild for moderate); which of several places on one side has which grade.
"""

from collections.abc import Mapping
from typing import Any

from radverl.facts import ENTAILED, Fact, extract_facts, label_states
from radverl.labels import CHEXPERT_14, UncertainPolicy, apply_uncertain
from radverl.rewards import facts
from radverl.rewards.base import Score, check_keywords, read_ground_truth, row_name, scored

GOLD = (
    "Findings: Small left pleural effusion. No pneumothorax.",
    '{"report": "There is a small left pleural effusion. There is no pneumothorax."}',
)
ATTRIBUTES = ("side", "place", "severity")
COMPONENTS = (
    "precision", "recall", "tp", "fp", "fn", "matched_tp", "n_predicted", "contradictions", "has_content",
    *(f"{attribute}_{count}" for attribute in ATTRIBUTES for count in ("compared", "matched")),
)  # fmt: skip

# Words of `radverl.facts` by their first letters; the words of a place that is no zone stand for themselves.
_ZONES = {
    "upper": "upper", "ap": "upper", "biapical": "upper", "lower": "lower", "bas": "lower", "bibas": "lower",
    "retrocardiac": "lower", "costophrenic": "lower", "subpulmonic": "lower", "mid": "middle", "lingula": "middle",
    "hil": "hilar", "perihilar": "hilar",
}  # fmt: skip
_GRADES = {"moderate": 2, "large": 3, "severe": 3, "marked": 3, "massive": 3, "extensive": 3}  # all other words: 1

Values = frozenset[tuple[str, str]]  # (side or "", value)


def compute_score(
    data_source: str,
    solution_str: str,
    ground_truth: str | Mapping[str, Any],
    extra_info: Mapping[str, Any] | None = None,
    *,
    beta: float = 2.0,
    uncertain: UncertainPolicy = "ones",
    xi: float = 1e-8,
    **verl_keywords: Any,
) -> Score:
    """Score one generated report.

    Args:
        solution_str: the generated report.
        ground_truth: JSON string with the true report ("report", or "findings" and "impression"). Its "labels", where
            it has any, say which labels are positive, as for FactS; the text says how.
        beta: weight of recall.
        uncertain: what -1 means, for the truth and for hedged facts: ones | zeros | ignore (not scored).
    Returns:
        {"score", "failed", *COMPONENTS}. matched_tp is the sum of m_l; side_compared, ... count labels of which the
        true report states the attribute, side_matched, ... sum their agreement.
    Raises:
        ValueError: bad ground truth, or one without text (names the row), or a bad setting.
        TypeError: an unknown keyword.
    """
    check_keywords(verl_keywords, "facts_attr reward")
    text = facts.true_text(read_ground_truth(ground_truth, extra_info))
    if not text.strip():
        raise ValueError(f"{row_name(extra_info)}: ground_truth has no report text to compare with; use reward=facts.")
    settings: dict[str, Any] = {"beta": beta, "uncertain": uncertain, "xi": xi}
    plain = facts.compute_score(data_source, solution_str, ground_truth, extra_info, **settings)
    truth = apply_uncertain(facts.true_labels(ground_truth, extra_info), uncertain)
    states = label_states(solution_str, uncertain)
    known, said = _by_label(text, uncertain), _by_label(solution_str, uncertain)
    matched = 0.0
    sums = dict.fromkeys(COMPONENTS[-2 * len(ATTRIBUTES) :], 0.0)
    for label in CHEXPERT_14:
        if truth[label] != 1 or states[label] != ENTAILED:
            continue
        shares = agreement(known.get(label, []), said.get(label, []))
        matched += (1 + sum(shares.values())) / (1 + len(shares))
        for attribute, share in shares.items():
            sums[f"{attribute}_compared"] += 1
            sums[f"{attribute}_matched"] += share
    out = {name: float(plain[name]) for name in COMPONENTS if name in plain} | sums | {"matched_tp": matched}
    if plain["tp"]:
        out["precision"], out["recall"] = (matched / (plain["tp"] + plain[wrong]) for wrong in ("fp", "fn"))
    full = matched == plain["tp"]
    return scored(plain["score"] if full else facts.f_beta(out["precision"], out["recall"], beta, xi), out)


def agreement(true: list[Fact], generated: list[Fact]) -> dict[str, float]:
    """Attribute -> |G & T| / |G | T| of the facts of one label, for the attributes that `true` states."""
    shared = _sides(true) & _sides(generated)
    out = {}
    for attribute in ATTRIBUTES:
        known, said = _values(true, attribute, shared), _values(generated, attribute, shared)
        if known:
            out[attribute] = len(known & said) / len(known | said)
    return out


def _by_label(report: str, uncertain: UncertainPolicy) -> dict[str, list[Fact]]:
    out: dict[str, list[Fact]] = {}
    for fact in extract_facts(report):
        if fact.entails(fact.label, uncertain) == ENTAILED:
            out.setdefault(fact.label, []).append(fact)
    return out


def _sides(stated: list[Fact]) -> frozenset[str]:
    return frozenset().union(*(fact.sides for fact in stated))


def _values(stated: list[Fact], attribute: str, shared: frozenset[str]) -> Values:
    """The values of an attribute; with shared sides, at each of these (a fact without side holds for all of them)."""
    if attribute == "side":
        return frozenset((side, side) for side in _sides(stated))
    out = set()
    for fact in stated:
        if attribute == "place":
            values = {_zone(place) for place in fact.places}
        else:
            values = {str(_grade(fact.severity))} if fact.severity else set()
        where = (fact.sides & shared or (() if fact.sides else shared)) if shared else ("",)
        out |= {(side, value) for side in where for value in values}
    return frozenset(out)


def _zone(place: str) -> str:
    return next((zone for start, zone in _ZONES.items() if place.startswith(start)), place.removesuffix("s"))


def _grade(severity: str) -> int:
    return next((grade for start, grade in _GRADES.items() if severity.startswith(start)), 1)
