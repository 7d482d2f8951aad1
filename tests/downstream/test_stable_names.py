"""The names other projects call, as they call them. A change needs a CHANGELOG line and an alias."""

import inspect
import json

import pytest


def test_labels_and_labeller() -> None:
    from radverl.chexpert import label_report
    from radverl.labels import CHEXPERT_14

    assert CHEXPERT_14[0] == "No Finding"
    assert CHEXPERT_14[3:5] == ("Lung Opacity", "Lung Lesion")
    assert CHEXPERT_14[-1] == "Support Devices"
    labels = label_report("Small left effusion. No pneumothorax. Possible pneumonia.")
    assert list(labels) == list(CHEXPERT_14)
    assert (labels["Pleural Effusion"], labels["Pneumothorax"], labels["Pneumonia"]) == (1, 0, -1)
    assert labels["Fracture"] is None


def test_text() -> None:
    from radverl.text import remove_prior_references, split_sections, split_sentences

    sections = split_sections("FINDINGS: Clear lungs. IMPRESSION: Normal.")
    assert (sections["findings"], sections["impression"]) == ("Clear lungs.", "Normal.")
    assert split_sentences("No edema. Heart 1.5 times normal.") == ["No edema.", "Heart 1.5 times normal."]
    assert "effusion" in remove_prior_references("Unchanged small left effusion.")


def test_facts_reward_as_verl_calls_it() -> None:
    from radverl.rewards.facts import compute_score, f_beta

    parameters = list(inspect.signature(compute_score).parameters)
    assert parameters[:4] == ["data_source", "solution_str", "ground_truth", "extra_info"]
    result = compute_score(
        data_source="mine",
        solution_str="Left effusion.",
        ground_truth=json.dumps({"labels": {"Pleural Effusion": 1}}),
        extra_info={"index": 0},
        reward_router_address=None,
    )
    assert result["score"] == 1.0
    assert result["failed"] is False
    assert f_beta(0.5, 1.0, 2.0) == pytest.approx(0.8333, abs=1e-4)


def test_modules_that_recipes_name() -> None:
    import importlib.util

    for name in (
        "radverl.verl_plugin",
        "radverl.watchdog",
        "data_preprocess.simulated",
        "data_preprocess.table",
        "radverl.verl_plugin.cpu.replay_buffer",
    ):
        assert importlib.util.find_spec(name) is not None
