import asyncio
import json
import math
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_preprocess.core.traces import trace_text
from radverl.boxes import convert
from radverl.radgraph import LEVELS, AnnotationFailure
from radverl.rewards import gated
from radverl.rewards.base import FAILURES
from radverl.rewards.gated import COMPONENTS, GOLD, compute_score, compute_score_async, gold

KEYS = {"score", "failed", *COMPONENTS}
ROW = {"prompt_id": "t/1", "width": 800, "height": 1000, "box_space": "unit"}
REPORT = "Findings: left effusion. Impression: effusion."


class Words:
    """An annotator for which every word of a text is an entity, so that F1 is that of sets of words."""

    name = "words"

    def __init__(self):
        self.calls = []

    def annotate(self, texts):
        self.calls.append(list(texts))
        return [self.read(text) for text in texts]

    def read(self, text):
        words = text.lower().replace(".", " ").replace(",", " ").split()
        label = "Observation::definitely present"
        return {"text": text, "entities": {
            str(i): {"tokens": word, "label": label, "start_ix": i, "end_ix": i, "relations": []}
            for i, word in enumerate(words, 1)
        }}  # fmt: skip


def row(*regions, report=REPORT):
    names = ("name", "box", "finding")
    return json.dumps({"regions": [dict(zip(names, one, strict=True)) for one in regions], "report": report})


def output(*regions, report=REPORT):
    return trace_text([{"name": name, "box": box, "finding": finding} for name, box, finding in regions], report)


def score(text, truth, info=ROW, **settings):
    settings.setdefault("annotator", Words())
    result = compute_score("test", text, truth, info, **settings)
    assert set(result) == KEYS
    assert all(math.isfinite(value) for value in result.values())
    assert (result["score"], result["failed"]) == (result["spatial"] + result["factual"] + result["answer_f1"], False)
    return result


UNIT = [0.0, 0.0, 1.0, 1.0]
LEFT = ("left lung", [0.5, 0.0, 1.0, 1.0], "small left effusion")
RIGHT = ("right lung", [0.0, 0.0, 0.5, 1.0], "clear right lung")
HEART = ("cardiac silhouette", [0.2, 0.5, 0.8, 1.0], "enlarged heart")
TRUTH = row(LEFT, RIGHT, HEART)


def test_gold():
    result = score(output(LEFT, RIGHT, HEART), TRUTH, verify="both")
    assert (result["score"], result["spatial"], result["factual"], result["answer_f1"]) == (3, 1, 1, 1)
    assert (result["format_ok"], result["n_found"], result["gated_share"], result["distinct_findings"]) == (1, 3, 1, 1)


@pytest.mark.parametrize(
    ("iou", "tau", "opened"),
    [(0.25, 0.25, False), (0.26, 0.25, True), (0.24, 0.25, False), (0.5, 0.5, False), (0.51, 0.5, True),
     (0.25, 0, True), (0.01, 0, True), (0.0, 0, False), (1.0, 0.5, True)],
)  # fmt: skip
def test_the_gate_opens_strictly_above_tau(iou, tau, opened):
    truth = row(("spine", UNIT, "scoliosis"))
    result = score(output(("spine", [0.0, 0.0, 1.0, iou], "scoliosis")), truth, tau=tau)
    assert result["spatial"] == pytest.approx(iou)
    assert result["factual"] == result["gated_share"] == opened
    assert result["factual_mean"] == 1.0


@pytest.mark.parametrize("size", range(1, 26))
def test_an_iou_of_a_quarter_that_rounding_moved_is_still_a_quarter(size):
    """Boxes of two decimals whose IoU is 1/4 on paper, and a little more or less in binary numbers."""
    x, y = 0.03 * (size % 7), 0.07 * (size % 5)
    truth = row(("spine", [x, y, x + 2 * size / 100, y + 2 * size / 100], "scoliosis"))
    box = [x + size / 100, y + size / 100, x + 2 * size / 100, y + 2 * size / 100]
    text = f'<think>[{{"region": "spine", "box": {box}, "finding": "scoliosis"}}]</think><answer>x</answer>'
    for space in ("unit", "pixel", "thousand"):
        written = convert([box], "unit", space, 800, 1000)[0].tolist()
        result = score(text.replace(str(box), str(written)), truth, box_space=space)
        assert result["spatial"] == pytest.approx(0.25)
        assert result["factual"] == 0


def test_terms_by_hand():
    written = output(("left lung", [0.5, 0.0, 1.0, 0.5], "small right effusion"), (*RIGHT[:2], ""))
    result = score(written, TRUTH)
    # IoU 1/2, 1, 0; F1 of three words, two of them shared: 2/3
    assert result["spatial"] == result["mean_iou"] == pytest.approx(0.5)
    assert result["factual"] == result["factual_mean"] == pytest.approx(2 / 9)
    assert (result["n_found"], result["n_missing"], result["n_regions"]) == (2, 1, 2)
    assert score(written, TRUTH, tau=0.5)["factual"] == 0
    gated_over = score(written, TRUTH, factual_over="gated")
    assert gated_over["factual"] == pytest.approx(1 / 3)  # over the two regions whose gate is open


def test_gate_of_the_region_and_of_the_sample():
    near = [0.5, 0.0, 1.0, 0.2]  # IoU .2
    written = output((LEFT[0], near, LEFT[2]), RIGHT)
    truth = row(LEFT, RIGHT)
    assert score(written, truth)["factual"] == pytest.approx(0.5)
    assert score(written, truth, gate="sample")["factual"] == pytest.approx(1.0)  # mean IoU .6
    assert score(written, truth, gate="sample", tau=0.6)["factual"] == 0
    assert score(written, truth, gate="sample", tau=0.59)["factual"] == pytest.approx(1.0)


def test_factual_is_over_annotated_regions_with_a_finding():
    truth = row(LEFT, (*RIGHT[:2], ""), (*HEART[:2], None))
    assert score(output(LEFT, (*RIGHT[:2], "invented"), HEART), truth)["score"] == 2.0
    nothing = row((*LEFT[:2], ""))
    assert score(output(LEFT), nothing)["score"] == 1.0


@pytest.mark.parametrize(
    ("reward", "verify", "spatial", "factual", "answer"),
    [
        ("both", "reasoning", 0.5, 0.0, 0.0),
        ("spatial", "reasoning", 0.5, 0.0, 0.0),
        ("factual", "reasoning", 0.0, 1.0, 0.0),
        ("none", "reasoning", 0.0, 0.0, 0.0),
        ("both", "both", 0.5, 0.0, 0.5),
        ("factual", "both", 0.0, 1.0, 0.5),
        ("none", "both", 0.0, 0.0, 0.5),
        ("both", "answer", 0.0, 0.0, 0.5),
        ("spatial", "answer", 0.0, 0.0, 0.5),
    ],
)
def test_switches(reward, verify, spatial, factual, answer):
    truth = row(("spine", UNIT, "scoliosis"), report="a b")
    written = output(("spine", [0.0, 0.0, 1.0, 0.5], "scoliosis"), report="b c")
    result = score(written, truth, reward=reward, verify=verify, tau=0.5)
    assert (result["spatial"], result["factual"], result["answer_f1"]) == (spatial, factual, answer)
    assert result["mean_iou"] == 0.5


def test_duplicates_first_counts():
    bad, good = ("left lung", [0.9, 0.9, 1.0, 1.0], "nodule"), LEFT
    truth = row(LEFT)
    assert score(output(good, bad), truth)["score"] == 2.0
    second = score(output(bad, good), truth)
    assert second["score"] == pytest.approx(0.02)
    assert (second["n_duplicated"], second["n_found"], second["n_regions"]) == (1, 1, 2)


def test_sides_that_are_exchanged_are_counted():
    written = output((LEFT[0], RIGHT[1], LEFT[2]), (RIGHT[0], LEFT[1], RIGHT[2]), HEART)
    result = score(written, TRUTH)
    assert (result["n_swapped"], result["spatial"]) == (2, pytest.approx(1 / 3))
    assert score(output(LEFT, RIGHT, HEART), TRUTH)["n_swapped"] == 0


@pytest.mark.parametrize(
    "text",
    [
        "",
        "The lungs are clear.",
        "<think>[]</think><answer>Clear.</answer>",
        "<think>The left lung is clear.</think><answer>Clear.</answer>",
        output(LEFT).replace("</think>", ""),
        output(LEFT).replace("</answer>", ""),
        output(LEFT).replace("<think>", ""),
        output(LEFT)[: output(LEFT).index("</think>")],
        output(LEFT, report=" "),
        output(LEFT).replace('"box": [0.5, 0.0, 1.0, 1.0], ', ""),
        output(LEFT).replace("[0.5, 0.0, 1.0, 1.0]", "null"),
        output(LEFT).replace("[0.5, 0.0, 1.0, 1.0]", "[0.5, 0.0, 1.0]"),
        output(LEFT).replace("[0.5, 0.0", "[NaN, 0.0"),
        output(LEFT).replace("[0.5, 0.0", "[0.5, Infinity"),
        output(LEFT, RIGHT, HEART).replace("[0.0, 0.0, 0.5, 1.0]", "[]"),
    ],
)
@pytest.mark.parametrize("verify", ["reasoning", "answer", "both"])
def test_a_closed_format_gate_gives_nothing_and_asks_nobody(text, verify):
    words = Words()
    result = score(text, TRUTH, annotator=words, verify=verify)
    assert result["score"] == result["format_ok"] == result["mean_iou"] == 0
    assert words.calls == []


def test_inverted_and_empty_boxes_are_boxes_that_hit_nothing():
    written = output((LEFT[0], [1.0, 1.0, 0.5, 0.0], LEFT[2]), (RIGHT[0], [0.3, 0.3, 0.3, 0.3], ""))
    result = score(written, row(LEFT, RIGHT))
    assert (result["format_ok"], result["score"], result["n_invalid_boxes"]) == (1, 0, 2)
    assert result["factual_mean"] == 0.5


def test_numbers_of_an_odd_output():
    written = output(LEFT, ("left lung", UNIT, "x"), ("pelvis", UNIT, "x"), ("svc", UNIT, "x"), ("Heart", *HEART[1:]))
    result = score(written, TRUTH)
    names = ("n_regions", "n_found", "n_missing", "n_duplicated", "n_unknown", "n_extra", "boxes_unit")
    assert [result[name] for name in names] == [5, 2, 1, 1, 1, 1, 5]
    assert result["distinct_findings"] == pytest.approx(3 / 5)


# A study with ten regions, findings in the words of reports.
STUDY = [
    ("right lung", [0.10, 0.12, 0.47, 0.80], "Patchy opacity in the right lower lobe, concerning for pneumonia."),
    ("left lung", [0.53, 0.11, 0.90, 0.82], "Small left pleural effusion with adjacent atelectasis."),
    ("cardiac silhouette", [0.36, 0.48, 0.74, 0.80], "The heart is moderately enlarged."),
    ("mediastinum", [0.38, 0.10, 0.62, 0.80], "Mediastinal contours are widened."),
    ("left costophrenic angle", [0.80, 0.74, 0.92, 0.86], "Blunting of the left costophrenic angle."),
    ("right apical zone", [0.20, 0.10, 0.42, 0.24], "Tiny right apical pneumothorax."),
    ("right hilar structures", [0.30, 0.38, 0.46, 0.58], "Right hilar lymphadenopathy."),
    ("svc", [0.42, 0.20, 0.50, 0.42], "Right PICC line with its tip in the SVC."),
    ("trachea", [0.45, 0.02, 0.55, 0.30], "Endotracheal tube above the carina."),
    ("spine", [0.44, 0.02, 0.58, 0.98], "Mild scoliosis of the thoracic spine."),
]
STUDY_ROW = row(*STUDY, report="Findings: Small left pleural effusion. The heart is moderately enlarged.")
ONE_FOR_ALL = output(*[(name, box, STUDY[1][2]) for name, box, _ in STUDY])
# Boxes that belong to other regions, none of which overlaps its own by more than tau.
ELSEWHERE = output(*[(name, [0.94, 0.94, 0.99, 0.99], finding) for name, _, finding in STUDY])


@pytest.mark.parametrize("annotator", ["rules", Words()])
@pytest.mark.parametrize("level", LEVELS)
def test_probe_one_finding_for_all_regions(annotator, level):
    """The hack of a reward without findings (arXiv 2609.31911, Table 6): boxes are right, findings are copies."""
    settings = {"annotator": annotator, "level": level}
    best = score(output(*STUDY), STUDY_ROW, **settings)
    alone, both = (score(ONE_FOR_ALL, STUDY_ROW, reward=reward, **settings) for reward in ("spatial", "both"))
    assert alone["score"] == pytest.approx(1.0)
    assert both["factual"] < 0.4 * best["factual"]
    assert alone["distinct_findings"] == both["distinct_findings"] == pytest.approx(0.1)
    assert alone["distinct_true_findings"] == 1.0


@pytest.mark.parametrize("annotator", ["rules", Words()])
def test_probe_right_findings_in_wrong_places(annotator):
    """The hack of a reward without places: every finding under its region's name, no box where it belongs."""
    best = score(output(*STUDY), STUDY_ROW, annotator=annotator)
    alone, both = (score(ELSEWHERE, STUDY_ROW, reward=reward, annotator=annotator) for reward in ("factual", "both"))
    assert alone["score"] >= 0.9
    assert alone["score"] == best["factual"]
    assert both["score"] < 0.1 < 1.9 <= best["score"]
    assert (both["gated_share"], both["factual_mean"]) == (0.0, alone["score"])


def test_probe_findings_under_the_names_of_other_regions():
    turned = [(name, box, STUDY[i - 1][2]) for i, (name, box, _) in enumerate(STUDY)]
    assert score(output(*turned), STUDY_ROW, annotator="rules")["factual"] < 0.4
    assert score(output(*turned), STUDY_ROW, reward="spatial")["score"] == pytest.approx(1.0)


def shaken(seed):
    rng = random.Random(seed)
    words = ["small", "left", "right", "effusion", "heart", "enlarged", "clear", "no"]
    out = []
    for name, box, _ in rng.sample(STUDY, rng.randint(1, len(STUDY))):
        moved = [round(min(1.0, max(0.0, value + rng.uniform(-0.15, 0.15))), 2) for value in box]
        out.append((name, moved, " ".join(rng.sample(words, rng.randint(0, 4)))))
    return out


seeds = st.integers(0, 10**6)


@settings(max_examples=60, deadline=None)
@given(seeds, st.randoms())
def test_the_order_of_regions_changes_nothing(seed, rng):
    regions = shaken(seed)
    mixed = rng.sample(regions, len(regions))
    assert score(output(*regions), STUDY_ROW) == pytest.approx(score(output(*mixed), STUDY_ROW))


@settings(max_examples=60, deadline=None)
@given(seeds, st.integers(0, 3))
def test_more_regions_change_no_score(seed, place):
    regions = shaken(seed)
    more = [*regions[:place], ("left clavicle", UNIT, "x"), ("pelvis", [0.9, 0.9, 0.1, 0.1], ""), *regions[place:]]
    names = ("score", "spatial", "factual", "mean_iou", "gated_share", "factual_mean", "n_found")
    a, b = score(output(*regions), STUDY_ROW), score(output(*more), STUDY_ROW)
    assert [a[name] for name in names] == [b[name] for name in names]


@settings(max_examples=60, deadline=None)
@given(seeds, st.sampled_from(["pixel", "thousand"]), st.booleans())
def test_the_space_of_the_boxes_changes_nothing(seed, space, named):
    regions = shaken(seed)
    # one region that spans most of the image, so that pixels and thousandths can be told apart without being named
    regions = [("abdomen", [0.0, 0.0, 1.0, 1.0], ""), *regions]
    other = [(n, [round(v, 6) for v in convert([b], "unit", space, 800, 1000)[0].tolist()], f) for n, b, f in regions]
    text = output(*regions)
    for (_, box, _), (_, written, _) in zip(regions, other, strict=True):
        text = text.replace(json.dumps([round(v, 2) for v in box]), json.dumps(written))
    expected, result = score(output(*regions), STUDY_ROW), score(text, STUDY_ROW, box_space=space if named else None)
    assert result["score"] == pytest.approx(expected["score"], abs=1e-9)
    assert result[f"boxes_{space}"] == expected["boxes_unit"] == len(regions)


@settings(max_examples=60, deadline=None)
@given(seeds, st.sampled_from(["both", "spatial", "factual", "none"]), st.sampled_from(["region", "sample"]),
       st.sampled_from(["annotated", "gated"]), st.sampled_from([0, 0.25, 0.5]))  # fmt: skip
def test_range_and_gates(seed, reward, gate, over, tau):
    text = output(*shaken(seed), report="small effusion")
    settings = {"reward": reward, "gate": gate, "factual_over": over, "tau": tau}
    result = score(text, STUDY_ROW, **settings)
    assert 0 <= result["score"] <= 2
    assert 0 <= score(text, STUDY_ROW, verify="both", **settings)["score"] <= 3
    if reward == "both" and over == "annotated" and gate == "region":
        assert result["factual"] <= result["factual_mean"] + 1e-12
        assert result["factual"] <= result["gated_share"] + 1e-12


@pytest.mark.parametrize("space", [None, "unit", "pixel", "thousand"])
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("verify", ["reasoning", "answer", "both"])
@pytest.mark.parametrize("reward", ["both", "spatial", "factual", "none"])
def test_the_gold_output_reaches_its_score_under_all_settings(reward, verify, level, space):
    settings = {"reward": reward, "verify": verify, "level": level, "box_space": space}
    text, truth, info, least = gold(settings)
    result = score(text, truth, info, annotator="rules", **settings)
    assert result["score"] >= least - 1e-9
    assert result["format_ok"] == 1
    assert least == (0.0 if (reward, verify) == ("none", "reasoning") else 1.0)


def test_the_gold_of_the_module():
    assert compute_score("test", *GOLD)["score"] == 2.0


@pytest.mark.parametrize(
    ("truth", "settings", "message"),
    [
        ("{", {}, "not JSON"),
        ("[]", {}, "not an object"),
        (row(), {}, "no regions"),
        ('{"report": "Clear."}', {}, "no regions"),
        (row(), {"verify": "both"}, "no regions"),
        (row(LEFT, report=""), {"verify": "answer"}, "no report text"),
        (row(LEFT, report=""), {"verify": "both"}, "no report text"),
        (row(("left lung", [0.5, 0.5, 0.5, 0.9], "x")), {}, "without area"),
        (row(LEFT, LEFT), {}, "second 'left lung'"),
        (row(("left lung", [100, 200, 300, 400], "x")), {}, "outside its image"),
        ('{"regions": "left lung"}', {}, "is a str"),
    ],
)
def test_a_wrong_row_is_named(truth, settings, message):
    for text in (output(LEFT), "no tags"):
        with pytest.raises(ValueError, match=f"row t/1: .*{message}"):
            compute_score("test", text, truth, ROW, annotator=Words(), **settings)


def test_verify_answer_needs_no_regions():
    result = score(output(LEFT), json.dumps({"findings": "left effusion", "impression": "effusion"}), verify="answer")
    assert result["answer_f1"] == pytest.approx(2 / 3)
    assert result["mean_iou"] == result["n_found"] == 0
    bad = row(("left lung", [0.5, 0.5, 0.5, 0.9], "x"))
    assert score(output(LEFT), bad, verify="answer")["answer_f1"] == 1.0


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"reward": "spatail"}, "reward is 'spatail'"),
        ({"verify": None}, "verify is None"),
        ({"gate": "all"}, "gate is"),
        ({"level": "all"}, "level is"),
        ({"factual_over": "all"}, "factual_over is"),
        ({"tau": 1}, "tau is 1"),
        ({"tau": -0.1}, "tau is"),
        ({"tau": math.nan}, "tau is"),
        ({"tau": "0.25"}, "tau is"),
        ({"box_space": "xywh"}, "box_space is"),
        ({"annotator": "radgaph"}, "annotator is"),
        ({"annotator": None}, "annotator is None"),
    ],
)
def test_wrong_settings(settings, message):
    with pytest.raises(ValueError, match=message):
        compute_score("test", output(LEFT), TRUTH, ROW, **settings)
    with pytest.raises(ValueError, match=message):
        asyncio.run(compute_score_async("test", output(LEFT), TRUTH, ROW, **settings))


def test_unknown_keywords_and_those_of_verl():
    with pytest.raises(TypeError, match="taus"):
        compute_score("test", output(LEFT), TRUTH, ROW, taus=1)
    with pytest.raises(TypeError, match="taus"):
        asyncio.run(compute_score_async("test", output(LEFT), TRUTH, ROW, taus=1))
    assert not compute_score("test", output(LEFT), TRUTH, ROW, reward_router_address=None)["failed"]


@pytest.mark.parametrize("info", [None, {}, {"width": None, "height": None}, {"width": 0, "height": 10}])
def test_pixels_need_a_size(info):
    with pytest.raises(ValueError, match="box_space is pixel"):
        compute_score("test", output(LEFT), TRUTH, info, box_space="pixel", annotator=Words())
    assert score(output(LEFT), TRUTH, info)["n_found"] == 1


class Fails(Words):
    def __init__(self, error):
        super().__init__()
        self.error = error

    def annotate(self, texts):
        raise self.error


class Wrong(Words):
    def __init__(self, answer):
        super().__init__()
        self.answer = answer

    def annotate(self, texts):
        return self.answer


@pytest.mark.parametrize(
    ("annotator", "cause"),
    [
        (Fails(AnnotationFailure("timeout", "600 s")), "failed_timeout"),
        (Fails(AnnotationFailure("other", "?")), "failed_other"),
        (Fails(RuntimeError("out of memory")), "failed_other"),
        (Wrong([]), "failed_other"),
        (Wrong(None), "failed_other"),
        (Wrong([{"entities": {}}, {"text": "no entities"}]), "failed_other"),
    ],
)
def test_an_annotator_that_fails_is_a_failure_and_no_zero(annotator, cause):
    arguments = ("test", output(LEFT), row(LEFT), ROW)
    slow = asyncio.run(compute_score_async(*arguments, annotator=annotator, verify="both"))
    for result in (compute_score(*arguments, annotator=annotator, verify="both"), slow):
        assert set(result) == KEYS
        assert result["failed"] is True
        assert [name for name in FAILURES if result[name]] == [cause]
        assert sum(result[name] for name in COMPONENTS) == 1
    for reward in ("spatial", "none"):  # they need none, and do not fail with it
        assert not compute_score(*arguments, annotator=annotator, reward=reward)["failed"]


def test_one_call_and_no_text_twice():
    words = Words()
    same = [(name, box, "effusion") for name, box, _ in (LEFT, RIGHT, HEART)]
    score(output(*same, report="effusion"), row(*same, report="effusion"), annotator=words, verify="both")
    score(output((*LEFT[:2], ""), HEART), TRUTH, annotator=words)
    assert words.calls == [["effusion"], ["enlarged heart"]]


def test_the_event_loop_gets_the_same_numbers():
    class Async(Words):
        async def annotate_async(self, texts):
            await asyncio.sleep(0)
            return [self.read(text) for text in texts]

        def annotate(self, texts):
            raise AssertionError("called in an event loop")

    for seed in range(20):
        text = output(*shaken(seed))
        expected = score(text, STUDY_ROW, verify="both")
        for annotator in (Async(), Words()):
            arguments = ("test", text, STUDY_ROW, ROW)
            assert asyncio.run(compute_score_async(*arguments, annotator=annotator, verify="both")) == expected


def test_large_and_odd_outputs():
    many = output(*[(f"place {i}", UNIT, "x") for i in range(10_000)], LEFT)
    result = score(many, row(LEFT))
    assert (result["score"], result["n_regions"], result["n_unknown"]) == (2.0, 10_001, 10_000)
    words = Words()
    long = score(output((*LEFT[:2], "effusion, " * 200_000)), row(LEFT), annotator=words, verify="both")
    assert long["factual"] == pytest.approx(0.5)
    assert max(len(text) for call in words.calls for text in call) <= gated.MAX_TEXT


def test_truth_in_another_space():
    truth = row(("left lung", [400, 0, 800, 1000], LEFT[2]))
    for number in (int, float, np.int64):  # as Parquet readers give them
        info = {**ROW, "box_space": "pixel", "width": number(800), "height": number(1000)}
        assert score(output(LEFT), truth, info)["score"] == 2.0
