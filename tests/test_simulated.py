"""The simulated cohort: same seed same bytes, boxes where findings are, labels as the text reads."""

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from data_preprocess import simulated
from data_preprocess.core.rows import read_rows, schema
from data_preprocess.core.sheet import contact_sheet
from data_preprocess.phantom import KINDS, LONG_TAIL, REGION_NAMES, draw_study
from data_preprocess.phantom.cohort import plan, split_counts
from data_preprocess.phantom.study import plan_findings, write_study_report
from data_preprocess.phantom.trace import CORE
from radverl.chexpert import label_report
from radverl.labels import CHEXPERT_14
from radverl.text import split_sections

IMAGENOME = {
    "right lung",
    "right apical zone",
    "right upper lung zone",
    "right mid lung zone",
    "right lower lung zone",
    "right hilar structures",
    "left lung",
    "left apical zone",
    "left upper lung zone",
    "left mid lung zone",
    "left lower lung zone",
    "left hilar structures",
    "right costophrenic angle",
    "left costophrenic angle",
    "mediastinum",
    "upper mediastinum",
    "cardiac silhouette",
    "trachea",
    "right hemidiaphragm",
    "left hemidiaphragm",
    "right clavicle",
    "left clavicle",
    "spine",
    "right atrium",
    "cavoatrial junction",
    "svc",
    "carina",
    "aortic arch",
    "abdomen",
    "descending aorta",
    "left cardiac silhouette",
    "right cardiac silhouette",
    "right upper abdomen",
    "left upper abdomen",
    "right cardiophrenic angle",
    "left cardiophrenic angle",
}


def run(out: Path, *args: str) -> int:
    return simulated.main(["--out", str(out), "--quiet", *args])


def digests(folder: Path) -> dict[str, str]:
    """Hash of every file; paths inside Parquet files differ with the folder, so those are read instead."""
    out = {}
    for path in sorted(folder.rglob("*")):
        if path.suffix == ".parquet":
            out[path.name] = json.dumps(read_rows(path), default=str).replace(str(folder), "")
        elif path.is_file() and path.suffix not in (".json", ".md"):
            out[str(path.relative_to(folder))] = hashlib.sha256(path.read_bytes()).hexdigest()
    return out


@pytest.fixture(scope="module")
def cohort(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("sim")
    assert (
        run(out, "--n-train", "24", "--n-val", "6", "--n-test", "6", "--size", "96", "--balance", "--contact-sheet")
        == 0
    )
    return out


def test_same_seed_same_study_and_other_seed_another() -> None:
    a, b, c = draw_study(3, 96), draw_study(3, 96), draw_study(4, 96)
    assert np.array_equal(a.image, b.image)
    assert (a.report, a.boxes, a.regions, a.trace) == (b.report, b.boxes, b.regions, b.trace)
    assert not np.array_equal(a.image, c.image)


def test_size_changes_pixels_but_neither_text_nor_geometry() -> None:
    small, large = draw_study(7, 112), draw_study(7, 256)
    assert large.image.shape == (256, 256)
    assert large.image.dtype == np.uint8
    assert small.report == large.report
    for a, b in zip(small.boxes, large.boxes, strict=True):
        assert np.abs(np.subtract(a["box"], b["box"])).max() < 0.04


def test_files_do_not_depend_on_the_number_of_workers(tmp_path: Path) -> None:
    args = ("--n", "9", "--size", "64", "--seed", "5", "--split", ".6/.2/.2")
    assert run(tmp_path / "one", *args) == 0
    assert run(tmp_path / "two", *args, "--workers", "2") == 0
    assert digests(tmp_path / "one") == digests(tmp_path / "two")


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.sets(st.sampled_from(sorted(KINDS)), max_size=6))
def test_boxes_lie_in_the_image_and_have_area(seed: int, kinds: set[str]) -> None:
    study = draw_study(seed, 64, kinds=sorted(kinds))
    assert {b["label"] for b in study.boxes} == {KINDS[k] for k in kinds}
    for item in [*study.boxes, *study.regions]:
        x0, y0, x1, y1 = item["box"]
        assert 0 <= x0 < x1 <= 1
        assert 0 <= y0 < y1 <= 1


@pytest.mark.parametrize("kind", KINDS)
def test_a_finding_is_drawn_where_its_box_is(kind: str) -> None:
    for seed in range(4):
        study = draw_study(seed, 128, kinds=[kind])
        without = draw_study(seed, 128, findings=[])
        change = np.abs(study.image.astype(float) - without.image)
        assert change.max() > 25  # visible: a tenth of the grey scale
        inside = np.zeros_like(change, bool)
        for item in study.boxes:
            x0, y0, x1, y1 = (np.array(item["box"]) * 128).round().astype(int)
            inside[max(y0 - 2, 0) : y1 + 2, max(x0 - 2, 0) : x1 + 2] = True
        strong = change > 12
        assert strong.any()
        assert change[inside & strong].sum() / change[strong].sum() > 0.8


def test_side_words_follow_the_image() -> None:
    """Patient right is image left: a right-sided finding lies left of the middle, and the report says right."""
    seen = set()
    for seed in range(12):
        for kind in ("effusion", "pneumothorax", "nodule", "consolidation"):
            study = draw_study(seed, 64, kinds=[kind], style="template")
            if len(study.boxes) != 1:
                continue
            x0, _, x1, _ = study.boxes[0]["box"]
            side = "right" if (x0 + x1) / 2 < 0.5 else "left"
            seen.add((kind, side))
            assert side in study.findings.lower()
            assert {"right": "left", "left": "right"}[side] not in study.findings.lower()
    assert len(seen) == 8


def test_regions_are_those_of_chest_imagenome() -> None:
    assert len(REGION_NAMES) >= 12
    assert set(REGION_NAMES) <= IMAGENOME
    study = draw_study(1, 64, kinds=["cardiomegaly"])
    assert [r["name"] for r in study.regions] == list(REGION_NAMES)
    heart = next(r for r in study.regions if r["name"] == "cardiac silhouette")
    assert "cardiomegaly" in heart["finding"]
    assert (heart["box"][2] - heart["box"][0]) > 0.5 * (
        next(r for r in study.regions if r["name"] == "left lung")["box"][2]
        - next(r for r in study.regions if r["name"] == "right lung")["box"][0]
    )  # cardiothoracic ratio over one half


@pytest.mark.parametrize("style", ["template", "prose"])
def test_labels_are_what_a_labeller_reads(style: str) -> None:
    for entry in plan({"train": 400}, 1, balance=True, style=style):
        findings = plan_findings(entry.seed, entry.kinds)
        report = write_study_report(entry.seed, findings, style)
        assert label_report(report.text) == report.labels, report.text
        assert {f.label for f in findings} <= {k for k, v in report.labels.items() if v == 1}
        sections = split_sections(report.text)
        assert sections["findings"] == report.findings
        assert sections["impression"] == report.impression


def test_template_reports_are_short_and_of_few_words() -> None:
    texts = []
    for entry in plan({"train": 500}, 2, style="template"):
        texts.append(write_study_report(entry.seed, plan_findings(entry.seed, entry.kinds), "template").text)
    assert max(len(t.split()) for t in texts) <= 50
    assert len({w.strip(".,:").lower() for t in texts for w in t.split()}) <= 80


def test_prose_varies() -> None:
    texts = {draw_study(s, 64, kinds=["edema"]).findings for s in range(20)}
    assert len(texts) >= 15


def test_trace_is_json_between_the_tags() -> None:
    study = draw_study(11, 64)
    head, answer = study.trace.split("</think>")
    items = json.loads(head.removeprefix("<think>"))
    assert [i["region"] for i in items[: len(CORE)]] == list(CORE)
    assert all(set(i) == {"region", "box", "finding"} and len(i["box"]) == 4 and i["finding"] for i in items)
    assert answer == f"<answer>{study.report}</answer>"


def test_rows_have_the_schema_and_splits_do_not_share_subjects(cohort: Path) -> None:
    import pyarrow.parquet as pq

    subjects = {}
    for split, n in (("train", 24), ("val", 6), ("test", 6)):
        path = cohort / f"{split}.parquet"
        assert pq.read_schema(path).equals(schema("rl", "image"))
        rows = read_rows(path)
        assert len(rows) == n
        assert [r["extra_info"]["index"] for r in rows] == list(range(n))
        subjects[split] = {r["extra_info"]["subject_id"] for r in rows}
        for row in rows:
            truth = json.loads(row["reward_model"]["ground_truth"])
            assert list(truth["labels"]) == list(CHEXPERT_14)
            film = Image.open(row["images"][0]["image"].removeprefix("file://"))
            assert (film.width, film.height, film.mode) == (96, 96, "L")
            assert row["extra_info"]["subject_id"] in row["images"][0]["image"]
    assert not subjects["train"] & subjects["val"]
    assert not (subjects["train"] | subjects["val"]) & subjects["test"]
    assert len(subjects["train"]) < 24  # some subjects have several studies
    sft = read_rows(cohort / "sft_train.parquet")
    assert pq.read_schema(cohort / "sft_train.parquet").equals(schema("sft", "image"))
    assert sft[0]["messages"][1]["content"].startswith("Findings: ")
    assert not (cohort / "sft_test.parquet").exists()
    assert (cohort / "train.skipped.jsonl").read_text() == ""
    assert json.loads((cohort / "train.json").read_text())["rows"] == 24
    assert Image.open(cohort / "contact_sheet.png").size == contact_sheet(cohort / "train.parquet", 24).size


def test_contact_sheet_of_a_cohort_without_train_and_with_embedded_films(tmp_path: Path) -> None:
    assert run(tmp_path, "--n-test", "3", "--size", "64", "--task", "trace", "--embed-images", "--contact-sheet") == 0
    sheet = contact_sheet(tmp_path / "test.parquet", 24)
    assert Image.open(tmp_path / "contact_sheet.png").tobytes() == sheet.tobytes()
    assert np.asarray(sheet).std() > 20  # films, not grey cells


def test_trace_task_and_embedded_images(tmp_path: Path) -> None:
    assert run(tmp_path, "--n-train", "2", "--size", "64", "--task", "trace", "--embed-images") == 0
    row, sft = read_rows(tmp_path / "train.parquet")[0], read_rows(tmp_path / "sft_train.parquet")[0]
    assert row["images"][0]["bytes"].startswith(b"\x89PNG")
    assert not (tmp_path / "images").exists()
    target = sft["messages"][1]["content"]
    named = [i["region"] for i in json.loads(target.split("</think>")[0].removeprefix("<think>"))]
    assert [r["name"] for r in json.loads(row["reward_model"]["ground_truth"])["regions"]] == named


def test_a_trace_names_the_regions_that_were_asked_for(tmp_path: Path) -> None:
    names = ["left costophrenic angle", "cardiac silhouette", "trachea"]
    assert run(tmp_path, "--n-train", "2", "--size", "64", "--task", "trace", "--trace-regions", *names) == 0
    row, sft = read_rows(tmp_path / "train.parquet")[0], read_rows(tmp_path / "sft_train.parquet")[0]
    head = sft["messages"][1]["content"].split("</think>")[0].removeprefix("<think>")
    assert [item["region"] for item in json.loads(head)] == names
    assert [r["name"] for r in json.loads(row["reward_model"]["ground_truth"])["regions"]] == names


@given(st.integers(0, 10_000))
@settings(max_examples=20, deadline=None)
def test_a_border_moves_film_and_boxes_together(seed: int) -> None:
    """Black outside the film; all boxes keep their place in it."""
    plain, moved = (draw_study(seed, 96, kinds=["effusion"], border=border) for border in (0.0, 0.4))
    assert plain.report == moved.report
    spine = {r["name"]: r["box"] for r in moved.regions}["spine"]  # as high as the film
    top, scale = spine[1], spine[3] - spine[1]
    assert 0.6 - 1e-3 <= scale <= 1.0
    left = spine[0] - scale * {r["name"]: r["box"] for r in plain.regions}["spine"][0]
    for before, after in zip([*plain.regions, *plain.boxes], [*moved.regions, *moved.boxes], strict=True):
        expected = [start + scale * v for start, v in zip((left, top) * 2, before["box"], strict=True)]
        assert after["box"] == pytest.approx(expected, abs=1e-3)
    lit = np.argwhere(moved.image > 0)
    assert lit[:, 0].min() >= round(96 * top) - 1
    assert lit[:, 0].max() <= round(96 * (top + scale))
    assert abs(lit[:, 0].max() - 96 * (top + scale)) < 6
    assert lit[:, 1].min() >= round(96 * left) - 1


def test_without_a_border_nothing_changes() -> None:
    assert np.array_equal(draw_study(5, 64).image, draw_study(5, 64, border=0.0).image)
    with pytest.raises(ValueError, match=r"border is 0\.6"):
        draw_study(5, 64, border=0.6)
    with pytest.raises(ValueError, match="'heart' is unknown"):
        draw_study(5, 64, trace_regions=["heart"])


def test_prevalence_is_followed() -> None:
    wanted = {"Edema": 0.3, "Fracture": 0.05, "No Finding": 0.4, "Support Devices": 0.5}
    entries = plan({"train": 4000}, 0, prevalence=wanted)
    share = {k: np.mean([k in e.kinds for e in entries]) for k in KINDS}
    assert share["edema"] == pytest.approx(0.3, abs=0.03)
    assert share["fracture"] == pytest.approx(0.05, abs=0.015)
    assert share["device"] == pytest.approx(0.5, abs=0.03)
    assert share["nodule"] == 0
    assert np.mean([not set(e.kinds) - {"device"} for e in entries]) >= 0.38


def test_long_tail_preset_falls_off() -> None:
    entries = plan({"train": 3000}, 0, prevalence=simulated.parse_prevalence(["long-tail"]))
    counts = [sum(k in e.kinds for e in entries) for k in ("device", "effusion", "consolidation", "pleural")]
    assert counts == sorted(counts, reverse=True)
    assert counts[-1] < 0.03 * counts[0]
    assert simulated.parse_prevalence(["long-tail", "Edema=0.5"]) == LONG_TAIL | {"Edema": 0.5}


def test_balance_makes_positives_even() -> None:
    tally = dict.fromkeys(CHEXPERT_14, 0)
    for entry in plan({"train": 500}, 0, balance=True):
        labels = write_study_report(entry.seed, plan_findings(entry.seed, entry.kinds), "prose").labels
        for name, value in labels.items():
            tally[name] += value == 1
    assert max(tally.values()) - min(tally.values()) <= 5


def test_a_split_does_not_depend_on_the_others() -> None:
    alone = plan({"val": 20}, 0)
    beside = [e for e in plan({"train": 50, "val": 20, "test": 5}, 0) if e.split == "val"]
    assert alone == beside
    assert split_counts(1000, (0.8, 0.1, 0.1)) == {"train": 800, "val": 100, "test": 100}


@pytest.mark.parametrize(
    ("args", "word"),
    [
        (["--n", "0"], "positive"),
        (["--n-train", "-3"], "positive"),
        (["--size", "32"], "64"),
        (["--cue", "0"], "cue"),
        (["--border", "nan"], "border"),
        (["--border", "0.6"], "0.5"),
        (["--trace-regions", "trachea"], "--task trace"),
        (["--task", "trace", "--trace-regions", "heart"], "unknown"),
        (["--task", "trace", "--trace-regions", "svc", "svc"], "given twice"),
        (["--workers", "0"], "workers"),
        (["--split", ".5/.2"], "three shares"),
        (["--split", "a/b/c"], "three shares"),
        (["--seed", "-1"], "seed"),
        (["--prevalence", "Edoema=.1"], "Edoema"),
        (["--prevalence", "Edema=1.5"], "0 to 1"),
        (["--prevalence", "Edema"], "Edema"),
        (["--prevalence", "Edema=.9", "No Finding=.5"], "exceed"),
        (["--balance", "--prevalence", "even"], "contradict"),
        (["--n", "5", "--n-val", "2"], "use one of them"),
    ],
)
def test_bad_arguments_end_with_one_sentence(
    args: list[str], word: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path / "x", *args) == 2
    message = capsys.readouterr().err.strip()
    assert word in message
    assert len(message.splitlines()) == 1
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize(
    ("kwargs", "word"),
    [({"size": 10}, "size"), ({"kinds": ["flu"]}, "flu"), ({"cue": -1.0}, "cue"), ({"style": "haiku"}, "haiku")],
)
def test_draw_study_refuses_nonsense(kwargs: dict, word: str) -> None:
    with pytest.raises(ValueError, match=word):
        draw_study(0, **{"size": 64, **kwargs})


@pytest.mark.parametrize(
    "option",
    [
        ("--split", ".8/nan/.1"), ("--size", "100000"), ("--n", "100000000"), ("--cue", "1e308"), ("--cue", "nan"),
        ("--out", ""), ("--out", "/proc/x"), ("--out", "caf\udce9"), ("--workers", "-1"),
    ],
)  # fmt: skip
def test_bad_values_exit_2_with_one_sentence(tmp_path: Path, option: tuple[str, str], capsys) -> None:
    base = ["--out", str(tmp_path / "x"), "--quiet"]
    assert simulated.main([*base, *([] if option[0] == "--n" else ["--n", "2"]), *option]) == 2
    error = capsys.readouterr().err
    assert error.startswith("simulated: ")
    assert error.count("\n") == 1
    assert not list(tmp_path.glob("**/*.parquet"))


def test_a_smaller_cohort_in_the_same_folder_leaves_nothing_of_the_larger(tmp_path: Path) -> None:
    base = ["--out", str(tmp_path), "--size", "64", "--quiet"]
    assert simulated.main([*base, "--n-train", "2", "--n-test", "1"]) == 0
    assert (tmp_path / "test.parquet").is_file()
    assert simulated.main([*base, "--n-train", "1", "--seed", "1"]) == 0
    names = {path.name for path in tmp_path.iterdir() if path.is_file()}
    assert names == {"train.parquet", "sft_train.parquet", "train.skipped.jsonl", "train.md", "train.json"}


def test_a_full_disk_exits_1(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    def full(*_, **__) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(simulated, "write_rows", full)
    assert simulated.main(["--out", str(tmp_path), "--n", "1", "--size", "64", "--quiet"]) == 1
    assert "incomplete" in capsys.readouterr().err


def test_ctrl_c_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("data_preprocess.simulated._work", stop)
    assert run(tmp_path / "out", "--n", "10") == 130
    assert capsys.readouterr().err.splitlines()[-1].startswith("simulated: interrupted")
