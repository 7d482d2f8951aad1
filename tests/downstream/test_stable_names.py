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
        "data_preprocess.chexpert_plus",
        "data_preprocess.mimic_cxr",
        "data_preprocess.iu_xray",
        "data_preprocess.chest_imagenome",
        "data_preprocess.ms_cxr",
        "data_preprocess.vindr_cxr",
        "data_preprocess.padchest_gr",
        "radverl.verl_plugin.cpu.replay_buffer",
    ):
        assert importlib.util.find_spec(name) is not None


def test_boxes() -> None:
    from radverl.boxes import convert, iou

    assert iou([[0, 0, 2, 2]], [[1, 1, 3, 3]]).tolist() == [[pytest.approx(1 / 7)]]
    assert convert([[0.1, 0.2, 0.5, 1]], "unit", "pixel", 200, 100).tolist() == [pytest.approx([20, 20, 100, 100])]


def test_boxes_in_text() -> None:
    from radverl.boxes import parse_boxes

    assert parse_boxes('[{"bbox_2d": [10, 20, 30, 40]}] and (0.1, 0.2, 0.3, 0.4)') == [
        (10.0, 20.0, 30.0, 40.0),
        (0.1, 0.2, 0.3, 0.4),
    ]


def test_radgraph_f1_of_annotations() -> None:
    from radverl.radgraph import f1

    def annotation(status: str) -> dict:
        effusion = {"tokens": "effusion", "label": f"Observation::{status}", "start_ix": 1, "end_ix": 1}
        left = {"tokens": "left", "label": "Anatomy::definitely present", "start_ix": 0, "end_ix": 0, "relations": []}
        return {"text": "left effusion", "entities": {"1": left, "2": effusion | {"relations": [["located_at", "1"]]}}}

    present, absent = annotation("definitely present"), annotation("definitely absent")
    for level in ("simple", "partial", "complete", "radcliq"):
        assert f1(present, present, level) == 1.0
    assert f1(present, absent, "simple") == 0.5


def test_annotators() -> None:
    import radverl.radgraph
    from radverl.radgraph import get_annotator

    assert callable(radverl.radgraph.RadGraphAnnotator.annotate)
    (annotation,) = get_annotator("rules").annotate(["No pneumothorax."])
    assert [entity["label"] for entity in annotation["entities"].values()] == ["Observation::definitely absent"]


def test_gated_reward_as_verl_calls_it() -> None:
    from radverl.rewards.gated import compute_score

    assert list(inspect.signature(compute_score).parameters)[:4] == [
        "data_source",
        "solution_str",
        "ground_truth",
        "extra_info",
    ]
    region = {"name": "left lung", "box": [0.5, 0.1, 0.9, 0.8], "finding": "Small effusion."}
    output = (
        '<think>[{"region": "left lung", "box": [0.5, 0.1, 0.9, 0.8], "finding": "Small effusion."}]</think>'
        "<answer>Small left effusion.</answer>"
    )
    truth = json.dumps({"regions": [region], "report": "Small left effusion."})
    result = compute_score("mine", output, truth, {"index": 0}, reward="both", verify="both", gate="region", tau=0.25)
    assert (result["score"], result["failed"]) == (3.0, False)


def test_rewards_in_trl() -> None:
    from radverl.trl import reward_func

    truth = json.dumps({"labels": {"Pleural Effusion": 1}})
    assert reward_func("facts")(completions=["Left effusion."], ground_truth=[truth]) == [1.0]


def test_orapo_mathematics() -> None:
    import torch

    from radverl.orapo import dpo_row_coefficients, ema, mixing_weight, orapo_loss, zero_reward_rate

    assert zero_reward_rate([0.0, 0.5, 0.0, 0.0]) == 0.75
    assert [round(ema(0.0, 1.0, 0.5), 4), round(ema(0.5, 1.0, 0.5), 4)] == [0.5, 0.75]
    assert mixing_weight(0.5, 0.05, 0.15, 2.0) == pytest.approx(0.075)
    ones_P, ones_PK = torch.ones(1), torch.ones(1, 2)
    coef_gt_P, coef_PK = dpo_row_coefficients(0 * ones_P, 0 * ones_PK, ones_P, ones_PK, 0.1 * ones_P, tau=0.1)
    assert coef_gt_P.item() == pytest.approx(-0.005)  # tau w / 2
    assert coef_PK.tolist() == [pytest.approx([0.0025, 0.0025])]
    zeros_PKT, zeros_PS = torch.zeros(1, 2, 3), torch.zeros(1, 3)
    loss = orapo_loss(
        zeros_PKT, zeros_PKT, zeros_PKT, zeros_PKT + 1, zeros_PS, zeros_PS, zeros_PS + 1, 0 * ones_PK, 0.1 * ones_P
    )
    assert loss.item() == pytest.approx(0.0693147)  # no reward: 0.1 ln 2


def test_trainer_modes() -> None:
    pytest.importorskip("verl")
    from verl.trainer.ppo.v1 import get_trainer_cls

    for mode in ("orapo_sync", "orapo_colocate_async"):
        assert get_trainer_cls(mode) is not None
