"""The accuracy reward is 1 for exactly the reports whose labels are all right."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from radverl.chexpert import label_report
from radverl.labels import CHEXPERT_14
from radverl.rewards import facts, load
from radverl.rewards.accuracy import COMPONENTS, GOLD, compute_score
from tests.sentences import labelled_sentences

SENTENCES = [sentence for _, sentence, _ in labelled_sentences()]


def truth(**labels: int | None) -> str:
    return json.dumps({"labels": {name.replace("_", " "): value for name, value in labels.items()}})


def score(report: str, ground_truth: str, **kwargs: object) -> float:
    return float(compute_score("test", report, ground_truth, {"prompt_id": "t/1"}, **kwargs)["score"])


EFFUSION = truth(Pleural_Effusion=1, Pneumothorax=0)


@pytest.mark.parametrize(
    ("report", "ground_truth", "value"),
    [
        ("Small left pleural effusion. No pneumothorax.", EFFUSION, 1.0),
        ("Small left pleural effusion.", EFFUSION, 1.0),  # an absent finding need not be denied
        ("Small RIGHT pleural effusion.", EFFUSION, 1.0),  # blind to side
        ("No pleural effusion.", EFFUSION, 0.0),
        ("Pleural effusion and edema.", EFFUSION, 0.0),  # one label invented
        ("Pleural effusion.", truth(Pleural_Effusion=1, Edema=1), 0.0),  # one label missed
        ("Lungs are clear. No effusion.", truth(No_Finding=1), 1.0),
        ("Lungs are clear. No effusion.", truth(No_Finding=1, Edema=1), 0.0),
        ("", EFFUSION, 0.0),
        ("", truth(No_Finding=1), 0.0),
        ("", truth(Edema=0), 0.0),  # nothing is there, but nothing was said either
        ("No edema.", truth(Edema=0), 1.0),
        ("asdf asdf", truth(Edema=0), 0.0),
    ],
)
def test_known_values(report: str, ground_truth: str, value: float) -> None:
    assert score(report, ground_truth) == value


def test_thirteen_of_fourteen_is_as_wrong_as_none() -> None:
    everything = truth(Edema=1, Pleural_Effusion=1, Cardiomegaly=1, Pneumothorax=1)
    near = compute_score("test", "Edema. Pleural effusion. Cardiomegaly.", everything)
    assert (near["score"], near["tp"], near["fn"], near["fp"]) == (0.0, 3.0, 1.0, 0.0)
    assert facts.compute_score("test", "Edema. Pleural effusion. Cardiomegaly.", everything)["score"] > 0.7


def test_a_denied_finding_is_one_error_not_two() -> None:
    result = compute_score("test", "No pleural effusion. Cardiomegaly.", truth(Pleural_Effusion=1, Cardiomegaly=1))
    assert (result["fn"], result["fp"]) == (1.0, 0.0)


@pytest.mark.parametrize(("policy", "value"), [("ones", 1.0), ("zeros", 0.0), ("ignore", 1.0)])
def test_uncertain_truth(policy: str, value: float) -> None:
    """A report that states what the truth leaves uncertain: right, wrong, or not judged."""
    assert score("Edema.", truth(Edema=-1, Pleural_Effusion=0), uncertain=policy) == value
    assert score("Edema. Pleural effusion.", truth(Edema=-1, Pleural_Effusion=1), uncertain=policy) == value


@pytest.mark.parametrize("report", SENTENCES[:40])
def test_a_report_is_right_about_itself_or_says_nothing(report: str) -> None:
    result = compute_score("test", report, json.dumps({"report": report}))
    assert result["fp"] == result["fn"] == 0.0
    assert result["score"] == 1.0 or not result["has_content"]


@settings(deadline=None, max_examples=60)
@given(st.lists(st.sampled_from(SENTENCES), min_size=1, max_size=4), st.sampled_from(SENTENCES))
def test_it_is_one_exactly_where_facts_without_contradictions_is(said: list[str], true: str) -> None:
    report, ground_truth = " ".join(said), json.dumps({"labels": {**dict.fromkeys(CHEXPERT_14), **label_report(true)}})
    if all(value is None for value in label_report(true).values()):
        ground_truth = json.dumps({"report": true})
    result = compute_score("test", report, ground_truth)
    assert result["score"] in (0.0, 1.0)
    assert set(result) == {"score", "failed", *COMPONENTS}
    if result["score"]:
        assert result["fp"] == result["fn"] == 0.0
    perfect = facts.compute_score("test", report, ground_truth, contradiction_fp="never")["score"] == 1.0
    assert result["score"] == float(perfect)


def test_a_judge_that_fails_is_no_zero_reward() -> None:
    class Broken:
        name = "broken"

        def states(self, report: str) -> dict:
            raise TimeoutError("no answer")

        def states_batch(self, reports: list) -> list:
            raise TimeoutError("no answer")

    result = compute_score("test", "Edema.", EFFUSION, judge=Broken())
    assert result["failed"] is True
    assert set(result) == {"score", "failed", *COMPONENTS}


def test_settings_are_refused_by_name() -> None:
    with pytest.raises(TypeError, match=r"accuracy reward: unknown setting beta"):
        compute_score("test", *GOLD, beta=2.0)
    with pytest.raises(ValueError, match="t/1"):
        score("Edema.", "no json")


def test_gold_and_name() -> None:
    assert load("accuracy").compute_score is compute_score
    assert score(*GOLD) == 1.0
