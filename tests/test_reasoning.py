import itertools
import json
import math
import time

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from data_preprocess.core.traces import trace_text
from data_preprocess.phantom.trace import REGION_NAMES
from data_preprocess.releases import imagenome_graph
from radverl.boxes import iou
from radverl.reasoning import REGIONS, Annotated, Region, annotated_regions, is_region, match_regions, parse_trace
from radverl.reasoning.matching import overlap
from radverl.reasoning.names import other_side, region_key
from radverl.reasoning.trace import split_tags
from tests.reasoning_bombs import BOMBS, bomb

LEFT = Region("left lung", (0.53, 0.11, 0.88, 0.84), "Small effusion, no pneumothorax.")
SVC = Region("svc", (0.4, 0.2, 0.5, 0.45), "PICC line tip.")
TWO = [
    {"region": LEFT.name, "box": list(LEFT.box), "finding": LEFT.finding},
    {"region": SVC.name, "box": list(SVC.box), "finding": SVC.finding},
]
JSON, PYTHON = json.dumps(TWO), str(TWO)
CORNERS = ("x1", "y1", "x2", "y2")
ANSWER = "<answer>Findings: Clear.</answer>"


def regions(reasoning):
    trace = parse_trace(f"<think>{reasoning}</think>{ANSWER}")
    assert trace.complete
    return [Region(one.name, one.box, one.finding) for one in trace.regions]


WRITTEN = {
    "JSON": JSON,
    "indented": json.dumps(TWO, indent=4),
    "Python": PYTHON,
    "tuples for boxes": PYTHON.replace("[0", "(0").replace("84]", "84)").replace("45]", "45)"),
    "a comma behind the last": JSON.replace("}]", "},]").replace('."}', '.",}'),
    "no quotes around keys": JSON.replace('"region"', "region").replace('"box"', "box").replace('"finding"', "finding"),
    "no quotes at all": JSON.replace('"', ""),
    "a quote before keys is missing": JSON.replace('"box"', 'box"'),
    "a quote behind keys is missing": JSON.replace('"box"', '"box'),
    "a quote before a value is missing": JSON.replace('"left', "left").replace('"Small', "Small"),
    "a quote behind a value is missing": JSON.replace('thorax."', "thorax.").replace('lung"', "lung"),
    "typographic quotes": JSON.replace(' "', " \u201c").replace('"', "\u201d"),
    "full-width signs": JSON.replace(":", "\uff1a").replace("{", "\uff5b").replace("}", "\uff5d"),
    "no commas": JSON.replace('", "', '" "').replace("], ", "] ").replace("}, ", "} "),
    "braces are missing": JSON.replace("}, {", ", {").replace("}]", "]"),
    "brackets are missing": JSON.replace("84]", "84").replace("45]", "45")[1:-1],
    "a fence": f"```json\n{JSON}\n```",
    "prose around": f"Let me look at [all] regions {{in turn}}.\n\n{PYTHON}\nThat is all.",
    "one a line": "\n".join(map(json.dumps, TWO)),
    "a numbered line each": "\n".join(f"{i}. {one}" for i, one in enumerate(TWO, 1)),
    "a wrapper": json.dumps({"regions": TWO}),
    "a broken wrapper": f"{{regions: {PYTHON}",
    "lists in a list": json.dumps([[TWO[0]], [TWO[1]]]),
    "a mapping": json.dumps({one["region"]: {"box": one["box"], "finding": one["finding"]} for one in TWO}),
    "a mapping in Python": str({one["region"]: {"bbox": one["box"], "description": one["finding"]} for one in TWO}),
    "other keys": JSON.replace("region", "Region Name").replace("box", "bounding_box").replace("finding", "Findings"),
    "more keys": JSON.replace("region", "anatomy").replace("box", "coordinates").replace("finding", "observation"),
    "keys of the release": JSON.replace("box", "bbox").replace("region", "bbox_name").replace("finding", "phrases"),
    "keys of Qwen": JSON.replace("region", "label").replace("box", "bbox_2d").replace("finding", "text"),
    "numbers as text": json.dumps([{**one, "box": list(map(str, one["box"]))} for one in TWO]),
    "boxes as text": json.dumps([{**one, "box": str(one["box"])} for one in TWO]),
    "named corners": json.dumps([
        {"region": one["region"], "finding": [one["finding"]], **dict(zip(CORNERS, one["box"], strict=True))}
        for one in TWO
    ]),
    "written as a string": json.dumps(JSON)[1:-1],
    "boxes without brackets": JSON.replace("[0", "0").replace("4]", "4").replace("5]", "5"),
    "sets for boxes": JSON.replace("[0", "{0").replace("4]", "4}").replace("5]", "5}"),
    "semicolons": JSON.replace('", ', '"; ').replace("], ", "]; "),
    "a bracket too many": JSON.replace("84]", "84]]"),
    "doubled quotes": JSON.replace('"', '""'),
    "a list of strings": json.dumps([str(one) for one in TWO]),
    "a list of JSON strings": json.dumps([json.dumps(one) for one in TWO]),
    "comments": json.dumps(TWO, indent=1).replace(",\n", ", // see above\n"),
    "a tag within": f"<think>{JSON}</think>",
    "an answer within": f"I write <answer> next.\n{JSON}",
}  # fmt: skip


@pytest.mark.parametrize("reasoning", WRITTEN.values(), ids=WRITTEN)
def test_what_models_write(reasoning):
    assert regions(reasoning) == [LEFT, SVC]


@pytest.mark.parametrize(
    "finding",
    ["Patient's heart, the lungs' size.", 'He said "clear", fine.', "A: b, c: d.", "[1] and (2) {3}", "L1-L2 = ok",
     "Unver\u00e4ndert \u2013 \u5de6\u80ba", "50% pneumothorax; 3 cm", "a\\b", ""],
)  # fmt: skip
@pytest.mark.parametrize("write", [json.dumps, str, lambda items: f"{items}, and so on"])
def test_findings_come_back(write, finding):
    items = [{**TWO[0], "finding": finding}, TWO[1]]
    assert regions(write(items)) == [Region(LEFT.name, LEFT.box, finding), SVC]


@pytest.mark.parametrize(
    "nothing", ["", "[]", "{}", "null", "Left lung is clear.", "[[0.1, 0.2, 0.3, 0.4]]", '{"a": 1}']
)
def test_no_regions(nothing):
    assert regions(nothing) == []


@pytest.mark.parametrize(
    ("entry", "box"),
    [
        ('{"region": "svc"}', None),
        ('{"region": "svc", "box": null}', None),
        ("{'region': 'svc', 'box': None, 'finding': 'x'}", None),
        ('{"region": "svc", "box": []}', None),
        ('{"region": "svc", "box": "not visible"}', None),
        ('{"region": "svc", "box": [0.1, 0.2, 0.3]}', None),
        ('{"region": "svc", "box": {"x": 0.1, "y": 0.2, "w": 0.3, "h": 0.4}}', None),
        ('{"region": "svc", "box": [0.9, 0.2, 0.3, 0.4]}', (0.9, 0.2, 0.3, 0.4)),
        ('{"region": "svc", "box": [[0.1, 0.2, 0.3, 0.4], [0, 0, 1, 1]]}', (0.1, 0.2, 0.3, 0.4)),
        ('{"region": "svc", "location": "right of the trachea", "box": [0, 0, 1, 1]}', (0, 0, 1, 1)),
    ],
)
def test_boxes_that_are_missing_or_odd(entry, box):
    (region,) = regions(entry)
    assert (region.name, region.box) == ("svc", box)


@pytest.mark.parametrize("number", ["NaN", "nan", "Infinity", "-inf", "1e999"])
def test_numbers_that_are_not_finite(number):
    (region,) = regions(f'{{"region": "svc", "box": [{number}, 0, 1, 1]}}')
    assert region.box is None or not math.isfinite(region.box[0])


def test_many_regions_and_repeated_ones():
    items = [{"region": name, "box": [0, 0, 1, 1], "finding": "x"} for name in (*REGIONS, *REGIONS)[:60]]
    assert [region.name for region in regions(json.dumps(items))] == [item["region"] for item in items]
    assert [region.name for region in regions(str(items))] == [item["region"] for item in items]


def test_the_traces_of_the_data():
    items = [{"name": one.name, "box": list(one.box), "finding": one.finding} for one in (LEFT, SVC)]
    trace = parse_trace(trace_text(items, "Findings: Clear. Impression: Normal."))
    assert (trace.complete, trace.regions) == (True, (LEFT, SVC))
    assert trace.answer == "Findings: Clear. Impression: Normal."


@pytest.mark.parametrize(
    ("text", "reasoning", "answer"),
    [
        ("<think>A</think><answer>B</answer>", "A", "B"),
        ("Sure.\n< Think >A</ THINK>\n so \n<Answer>\nB\n</ANSWER>", "A", "B"),
        ("<think>A</think><answer>B</answer><think>C</think><answer>D</answer>", "A", "B"),
        ("<think>A</think><answer>B</answer><think>cut off", "A", "B"),
        ("<think>A</think>x<think>B</think><answer>C</answer>", "A\nB", "C"),
        ("<think><think>A</think>B</think><answer>C</answer>", " A\nB", "C"),
        ("<think>A <answer>no</answer></think><answer>B</answer>", "A  no ", "B"),
        ("<think>A</think><answer><answer>B</answer></answer>", "A", "B"),
        ("<think>A</think></answer><answer>B</answer>", "A", "B"),
        ("<think>A</think><answer>B", "A", None),
        ("<think>A</think>", "A", None),
        ("<think>A", "A", None),
        ("<think>A<answer>B</answer>", "A B ", None),
        ("<think>A<answer>B</answer></think>", "A B ", None),
        ("<answer>B</answer><think>A</think>", "A", None),
        ("A</think><answer>B</answer>", "", None),
        ("<think>A</think><answer> .\n</answer>", "A", None),
        ("&lt;think&gt;A&lt;/think&gt;<answer>B</answer>", "", None),
        ("", "", None),
    ],
)
def test_complete_tags(text, reasoning, answer):
    assert split_tags(text) == (reasoning, answer)


def test_what_was_cut_off_is_read_as_far_as_it_goes():
    trace = parse_trace(f"<think>{JSON[:-20]}")
    assert not trace.complete
    assert trace.regions[0] == LEFT


@settings(max_examples=300)
@given(st.text(alphabet="{}[]()<>\"'`,:;=\\/#tx 0.19-\n\u201cregionbf", max_size=200))
@example('{"region": "' + "\\" * 9)
def test_any_text_can_be_read(text):
    for whole in (text, f"<think>{text}</think>{ANSWER}"):
        assert all(isinstance(one.name, str) and isinstance(one.finding, str) for one in parse_trace(whole).regions)


@given(st.lists(st.sampled_from([*JSON]), max_size=3), st.integers(0, len(JSON)), st.integers(0, 4))
def test_damage_in_one_place_keeps_the_rest_readable(inserted, place, dropped):
    damaged = JSON[:place] + "".join(inserted) + JSON[place + dropped :]
    found = regions(damaged)
    if place > JSON.index('"region": "svc"') + 40:
        assert found[0] == LEFT


@pytest.mark.parametrize("name", BOMBS)
def test_time_grows_with_the_length_and_not_with_its_square(name):
    times = []
    for size in (10_000, 40_000):
        text = f"<think>{bomb(name, size)}</think>{ANSWER}"
        times.append(min(_seconds(text) for _ in range(3)))
    # four times the text: 4 where time is linear, 16 where it is quadratic
    assert times[1] < 9 * max(times[0], 1e-3)


def test_a_megabyte_and_ten_thousand_regions():
    many = json.dumps([{"region": f"place {i}", "box": [0, 0, 1, 1], "finding": "x"} for i in range(10_000)])
    assert len(regions(many)) == len(regions(many[:-1] + ",]")) == 10_000
    finding = "clear " * 200_000
    assert regions(json.dumps([{**TWO[0], "finding": finding}]))[0].finding == finding.strip()


def _seconds(text):
    start = time.thread_time()
    parse_trace(text)
    return time.thread_time() - start


def test_the_regions_are_those_of_the_data():
    assert set(imagenome_graph.REGIONS) <= set(REGIONS)
    assert set(REGION_NAMES) <= set(REGIONS)
    assert len({region_key(name) for name in REGIONS}) == len(REGIONS)


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("Left_Lung", "left lung"),
        ("the left lungs", "left lung"),
        ("lung (left)", "left lung"),
        ("L lung", "left lung"),
        ("left lung field", "left lung"),
        ("Left CP angle", "left costophrenic angle"),
        ("left costophrenic-angle", "left costophrenic angle"),
        ("left costo-phrenic sulcus", "left costophrenic angle"),
        ("heart", "cardiac silhouette"),
        ("Heart silhouette", "cardiac silhouette"),
        ("superior vena cava", "SVC"),
        ("aortic knob", "aortic arch"),
        ("right hilum", "right hilar structures"),
        ("right hilar structure", "right hilar structures"),
        ("right lung apex", "right apical zone"),
        ("Right middle lung zone", "right mid lung zone"),
        ("right upper zone", "right upper lung zone"),
        ("left diaphragm", "left hemidiaphragm"),
        ("left hemi-diaphragm", "left hemidiaphragm"),
        ("cavo-atrial junction", "cavoatrial junction"),
        ("thoracic spine", "spine"),
    ],
)
def test_names_of_one_region(written, name):
    assert region_key(written) == region_key(name)
    assert is_region(written)


@pytest.mark.parametrize(
    ("a", "b"),
    [("lung", "left lung"), ("lungs", "right lung"), ("cardiac silhouette", "left cardiac silhouette"),
     ("left lower lobe", "left lower lung zone"), ("mediastinum", "upper mediastinum"),
     ("left lung", "left lower lung zone"),
     ("bilateral lungs", "left lung"), ("left right lung", "left lung"), ("left and right lung", "right lung")],
)  # fmt: skip
def test_names_of_two_regions(a, b):
    assert region_key(a) != region_key(b)


SIDED = [name for name in REGIONS if name.startswith("left")]
FORMS = (str, str.upper, lambda n: n.replace(" ", "_"), lambda n: n.replace("left", "L").replace("right", "Rt."),
         lambda n: f"The {n.removesuffix('s')}s", lambda n: "{1}, {0}".format(*n.split(" ", 1)))  # fmt: skip


@pytest.mark.parametrize("name", SIDED)
def test_left_is_never_right(name):
    mirror = name.replace("left", "right")
    for a, b in itertools.product(FORMS, FORMS):
        assert region_key(a(name)) != region_key(b(mirror))
        assert region_key(a(name)) == region_key(b(name))
        assert other_side(region_key(a(name))) == region_key(b(mirror))


@pytest.mark.parametrize("name", ["", "---", "pelvis", "x" * 10_000, "\u5de6\u80ba", "lung"])
def test_unknown_names(name):
    assert not is_region(name)


unit = st.floats(-0.2, 1.2).map(lambda value: round(value, 2))
boxes = st.tuples(unit, unit, unit, unit)


@given(boxes, boxes)
def test_overlap_is_iou(a, b):
    assert overlap(a, b) == pytest.approx(iou([a], [b])[0, 0], abs=1e-12)


TRUTH = [
    Annotated("left lung", (0.5, 0.1, 0.9, 0.9), "x"),
    Annotated("right lung", (0.1, 0.1, 0.5, 0.9), "y"),
    Annotated("cardiac silhouette", (0.3, 0.5, 0.7, 0.8), ""),
    Annotated("odd place", (0.0, 0.0, 0.1, 0.1), ""),
]


def test_match_counts_every_region_once():
    written = [
        Region("Left lung", (0.1, 0.1, 0.5, 0.9), ""),  # on the wrong side
        Region("left lung", (0.5, 0.1, 0.9, 0.9), ""),
        Region("heart", (0.3, 0.5, 0.7, 0.65), ""),
        Region("odd place", (0.1, 0.1, 0.0, 0.0), ""),  # inverted
        Region("svc", (0.4, 0.2, 0.5, 0.4), ""),
        Region("pelvis", (0.4, 0.2, 0.5, 0.4), ""),
        Region("Pelvis", (0.4, 0.2, 0.5, 0.4), ""),
        Region("spine", None, ""),
    ]
    match = match_regions(written, TRUTH)
    assert match.found_M == (0, None, 2, 3)
    assert match.iou_M == (0.0, 0.0, pytest.approx(0.5), 0.0)
    assert (match.n_duplicated, match.n_unknown, match.n_extra) == (2, 1, 2)
    assert match.n_swapped(0.25) == 1
    assert match.mean_iou == pytest.approx(0.125)
    assert match.spaces_N == ("unit",) * 7 + ("",)


def test_two_annotated_names_of_one_region_stay_apart():
    truth = [Annotated("heart", (0, 0, 0.5, 0.5), ""), Annotated("cardiac silhouette", (0.5, 0.5, 1, 1), "")]
    written = [Region("cardiac silhouette", (0.5, 0.5, 1, 1), ""), Region("Heart", (0, 0, 0.5, 0.5), "")]
    assert match_regions(written, truth).iou_M == (1.0, 1.0)


@pytest.mark.parametrize(
    ("truth", "message"),
    [
        ({}, "a dict"),
        (["left lung"], "a str"),
        ([{"box": [0, 0, 1, 1]}], "name None"),
        ([{"name": " - ", "box": [0, 0, 1, 1]}], "name ' - '"),
        ([{"name": "svc", "box": [0, 0, 1, 1]}, {"name": "SVC", "box": [0, 0, 1, 1]}], "second 'SVC'"),
        ([{"name": "svc"}], "the box None"),
        ([{"name": "svc", "box": [0.5, 0.1, 0.5, 0.9]}], "without area"),
        ([{"name": "svc", "box": [0.9, 0.1, 0.5, 0.9]}], "without area"),
        ([{"name": "svc", "box": [math.nan, 0.1, 0.5, 0.9]}], "without area"),
        ([{"name": "svc", "box": [10, 20, 300, 400]}], "outside its image"),
        ([{"name": "svc", "box": [0, 0, 1, 1], "finding": 3}], "the finding 3"),
    ],
)
def test_a_wrong_truth_is_refused(truth, message):
    with pytest.raises(ValueError, match=message):
        annotated_regions(truth)


def test_truth_in_other_spaces():
    (one,) = annotated_regions([{"name": "svc", "box": [100, 200, 300, 400]}], "pixel", 400, 800)
    assert one == Annotated("svc", (0.25, 0.25, 0.75, 0.5), "")
    assert annotated_regions(None) == annotated_regions([]) == []
