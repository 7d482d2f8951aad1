"""Pictures: right size, content that follows the data, and no two texts that meet."""

import itertools
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

pytest.importorskip("matplotlib")

from radverl.evaluation import pictures
from radverl.evaluation.pictures import GREEN, ORANGE, PURPLE, curves, label_lines, samples, wrap
from radverl.labels import CHEXPERT_14

LABELS = dict.fromkeys(CHEXPERT_14) | {"Cardiomegaly": 1, "Pleural Effusion": 1}
REPORT = "Findings: The heart is enlarged. There is a small right pleural effusion. Impression: Cardiomegaly. Effusion."
LONG = "Costs $5 and $6, " + "supercalifragilistic" * 20 + "\nNext line. " + "The lungs are clear. " * 200


def records(slope, n=12):
    return [
        {
            "step": float(step),
            "critic/score/mean": slope * step,
            "zero_reward_rate": 0.5,
            "all_zero_groups": 0.25,
            "val-aux/simulated/macro_f1/mean@1": 0.3,
            "val-core/simulated/reward/mean@1": 0.2,
        }
        for step in range(1, n)
    ]


def row(folder, number, boxes=()):
    path = folder / f"{number}.png"
    Image.fromarray(np.full((90, 120), 60 * number + 20, dtype=np.uint8)).save(path)
    truth = {"report": REPORT, "labels": LABELS, "boxes": list(boxes)}
    return {
        "prompt": [{"role": "user", "content": "<image>Report."}],
        "images": [{"image": f"file://{path}"}],
        "reward_model": {"ground_truth": json.dumps(truth)},
        "extra_info": {"prompt_id": f"toy/{number}"},
    }


def pixels(path):
    return np.asarray(Image.open(path).convert("RGB")).astype(int)


def colour_count(path, colour):
    wanted = [int(colour[i : i + 2], 16) for i in (1, 3, 5)]
    return int((np.abs(pixels(path) - wanted).max(axis=-1) < 12).sum())


@pytest.fixture
def figures(monkeypatch):
    """The figures as they are saved, for looking at their texts."""
    kept = []
    save = pictures._save
    monkeypatch.setattr(pictures, "_save", lambda figure, path, dpi: (kept.append(figure), save(figure, path, dpi)))
    return kept


def test_curves_has_a_panel_for_every_metric_there_is(tmp_path, figures):
    titles = curves(records(0.1), tmp_path / "a.png")
    assert len(titles) == 5
    assert Image.open(tmp_path / "a.png").size == (1800, 888)
    for axes, title in zip(figures[0].axes, titles, strict=True):
        assert axes.get_title() == title
        assert axes.get_xlabel() == "training step"
        assert axes.get_ylabel()
    assert curves([{"step": 1, "critic/score/mean": 0.1}], tmp_path / "b.png") == ["Training reward"]


def test_curves_plots_the_values(tmp_path, figures):
    curves({"GRPO": records(0.1), "OraPO": records(0.2)}, tmp_path / "a.png")
    grpo, orapo = figures[0].axes[0].get_lines()
    assert list(grpo.get_ydata()) == pytest.approx([0.1 * step for step in range(1, 12)])
    assert list(orapo.get_ydata()) == pytest.approx([0.2 * step for step in range(1, 12)])
    assert [text.get_text() for text in figures[0].axes[0].get_legend().get_texts()] == ["GRPO", "OraPO"]


def test_long_runs_get_a_trailing_mean(tmp_path, figures):
    curves(records(1.0, n=61), tmp_path / "a.png")
    raw, mean = figures[0].axes[0].get_lines()
    assert list(raw.get_ydata()[:4]) == [1, 2, 3, 4]
    assert list(mean.get_ydata()[:5]) == [1, 1.5, 2, 3, 4]
    assert mean.get_label() == "mean of 3 steps"


def test_curves_follows_the_data_and_repeats(tmp_path):
    for name, slope in (("a", 0.1), ("b", 0.1), ("c", -0.1)):
        curves([{"step": step, "reward_mean": slope * step} for step in range(1, 9)], tmp_path / f"{name}.png")
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()
    assert np.abs(pixels(tmp_path / "a.png") - pixels(tmp_path / "c.png")).max() > 100


def test_curves_reads_a_log(tmp_path):
    (tmp_path / "x.jsonl").write_text('{"step":1,"data":{"critic/score/mean":0.5}}\n')
    assert curves(tmp_path / "x.jsonl", tmp_path / "a.png") == ["Training reward"]


def test_a_metric_named_otherwise_is_no_macro_f1(tmp_path):
    with pytest.raises(ValueError, match="none of the metrics"):
        curves([{"step": 1, "macro_f1_ci": 0.3, "lr": 1.0}], tmp_path / "a.png")


def test_label_lines():
    said = dict.fromkeys(CHEXPERT_14) | {"Cardiomegaly": 1, "Edema": -1, "Pneumonia": 0}
    assert label_lines(LABELS, said) == [
        ("✓ Cardiomegaly", GREEN),
        ("✗ Pleural Effusion (missed)", ORANGE),
        ("+ Edema (not in the true report)", PURPLE),
    ]


def test_samples_colours_follow_the_reports(tmp_path):
    rows = [row(tmp_path, 0)]
    assert samples(rows, [REPORT], [REPORT], tmp_path / "right.png") == 1
    samples(rows, [REPORT], ["Impression: Pneumothorax."], tmp_path / "wrong.png")
    right, wrong = tmp_path / "right.png", tmp_path / "wrong.png"
    assert colour_count(right, GREEN) > colour_count(wrong, GREEN) > 0
    assert colour_count(wrong, ORANGE) > colour_count(right, ORANGE)
    assert colour_count(wrong, PURPLE) > colour_count(right, PURPLE)


def test_samples_draws_the_box_where_it_is(tmp_path, figures):
    box = {"label": "Cardiomegaly", "name": "heart", "box": [0.25, 0.5, 0.75, 1.0]}
    samples([row(tmp_path, 0, [box])], [""], [""], tmp_path / "a.png")
    axes = figures[0].axes[0]
    patch = axes.patches[0]
    assert (patch.get_x(), patch.get_y(), patch.get_width(), patch.get_height()) == (30, 45, 60, 45)
    assert axes.images[0].get_array().shape[:2] == (90, 120)


def test_no_two_texts_meet_and_none_leaves_the_page(tmp_path, figures):
    boxes = [{"label": "Edema", "name": "long name " * 12, "box": [0.1 * k, 0.2, 0.5, 0.9]} for k in range(4)]
    rows = [row(tmp_path, 0, boxes), row(tmp_path, 1), row(tmp_path, 2, boxes[:1])]
    rows[1]["extra_info"]["prompt_id"] = "an/identifier/without/any/space/" * 6
    odd = "Clear \x0f\x00 lungs\t\u0b95 \u6f22 \U0001f600." + REPORT
    samples(rows, [LONG, "", REPORT], ["", LONG, odd], tmp_path / "a.png", names=("warm start", "after 200 steps"))
    figure = figures[0]
    renderer = figure.canvas.get_renderer()
    extents = [text.get_window_extent(renderer) for text in figure.texts if text.get_text().strip()]
    extents += [axes.get_window_extent(renderer) for axes in figure.axes]
    assert len(extents) > 60
    width, height = figure.canvas.get_width_height()
    for extent in extents:
        assert extent.x0 >= 0
        assert extent.y0 >= 0
        assert extent.x1 <= width
        assert extent.y1 <= height
    for first, second in itertools.combinations(extents, 2):
        across = min(first.x1, second.x1) - max(first.x0, second.x0)
        down = min(first.y1, second.y1) - max(first.y0, second.y0)
        # Lines of one paragraph may share a pixel where an accent meets a descender.
        assert across <= 0 or down <= 2


def test_samples_draws_n_and_grows_with_them(tmp_path):
    rows = [row(tmp_path, k) for k in range(3)]
    assert samples(rows, [""] * 3, [""] * 3, tmp_path / "a.png", n=1) == 1
    assert samples(rows, [""] * 3, [""] * 3, tmp_path / "b.png") == 3
    one, three = Image.open(tmp_path / "a.png").size, Image.open(tmp_path / "b.png").size
    assert one[0] == three[0]
    assert three[1] > 2 * one[1]


@pytest.mark.parametrize(
    ("reports", "n", "words"), [(["a", "b"], 4, "1 rows, 2 and 2 reports"), (["a"], 0, "no study")]
)
def test_samples_refuses_what_does_not_fit(tmp_path, reports, n, words):
    with pytest.raises(ValueError, match=words):
        samples([row(tmp_path, 0)], reports, reports, tmp_path / "a.png", n)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.text("abcdefg ,.\n", max_size=40), max_size=12).map(" ".join), st.floats(0.3, 4))
def test_wrap_loses_nothing_and_fits(text, inches):
    lines = wrap(text, inches, max_lines=10_000)
    assert "".join("".join(lines).split()) == "".join(text.split())
    assert all(pictures._text_inches(line, pictures.FONT_PT) <= inches for line in lines)


@pytest.mark.filterwarnings("error:Glyph")
def test_what_the_font_lacks_is_drawn_as_a_sign(tmp_path, figures):
    samples([row(tmp_path, 0)], ["Heart \x0f\x1b large"], ["\u0b95\u6f22"], tmp_path / "a.png")
    texts = [text.get_text() for text in figures[0].texts]
    assert "Heart \ufffd\ufffd large" in texts
    assert "\ufffd\ufffd" in texts


def test_wrap_counts_what_it_leaves_out():
    words = [f"word{i}" for i in range(200)]
    lines = wrap(" ".join(words), 1.0, max_lines=5)
    shown = " ".join(lines[:-1]).split()
    assert len(lines) == 5
    assert shown == words[: len(shown)]
    assert lines[-1] == f"… and {200 - len(shown)} more words"
