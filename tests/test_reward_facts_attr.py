import json
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from radverl.chexpert import has_clinical_content
from radverl.rewards import facts
from radverl.rewards.facts_attr import COMPONENTS, GOLD, compute_score
from tests.sentences import labelled_sentences

sentences = [s for _, s, _ in labelled_sentences() if has_clinical_content(s)]
TRUE = "Small left pleural effusion. No pneumothorax."


def score(report, true, **more):
    return compute_score("t", report, json.dumps({"report": true}), {"prompt_id": "t/1"}, **more)


@pytest.mark.parametrize(
    ("report", "true", "expected"),
    [
        ("Small left pleural effusion.", TRUE, 1.0),
        ("There is a tiny left-sided effusion.", TRUE, 1.0),  # the same grade, in other words
        ("Small right pleural effusion.", TRUE, 2 / 3),  # laterality
        ("Large left pleural effusion.", TRUE, 2 / 3),  # severity
        ("Left pleural effusion.", TRUE, 2 / 3),  # severity missing
        ("Pleural effusion.", TRUE, 1 / 3),  # side and severity missing
        ("Large right pleural effusion.", TRUE, 1 / 3),
        ("Small bilateral pleural effusions.", TRUE, 2.5 / 3),  # one side of two is right
        ("No pleural effusion.", TRUE, 0.0),  # negation
        ("", TRUE, 0.0),
        ("Small left pleural effusion.", "Pleural effusion.", 1.0),  # the truth says nothing to compare with
        ("Right upper lobe opacity.", "Right upper lobe opacity.", 1.0),
        ("Right lower lobe opacity.", "Right upper lobe opacity.", 2 / 3),  # location
        ("Right apical opacity.", "Right upper lobe opacity.", 1.0),  # the same zone
        ("Cardiomegaly is severe.", "Mild cardiomegaly.", 1 / 2),
        ("Normal chest.", "Normal chest.", 1.0),
    ],
)
def test_known_scores(report, true, expected):
    out = score(report, true)
    assert out["score"] == pytest.approx(expected)
    assert out["failed"] is False
    assert set(out) == {"score", "failed", *COMPONENTS}


def test_two_sides_are_compared_side_by_side():
    true = "Small left and large right pleural effusions."
    assert score("Large right effusion. Small left effusion.", true)["score"] == 1.0
    assert score("Large left and small right pleural effusions.", true)["score"] == pytest.approx(2 / 3)
    assert score("Small left pleural effusion.", true)["score"] == pytest.approx(2.5 / 3)


def test_components_by_hand():
    true = "Moderate left pleural effusion. Right upper lobe mass. Mild edema."
    out = score("Small left pleural effusion. Left upper lobe mass. Pneumonia.", true)
    assert (out["tp"], out["fp"], out["fn"]) == (2, 1, 1)
    assert (out["side_compared"], out["side_matched"]) == (2, 1)
    assert (out["place_compared"], out["place_matched"]) == (1, 1)
    assert (out["severity_compared"], out["severity_matched"]) == (1, 0)
    assert out["matched_tp"] == pytest.approx(4 / 3)
    assert out["precision"] == out["recall"] == pytest.approx(4 / 9)


def test_the_gold_report_scores_one():
    assert compute_score("t", *GOLD)["score"] == 1.0


def test_every_sentence_scores_one_against_itself():
    for sentence in sentences:
        assert score(sentence, sentence)["score"] == 1.0, sentence


@given(st.lists(st.sampled_from(sentences), min_size=1, max_size=5), st.lists(st.sampled_from(sentences), max_size=5))
@settings(max_examples=60, deadline=None)
def test_never_above_facts_and_in_range(true, said):
    true, said = " ".join(true), " ".join(said)
    plain = facts.compute_score("t", said, json.dumps({"report": true}))
    out = score(said, true)
    assert 0.0 <= out["score"] <= plain["score"] + 1e-12
    assert all(out[name] == plain[name] for name in ("tp", "fp", "fn", "n_predicted", "has_content"))


@given(st.randoms(use_true_random=False))
@settings(max_examples=30, deadline=None)
def test_order_and_repeating_change_nothing(order: random.Random):
    said = ["Small left effusion.", "Right upper lobe mass.", "Moderate cardiomegaly.", "Large right effusion."]
    true = "Large left and small right effusions. Left upper lobe mass. Mild cardiomegaly."
    before = score(" ".join(said), true)
    assert score(" ".join([*order.sample(said, len(said)), order.choice(said)]), true) == before


def test_labels_of_the_data_set_say_which_findings_count():
    truth = {"report": "Small left effusion.", "labels": {"Pleural Effusion": 1, "Edema": 1}}
    out = compute_score("t", "Small right effusion. Edema.", truth)
    assert out["matched_tp"] == pytest.approx(2 / 3 + 1)  # the text says nothing of edema: nothing to compare


@pytest.mark.parametrize(("policy", "compared"), [("ones", 1), ("zeros", 0), ("ignore", 0)])
def test_hedged_findings_follow_the_policy(policy, compared):
    out = score("Left lower lobe pneumonia.", "Possible right lower lobe pneumonia.", uncertain=policy)
    assert out["side_compared"] == compared


def test_errors_name_the_row():
    with pytest.raises(ValueError, match=r"row t/1: ground_truth has no report text"):
        compute_score("t", TRUE, '{"labels": {"Edema": 1}}', {"prompt_id": "t/1"})
    with pytest.raises(TypeError, match="betta"):
        score(TRUE, TRUE, betta=1)
    with pytest.raises(ValueError, match="beta"):
        score(TRUE, TRUE, beta=0)
