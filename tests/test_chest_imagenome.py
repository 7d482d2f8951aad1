"""Chest ImaGenome: boxes of both frames, traces and regions, whatever a release has in it. All text is invented."""

import csv
import json
import shutil
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from data_preprocess.chest_imagenome import main
from data_preprocess.core.rows import read_rows
from data_preprocess.core.skiplog import SkipRow
from data_preprocess.core.splits import in_part
from data_preprocess.core.traces import RESPONSE_TOKENS, estimated_tokens, fitting, trace_text
from data_preprocess.releases import imagenome_graph
from data_preprocess.releases.imagenome_boxes import frames_disagree, image_box, padding, to_224, to_original
from data_preprocess.releases.imagenome_graph import REGIONS, attribute_words, precedence, regions_of
from data_preprocess.releases.imagenome_rows import finding
from radverl import datacheck
from radverl.boxes import write_boxes
from radverl.labels import CHEXPERT_14
from tests.written_files import skips

SAMPLE = Path(__file__).parent / "data" / "imagenome"
SPLIT_COLUMNS = ("", "subject_id", "study_id", "dicom_id", "path", "ViewPosition")
BOTH = "                 FINAL REPORT\n FINDINGS:  Small left effusion.\n \n IMPRESSION:  Left effusion.\n"
SIZE = (300, 400)  # width, height
# Pixels of an image of SIZE.
LUNG, ANGLE, HEART = (20, 40, 140, 320), (160, 280, 250, 340), (90, 180, 220, 320)


def image_name(number: int) -> str:
    return "-".join([f"{number:08x}"] * 5)


def scene_graph(
    image_id: str, subject: int, study: int, boxes: dict[str, Sequence[float]] | None = None,
    phrases: dict[str, list[str]] | None = None, size: tuple[int, int] = SIZE, abnormal: Sequence[str] = (),
) -> dict[str, Any]:  # fmt: skip
    """A scene graph as the release writes one; boxes in pixels of the image."""
    boxes = {"left lung": LUNG, "left costophrenic angle": ANGLE} if boxes is None else boxes
    phrases = {"left costophrenic angle": ["Small left effusion."]} if phrases is None else phrases
    objects = []
    for name, box in boxes.items():
        one: dict[str, Any] = {"object_id": f"{image_id}_{name}", "bbox_name": name, "synsets": ["C0000000"]}
        for corner, small, large in zip(("x1", "y1", "x2", "y2"), to_224(box, *size), box, strict=True):
            one |= {corner: round(small), f"original_{corner}": round(large)}
        objects.append(one)
    attributes = [
        {
            name: True, "bbox_name": name, "phrases": texts, "phrase_IDs": [f"{study}|{n}" for n in range(len(texts))],
            "attributes": [[f"nlp|yes|{'ab' * (name in abnormal)}normal"] for _ in texts],
        }
        for name, texts in phrases.items()
    ]  # fmt: skip
    return {
        "image_id": image_id, "viewpoint": "AP", "patient_id": subject, "study_id": study, "reason_for_exam": "cough",
        "objects": objects, "attributes": attributes, "relationships": [],
    }  # fmt: skip


class Release:
    """A made-up release beside a made-up MIMIC-CXR-JPG with reports."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.root, self.mimic = folder, folder / "chest-imagenome-dataset-1.0.0", folder / "mimic"
        self.graphs = self.root / "silver_dataset" / "scene_graph"
        self.splits = self.root / "silver_dataset" / "splits"
        self.graphs.mkdir(parents=True)
        self.splits.mkdir()
        self.rows: dict[str, list[list[Any]]] = {"train": [], "valid": [], "test": [], "images_to_avoid": []}
        self.metadata: list[list[Any]] = []

    def add(
        self, number: int, subject: int = 10000001, study: int = 50000001, split: str = "train", view: str = "PA",
        report: str = BOTH, graph: dict[str, Any] | str | None = None, size: tuple[int, int] = SIZE,
        mimic_view: str | None = None, **parts: Any,
    ) -> str:  # fmt: skip
        """An image; returns its name."""
        name = image_name(number)
        folder = self.mimic / "files" / f"p{str(subject)[:2]}" / f"p{subject}"
        path = f"files/p{str(subject)[:2]}/p{subject}/s{study}/{name}.dcm"
        if split:
            self.rows[split].append([len(self.rows[split]), subject, study, name, path, view])
        self.metadata.append([name, subject, study, view if mimic_view is None else mimic_view, SIZE[1], SIZE[0]])
        graph = scene_graph(name, subject, study, **parts) if graph is None else graph
        text = graph if isinstance(graph, str) else json.dumps(graph)
        (self.graphs / f"{name}_SceneGraph.json").write_text(text)
        (folder / f"s{study}").mkdir(parents=True, exist_ok=True)
        (folder / f"s{study}.txt").write_text(report)
        pixels = np.random.default_rng(number).integers(0, 256, size[::-1], dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"s{study}" / f"{name}.jpg")
        return name

    def write(self, bom: str = "", end: str = "\n", metadata: bool = True) -> None:
        for name, rows in self.rows.items():
            columns = list(SPLIT_COLUMNS)
            if name == "images_to_avoid":  # as released: without the numbers
                columns, rows = columns[1:], [row[1:] for row in rows]
            self._table(self.splits / f"{name}.csv", columns, rows, bom, end)
        if metadata:
            columns = ["dicom_id", "subject_id", "study_id", "ViewPosition", "Rows", "Columns"]
            self._table(self.mimic / "mimic-cxr-2.0.0-metadata.csv", columns, self.metadata, bom, end)

    @staticmethod
    def _table(path: Path, columns: list[str], rows: list[list[Any]], bom: str, end: str) -> None:
        with path.open("w", newline="", encoding="utf-8") as file:
            file.write(bom)
            csv.writer(file, lineterminator=end).writerows([columns, *rows])

    def zip(self) -> Path:
        """Pack the graphs as the release does, and remove the folder."""
        path = self.graphs.with_suffix(".zip")
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
            for file in sorted(self.graphs.iterdir()):
                packed.write(file, f"scene_graph/{file.name}")
        shutil.rmtree(self.graphs)
        return path

    def run(self, *options: str, out: str = "out") -> tuple[int, Path]:
        arguments = ["--root", str(self.root), "--mimic-root", str(self.mimic), "--out", str(self.folder / out)]
        return main([*arguments, *options]), self.folder / out


@pytest.fixture
def release(tmp_path: Path) -> Release:
    return Release(tmp_path)


def truths(out: Path, split: str = "train") -> dict[str, dict[str, Any]]:
    rows = read_rows(out / f"{split}.parquet")
    return {
        row["extra_info"]["prompt_id"].split("/", 1)[1]: json.loads(row["reward_model"]["ground_truth"]) for row in rows
    }


def one_region(**box: Any) -> dict[str, Any]:
    return {"objects": [{"bbox_name": "left lung", **box}], "attributes": []}


# The frames


def test_the_frames_of_the_sample() -> None:
    """The padding of the gold table, and both frames of a graph within what rounding costs."""
    with (SAMPLE / "gold_dataset" / "gold_bbox_scaling_factors_original_to_224x224.csv").open() as file:
        (gold,) = csv.DictReader(file)
    assert padding(254, 305) == (float(gold["ratio"]), int(gold["left"]), int(gold["top"]))
    assert padding(305, 254) == (float(gold["ratio"]), 0, 19)
    (graph,) = (SAMPLE / "silver_dataset" / "scene_graph").glob("00000001*")
    objects = json.loads(graph.read_text())["objects"]
    assert len(objects) == 3
    for one in objects:
        small = [one[corner] for corner in ("x1", "y1", "x2", "y2")]
        large = [one[f"original_{corner}"] for corner in ("x1", "y1", "x2", "y2")]
        assert np.abs(np.subtract(to_original(small, 254, 305), large)).max() < 1
    assert to_original((19, 0, 205, 224), 254, 305) == pytest.approx((0, 0, 253.26, 305), abs=0.01)


@given(
    box=st.tuples(*[st.floats(-500, 5000)] * 4), width=st.integers(16, 5000), height=st.integers(16, 5000),
)  # fmt: skip
def test_the_frames_are_inverse(box: tuple[float, ...], width: int, height: int) -> None:
    assert to_original(to_224(box, width, height), width, height) == pytest.approx(box, abs=1e-6)
    left, top, right, bottom = to_224((0, 0, width, height), width, height)
    assert max(right - left, bottom - top) == pytest.approx(224)
    assert min(left, top) >= 0
    assert max(right, bottom) <= 225


@pytest.mark.parametrize(
    ("box", "expected"),
    [
        ({"original_x1": 30, "original_y1": 40, "original_x2": 150, "original_y2": 200}, [0.1, 0.1, 0.5, 0.5]),
        ({"original_x1": -12, "original_y1": 40, "original_x2": 330, "original_y2": 200}, [0, 0.1, 1, 0.5]),
        ({"x1": 28, "y1": 0, "x2": 112, "y2": 112}, [0, 0, 0.5, 0.5]),  # the 224 frame alone
        ({"original_x1": None, "x1": 28, "y1": 0, "x2": 112, "y2": 112}, [0, 0, 0.5, 0.5]),
        ({"original_x1": 5, "original_y1": 40, "original_x2": 5, "original_y2": 200}, None),
        ({"original_x1": 150, "original_y1": 40, "original_x2": 30, "original_y2": 200}, None),
        ({"original_x1": 310, "original_y1": 40, "original_x2": 330, "original_y2": 200}, None),
        ({"original_x1": -30, "original_y1": 40, "original_x2": 0, "original_y2": 200}, None),
        ({"original_x1": float("nan"), "original_y1": 40, "original_x2": 10, "original_y2": 200}, None),
        ({"original_x1": "30", "original_y1": 40, "original_x2": 150, "original_y2": 200}, None),
        ({"original_x1": True, "original_y1": 40, "original_x2": 150, "original_y2": 200}, None),
        ({"original_x1": 10**4000, "original_y1": 40, "original_x2": 150, "original_y2": 200}, None),
        ({}, None),
    ],
)
def test_image_box(box: dict[str, Any], expected: list[float] | None) -> None:
    assert image_box(box, *SIZE) == (None if expected is None else pytest.approx(expected))


def test_frames_disagree() -> None:
    objects = scene_graph("a", 1, 1, {"left lung": LUNG, "spine": ANGLE, "svc": HEART})["objects"]
    assert not frames_disagree(objects, *SIZE)
    assert frames_disagree(objects, SIZE[1], SIZE[0])  # rows and columns swapped
    assert frames_disagree(objects, SIZE[0] // 2, SIZE[1] // 2)  # a smaller copy
    objects[0]["original_x2"] += 100
    assert not frames_disagree(objects, *SIZE)  # one box alone is a fault of its own
    cut = scene_graph("a", 1, 1, {"spine": (-90, 0, 120, 400)})["objects"]
    cut[0]["original_x1"] = 0
    assert not frames_disagree(cut, *SIZE)
    assert not frames_disagree([], *SIZE)


# Graphs


def test_regions_of_a_graph() -> None:
    boxes = {"new region": LUNG, "left lung": LUNG, "trachea": ANGLE, "svc": (5, 5, 5, 5)}
    graph = scene_graph("a", 1, 1, boxes, {"svc": ["A line ends there."], "neck": ["No air."], "left lung": ["Clear."]})
    graph["objects"] += [{"bbox_name": "left lung", "original_x1": 1}, "no object", {"x1": 3}]
    regions, dropped = regions_of(graph, *SIZE)
    assert [region.name for region in regions] == ["trachea", "svc", "left lung", "neck", "new region"]
    assert dropped == 4  # svc, the second left lung, the text, the one without a name
    assert {region.name for region in regions if region.box is None} == {"svc", "neck"}
    assert {region.name: region.phrases for region in regions if region.phrases}["neck"] == ["No air."]
    assert len(set(REGIONS)) == 36


def test_what_the_reason_for_the_film_says_is_no_finding() -> None:
    graph = scene_graph("a", 1, 1, {"left lung": LUNG})
    said = {
        "bbox_name": "left lung",
        "phrases": ["Evaluate for pneumonia.", "Clear.", "Small effusion."],
        "sections": ["history", "finalreport", "prelimread"],
        "attributes": [["nlp|yes|abnormal", "disease|yes|pneumonia"], ["nlp|yes|normal"], ["nlp|yes|abnormal"]],
    }
    graph["attributes"] = [said]
    (region,), _ = regions_of(graph, *SIZE)
    assert region.phrases == ["Clear.", "Small effusion."]
    assert region.attributes == ["nlp|yes|normal", "nlp|yes|abnormal"]
    said["sections"] = ["history"]  # of another length: nobody knows which phrase is meant
    (region,), _ = regions_of(graph, *SIZE)
    assert region.phrases == said["phrases"]


@pytest.mark.parametrize(
    ("phrases", "text"),
    [
        ([], ""),
        (["", "  \n "], ""),
        (["Clear lungs.\n No effusion.", "No effusion.", "no effusion"], "Clear lungs. No effusion."),
        (["No pneumothorax", "Small effusion"], "No pneumothorax. Small effusion"),
        (["IMPRESSION:  1.  Small left\n effusion."], "Small left effusion."),
        (["FINAL REPORT\n CHEST, TWO VIEWS: Clear lungs."], "Clear lungs."),
        (["COMPARISON:  ___."], ""),
        (["WET READ: ___ ___ 8:19 AM\n Left opacity."], "Left opacity."),
        (["The heart is mildly enlarged, unchanged from ___."], "The heart is mildly enlarged."),
        (["No effusion.", "Small effusion."], "No effusion. Small effusion."),  # contradictions are the release's
    ],
)
def test_finding(phrases: list[str], text: str) -> None:
    assert finding(phrases, "drop", "drop") == text


def test_finding_keeps_what_it_is_told_to_keep() -> None:
    phrase = "The heart is mildly enlarged, unchanged from ___."
    assert finding([phrase], "keep", "keep") == phrase
    assert finding(["Unchanged."], "drop", "drop") == ""


# Traces


def test_the_sample(tmp_path: Path) -> None:
    """The published layout, whole rows compared."""
    release = Release(tmp_path)
    shutil.rmtree(release.root)
    shutil.copytree(SAMPLE, release.root)
    folder = release.mimic / "files" / "p10" / "p10999901"
    for number, size in ((1, (254, 305)), (3, (305, 254))):
        file = folder / f"s5099990{number // 2 + 1}" / f"{number:08d}-{'-'.join([f'{number:08d}'] * 4)}.jpg"
        file.parent.mkdir(parents=True)
        Image.fromarray(np.arange(size[0] * size[1]).reshape(size[::-1]).astype(np.uint8)).save(file)
        file.parent.with_suffix(".txt").write_text(BOTH)
    code, out = release.run("--split", "train")
    assert code == 0
    (row,) = read_rows(out / "train.parquet")
    truth = json.loads(row["reward_model"]["ground_truth"])
    assert truth["regions"] == [
        {
            "name": "cardiac silhouette", "box": [0.3504, 0.423, 0.7874, 0.7836],
            "finding": "The heart is mildly enlarged.",
            "attributes": ["anatomicalfinding|yes|enlarged cardiac silhouette", "nlp|yes|abnormal"],
        },
        {
            "name": "right costophrenic angle", "box": [0.0551, 0.7213, 0.2323, 0.8525],
            "finding": "There is a small right pleural effusion.",
            "attributes": ["anatomicalfinding|yes|pleural effusion", "nlp|yes|abnormal"],
        },
    ]  # fmt: skip
    assert (truth["findings"], truth["impression"]) == ("Small left effusion.", "Left effusion.")
    assert (truth["dropped_boxes"], truth["findings_without_box"], truth["regions_left_out"]) == (0, 1, 0)
    assert row["data_source"] == "chest_imagenome_trace"
    assert row["ability"] == "trace"
    extra = row["extra_info"]
    assert (extra["subject_id"], extra["study_id"], extra["view"]) == ("10999901", "50999901", "PA")
    assert (extra["width"], extra["height"], extra["box_space"]) == (254, 305, "unit")
    assert extra["prompt_id"] == "chest_imagenome_trace/p10999901/s50999901"
    (twin,) = read_rows(out / "sft_train.parquet")
    assert twin["messages"][1]["content"] == (
        '<think>[{"region": "cardiac silhouette", "box": [0.35, 0.42, 0.79, 0.78], "finding": "The heart is mildly '
        'enlarged."}, {"region": "right costophrenic angle", "box": [0.06, 0.72, 0.23, 0.85], "finding": "There is a '
        'small right pleural effusion."}]</think><answer>Findings: Small left effusion. Impression: Left effusion.'
        "</answer>"
    )
    # The only phrase of the other film is about the svc, whose box has no area.
    assert skips(out) == {"p10999901/s50999902": "no region with a finding", image_name(5): "image to avoid"}
    _, out = release.run("--split", "train", "--regions", "all", out="all")
    other = truths(out)["p10999901/s50999902"]
    assert [region["name"] for region in other["regions"]] == ["right lung", "left lung"]
    assert other["regions"][1]["box"] == [0, 0.1535, 1, 0.8661]  # -12 to 330 in an image 305 wide
    assert {region["finding"] for region in other["regions"]} == {""}
    assert other["dropped_boxes"] == 1


def test_a_study_is_one_row_on_its_best_film(release: Release) -> None:
    release.add(1, view="AP")
    best = release.add(2, view="PA")
    release.add(3, subject=10000002, study=50000002, view="LATERAL")
    release.add(4, subject=10000003, study=50000003, view="AP", mimic_view="LL")  # the tables disagree
    release.add(5, subject=10000004, study=50000004, view="", mimic_view="")
    release.add(6, subject=10000005, study=50000005, view="AP", mimic_view="")
    release.write()
    code, out = release.run()
    assert code == 0
    rows = read_rows(out / "train.parquet")
    assert [row["extra_info"]["study_id"] for row in rows] == ["50000001", "50000005"]
    assert rows[0]["images"][0]["image"].endswith(f"/s50000001/{best}.jpg")
    assert skips(out) == dict.fromkeys(map(image_name, (3, 4, 5)), "no frontal view")


def test_max_regions_keeps_abnormal_ones_in_order(release: Release) -> None:
    boxes = dict.fromkeys(REGIONS[:6], LUNG)
    phrases = {name: [f"Words about the {name}."] for name in REGIONS[1:6]}
    release.add(1, boxes=boxes, phrases=phrases, abnormal=REGIONS[3:5])
    release.write()
    _, out = release.run("--max-regions", "3")
    (truth,) = truths(out).values()
    assert [region["name"] for region in truth["regions"]] == [REGIONS[1], REGIONS[3], REGIONS[4]]
    assert truth["regions_left_out"] == 2
    _, out = release.run("--max-regions", "6", "--regions", "all", out="all")
    (truth,) = truths(out).values()
    assert [region["name"] for region in truth["regions"]] == list(REGIONS[:6])
    assert truth["regions"][0]["finding"] == ""


def test_attributes_without_a_phrase_are_told(release: Release) -> None:
    said = ["anatomicalfinding|yes|lung opacity", "nlp|yes|abnormal", "disease|no|pneumonia", "odd", "a|maybe|b"]
    assert attribute_words([*said, said[0]]) == "Lung opacity. No pneumonia."
    assert attribute_words(["nlp|yes|normal"]) == ""  # which does not say what is normal
    graph = scene_graph(image_name(1), 10000001, 50000001, {"left lung": LUNG, "spine": HEART, "svc": ANGLE})
    graph["attributes"] = [
        {"bbox_name": "left lung", "attributes": [said]}, {"bbox_name": "spine", "attributes": [["nlp|yes|normal"]]},
        {"bbox_name": "svc", "phrases": ["Unchanged."], "attributes": [["device|yes|picc"]]},
    ]  # fmt: skip
    release.add(1, graph=graph)
    release.write()
    _, out = release.run()
    (truth,) = truths(out).values()
    assert [(region["name"], region["finding"]) for region in truth["regions"]] == [
        ("left lung", "Lung opacity. No pneumonia.")
    ]


@pytest.mark.parametrize(
    ("text", "tokens"),  # as Qwen's tokenizer counts them
    [
        (trace_text([{"name": "left costophrenic angle", "box": [0.53, 0.7, 0.83, 0.85], "finding": "Small left "
         "pleural effusion."}], "Findings: Small left effusion. Impression: Left effusion."), 74),
        ("Findings: The heart is mildly enlarged. There is no pneumothorax. Impression: 1. Cardiomegaly. 2. No acute "
         "process.", 36),
        ("[0.53, 0.11, 0.88, 0.84]", 24),
        (trace_text([{"name": name, "box": [0.1, 0.2, 0.31, 0.42], "finding": "There is bibasilar atelectasis without "
         "consolidation or interstitial edema."} for name in ("right lung", "left lung", "cardiac silhouette")],
         "Findings: Clear. Impression: Normal chest radiograph."), 183),
    ],
)  # fmt: skip
def test_estimated_tokens(text: str, tokens: int) -> None:
    assert 0.9 * tokens <= estimated_tokens(text) <= 1.15 * tokens


def test_a_trace_fits_a_response(release: Release) -> None:
    """Where not all regions have room, abnormal ones stay, then the large ones, both sides alike."""
    long = "There is a small opacity that may be atelectasis, aspiration or early pneumonia in a patient with a cough."
    boxes, phrases = dict.fromkeys(REGIONS, LUNG), {name: [f"In the {name}: {long}"] for name in REGIONS}
    release.add(1, boxes=boxes, phrases=phrases, abnormal=["spine"])
    release.write()
    _, out = release.run()
    (truth,) = truths(out).values()
    kept = [region["name"] for region in truth["regions"]]
    assert {"spine", "right lung", "left lung", "cardiac silhouette", "left costophrenic angle"} <= set(kept)
    assert kept == [region for region in REGIONS if region in kept]  # in the order they have
    assert truth["regions_left_out"] == len(REGIONS) - len(kept) > 10
    (twin,) = read_rows(out / "sft_train.parquet")
    target = twin["messages"][1]["content"]
    assert target == trace_text(truth["regions"], truth["report"])
    assert RESPONSE_TOKENS - 70 < estimated_tokens(target) <= RESPONSE_TOKENS
    card = json.loads((out / "train.json").read_text())["traces"]
    assert card["estimated_tokens"] == dict.fromkeys(("min", "median", "max"), estimated_tokens(target)) | {
        "over_1024": 0
    }
    assert (card["regions"]["max"], card["regions_left_out"]) == (len(kept), truth["regions_left_out"])
    assert f"Traces have {len(kept)} to {len(kept)} regions" in (out / "train.md").read_text()

    _, everything = release.run("--max-response-length", "9999", out="everything")
    (whole,) = truths(everything).values()
    assert [region["name"] for region in whole["regions"]] == list(REGIONS)
    code, none = release.run("--max-response-length", "60", out="none")
    assert (code, skips(none)) == (1, {"p10000001/s50000001": "trace too long"})


def test_what_is_kept_first() -> None:
    order = sorted(REGIONS, key=precedence)
    assert order[:4] == ["right lung", "left lung", "cardiac silhouette", "mediastinum"]
    for name in REGIONS:
        if name.startswith("left "):
            assert order.index(name) - order.index("right " + name.removeprefix("left ")) == 1
    assert sorted(["neck", "spine", "new region"], key=precedence) == ["spine", "neck", "new region"]


@given(
    lengths=st.lists(st.integers(0, 40), min_size=1, max_size=12), tokens=st.integers(1, 1200), data=st.data()
)  # fmt: skip
def test_fitting_is_the_start_of_the_order(lengths: list[int], tokens: int, data: st.DataObject) -> None:
    regions = [{"name": f"region {i}", "box": [0, 0, 1, 1], "finding": "lung " * n} for i, n in enumerate(lengths)]
    order = data.draw(st.permutations(range(len(regions))))
    kept = [regions.index(region) for region in fitting(regions, "Clear.", order, tokens)]
    assert kept == sorted(order[: len(kept)])
    if kept:
        assert estimated_tokens(trace_text([regions[place] for place in kept], "Clear.")) <= tokens
    assert len(fitting(regions, "Clear.", order, tokens + 50)) >= len(kept)


@given(st.lists(st.integers(0, 10_000), min_size=4, max_size=4))
def test_a_box_keeps_its_area_in_a_trace(corners: list[int]) -> None:
    (x0, x1), (y0, y1) = sorted(corners[:2]), sorted(corners[2:])
    box = [value / 10_000 for value in (x0, y0, x1 + (x0 == x1), y1 + (y0 == y1))]
    (written,) = json.loads(trace_text([{"name": "svc", "box": box, "finding": ""}], "")[7:].partition("</think>")[0])
    assert written["box"][0] < written["box"][2]
    assert written["box"][1] < written["box"][3]
    assert written["box"] == pytest.approx(box, abs=0.005001)


def test_the_files_pass_the_data_check(release: Release, capsys: pytest.CaptureFixture[str]) -> None:
    boxes = {"left lung": (-30, 40, 140, 900), "svc": (100, 100, 101, 101), "left costophrenic angle": ANGLE}
    for number, split in enumerate(("train", "train", "valid"), 1):
        phrases = {"left lung": ["Small effusion, unchanged from ___."], "svc": ["A line ends in the SVC."]}
        release.add(number, 10000000 + number, 50000000 + number, split=split, boxes=boxes, phrases=phrases)
    release.write()
    _, out = release.run()
    assert datacheck.main([str(out), "--strict"]) == 0
    assert capsys.readouterr().out.count("clean") == 4
    row, _ = read_rows(out / "train.parquet")
    (truth, _) = truths(out).values()
    assert {region["name"]: region["finding"] for region in truth["regions"]} == {
        "left lung": "Small effusion.", "svc": "A line ends in the SVC.",
    }  # fmt: skip
    assert all(
        word in row["prompt"][0]["content"] for word in ('"region"', '"box"', '"finding"', "<think>", "<answer>")
    )
    assert "findings and impression" in row["prompt"][0]["content"]


def test_what_is_skipped(release: Release, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(imagenome_graph, "MAX_BYTES", 20_000)
    whole = scene_graph(image_name(1), 10000001, 50000001)
    cases: dict[str, dict[str, Any]] = {
        "": {},
        "unreadable scene graph": {"graph": "{"},
        "scene graph of another image": {"graph": whole},
        "frames disagree": {"graph": scene_graph(image_name(4), 10000004, 50000004, size=(600, 800))},
        "no box left": {"boxes": {"left lung": (5, 5, 5, 9)}},
        "no region with a finding": {"phrases": {"left lung": ["Unchanged."]}},
        "no findings": {"report": " IMPRESSION: Clear."},
        "report missing": {},
        "empty report": {"report": " \n"},
        "image missing": {},
        "scene graph too large": {"phrases": {"left lung": ["Long."] * 9000}},
        "placeholder in report": {"phrases": {"left lung": ["See <image> of the lung."]}},
        "no scene graph": {},
    }
    expected: dict[str | int, str] = {}
    for number, (reason, case) in enumerate(cases.items(), 1):
        subject, study = 10000000 + number, 50000000 + number
        name = release.add(number, subject, study, **case)
        report = release.mimic / "files" / "p10" / f"p{subject}" / f"s{study}.txt"
        expected[f"p{subject}/s{study}"] = reason
        if reason == "report missing":
            report.unlink()
        elif reason == "image missing":
            (report.with_suffix("") / f"{name}.jpg").unlink()
        elif reason == "no scene graph":
            (release.graphs / f"{name}_SceneGraph.json").unlink()
            expected[name] = expected.pop(f"p{subject}/s{study}")
    (release.graphs / f"{image_name(99)}_SceneGraph.json").write_text("{}")
    expected[image_name(99)] = "not in a split"
    del expected["p10000001/s50000001"]
    release.write()
    code, out = release.run()
    assert code == 0
    assert truths(out).keys() == {"p10000001/s50000001"}
    assert skips(out) == expected


@pytest.mark.parametrize(
    "text", ["[]", "{}", '{"objects": 3}', "[" * 100_000, '{"objects": [' * 50_000, "\0", '{"objects": [], "a": "b'],
)  # fmt: skip
def test_damaged_graphs_are_skipped(release: Release, text: str) -> None:
    release.add(1, graph=text)
    release.write()
    code, out = release.run()
    assert code == 1
    assert skips(out) == {"p10000001/s50000001": "unreadable scene graph"}


def test_odd_parts_of_a_graph_do_no_harm(release: Release) -> None:
    graph = scene_graph(image_name(1), 10000001, 50000001)
    graph["objects"] += [None, 3, {"bbox_name": 7}, {"bbox_name": "spine", "x1": {}}, {"bbox_name": "___"}]
    graph["attributes"] += [
        None,
        {"bbox_name": "left lung", "phrases": "text"},
        {"bbox_name": "spine", "phrases": [None]},
    ]
    graph["attributes"] += [{"bbox_name": "spine", "attributes": [None, [3]]}, {"phrases": ["Nobody's."]}]
    del graph["patient_id"], graph["relationships"]
    release.add(1, graph=graph)
    release.write()
    code, out = release.run()
    assert code == 0
    (truth,) = truths(out).values()
    assert [region["name"] for region in truth["regions"]] == ["left costophrenic angle"]
    assert truth["dropped_boxes"] == 5


# Regions


def test_anatomy_draws_regions_by_hash(release: Release) -> None:
    boxes = {"left lung": LUNG, "left costophrenic angle": ANGLE, "cardiac silhouette": HEART, "svc": (5, 5, 5, 5)}
    name = release.add(1, boxes=boxes)
    release.add(2, view="AP", boxes=boxes)  # of the same study: films are rows of their own
    release.write()
    code, out = release.run("--task", "anatomy", "--regions-per-image", "4")
    assert code == 0
    rows = {row["extra_info"]["prompt_id"]: row for row in read_rows(out / "train.parquet")}
    assert len(rows) == 6
    assert set(skips(out).values()) == {"fewer regions"}
    assert len(skips(out)) == 2
    of_one = [json.loads(row["reward_model"]["ground_truth"]) for key, row in rows.items() if name in key]
    assert {truth["phrase"] for truth in of_one} == {"left lung", "left costophrenic angle", "cardiac silhouette"}
    for key, row in rows.items():
        truth = json.loads(row["reward_model"]["ground_truth"])
        (box,) = truth["boxes"]
        assert box["label"] == truth["phrase"]
        assert box["box"] == pytest.approx(np.array(boxes[truth["phrase"]]) / (*SIZE, *SIZE), abs=1e-4)
        assert truth["phrase"] in row["prompt"][0]["content"]
        assert row["data_source"] == "chest_imagenome_anatomy"
        assert truth["dropped_boxes"] == 1
        assert key.startswith("chest_imagenome_anatomy/p10000001/s50000001/")
    twins = read_rows(out / "sft_train.parquet")
    assert [twin["messages"][1]["content"] for twin in twins] == [
        write_boxes([json.loads(row["reward_model"]["ground_truth"])["boxes"][0]["box"]]) for row in rows.values()
    ]
    _, one = release.run("--task", "anatomy", out="one")
    assert {key: truth["phrase"] for key, truth in truths(one).items()}.items() <= {
        key: truth["phrase"] for key, truth in truths(out).items()
    }.items()


def test_anatomy_needs_no_reports(release: Release) -> None:
    release.add(1)
    release.write()
    for file in release.mimic.rglob("*.txt"):
        file.unlink()
    assert release.run("--task", "anatomy")[0] == 0
    assert release.run(out="trace")[0] == 2


# Splits


def test_splits_and_who_is_held_out(release: Release) -> None:
    for number, split in enumerate(["train", "valid", "test", "images_to_avoid", "train", "train", ""], 1):
        release.add(number, 10000000 + number, 50000000 + number, split=split)
    release.add(8, 10000004, 50000008)  # another study of the patient of an image to avoid
    release.add(9, 10000003, 50000009)  # of a test patient
    release.rows["images_to_avoid"].append(release.rows["train"][1])
    gold = release.root / "gold_dataset"
    gold.mkdir()
    text = 'patient_id\tstudy_id\tsentence\n10000006\t50000006\tsaid "so\nand so"\n'
    (gold / "gold_attributes_relations_500pts_500studies1st.txt").write_text(text)
    release.write()
    code, out = release.run()
    assert code == 0
    assert [truths(out, split).keys() for split in ("train", "val", "test")] == [
        {"p10000001/s50000001"}, {"p10000002/s50000002"}, {"p10000003/s50000003"},
    ]  # fmt: skip
    assert skips(out) == {
        image_name(4): "image to avoid", image_name(5): "image to avoid", image_name(7): "not in a split",
        "p10000006/s50000006": "subject of a held-out split", "p10000004/s50000008": "subject of a held-out split",
        "p10000003/s50000009": "subject of a held-out split",
    }  # fmt: skip
    record = json.loads((out / "subjects.json").read_text())
    assert record["cohort"] == "mimic"
    assert record["splits"]["test"] == ["10000003", "10000004", "10000005", "10000006"]


def test_splits_of_mimic(release: Release, capsys: pytest.CaptureFixture[str]) -> None:
    for number, split in enumerate(["train", "test", "valid", "train", "images_to_avoid", "train"], 1):
        release.add(number, 10000000 + number, 50000000 + number, split=split)
    release.write()
    assert release.run("--splits-of", "mimic")[0] == 2
    assert "has no mimic-cxr-*-split.csv.gz; pass the folder" in capsys.readouterr().err
    splits = ["test", "train", "validate", "train", "train", "odd"]
    lines = [f"{image_name(number)},{split}\n" for number, split in enumerate(splits, 1)]
    (release.mimic / "mimic-cxr-2.0.0-split.csv").write_text("dicom_id,split\n" + "".join(lines))
    code, out = release.run()
    assert code == 0
    assert json.loads((out / "train.json").read_text())["settings"]["splits_of"] == "mimic"
    assert [list(truths(out, split)) for split in ("train", "val", "test")] == [
        ["p10000002/s50000002", "p10000004/s50000004"], ["p10000003/s50000003"], ["p10000001/s50000001"],
    ]  # fmt: skip
    assert skips(out)[image_name(5)] == "image to avoid"
    record = json.loads((out / "subjects.json").read_text())["splits"]
    assert record["test"] == ["10000001", "10000005"]
    _, own = release.run("--splits-of", "imagenome", out="own/traces")
    assert list(truths(own)) == ["p10000001/s50000001", "p10000004/s50000004", "p10000006/s50000006"]
    _, own = release.run("--task", "anatomy", out="own/anatomy")
    assert json.loads((own / "train.json").read_text())["settings"]["splits_of"] == "imagenome"


def test_without_mimics_split_table_the_run_says_so(release: Release, capsys: pytest.CaptureFixture[str]) -> None:
    release.add(1)
    release.write()
    assert release.run()[0] == 0
    assert "so the splits are those of Chest ImaGenome" in capsys.readouterr().err
    assert release.run("--splits-of", "imagenome")[0] == 0
    assert release.run("--task", "anatomy")[0] == 0
    assert "Chest ImaGenome" not in capsys.readouterr().err


def test_parts_of_the_training_subjects_share_nobody(release: Release) -> None:
    for number in range(1, 41):
        for study in range(1 + number % 2):
            release.add(
                100 * number + study, 10000000 + number, 50000000 + 100 * number + study,
                split="valid" if number > 36 else "train",
            )  # fmt: skip
    release.write()
    rows, subjects = {}, {}
    for part in ("0:1", "0:.3", ".3:1"):
        _, out = release.run("--train-part", part, "--contact-sheet", "0", out=part.replace(":", "-"))
        rows[part] = truths(out).keys()
        subjects[part] = set(json.loads((out / "subjects.json").read_text())["splits"]["train"])
        assert len(truths(out, "val")) == 6
    assert len(rows["0:1"]) == 54
    assert rows["0:.3"] | rows[".3:1"] == rows["0:1"]
    assert not subjects["0:.3"] & subjects[".3:1"]
    assert 4 <= len(subjects["0:.3"]) <= 18
    _, out = release.run("--train-part", ".3:1", "--limit", "7", "--seed", "1", out=".3-1")
    assert truths(out).keys() < rows[".3:1"]
    assert len(truths(out)) == 7
    assert json.loads((out / "train.json").read_text())["settings"]["train_part"] == "0.3:1.0"


def test_a_part_is_a_share_of_the_subjects() -> None:
    names = [str(10000000 + number) for number in range(4000)]
    assert 0.13 < sum(in_part(name, 0, 0.15) for name in names) / 4000 < 0.17
    assert all(in_part(name, 0, 0.4) != in_part(name, 0.4, 1) for name in names)


@pytest.mark.parametrize("part", ["", "0", "0:", "1:0", "0:1.1", "-1:1", "nan:1", "0:1:2", ".5:.5", "a:b"])
def test_what_is_no_part(release: Release, part: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        release.run(f"--train-part={part}")
    assert stop.value.code == 2
    assert "is no part of 0-1; write 0:.15, for example" in capsys.readouterr().err


def test_rows_of_the_tables_that_are_none(release: Release) -> None:
    release.add(1)
    for subject, study, name in (
        (10000002, 50000002, "../../etc/passwd"), ("../p1", 50000002, "a"), (10000002, "5/../0", "a"), ("", "", ""),
        ("nan", 50000002, "a"), (10000002, 50000002, "a\\b"),
    ):  # fmt: skip
        release.rows["train"].append([0, subject, study, name, "/etc/passwd", "AP"])
    release.rows["train"].append(release.rows["train"][0])
    release.rows["train"].append(["10000009.0", "too few"])
    release.write()
    code, out = release.run()
    assert code == 0
    assert truths(out).keys() == {"p10000001/s50000001"}
    assert skips(out) == dict.fromkeys(range(2, 8), "malformed id") | {
        image_name(1): "duplicate row", 9: "malformed row",
    }  # fmt: skip


def test_same_files_whatever_the_form(release: Release) -> None:
    for number in range(1, 8):
        split = ("train", "train", "valid", "test")[number % 4]
        release.add(
            number, 10000000 + number, 50000000 + number, split=split, phrases={"left lung": [f"Finding {number}."]}
        )
    release.write()
    assert release.run()[0] == 0
    names = [f"{split}{end}" for split in ("train", "val", "test") for end in (".parquet", ".skipped.jsonl")]
    names += ["sft_train.parquet", "sft_val.parquet"]
    first = {name: (release.folder / "out" / name).read_bytes() for name in names}
    assert len(truths(release.folder / "out")) == 3

    for rows in (*release.rows.values(), release.metadata):
        rows.reverse()
    release.write("\ufeff", "\r\n")
    release.zip()
    shutil.rmtree(release.folder / "out")  # the guard looks at other folders beside
    assert release.run("--workers", "2")[0] == 0
    assert {name: (release.folder / "out" / name).read_bytes() for name in names} == first


def test_zip_files(release: Release, monkeypatch: pytest.MonkeyPatch) -> None:
    """A member that is damaged or too large costs its row; nothing is unpacked."""
    monkeypatch.setattr(imagenome_graph, "MAX_BYTES", 200_000)
    for number in (1, 2, 3):
        release.add(number, 10000000 + number, 50000000 + number)
    (release.graphs / f"{image_name(2)}_SceneGraph.json").write_text("[" + " " * 5_000_000 + "]")
    release.write()
    packed = release.zip()
    data = packed.read_bytes()
    place = data.index(b"SceneGraph.json", data.index(image_name(3).encode())) + 60
    packed.write_bytes(data[:place] + b"\0\1\2\3" + data[place + 4 :])
    code, out = release.run()
    assert code == 0
    assert truths(out).keys() == {"p10000001/s50000001"}
    assert skips(out) == {
        "p10000002/s50000002": "scene graph too large", "p10000003/s50000003": "unreadable scene graph",
    }  # fmt: skip
    assert not release.graphs.exists()


# Sizes


def test_sizes_without_the_metadata_table(release: Release) -> None:
    release.add(1)
    release.add(2, 10000002, 50000002, size=(150, 200))  # a smaller copy, and nobody says of what
    release.write(metadata=False)
    code, out = release.run()
    assert code == 0
    assert truths(out)["p10000001/s50000001"]["regions"][0]["box"] == [0.5333, 0.7, 0.8333, 0.85]
    assert skips(out) == {"p10000002/s50000002": "frames disagree"}


@pytest.mark.parametrize("check", ["decode", "exists"])
def test_smaller_copies_with_the_metadata_table(release: Release, check: str) -> None:
    release.add(1, size=(150, 200))
    release.write()
    code, out = release.run("--check-images", check)
    assert code == 0
    (row,) = read_rows(out / "train.parquet")
    assert (row["extra_info"]["width"], row["extra_info"]["height"]) == (150, 200)
    assert truths(out)["p10000001/s50000001"]["regions"][0]["box"] == [0.5333, 0.7, 0.8333, 0.85]


# Folders


@pytest.mark.parametrize(
    ("breakage", "message"),
    [
        ("no root", "no such folder"),
        ("mimic as root", "--mimic-root"),
        ("parent as root", "pass {root} with --root"),
        ("no splits", "is not Chest ImaGenome"),
        ("no train", "train.csv: no such table"),
        ("no avoid", "images_to_avoid.csv: no such table"),
        ("no graphs", "scene_graph.zip"),
        ("half a zip", "perhaps half downloaded"),
        ("no reports", "--reports"),
        ("no mimic", "no such folder"),
        ("other table", "has no column 'subject_id'"),
    ],
)
def test_bad_folders(release: Release, capsys: pytest.CaptureFixture[str], breakage: str, message: str) -> None:
    release.add(1)
    release.write()
    options: list[str] = []
    if breakage == "no root":
        options = ["--root", str(release.folder / "nowhere")]
    elif breakage == "mimic as root":
        options = ["--root", str(release.mimic)]
    elif breakage == "parent as root":
        options = ["--root", str(release.folder)]
    elif breakage == "no splits":
        shutil.rmtree(release.splits)
    elif breakage == "no train":
        (release.splits / "train.csv").unlink()
    elif breakage == "no avoid":
        (release.splits / "images_to_avoid.csv").unlink()
    elif breakage == "no graphs":
        shutil.rmtree(release.graphs)
    elif breakage == "half a zip":
        packed = release.zip()
        packed.write_bytes(packed.read_bytes()[:-100])
    elif breakage == "no reports":
        for file in release.mimic.rglob("*.txt"):
            file.unlink()
    elif breakage == "no mimic":
        options = ["--mimic-root", str(release.folder / "nowhere")]
    elif breakage == "other table":
        (release.splits / "valid.csv").write_text("a,b\n1,2\n")
    assert release.run(*options)[0] == 2
    error = capsys.readouterr().err
    assert message.format(root=release.root) in error
    assert error.startswith("chest_imagenome: ")
    assert not (release.folder / "out" / "train.parquet").exists()


def test_a_name_that_is_no_text_for_a_model() -> None:
    with pytest.raises(SkipRow, match="<image>"):
        regions_of(one_region() | {"objects": [{"bbox_name": "<image>"}]}, *SIZE)


def test_a_model_rewrites_no_boxes(release: Release, capsys: pytest.CaptureFixture[str]) -> None:
    release.add(1)
    release.write()
    assert release.run("--task", "anatomy", "--priors", "llm", "--judge-url", "http://127.0.0.1:9/v1")[0] == 2
    assert "pass --priors drop or keep with --task anatomy" in capsys.readouterr().err


@pytest.mark.parametrize("task", ["trace", "anatomy"])
def test_boxes_hold_for_a_smaller_copy_but_not_for_another_shape(release: Release, task: str) -> None:
    release.add(1, size=(SIZE[0] // 2, SIZE[1] // 2))
    release.add(2, subject=10000002, study=50000002, size=(224, 224))
    release.write()
    status, out = release.run("--task", task)
    assert status == 0
    assert len(truths(out)) == 1
    assert list(skips(out).values()) == ["image shape differs"]


def test_labels_of_mimic_for_traces(release: Release) -> None:
    for number in (1, 2):
        release.add(number, study=50000000 + number)
    release.write()
    names = ["subject_id", "study_id", *sorted(CHEXPERT_14)]
    values = ["10000001", "50000001", *["1.0" if name == "Edema" else "" for name in sorted(CHEXPERT_14)]]
    release._table(release.mimic / "mimic-cxr-2.0.0-chexpert.csv", names, [values], "", "\n")
    _, out = release.run("--labels", "chexpert")
    assert skips(out) == {"p10000001/s50000002": "no labels"}
    (truth,) = truths(out).values()
    assert truth["labels"] == dict.fromkeys(CHEXPERT_14) | {"Edema": 1}
    _, out = release.run()  # by our rules
    assert len(truths(out)) == 2
    assert all(truth["labels"]["Edema"] != 1 for truth in truths(out).values())
