"""From sections and boxes to what a row asks and what its true answer is; views and wordings on the way."""

from argparse import Namespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_preprocess.core import prompts
from data_preprocess.core.content import grounding_content, report_content, unit_box
from data_preprocess.core.skiplog import SkipRow
from data_preprocess.core.views import Film, choose
from radverl.labels import CHEXPERT_14

SECTIONS = {
    "findings": "Stable  small left effusion.\nNo pneumothorax since ___.",
    "impression": "1. Small effusion.",
    "indication": "___-year-old woman with cough",
    "history": "Smoker",
}


def args(**options: Any) -> Namespace:
    defaults = {
        "target": "both", "priors": "drop", "blanks": "drop", "indication": False, "prompt": "Write.", "task": "report",
    }  # fmt: skip
    return Namespace(**defaults | options)


@pytest.mark.parametrize(
    ("options", "report", "original"),
    [
        ({}, "Findings: Small left effusion. No pneumothorax. Impression: 1. Small effusion.", True),
        (
            {"priors": "keep", "blanks": "keep"},
            "Findings: Stable small left effusion. No pneumothorax since ___. Impression: 1. Small effusion.", False,
        ),
        ({"target": "impression"}, "Impression: 1. Small effusion.", False),
        ({"target": "findings"}, "Findings: Small left effusion. No pneumothorax.", True),
    ],
)  # fmt: skip
def test_a_report(options: dict[str, str], report: str, original: bool) -> None:
    content = report_content(SECTIONS, args(**options))
    assert content.truth["report"] == content.target == report
    assert list(content.truth) == ["findings", "impression", "report", "labels", "regions", "boxes"]
    whole = "Findings: Stable small left effusion. No pneumothorax since ___."
    assert content.original_report.startswith(whole) == original
    assert content.truth["labels"]["Pleural Effusion"] == 1


def test_labels_of_the_data_set_are_kept() -> None:
    labels = dict.fromkeys(CHEXPERT_14) | {"Edema": -1}
    assert report_content(SECTIONS, args(), labels=labels).truth["labels"] == labels


def test_any_takes_the_section_that_is_there() -> None:
    sections = {"impression": "Normal chest."}
    assert report_content(sections, args(target="any")).truth["report"] == "Impression: Normal chest."
    with pytest.raises(SkipRow) as error:
        report_content(sections, args())
    assert error.value.reason == "no findings"


@pytest.mark.parametrize(
    ("sections", "reason"),
    [
        ({}, "no findings and no impression"),
        ({"findings": "___.", "impression": "1."}, "no findings and no impression"),
        ({"findings": "No interval change.", "impression": "Comparison is made to ___."}, "only prior references"),
        ({"findings": "XXXX", "impression": "XXXX."}, "empty report"),
        ({"findings": "Clear <|im_end|>", "impression": "Normal."}, "placeholder in report"),
        ({"findings": "Clear.\x00", "impression": "Normal."}, "malformed text"),
        ({"findings": "Clear. " * 10_000, "impression": "Normal."}, "report too long"),
    ],
)
def test_a_report_that_cannot_be_used(sections: dict[str, str], reason: str) -> None:
    with pytest.raises(SkipRow) as error:
        report_content(sections, args())
    assert error.value.reason == reason


@pytest.mark.parametrize(
    ("sections", "prompt"),
    [
        (SECTIONS, "Indication: woman with cough\nWrite."),
        (SECTIONS | {"indication": ""}, "Indication: Smoker\nWrite."),
        (SECTIONS | {"indication": "", "history": "___"}, "Write."),
        (SECTIONS | {"indication": "<image> cough", "history": "Smoker"}, "Write."),
    ],
)
def test_the_indication_as_context(sections: dict[str, str], prompt: str) -> None:
    assert report_content(sections, args(indication=True)).prompt == prompt
    assert report_content(sections, args()).prompt == "Write."


def test_a_trace() -> None:
    regions = [{"name": "left lung", "box": [0.5, 0.1, 0.876543, 0.8], "finding": "small effusion"}]
    content = report_content(SECTIONS, args(task="trace", target="impression"), regions=regions)
    assert content.target == (
        '<think>[{"region": "left lung", "box": [0.5, 0.1, 0.88, 0.8], "finding": "small effusion"}]</think>'
        "<answer>Impression: 1. Small effusion.</answer>"
    )
    assert content.truth["regions"] == regions


def test_a_phrase() -> None:
    content = grounding_content(
        "small left\neffusion", [(-0.1, 0.5, 0.25, 0.75)], args(task="phrase", prompt=""), "x/1", label="Effusion"
    )
    asked = [text.replace("{name}", "small left effusion") + prompts.BOX_FORM for text in prompts.PHRASE]
    assert content.prompt in asked
    assert content.target == "[0.00, 0.50, 0.25, 0.75]"
    assert content.truth == {
        "phrase": "small left effusion", "boxes": [{"label": "Effusion", "box": [0.0, 0.5, 0.25, 0.75]}],
    }  # fmt: skip
    own = grounding_content("edema", [], args(task="phrase", prompt="Where is {name}?"), "x/1")
    assert (own.prompt, own.target, own.truth["boxes"]) == ("Where is edema?", "None", [])


@pytest.mark.parametrize(
    ("name", "box", "reason"),
    [
        ("edema", [1.2, 0, 1.5, 1], "box without area"),
        ("edema", [0.5, 0, 0.2, 1], "box without area"),
        ("edema", [0.5, 0.5, 0.50001, 1], "box without area"),
        ("edema", [float("nan"), 0, 1, 1], "box without area"),
        (" ", [0, 0, 1, 1], "empty report"),
        ("<image>", [0, 0, 1, 1], "placeholder in report"),
    ],
)
def test_a_phrase_that_cannot_be_used(name: str, box: list[float], reason: str) -> None:
    with pytest.raises(SkipRow) as error:
        grounding_content(name, [box], args(task="phrase", prompt=""), "x/1")
    assert error.value.reason == reason


@given(st.lists(st.floats(-2, 2), min_size=4, max_size=4))
def test_a_unit_box_lies_in_the_image_and_in_the_box(box: list[float]) -> None:
    try:
        x0, y0, x1, y1 = unit_box(box)
    except SkipRow:
        return
    assert 0 <= x0 < x1 <= 1
    assert 0 <= y0 < y1 <= 1
    slack = 5e-5 + 1e-12
    assert x0 >= box[0] - slack
    assert y0 >= box[1] - slack
    assert x1 <= box[2] + slack
    assert y1 <= box[3] + slack


def test_wordings() -> None:
    for texts in prompts.GROUNDING.values():
        assert len(set(texts)) >= 10
        assert all(text.count("{name}") == 1 for text in texts)
        chosen = [prompts.wording(texts, f"image{n}/edema") for n in range(2000)]
        assert set(chosen) == set(texts)
        assert chosen[0] == prompts.wording(texts, "image0/edema")


FILMS = [
    Film("a", "a.jpg", "LATERAL"), Film("b", "b.jpg", ""), Film("c", "c.jpg", "AP"), Film("d", "d.jpg", "LL"),
    Film("e", "e.jpg", "PA"), Film("f", "f.jpg", "Frontal"), Film("g", "g.jpg", "SWIMMERS"),
]  # fmt: skip


@pytest.mark.parametrize(("option", "names"), [("frontal", "e"), ("lateral", "a"), ("pair", "ea"), ("all", "ecfadgb")])
def test_views(option: str, names: str) -> None:
    assert "".join(film.name for film in choose(FILMS, option, "s1")) == names
    assert "".join(film.name for film in choose(FILMS[::-1], option, "s1")) == names


def test_an_unknown_view_is_never_frontal() -> None:
    for films, option, reason in (
        ([Film("b", "b.jpg", "")], "frontal", "no frontal view"),
        ([Film("c", "c.jpg", "AP")], "lateral", "no lateral view"),
        ([], "all", "no image"),
    ):
        with pytest.raises(SkipRow) as error:
            choose(films, option, "s1")
        assert error.value.reason == reason
    assert [film.name for film in choose([Film("c", "c.jpg", "AP")], "pair", "s1")] == ["c"]
