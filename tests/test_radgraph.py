"""RadGraphAnnotator against the radgraph package's own run of each text, on a random checkpoint; loading; hard texts.

Set RADVERL_RADGRAPH to a published checkpoint (and RADVERL_RADGRAPH_TOKENIZER to its BERT) for the worked examples.
"""

import io
import json
import os
import random
import shutil
import tarfile
import time

import pytest

from radverl.radgraph import AnnotationFailure, RadGraphAnnotator, checkpoint, f1, get_annotator, packed, transformers5
from radverl.radgraph import annotator as module
from radverl.radgraph.buckets import buckets
from radverl.radgraph.forward import MAX_PAIRS
from tests import tiny_radgraph

pytestmark = pytest.mark.filterwarnings(
    "ignore:Document 0 has a sentence with a single token:UserWarning", "ignore:Detected pickle protocol:UserWarning"
)
pytest.importorskip("radgraph", reason="radgraph is not installed; pip install radgraph==0.1.18 requests")


@pytest.fixture(scope="session")
def tiny(tmp_path_factory):
    """A folder with a checkpoint of radgraph-xl, and its base model beside it."""
    root = tmp_path_factory.mktemp("radgraph")
    tiny_radgraph.write_checkpoint(root)
    return root


@pytest.fixture(scope="session")
def ours(tiny):
    return RadGraphAnnotator(checkpoint=tiny / "radgraph-xl", cache=False)


@pytest.fixture(scope="session")
def theirs(tiny):
    return tiny_radgraph.upstream(tiny, tiny / "base")


def sets(annotation):
    """Entities and relations, by place and content."""
    found = annotation["entities"]
    spans = {key: (e["tokens"], e["label"], e["start_ix"], e["end_ix"]) for key, e in found.items()}
    return set(spans.values()), {(spans[key], kind, spans[t]) for key, e in found.items() for kind, t in e["relations"]}


def texts(count, seed=0):
    """Texts of 1 to 200 tokens, many of equal length, some with what models write."""
    rng = random.Random(seed)
    odd = (
        "Normal",
        "no",
        "?",
        "...",
        "x" * 300,
        "naïve café ½ 5×3 mm",
        "\x00\u200b tube",
        "**No** <b>edema</b> $x$",
        "左肺 clear",
    )
    out = [tiny_radgraph.report(rng, rng.choice((1, 1, 1, 2, 2, 3, 4, 5, 6, 12))) for _ in range(count - len(odd) * 2)]
    return [*out, *odd, *(f"{mark} {tiny_radgraph.report(rng, 2)}" for mark in odd)]


def test_500_texts_are_as_upstream_annotates_each_alone(ours, theirs):
    given = texts(500)
    rng = random.Random(5)
    given = [*given, *rng.sample(given, 40)]
    rng.shuffle(given)
    before = ours.computed, ours.run_alone
    found = ours.annotate(given)
    alone = {text: theirs([text.lower()])["0"] for text in set(given)}
    entities = relations = 0
    for text, mine in zip(given, found, strict=True):
        its = alone[text]
        assert sets(mine) == sets(its), text
        assert (mine["text"], mine["entities"]) == (its["text"], its["entities"]), text
        entities, relations = entities + len(sets(its)[0]), relations + len(sets(its)[1])
    assert entities > 10_000
    assert relations > 2000
    computed, run_alone = ours.computed - before[0], ours.run_alone - before[1]
    assert computed <= 500  # duplicates once
    assert run_alone < 0.3 * computed  # the batches were not for nothing


@pytest.mark.parametrize("settings", [{"lowercase": False}, {"batch": 1}, {"batch": 64}, {"model": "radgraph"}])
def test_settings_do_not_change_what_upstream_says(settings, tmp_path):
    model = settings.get("model", "radgraph-xl")
    folder = tiny_radgraph.write_checkpoint(tmp_path, model)
    ours = RadGraphAnnotator(checkpoint=folder, cache=False, **settings)
    theirs = tiny_radgraph.upstream(tmp_path, tmp_path / "base", model)
    given = texts(40, seed=1)
    for text, mine in zip(given, ours.annotate(given), strict=True):
        its = theirs([text if settings.get("lowercase") is False else text.lower()])["0"]
        assert (mine["text"], mine["entities"]) == (its["text"], its["entities"]), text


def test_texts_longer_than_the_encoder_are_as_upstream_folds_them(ours, theirs):
    rng = random.Random(3)
    given = [tiny_radgraph.report(rng, sentences) for sentences in (50, 70, 3)]
    found = ours.annotate(given)
    pieces = [sum(map(ours._pieces, a["text"].split())) for a in found]
    assert [count > 510 for count in pieces] == [True, True, False]
    for text, mine in zip(given, found, strict=True):
        assert mine["entities"] == theirs([text.lower()])["0"]["entities"]


def test_pairs_in_pieces_are_the_pairs(ours, monkeypatch):
    given = texts(30, seed=2)
    whole = ours.annotate(given)
    monkeypatch.setattr("radverl.radgraph.forward.MAX_PAIRS", 40)
    assert ours.annotate(given) == whole


def test_without_onednn_nothing_changes(ours, tiny, monkeypatch):
    monkeypatch.setattr(packed, "_forward", lambda layer: (_ for _ in ()).throw(NotImplementedError))
    plain = RadGraphAnnotator(checkpoint=tiny / "radgraph-xl", cache=False)
    assert not plain._linears
    given = texts(40, seed=4)
    assert plain.annotate(given) == ours.annotate(given)


def test_a_choice_on_edge_is_made_by_the_text_alone(ours, theirs, monkeypatch):
    given = texts(40, seed=6)
    monkeypatch.setattr(ours, "_margins_3", ours._margins_3 * float("inf"))
    before = ours.run_alone
    found = ours.annotate(given)
    assert ours.run_alone - before > 30
    assert [a["entities"] for a in found] == [theirs([text.lower()])["0"]["entities"] for text in given]


# Texts


@pytest.mark.parametrize("text", ["", "  \n\t", "\u200b\x00", "\x00"])
def test_a_text_without_words_has_no_entities_and_needs_no_model(ours, text):
    before = ours.computed
    assert ours.annotate([text]) == [{"text": "", "entities": {}}]
    assert ours.computed == before


def test_long_texts_fail_in_bounded_time_and_alone(ours):
    given = ["No effusion.", "no " * 1100, "x" * 2_000_000, "." * 1_000_000, "((" * 4000, "No edema."]
    start = time.process_time()
    found = ours.annotate_each(given)
    assert time.process_time() - start < 60  # bounded, not fast
    assert [isinstance(out, AnnotationFailure) for out in found] == [False, True, True, True, False, False]
    assert {out.cause for out in found if isinstance(out, AnnotationFailure)} == {"invalid"}
    assert "1100 tokens, over 1024" in str(found[1])
    with pytest.raises(AnnotationFailure, match="2000000 characters"):
        ours.annotate(["No effusion.", "x" * 2_000_000])


def test_threads_may_ask_at_once(tiny, ours):
    from concurrent.futures import ThreadPoolExecutor

    fresh = RadGraphAnnotator(checkpoint=tiny / "radgraph-xl", cache=False)
    given = [texts(24, seed=seed) for seed in range(8, 12)]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(fresh.annotate, given)) == [ours.annotate(part) for part in given]


def test_it_is_had_by_name(tiny, ours):
    annotator = get_annotator("radgraph-xl", {"checkpoint": str(tiny / "radgraph-xl"), "cache": False})
    assert annotator.name == "radgraph-xl"
    assert annotator.annotate(["No effusion."]) == ours.annotate(["No effusion."])


def test_half_surrogates_are_read(ours):
    (found,) = ours.annotate(["No \ud800 effusion"])
    assert found["text"] == "no ? effusion"


def test_a_text_is_a_string(ours):
    with pytest.raises(TypeError, match="a text is NoneType"):
        ours.annotate([None])


def test_what_fails_in_the_model_is_a_failure_of_that_text(ours, monkeypatch):
    import radverl.radgraph.forward as forward

    whole = forward.forward

    def fails(built, batch, device):
        if any("edema" in sentence.text for sentence in batch["metadata"][0]):
            raise RuntimeError("out of memory")
        return whole(built, batch, device)

    given = ["No effusion.", "No edema .", "No pneumothorax ."]
    right = ours.annotate(given)
    monkeypatch.setattr(forward, "forward", fails)
    first, failure, last = ours.annotate_each(given)
    assert (first, last) == (right[0], right[2])
    assert str(failure) == "other: radgraph-xl gives no annotation (RuntimeError: out of memory)"


def test_buckets():
    rng = random.Random(0)
    lengths = [rng.randint(1, 900) for _ in range(300)] + [20] * 50
    alone = [rng.random() < 0.1 for _ in lengths]
    found = buckets(lengths, 16, alone)
    assert sorted(place for bucket in found for place in bucket) == list(range(350))
    for bucket in found:
        assert len({lengths[place] for place in bucket}) == 1
        assert len(bucket) == 1 or not any(alone[place] for place in bucket)
        assert len(bucket) == 1 or len(bucket) * ((lengths[bucket[0]] + 1) // 2) ** 2 <= MAX_PAIRS
    assert max(map(len, found)) == 16


# Cache


def test_references_are_kept_on_disk(tiny, tmp_path, monkeypatch):
    monkeypatch.setenv(module.CACHE, str(tmp_path / "kept" / "annotations.sqlite"))
    first = RadGraphAnnotator(checkpoint=tiny / "radgraph-xl")
    given = texts(40, seed=7)
    found = first.annotate(given)
    assert first.computed
    second = RadGraphAnnotator(checkpoint=tiny / "radgraph-xl")
    assert second.annotate([text.upper().lower() for text in given]) == found
    assert second.computed == 0
    second.digest = "another checkpoint"
    second.annotate(given[:3])
    assert second.computed > 0
    assert (tmp_path / "kept" / "annotations.sqlite").stat().st_mode & 0o077 == 0


# Loading


def test_archive_and_folder_are_the_same_checkpoint(tiny, ours, tmp_path, monkeypatch):
    archive = tiny_radgraph.pack(tiny / "radgraph-xl", tmp_path / "radgraph-xl.tar.gz")
    monkeypatch.setenv(checkpoint.CHECKPOINT, str(tmp_path))
    packed_one = RadGraphAnnotator(cache=False)
    assert packed_one.digest == ours.digest
    assert packed_one.annotate(texts(30)) == ours.annotate(texts(30))
    assert list(tmp_path.iterdir()) == [archive]  # nothing was unpacked


def test_the_hub_cache_is_found_and_nothing_is_fetched(tiny, tmp_path, monkeypatch):
    import huggingface_hub.constants

    monkeypatch.delenv(checkpoint.CHECKPOINT, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "none"))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(ValueError, match="radgraph-xl: no checkpoint on this machine; fetch it with `hf download Stan"):
        RadGraphAnnotator(cache=False)
    snapshot = tmp_path / "models--StanfordAIMI--RRG_scorers" / "snapshots" / ("0" * 40)
    snapshot.mkdir(parents=True)
    (snapshot.parents[1] / "refs").mkdir()
    (snapshot.parents[1] / "refs" / "main").write_text("0" * 40)
    archive = tiny_radgraph.pack(tiny / "radgraph-xl", snapshot / "radgraph-xl.tar.gz")
    assert checkpoint.find_checkpoint("radgraph-xl") == archive


def test_other_tokenizers_are_left_alone(ours, tiny):
    import transformers
    from transformers import AutoTokenizer

    if int(transformers.__version__.split(".")[0]) >= 5:
        assert not hasattr(transformers.PreTrainedTokenizerBase, "encode_plus")
        assert not hasattr(AutoTokenizer.from_pretrained(str(tiny / "base")), "encode_plus")
    from radgraph.allennlp.common import cached_transformers

    assert cached_transformers.get_tokenizer.__module__ == cached_transformers.__name__
    assert ours._linears
    assert not any("forward" in layer.__dict__ for layer, _ in ours._linears)


@pytest.mark.parametrize(
    ("model", "versions", "message"),
    [
        ("modern-radgraph-xl", {}, "modern-radgraph-xl gives wrong annotations with transformers 5.*use radgraph-xl"),
        ("radgraph-xl", {"radgraph": "0.1.19"}, "radgraph 0.1.19 is installed, and only 0.1.18 has been checked"),
        ("radgraph-xxl", {}, "model is 'radgraph-xxl'; use one of radgraph, radgraph-xl, echograph"),
    ],
)
def test_versions_that_are_wrong_are_refused(monkeypatch, model, versions, message):
    found = {"radgraph": "0.1.18", "transformers": "5.9.0", "torch": "2.11.0", **versions}
    monkeypatch.setattr(transformers5.importlib.metadata, "version", found.__getitem__)
    with pytest.raises(ValueError, match=message):
        RadGraphAnnotator(model)


def copy_with(tiny, folder, change):
    """A copy of the checkpoint, changed."""
    out = folder / "radgraph-xl"
    shutil.copytree(tiny / "radgraph-xl", out)
    config = json.loads((out / "config.json").read_text())
    change(out, config)
    if (out / "config.json").exists():
        (out / "config.json").write_text(json.dumps(config))
    return out


def put_code(out, config):
    import pickle

    class Code:
        def __reduce__(self):
            return os.mkdir, (str(out / "owned"),)

    (out / "weights.th").write_bytes(pickle.dumps({"a": Code()}))


def spoil(out, config):
    import torch

    weights = torch.load(out / "weights.th", weights_only=True)
    weights[next(iter(weights))][0] = float("nan")
    torch.save(weights, out / "weights.th")


def remove_weight(out, config):
    import torch

    weights = torch.load(out / "weights.th", weights_only=True)
    del weights[next(iter(weights))]
    torch.save(weights, out / "weights.th")


def rename_model(out, config):
    for path in (out / "vocabulary").glob("radgraph-xl*"):
        path.rename(path.with_name(path.name.replace("radgraph-xl", "echograph")))


FAULTS = {
    "no weights": (lambda out, config: (out / "weights.th").unlink(), "has no weights.th"),
    "no config": (lambda out, config: (out / "config.json").unlink(), "has no config.json"),
    "no vocabulary": (lambda out, config: shutil.rmtree(out / "vocabulary"), "has no vocabulary/non_padded"),
    "code in the weights": (put_code, "no file of weights alone"),
    "cut weights": (lambda out, config: (out / "weights.th").write_bytes(b"PK\3\4"), "no file of weights alone"),
    "NaN": (spoil, "has NaN or infinity"),
    "a weight less": (remove_weight, "does not fit the model its config.json describes"),
    "other size": (lambda out, config: config["model"].update(feature_size=9), "does not fit the model"),
    "class in the config": (
        lambda out, config: config["model"]["modules"]["ner"].update(type="os.system"),
        "config.json is not that of a RadGraph model .*modules.ner.type is 'os.system', where a number belongs",
    ),
    "class for the sizes": (lambda out, config: config["model"].update(feature_size={"type": "x.Y"}), "type is 'x.Y'"),
    "other model": (rename_model, "is a checkpoint of echograph, not of radgraph-xl"),
    "no base model": (
        lambda out, config: config["dataset_reader"]["token_indexers"]["bert"].update(model_name="example/none"),
        "tokenizer and config of example/none are not on this machine.*RADVERL_RADGRAPH_TOKENIZER",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("archive", [False, True])
def test_faults_of_a_checkpoint_are_one_clear_error(tiny, tmp_path, fault, archive, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    change, message = FAULTS[fault]
    path = copy_with(tiny, tmp_path, change)
    if archive:
        with tarfile.open(tmp_path / "x.tar.gz", "w:gz") as tar:
            for part in path.iterdir():
                tar.add(part, arcname=part.name)
        path = tmp_path / "x.tar.gz"
    with pytest.raises(ValueError, match=message) as error:
        RadGraphAnnotator(checkpoint=path, cache=False)
    assert "\n" not in str(error.value)
    assert not (tmp_path / "radgraph-xl" / "owned").exists()


def member(name, content=b"x", **attributes):
    info = tarfile.TarInfo(name)
    info.size = len(content)
    for key, value in attributes.items():
        setattr(info, key, value)
    return info, content


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ([member("../../x")], "a link or a path that leads out"),
        ([member("/etc/x")], "a link or a path that leads out"),
        ([member("weights.th", b"", type=tarfile.SYMTYPE, linkname="/etc/passwd")], "a link or a path"),
        ([member("vocabulary", b"", type=tarfile.LNKTYPE, linkname="config.json")], "a link or a path"),
        ([member("pipe", b"", type=tarfile.FIFOTYPE)], "a link or a path"),
        ([member(f"v/{i}") for i in range(300)], "over 256 files"),
        ([member("config.json", b" " * (5 << 20))], "config.json is larger than 4 MB"),
        ([member("readme.txt")], "has no config.json"),
    ],
)
def test_archives_that_are_not_safe_are_refused(tmp_path, members, message):
    path = tmp_path / "x.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        for info, content in members:
            tar.addfile(info, io.BytesIO(content))
    with pytest.raises(ValueError, match=message):
        checkpoint.read_checkpoint(path)
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("content", [b"", b"no archive", None])
def test_what_is_no_archive(tmp_path, content, tiny):
    path = tmp_path / "x.tar.gz"
    if content is None:
        content = tiny_radgraph.pack(tiny / "radgraph-xl", path).read_bytes()[:20_000]
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"no checkpoint that can be read|has no"):
        checkpoint.read_checkpoint(path)
    with pytest.raises(ValueError, match="no checkpoint that can be read"):
        checkpoint.read_checkpoint(tmp_path / "none.tar.gz")


def test_a_device_that_is_not_there(tiny):
    with pytest.raises(ValueError, match="radgraph-xl: device 'tpu9' cannot be used"):
        RadGraphAnnotator(checkpoint=tiny / "radgraph-xl", device="tpu9", cache=False)


# Worked examples of the radgraph package's README, radgraph-xl


@pytest.fixture(scope="module")
def published():
    if not os.environ.get(checkpoint.CHECKPOINT):
        pytest.skip("no checkpoint: set RADVERL_RADGRAPH to radgraph-xl.tar.gz of StanfordAIMI/RRG_scorers")
    return RadGraphAnnotator("radgraph-xl", cache=False)


def test_the_published_annotation(published):
    (found,) = published.annotate(["No evidence of pneumothorax following chest tube removal."])
    entities, relations = sets(found)
    tube = ("tube", "Observation::definitely present", 6, 6)
    chest = ("chest", "Anatomy::definitely present", 5, 5)
    assert {("pneumothorax", "Observation::definitely absent", 3, 3), chest, tube} <= entities
    assert (tube, "located_at", chest) in relations


def test_the_published_scores(published):
    refs = published.annotate(
        [
            "no acute cardiopulmonary abnormality",
            "endotracheal tube is present and bibasilar opacities likely represent mild atelectasis",
        ]
    )
    hyps = published.annotate(
        [
            "no acute cardiopulmonary abnormality",
            "et tube terminates 2 cm above the carina and bibasilar opacities",
        ]
    )
    for level, mean in (("simple", 0.75), ("partial", 0.6666666666666666), ("complete", 0.6538461538461539)):
        assert sum(f1(r, h, level) for r, h in zip(refs, hyps, strict=True)) / 2 == pytest.approx(mean), level
