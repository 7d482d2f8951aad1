"""Label metrics against tables worked out by hand, and what the blind baseline's shuffle promises."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from radverl.evaluation.metrics import bootstrap_intervals, derangement, label_metrics, mean_facts, mean_interval
from radverl.labels import CHEXPERT_14, consistent_no_finding

EMPTY = dict.fromkeys(CHEXPERT_14)


def study(**values: int | None) -> dict[str, int | None]:
    return EMPTY | {name.replace("_", " "): value for name, value in values.items()}


# Four studies. Edema: tp 1, fn 1, fp 1. Cardiomegaly: tp 2, fp 1. Fracture: never true, said once. The rest: never.
TRUE = [study(Edema=1, Cardiomegaly=1), study(Edema=1, Cardiomegaly=0), study(Cardiomegaly=1), study(Edema=0)]
SAID = [study(Edema=1, Cardiomegaly=1), study(Cardiomegaly=1), study(Cardiomegaly=1, Edema=1), study(Fracture=1)]


def test_hand_worked_table():
    result = label_metrics(SAID, TRUE)
    edema, heart = result["per_label"]["Edema"], result["per_label"]["Cardiomegaly"]
    assert (edema["tp"], edema["fp"], edema["fn"], edema["support"], edema["predicted"]) == (1, 1, 1, 2, 2)
    assert (edema["precision"], edema["recall"], edema["f1"]) == (0.5, 0.5, 0.5)
    assert (heart["precision"], heart["recall"], heart["f1"]) == (pytest.approx(2 / 3), 1.0, pytest.approx(0.8))
    assert result["per_label"]["Fracture"]["f1"] == 0.0
    assert result["labels_present"] == 2
    assert result["macro_f1"] == pytest.approx((0.5 + 0.8) / 14)
    assert result["macro_f1_present"] == pytest.approx((0.5 + 0.8) / 2)
    assert result["macro_precision"] == pytest.approx((0.5 + 2 / 3) / 14)
    assert result["macro_recall"] == pytest.approx((0.5 + 1) / 14)
    # tp 3, fp 1 + 1 + 1, fn 1
    assert result["micro_precision"] == pytest.approx(3 / 6)
    assert result["micro_recall"] == pytest.approx(3 / 4)
    assert result["micro_f1"] == pytest.approx(6 / 10)


def test_macro_f1_is_the_mean_of_f1_not_the_f1_of_means():
    """Two labels with (P, R) = (1, 1/2) and (1/2, 1): mean F1 2/3; F1 of the means would be 3/4."""
    true = [study(Edema=1), study(Edema=1), study(Fracture=1), study(Fracture=0)]
    said = [study(Edema=1), study(), study(Fracture=1), study(Fracture=1)]
    assert label_metrics(said, true)["macro_f1_present"] == pytest.approx(2 / 3)


@pytest.mark.parametrize(
    ("policy", "true", "said", "counts"),
    [
        ("ones", -1, 1, (1, 0, 0)),
        ("ones", -1, None, (0, 0, 1)),
        ("ones", 1, -1, (1, 0, 0)),
        ("ones", 0, -1, (0, 1, 0)),
        ("zeros", -1, 1, (0, 1, 0)),
        ("zeros", 1, -1, (0, 0, 1)),
        ("ignore", -1, 1, (0, 0, 0)),
        ("ignore", -1, None, (0, 0, 0)),
        ("ignore", 1, -1, (0, 0, 1)),
        ("ignore", 0, -1, (0, 0, 0)),
    ],
)
def test_uncertain_policy(policy, true, said, counts):
    edema = label_metrics([study(Edema=said)], [study(Edema=true)], policy)["per_label"]["Edema"]
    assert (edema["tp"], edema["fp"], edema["fn"]) == counts


def test_labels_are_matched_by_name_not_by_position():
    backwards = [dict(reversed(labels.items())) for labels in SAID]
    assert label_metrics(backwards, TRUE) == label_metrics(SAID, TRUE)


@pytest.mark.parametrize(
    ("said", "true", "words"),
    [
        ([EMPTY], [EMPTY, EMPTY], "1 predicted and 2 true"),
        ([], [], "0 predicted and 0 true"),
        ([{"Lung Opacty": 1}], [EMPTY], "predicted labels of study 0: label 'Lung Opacty'"),
        ([EMPTY], [study(Edema=2)], "true labels of study 0: label 'Edema' has value '2'"),
    ],
)
def test_bad_labels_are_named(said, true, words):
    with pytest.raises(ValueError, match=words):
        label_metrics(said, true)


def test_no_finding_beside_a_finding_does_not_count():
    both = label_metrics([study(No_Finding=1, Edema=1)], [study(No_Finding=1, Edema=1)])["per_label"]["No Finding"]
    assert (both["tp"], both["support"]) == (0, 0)
    alone = label_metrics([study(No_Finding=1, Support_Devices=1)], [study(No_Finding=1)])["per_label"]["No Finding"]
    assert (alone["tp"], alone["support"]) == (1, 1)


def test_unknown_policy_is_refused():
    with pytest.raises(ValueError, match="'maybe' is unknown"):
        label_metrics([EMPTY], [EMPTY], "maybe")


label = st.sampled_from([1, 0, -1, None])
studies = st.lists(
    st.tuples(st.lists(label, min_size=14, max_size=14), st.lists(label, min_size=14, max_size=14)),
    min_size=1,
    max_size=12,
)


@given(studies, st.sampled_from(["ones", "zeros", "ignore"]))
def test_rates_against_counting_one_by_one(pairs, policy):
    said = [consistent_no_finding(dict(zip(CHEXPERT_14, row, strict=True))) for row, _ in pairs]
    true = [consistent_no_finding(dict(zip(CHEXPERT_14, row, strict=True))) for _, row in pairs]
    result = label_metrics(said, true, policy)
    positive = (1, -1) if policy == "ones" else (1,)
    f1 = []
    for name in CHEXPERT_14:
        cells = [
            (s[name] in positive, t[name] in positive)
            for s, t in zip(said, true, strict=True)
            if policy != "ignore" or t[name] != -1
        ]
        tp, either = cells.count((True, True)), sum(s + t for s, t in cells)
        f1.append(2 * tp / either if either else 0.0)
        assert result["per_label"][name]["f1"] == pytest.approx(f1[-1])
    assert result["macro_f1"] == pytest.approx(sum(f1) / 14)


def test_intervals_hold_the_estimate_and_repeat_by_seed():
    true, said = TRUE * 25, SAID * 25
    first = bootstrap_intervals(said, true, seed=3)
    assert first == bootstrap_intervals(said, true, seed=3)
    assert first != bootstrap_intervals(said, true, seed=4)
    for name in ("macro_f1", "macro_f1_present", "micro_f1"):
        low, high = first[name]
        assert 0 <= low < label_metrics(said, true)[name] < high <= 1


def test_interval_of_a_perfect_model_on_studies_that_are_alike_is_a_point():
    assert bootstrap_intervals([study(Edema=1)] * 5, [study(Edema=1)] * 5)["micro_f1"] == [1.0, 1.0]


def test_bootstrap_interval_has_the_binomial_width():
    """Recall 1 and P = fraction f of right studies: micro F1 = 2f/(1+f) has the spread of a binomial fraction."""
    true = [study(Edema=1)] * 200 + [study(Edema=0)] * 200
    said = [study(Edema=1)] * 400
    low, high = bootstrap_intervals(said, true, resamples=4000)["micro_f1"]
    # f = 1/2, sd(f) = 1/40; d(2f/(1+f))/df = 2/(1+f)^2 = 8/9; 95 % width = 2 * 1.96 * 8/9 / 40
    assert high - low == pytest.approx(2 * 1.96 * 8 / 9 / 40, rel=0.1)


def test_studies_of_one_subject_are_drawn_together():
    true, said = TRUE * 25, SAID * 25
    wide = bootstrap_intervals(said, true, clusters=[i % 4 for i in range(100)])["micro_f1"]
    narrow = bootstrap_intervals(said, true)["micro_f1"]
    assert wide[1] - wide[0] > 3 * (narrow[1] - narrow[0])


def test_gain_is_paired():
    true, said = TRUE * 25, SAID * 25
    assert bootstrap_intervals(said, true, baseline=said)["macro_f1_gain"] == [0.0, 0.0]
    assert bootstrap_intervals(true, true, baseline=said)["macro_f1_gain"][0] > 0


def test_mean_interval():
    assert mean_interval([0.25] * 7) == [0.25, 0.25]
    low, high = mean_interval([0.0, 1.0] * 200, resamples=4000)
    assert (low, high) == (pytest.approx(0.451, abs=0.006), pytest.approx(0.549, abs=0.006))
    with pytest.raises(ValueError, match="one key per value"):
        mean_interval([])


def test_a_failed_judge_is_no_zero():
    def score(source, text, truth, extra):
        return {"score": 0.0 if text == "fails" else 0.5, "failed": text == "fails"}

    mean, results = mean_facts(["a", "fails", "b"], ["{}"] * 3, score)
    assert mean == 0.5
    assert [result["failed"] for result in results] == [False, True, False]
    assert mean_facts(["fails"], ["{}"], score)[0] is None


@given(st.lists(st.integers(0, 6), min_size=2, max_size=40), st.integers(0, 5))
def test_derangement(subjects, seed):
    n = len(subjects)
    donor = derangement(n, seed, subjects)
    assert sorted(donor) == list(range(n))
    assert all(donor[i] != i for i in range(n))
    same = sum(subjects[donor[i]] == subjects[i] for i in range(n))
    largest = max(map(subjects.count, subjects))
    assert same == max(0, 2 * largest - n)  # the fewest there can be
    assert donor == derangement(n, seed, subjects)


def test_derangement_follows_the_seed():
    assert len({tuple(derangement(20, seed)) for seed in range(8)}) == 8


def test_one_study_cannot_be_shuffled():
    with pytest.raises(ValueError, match="at least 2"):
        derangement(1)
