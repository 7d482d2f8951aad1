import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from radverl.labels import CHEXPERT_14, apply_uncertain, canonical_name, consistent_no_finding, normalise_labels

values = st.sampled_from([1, 0, -1, None])
label_dicts = st.dictionaries(st.sampled_from(CHEXPERT_14), values)


def test_the_order_is_that_of_the_chexpert_csv():
    assert CHEXPERT_14[:5] == (
        "No Finding",
        "Enlarged Cardiomediastinum",
        "Cardiomegaly",
        "Lung Opacity",
        "Lung Lesion",
    )
    assert CHEXPERT_14[-1] == "Support Devices"
    assert len(set(CHEXPERT_14)) == 14


@pytest.mark.parametrize(
    ("written", "label"),
    [
        ("Airspace Opacity", "Lung Opacity"),
        ("lung_opacity", "Lung Opacity"),
        ("PLEURAL EFFUSION", "Pleural Effusion"),
        ("No_Finding", "No Finding"),
        ("enlarged cardiomediastinum", "Enlarged Cardiomediastinum"),
        ("support-devices", "Support Devices"),
    ],
)
def test_spellings(written, label):
    assert canonical_name(written) == label


@pytest.mark.parametrize("name", ["Hernia", "", "Pleural", "Opacity"])
def test_other_names_are_refused(name):
    with pytest.raises(ValueError, match="not one of the 14"):
        canonical_name(name)


def test_normalise_fills_blanks_and_reads_csv_values():
    labels = normalise_labels(
        {"edema": "1.0", "Fracture": math.nan, "pneumonia": -1.0, "Cardiomegaly": "", "atelectasis": 0}
    )
    assert list(labels) == list(CHEXPERT_14)
    assert {k: v for k, v in labels.items() if v is not None} == {"Edema": 1, "Pneumonia": -1, "Atelectasis": 0}


@pytest.mark.parametrize("value", [2, "yes", 0.5, [1]])
def test_other_values_are_refused(value):
    with pytest.raises(ValueError, match="Edema"):
        normalise_labels({"Edema": value})


def test_two_spellings_that_disagree_are_refused():
    with pytest.raises(ValueError, match="given twice"):
        normalise_labels({"Lung Opacity": 1, "Airspace Opacity": 0})


@pytest.mark.parametrize(("policy", "value"), [("ones", 1), ("zeros", 0), ("ignore", None)])
def test_uncertain_policy(policy, value):
    assert apply_uncertain({"Edema": -1, "Fracture": 1, "Pneumonia": 0}, policy) == {
        "Edema": value,
        "Fracture": 1,
        "Pneumonia": 0,
    }


def test_an_unknown_policy_is_refused():
    with pytest.raises(ValueError, match="ones, zeros or ignore"):
        apply_uncertain({}, "twos")


@given(label_dicts, st.sampled_from(["ones", "zeros", "ignore"]))
def test_after_the_policy_nothing_is_uncertain_and_no_finding_is_consistent(labels, policy):
    out = apply_uncertain(labels, policy)
    assert set(out) == set(labels)
    assert -1 not in out.values()
    if out.get("No Finding") == 1:
        assert not any(v == 1 for k, v in out.items() if k not in ("No Finding", "Support Devices"))


def test_no_finding_is_blanked_by_a_finding_but_not_by_a_device():
    assert consistent_no_finding({"No Finding": 1, "Edema": -1})["No Finding"] is None
    assert consistent_no_finding({"No Finding": 1, "Support Devices": 1})["No Finding"] == 1
    assert consistent_no_finding({"No Finding": 0, "Edema": 1})["No Finding"] == 0
    assert consistent_no_finding({"No Finding": None})["No Finding"] is None
