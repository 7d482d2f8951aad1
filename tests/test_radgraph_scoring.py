"""RadGraph-F1 from annotations: against the radgraph package's own scoring, known values, faults; and files of them."""

import copy
import importlib.util
import json
import random
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from radverl.radgraph import (
    LEVELS,
    AnnotationFailure,
    FileAnnotator,
    check_annotation,
    f1,
    get_annotator,
    read_annotations,
)
from radverl.radgraph.annotation_files import text_key
from radverl.radgraph.scoring import LONG_LABELS

WORDS = ("Heart", "heart", "size", "effusion", "Left", "left", "pleural", "normal")
KINDS = ("modify", "located_at", "suggestive_of")


def annotation(*entities, text="heart size is normal"):
    """Entities as (tokens, label, relations of (kind, place of the target, from 1))."""
    return {
        "text": text,
        "entities": {
            str(i): {
                "tokens": tokens, "label": label, "start_ix": i, "end_ix": i,
                "relations": [[kind, str(target)] for kind, target in relations],
            }
            for i, (tokens, label, relations) in enumerate(entities, start=1)
        },
    }  # fmt: skip


def random_annotation(rng, labels):
    count = rng.randint(0, 6)
    return annotation(
        *(
            (
                rng.choice(WORDS),
                rng.choice(labels),
                [(rng.choice(KINDS), rng.randint(1, count)) for _ in range(rng.choice([0, 0, 1, 2]))],
            )
            for _ in range(count)
        )
    )


def published_rewards():
    """radgraph/rewards.py alone; the package itself imports torch."""
    if importlib.util.find_spec("radgraph") is None:
        pytest.skip("radgraph is not installed; pip install radgraph==0.1.18")
    path = Path(importlib.util.find_spec("radgraph").submodule_search_locations[0]) / "rewards.py"
    spec = importlib.util.spec_from_file_location("published_rewards", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_as_the_published_code_on_20000_pairs():
    published, rng = published_rewards(), random.Random(0)
    vocabularies = (tuple(LONG_LABELS)[:4], tuple(LONG_LABELS.values()))
    nonzero = dict.fromkeys(("simple", "partial", "complete"), 0)
    for i in range(20_000):
        labels = vocabularies[i % 2]
        hyp, ref = random_annotation(rng, labels), random_annotation(rng, labels)
        for level, theirs in zip(nonzero, published.compute_reward(hyp, ref, "all"), strict=True):
            assert f1(ref, hyp, level) == theirs, (level, hyp, ref)
            nonzero[level] += 0 < theirs < 1
    assert min(nonzero.values()) > 1000, nonzero


DP, ANAT = "Observation::definitely present", "Anatomy::definitely present"
EFFUSION = annotation(("effusion", DP, [("located_at", 2)]), ("pleural", ANAT, []))


@pytest.mark.parametrize(
    ("hyp", "scores"),
    [
        (EFFUSION, (1.0, 1.0, 1.0, 1.0)),
        (annotation(("effusion", DP, []), ("pleural", ANAT, [])), (1.0, 0.5, 0.5, 0.5)),
        # the relation is of another kind: an entity with a relation, all the same
        (annotation(("effusion", DP, [("modify", 2)]), ("pleural", ANAT, [])), (1.0, 1.0, 0.5, 0.5)),
        (annotation(("effusion", "Observation::definitely absent", []), ("pleural", ANAT, [])), (0.5, 0.5, 0.5, 0.25)),
        # case counts outside relations at complete
        (annotation(("Effusion", DP, [("located_at", 2)]), ("Pleural", ANAT, [])), (0.0, 0.0, 0.5, 0.0)),
        (annotation(("effusion", "OBS-DP", [("located_at", 2)]), ("pleural", "ANAT-DP", [])), (1.0, 1.0, 1.0, 1.0)),
        (annotation(("nodule", DP, [])), (0.0, 0.0, 0.0, 0.0)),
        (annotation(), (0.0, 0.0, 0.0, 0.0)),
    ],
)  # fmt: skip
def test_known_values(hyp, scores):
    assert tuple(f1(EFFUSION, hyp, level) for level in LEVELS) == scores


def test_equal_annotations_without_relations_have_half_of_radcliq():
    # as RadCliQ's authors compute it: F1 of no relations with none is 0
    plain = annotation(("effusion", DP, []))
    assert f1(plain, plain, "radcliq") == 0.5
    assert f1(annotation(), annotation(), "radcliq") == f1(annotation(), annotation(), "partial") == 0.0


def annotations():
    labels = st.sampled_from(tuple(LONG_LABELS.values())[:3])

    def entities(count):
        relations = st.lists(st.tuples(st.sampled_from(KINDS), st.integers(1, max(1, count))), max_size=2)
        one = st.tuples(st.sampled_from(WORDS), labels, relations)
        return st.lists(one, min_size=count, max_size=count)

    return st.integers(0, 5).flatmap(entities).map(lambda found: annotation(*found))


@given(annotations(), annotations(), st.randoms(use_true_random=False))
def test_invariants(ref, hyp, rng):
    keys = list(hyp["entities"])
    new = dict(zip(keys, rng.sample([f"x{i}" for i in range(9)], len(keys)), strict=True))
    renamed = []
    for key, entity in hyp["entities"].items():
        relations = [[kind, new[target]] for kind, target in entity["relations"]]
        renamed.append((new[key], {**entity, "start_ix": 0, "relations": rng.sample(relations, len(relations))}))
    rng.shuffle(renamed)
    before = copy.deepcopy(hyp)
    for level in LEVELS:
        score = f1(ref, hyp, level)
        assert 0 <= score <= 1
        assert score == f1(hyp, ref, level)
        assert score == f1(ref, {"entities": dict(renamed)}, level)
        assert f1(hyp, hyp, level) in ({0.0} if not keys else {1.0} if level != "radcliq" else {0.5, 1.0})
    assert hyp == before


def broken(**change):
    out = annotation(("effusion", DP, [("located_at", 2)]), ("pleural", ANAT, []))
    for key, value in change.items():
        out["entities"]["1"][key] = value
        if value is None:
            del out["entities"]["1"][key]
    return out


BAD = [
    (broken(relations=[["modify", "7"]]), "entity '1' has a relation to '7', which is no entity of it"),
    (broken(relations=[["modify"]]), r"the relation \['modify'\]; it must be \[type, key of an entity\]"),
    (broken(relations=[["modify", 2]]), r"the relation \['modify', 2\]"),
    (broken(relations=None), 'has None for "relations"'),
    (broken(relations=5), 'has 5 for "relations"'),
    (broken(label=None), 'has None for "label"'),
    (broken(tokens=None), 'has None for "tokens"'),
    (broken(tokens=["effusion"]), "tokens"),
    ({"entities": {"1": "effusion"}}, "entity '1' is 'effusion'"),
    ({"entities": []}, 'has no "entities" of its own; give what'),
    ({"0": annotation(("effusion", DP, []))}, "give one of its values"),
    (None, 'has no "entities"'),
    ("text", 'has no "entities"'),
]


@pytest.mark.parametrize(("bad", "message"), BAD)
@pytest.mark.parametrize("level", LEVELS)
def test_a_bad_annotation_is_one_clear_error(bad, message, level):
    for name, pair in (("ref", (bad, EFFUSION)), ("hyp", (EFFUSION, bad))):
        with pytest.raises(ValueError, match=f"^{name}.*{message}"):
            f1(*pair, level)
    with pytest.raises(ValueError, match=message):
        check_annotation(bad)


def test_other_levels_are_refused():
    with pytest.raises(ValueError, match="level is 'all'; use one of simple, partial, complete, radcliq"):
        f1(EFFUSION, EFFUSION, "all")


def test_importing_it_is_light():
    code = "import sys, radverl.radgraph; print([m for m in ('torch', 'transformers', 'radgraph') if m in sys.modules])"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "[]"


# Files

TEXT = "Heart size is normal.\n\nNo pleural effusion (2.5 cm)."
TOKENS = "Heart size is normal . No pleural effusion ( 2 . 5 cm ) ."
FOUND = annotation(("Heart", "ANAT-DP", []), ("normal", "OBS-DP", [("located_at", 1)]), text=TOKENS)
LAYOUTS = {
    "v1": {"p10/p10000032/s50414267.txt": {**FOUND, "data_source": "MIMIC-CXR", "data_split": "train"}},
    "v1 test": {
        "s1": {"text": TOKENS, "labeler_1": {"entities": FOUND["entities"]}, "labeler_2": {"entities": {}}},
    },
    "package": {"0": {**FOUND, "data_source": None, "data_split": "inference"}},
    "list": [FOUND],
    "one": FOUND,
    "dygie": {
        "doc_key": "s1", "dataset": "radgraph-xl", "sentences": [TOKENS.split()[:5], TOKENS.split()[5:]],
        "ner": [[[0, 0, "ANAT-DP"], [3, 3, "OBS-DP"]], [[5, 6, "OBS-DA"]]],
        "relations": [[[3, 3, 0, 0, "located_at"], [1, 1, 0, 0, "modify"]], []],
    },
}  # fmt: skip


@pytest.mark.parametrize("layout", [*LAYOUTS, "lines", "keyed lines"])
def test_layouts(tmp_path, layout):
    path = tmp_path / "annotations.json"
    if layout in LAYOUTS:
        path.write_text(json.dumps(LAYOUTS[layout], indent=1), encoding="utf-8-sig")
    else:
        other = annotation(text="no change")
        lines = [FOUND, other] if layout == "lines" else [{"a": FOUND}, {"b": other}]
        path.write_text("\n".join(map(json.dumps, lines)) + "\n\n")
    annotator = get_annotator("files", {"path": str(path)})
    assert annotator is get_annotator("files", {"path": str(path)})
    (found,) = annotator.annotate([TEXT])
    spans = [(e["tokens"], e["relations"]) for e in found["entities"].values()]
    assert spans[:2] == [("heart", []), ("normal", [["located_at", "1"]])]
    assert spans[2:] == ([("no pleural", [])] if layout == "dygie" else [])
    assert f1(found, found, "complete") == 1.0
    (as_written,) = FileAnnotator(path, lowercase=False).annotate([TOKENS])
    assert as_written["text"] == FOUND["text"]
    assert as_written["entities"]["1"]["tokens"] == "Heart"


def test_a_text_that_is_not_in_the_file_fails_and_others_do_not(tmp_path):
    path = tmp_path / "annotations.json"
    path.write_text(json.dumps(LAYOUTS["v1"]))
    annotator = FileAnnotator(path)
    found, empty, failure = annotator.annotate_each([TEXT, " \n", "Heart size is not normal."])
    assert (bool(found["entities"]), bool(empty["entities"])) == (True, False)
    assert isinstance(failure, AnnotationFailure)
    assert failure.cause == "invalid"
    assert "not normal" not in str(failure)  # report text stays out of logs
    with pytest.raises(AnnotationFailure, match="has no annotation of this text"):
        annotator.annotate([TEXT, "Heart size is not normal."])


@pytest.mark.parametrize(
    "text",
    [
        TEXT,
        "a\\nb \\f \\u2122 c",
        'He said \\"normal\\".',
        "10%. 5%, (3%) x.'y",
        "It's 5x3-mm; ___ b/l",
        "É\u00a0ü\u2003x",
    ],
)
def test_raw_texts_and_their_tokens_have_one_key(text):
    utils = pytest.importorskip("radgraph.utils", reason="radgraph is not installed; pip install radgraph==0.1.18")
    for model in ("radgraph", "radgraph-xl"):
        tokens = " ".join(utils.preprocess_reports([text], model)[0]["sentences"][0])
        if model == "radgraph-xl" or "\\" not in text:  # RadGraph 1.0 leaves written-out escapes
            assert text_key(tokens) == text_key(text), model


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "has no annotations"),
        ("{}", "has no annotations"),
        ("5", "no JSON object or list"),
        ('{"a": {"entities": {}}}', "document 'a'.*has no \"text\""),
        ('{"a": {"text": "x"}}', "document 'a' has no \"entities\""),
        ('{"a": {"text": "x", "entities": {"1": {"tokens": "x", "label": "OBS-DP"}}}}', "'a': entity '1' has None"),
        ('{"text": "x", "entities": {}}\n{"text": "y", "ent', "neither JSON .*line 2"),
        ("[" * 100_000, "neither JSON"),
        ('{"sentences": ["x"], "ner": [[[1]]]}', "is not in DyGIE's layout"),
        (b"\xff\xfe\x00", "cannot be read"),
    ],
)
def test_bad_files_are_one_clear_error(tmp_path, content, message):
    path = tmp_path / "annotations.json"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ValueError, match=message):
        read_annotations(path)
    with pytest.raises(ValueError, match="cannot be read"):
        read_annotations(tmp_path / "none.json")


def test_names_and_settings_are_checked():
    with pytest.raises(ValueError, match="annotator is 'radgraph2'; use one of rules, radgraph, radgraph-xl, files"):
        get_annotator("radgraph2")
    with pytest.raises(ValueError, match=r"annotator files: .*'file'.*arguments of FileAnnotator"):
        get_annotator("files", {"file": "x"})
