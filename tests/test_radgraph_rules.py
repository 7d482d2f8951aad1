import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_preprocess.phantom import trace
from data_preprocess.phantom.anatomy import sample_anatomy
from data_preprocess.phantom.findings import DEVICES, KINDS, Finding
from data_preprocess.releases.imagenome_graph import REGIONS
from radverl.chexpert import explain, label_report
from radverl.chexpert.labeller import MAX_CHARS
from radverl.radgraph import check_annotation, f1, get_annotator
from radverl.radgraph.rules import RulesAnnotator, forget
from radverl.radgraph.rules_entities import words
from radverl.radgraph.rules_relations import relate
from tests.sentences import labelled_sentences

STATUS = {
    "P": "Observation::definitely present",
    "N": "Observation::definitely absent",
    "U": "Observation::uncertain",
    "A": "Anatomy::definitely present",
}
RELATION = {"m": "modify", "l": "located_at", "s": "suggestive_of"}
NAMES = {1: "definitely present", 0: "definitely absent", -1: "uncertain"}
ANNOTATOR = RulesAnnotator()

Entities = set[tuple[str, str]]
Relations = set[tuple[str, str, str]]


def annotate(text: str) -> dict:
    return ANNOTATOR.annotate([text])[0]


def read(text: str) -> tuple[Entities, Relations]:
    found = annotate(text)["entities"]
    return (
        {(e["tokens"], e["label"]) for e in found.values()},
        {(e["tokens"], kind, found[to]["tokens"]) for e in found.values() for kind, to in e["relations"]},
    )


def written() -> Iterator[tuple[str, str, Entities, Relations]]:
    """(half, sentence, entities, relations) of `tests/data/annotated_sentences.txt`."""
    half = ""
    path = Path(__file__).parent / "data" / "annotated_sentences.txt"
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("== "):
            half = line[3:]
        elif line and not line.startswith("#"):
            sentence, listed = line.split("|")
            entities, relations = set(), set()
            for entity in listed.split(";"):
                parts = entity.split()
                at = next(i for i, part in enumerate(parts) if part in STATUS)
                tokens = " ".join(parts[:at])
                entities.add((tokens, STATUS[parts[at]]))
                relations |= {(tokens, RELATION[part[0]], part[2:]) for part in parts[at + 1 :]}
            yield half, sentence.strip(), entities, relations


SENTENCES = list(written())


@pytest.mark.parametrize(("sentence", "entities", "relations"), [s[1:] for s in SENTENCES if s[0] == "open"])
def test_the_open_sentences(sentence, entities, relations):
    assert read(sentence) == (entities, relations)


@pytest.mark.parametrize(("part", "at_least"), [(0, 0.95), (1, 0.90)], ids=["entities", "relations"])
def test_the_blind_sentences(part, at_least):
    hits = found = true = 0
    for half, sentence, *wanted in SENTENCES:
        if half == "blind":
            got = read(sentence)[part]
            hits, found, true = hits + len(got & wanted[part]), found + len(got), true + len(wanted[part])
    assert hits / found >= at_least
    assert hits / true >= at_least


def test_both_halves_hold_thirty_sentences():
    assert [sum(half == name for half, *_ in SENTENCES) for name in ("open", "blind")] == [30, 30]


def test_the_form_is_that_of_radgraph():
    assert annotate("No left-sided effusion.\nHeart size: 5.2 cm") == {
        "text": "no left - sided effusion . heart size : 5 . 2 cm",
        "entities": {
            "1": {
                "tokens": "left",
                "label": "Anatomy::definitely present",
                "start_ix": 1,
                "end_ix": 1,
                "relations": [],
            },
            "2": {
                "tokens": "effusion",
                "label": "Observation::definitely absent",
                "start_ix": 4,
                "end_ix": 4,
                "relations": [["located_at", "1"]],
            },
            "3": {
                "tokens": "heart",
                "label": "Anatomy::definitely present",
                "start_ix": 6,
                "end_ix": 6,
                "relations": [],
            },
            "4": {
                "tokens": "size",
                "label": "Anatomy::definitely present",
                "start_ix": 7,
                "end_ix": 7,
                "relations": [["modify", "3"]],
            },
            "5": {
                "tokens": "5 . 2 cm",
                "label": "Observation::definitely present",
                "start_ix": 9,
                "end_ix": 12,
                "relations": [["located_at", "3"]],
            },
        },
        "data_source": None,
        "data_split": "inference",
    }


@pytest.mark.parametrize(
    "text", ["", " ", "\n\n", "...", "lorem ipsum", "\u200b", "肺部清晰", "}{][", "FINDINGS", "findings:"]
)
def test_text_without_known_words_has_no_entities(text):
    assert annotate(text)["entities"] == {}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("No left pleural effusion", "Left pleural effusion"),
        ("Left pleural effusion", "Right pleural effusion"),
        ("Opacity in the left lung", "Opacity in the right lung"),
        ("Small left pleural effusion", "Large left pleural effusion"),
        ("Left upper lobe opacity", "Left lower lobe opacity"),
        ("Possible pneumonia", "Pneumonia"),
        ("Possible pneumonia", "No pneumonia"),
        ("Heart size is normal", "Heart size is enlarged"),
        ("The heart is enlarged", "The heart is not enlarged"),
        ("Lungs are clear", "Lungs are not clear"),
        ("5 mm nodule", "15 mm nodule"),
        ("Left lung is clear", "Right lung is clear"),
    ],
)
def test_what_differs_scores_below_one(one, other):
    a, b = ANNOTATOR.annotate([one, other])
    assert f1(a, b, "partial") < 1
    assert f1(a, a, "partial") == 1


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("There is a small left pleural effusion.", "Small left-sided pleural effusion"),
        ("There is a small left pleural effusion.", "A small pleural effusion is seen on the left."),
        ("Small left pleural effusion.", "Left pleural effusion, small in size."),
        ("small left pleural effusion", "SMALL LEFT PLEURAL EFFUSION ."),
        ("The heart is enlarged.", "Enlarged heart"),
        ("Heart size is normal.", "Heart: normal size"),
        ("The lungs are clear.", "**Lungs:** Clear."),
        ("Opacity in the left lower lobe.", "left lower lobe: opacity"),
        ("No pneumothorax.", "Pneumothorax: absent"),
        ("Lungs are clear. No effusion.", "No effusion. Lungs are clear."),
    ],
)
def test_what_says_the_same_scores_one(one, other):
    a, b = ANNOTATOR.annotate([one, other])
    assert f1(a, b, "partial") == 1


def test_the_published_example_comes_out_near_radgraph_xl():
    """The README of radgraph gives 0.5, 0.33 and 0.31 for this pair; the rules read it nearly so."""
    ref, hyp = ANNOTATOR.annotate(
        [
            "endotracheal tube is present and bibasilar opacities likely represent mild atelectasis",
            "et tube terminates 2 cm above the carina and bibasilar opacities",
        ]
    )
    for level, published in (("simple", 1 / 2), ("partial", 1 / 3), ("complete", 4 / 13)):
        assert f1(ref, hyp, level) == pytest.approx(published, abs=0.2)


# Single findings whose denial is a normal statement, which is an entity of its own ("normal", definitely present).
NORMAL_SAID = [
    s for _, s, labels in labelled_sentences() if len(labels) == 1 and any(e.kind == "normal" for e in explain(s))
]
ONE_FINDING = [(s, labels) for _, s, labels in labelled_sentences() if len(labels) == 1 and s not in NORMAL_SAID]


def test_the_status_is_that_of_the_labeller():
    differ = [
        sentence
        for sentence, labels in ONE_FINDING
        if f"Observation::{NAMES[next(iter(labels.values()))]}" not in {label for _, label in read(sentence)[0]}
    ]
    assert differ == []
    assert len(ONE_FINDING) > 400


@pytest.mark.parametrize("sentence", NORMAL_SAID)
def test_a_normal_statement_is_present(sentence):
    assert label_report(sentence)
    assert "Observation::definitely present" in {label for _, label in read(sentence)[0]}


def test_what_the_labeller_finds_has_an_entity():
    assert [s for _, s, labels in labelled_sentences() if labels and not annotate(s)["entities"]] == []


@pytest.mark.parametrize(
    "text",
    ["Evaluate for pneumonia.", "History of pneumonia.", "Is there a pneumothorax?", "56 year old with pneumonia"],
)
def test_what_is_not_said_of_this_image_is_left_out(text):
    assert not any(label.startswith("Observation") for _, label in read(text)[0])


@pytest.mark.parametrize("name", REGIONS)
def test_every_region_name_is_anatomy(name):
    entities, relations = read(name)
    assert {tokens for tokens, _ in entities} == set(name.split())
    assert {label for _, label in entities} == {"Anatomy::definitely present"}
    assert len(relations) == len(name.split()) - 1


def _findings() -> Iterator[Finding]:
    for kind in KINDS:
        for side in ("R", "L"):
            for grade in ("", "small", "severe"):
                for part in DEVICES if kind == "device" else ("", "upper", "lower", "apical"):
                    yield Finding(kind=kind, side=side, grade=grade, part=part)


def test_every_finding_of_a_trace_has_entities_and_differs():
    boxes = trace.region_boxes(sample_anatomy(np.random.default_rng(0)))
    texts = {region["finding"] for f in _findings() for region in trace.describe(boxes, [f]) if region["finding"]}
    assert len(texts) > 100
    found = {text: read(text) for text in sorted(texts)}
    assert [
        text for text, (entities, _) in found.items() if not any(label.startswith("Obs") for _, label in entities)
    ] == []
    same: dict[str, list[str]] = {}
    for text, annotation in found.items():
        same.setdefault(repr([sorted(part) for part in annotation]), []).append(text)
    assert [texts for texts in same.values() if len(texts) > 1] == []


ROLES = sorted(words().roles)
LINKS = [
    *("the", "a", "no", "of", "in", "with", "and", "or", "is", "are", "not", "possible", "likely", "may", "represent"),
    *("without", "3", "cm", "left", "normal", "pleural", "effusion", "to"),
    *",.;:?/-()",
]
TEXTS = st.lists(st.sampled_from(ROLES + LINKS * 8), max_size=40).map(" ".join) | st.text(max_size=200)


@settings(max_examples=400, deadline=None)
@given(TEXTS)
def test_indices_tokens_and_relations_hold(text):
    annotation = annotate(text)
    check_annotation(annotation)
    json.dumps(annotation)
    tokens = annotation["text"].split()
    entities = annotation["entities"]
    assert list(entities) == [str(i + 1) for i in range(len(entities))]
    last = -1
    for key, e in entities.items():
        assert last < e["start_ix"] <= e["end_ix"] < len(tokens)  # in order, and no two overlap
        last = e["end_ix"]
        assert " ".join(tokens[e["start_ix"] : e["end_ix"] + 1]) == e["tokens"] == e["tokens"].lower()
        assert e["label"] in STATUS.values()
        assert len({tuple(r) for r in e["relations"]}) == len(e["relations"])
        for kind, target in e["relations"]:
            assert target in entities
            assert target != key
            anatomy = e["label"].startswith("Anatomy"), entities[target]["label"].startswith("Anatomy")
            assert anatomy == {"located_at": (False, True), "suggestive_of": (False, False)}.get(kind, anatomy[::-1])
    # no chain of modifiers comes back to where it began
    for key in entities:
        seen, step = set(), [key]
        while step:
            step = [to for k in step for kind, to in entities[k]["relations"] if kind == "modify"]
            assert key not in step
            step = [k for k in step if k not in seen]
            seen |= set(step)


@settings(max_examples=100, deadline=None)
@given(TEXTS)
def test_the_same_text_has_the_same_annotation(text):
    once = annotate(text)
    forget()
    assert annotate(text) == once


def test_the_annotation_may_be_changed_by_its_owner():
    annotate("Small effusion.")["entities"]["1"]["relations"].clear()
    assert annotate("Small effusion.")["entities"]["1"]["relations"] == [["modify", "2"]]


@pytest.mark.parametrize(
    "unit",
    [
        "no effusion ",
        "left ",
        "left and right ",
        "opacity, ",
        "(",
        "1.",
        "small or ",
        "size of the ",
        "\u0130\ufb01漢 ",
        "a",
        "5 x ",
    ],
)
def test_a_megabyte_is_read_up_to_the_limit(unit):
    text = (unit * (1_000_000 // len(unit)))[:1_000_000]
    assert annotate(text) == annotate(text[:MAX_CHARS])


def test_texts_keep_their_order_and_the_annotator_has_its_name():
    annotator = get_annotator("rules")
    assert isinstance(annotator, RulesAnnotator)
    assert annotator.name == "rules"
    texts = ["Small effusion.", "", "Clear lungs."]
    assert [a["text"] for a in annotator.annotate(texts)] == ["small effusion .", "", "clear lungs ."]
    assert annotator.annotate([]) == []


def test_a_sentence_without_items_has_no_relations():
    items: list = []
    relate("nothing here", items)
    assert items == []


def test_it_needs_no_model_library():
    code = (
        "import sys; from radverl.radgraph.rules import RulesAnnotator; RulesAnnotator().annotate(['Small effusion.']);"
        "print(sorted({'torch', 'transformers', 'radgraph', 'ray', 'numpy'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
