"""CheXbert's loader, model and judge, on a tiny random checkpoint with the layout of the published one."""

import hashlib
import json
import logging
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest

from radverl.evaluation import score as score_cli
from radverl.facts import CONTRADICTED, ENTAILED, NOT_MENTIONED, Judge, get_judge
from radverl.judge import chexbert
from radverl.judge.chexbert import load_chexbert
from radverl.judge.failure import JudgeFailure
from radverl.labels import CHEXPERT_14, NO_FINDING
from radverl.rewards import facts
from radverl.rewards.base import failure_causes

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

WORDS = [
    "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "small", "left", "right", "pleural", "effusion", "##s", "no",
    "pneumothorax", "the", "heart", "is", "normal", "mild", "edema", "possible", "pneumonia", "large", ".", ",", ":",
    "-", "a", "line",
]  # fmt: skip
# The heads in the order of CheXbert's authors (CONDITIONS in their constants.py), written out a second time on purpose.
ORDER = [
    "Enlarged Cardiomediastinum", "Cardiomegaly", "Lung Opacity", "Lung Lesion", "Edema", "Consolidation", "Pneumonia",
    "Atelectasis", "Pneumothorax", "Pleural Effusion", "Pleural Other", "Fracture", "Support Devices", "No Finding",
]  # fmt: skip
CONFIG = {
    "model_type": "bert", "vocab_size": len(WORDS), "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2,
    "intermediate_size": 64, "dtype": "float16",
}  # fmt: skip
REPORTS = [
    "Small left pleural effusion.",
    "",
    "No pneumothorax.\n\nThe HEART is   normal.",
    "Mild edema, possible pneumonia. Large right effusions.",
    "the heart " * 40,
]
TRUTH = json.dumps({"labels": {"Pleural Effusion": 1, "Pneumothorax": 0}})
CLASS = {"blank": 0, "positive": 1, "negative": 2, "uncertain": 3}


class Labeler(torch.nn.Module):
    """Its names give the checkpoint its keys; nothing else of it is used."""

    def __init__(self):
        super().__init__()
        self.bert = transformers.BertModel(transformers.BertConfig(**CONFIG))
        self.linear_heads = torch.nn.ModuleList([torch.nn.Linear(32, 4 if k < 13 else 2) for k in range(14)])


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    for name in (chexbert.CHECKPOINT, chexbert.SHA256, chexbert.TOKENIZER):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(chexbert, "_loaded", {})


@pytest.fixture(scope="module")
def labeler():
    torch.manual_seed(0)
    model = Labeler().eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)  # so that classes differ between reports
    return model


@pytest.fixture
def saved(labeler, tmp_path):
    """A checkpoint as CheXbert's training writes it, and the tokenizer folder."""
    model = torch.nn.DataParallel(labeler)
    adam = torch.optim.Adam(model.parameters())
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    adam.step()
    whole = {"epoch": 3, "model_state_dict": model.state_dict(), "optimizer_state_dict": adam.state_dict()}
    folder = tmp_path / "bert-base-uncased"
    folder.mkdir()
    (folder / "vocab.txt").write_text("\n".join(WORDS) + "\n")
    (folder / "config.json").write_text(json.dumps(CONFIG))

    def save(change=None, **options):
        weights = {name: value.clone() for name, value in whole["model_state_dict"].items()}
        if change:
            change(weights)
        return write({**whole, "model_state_dict": weights}, **options)

    def write(value, **options):
        path = tmp_path / "chexbert.pth"
        torch.save(value, path, **options)
        return pinned(path)

    def pinned(path):
        sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
        return {"checkpoint": str(path), "sha256": sha256, "tokenizer": str(folder)}

    return SimpleNamespace(save=save, write=write, pinned=pinned, folder=folder, whole=whole)


def always(**classes):
    """A change of weights after which these heads always say this, and every other one blank."""

    def change(weights):
        for k, name in enumerate(ORDER):
            weights[f"module.linear_heads.{k}.weight"].zero_()
            bias = weights[f"module.linear_heads.{k}.bias"]
            bias.zero_()
            bias[CLASS[classes.get(name.replace(" ", "_"), "blank")]] = 1.0

    return change


def by_hand(labeler, report):
    """[CLS] vector of one report, from the word list, without our tokenizer, batches or loader."""
    text = report.lower()
    for mark in ".,:":
        text = text.replace(mark, f" {mark} ")
    pieces = []
    for word in text.split():
        pieces += [word] if word in WORDS else ["effusion", "##s"] if word == "effusions" else ["[UNK]"]
    ids = [WORDS.index(piece) for piece in ["[CLS]", *pieces[:510], "[SEP]"]]
    with torch.no_grad():
        return labeler.bert(torch.tensor([ids]))[0][0, 0]


def test_keys_are_those_of_the_published_checkpoint(saved):
    keys = list(saved.whole["model_state_dict"])
    assert len(keys) == 5 + 2 * 16 + 2 + 28  # embeddings, 16 a layer, pooler, heads
    assert keys[0] == "module.bert.embeddings.word_embeddings.weight"
    assert "module.bert.encoder.layer.1.attention.self.query.weight" in keys
    assert keys[-1] == "module.linear_heads.13.bias"


@pytest.mark.parametrize("zipped", [True, False])  # torch 1.4 wrote the latter
def test_labels_and_embeddings_equal_a_forward_by_hand(saved, labeler, zipped):
    model = load_chexbert(**saved.save(_use_new_zipfile_serialization=zipped))
    vectors, labels = model.embed(REPORTS), model.labels(REPORTS)
    assert vectors.shape == (5, 32)
    assert vectors.dtype == "float32"
    for report, vector, label in zip(REPORTS, vectors, labels, strict=True):
        hidden = by_hand(labeler, report)
        assert torch.tensor(vector).sub(hidden).abs().max() < 1e-4
        classes = [int(head(hidden).argmax()) for head in labeler.linear_heads]
        assert label == {name: [None, 1, 0, -1][k] for name, k in zip(ORDER, classes, strict=True)}
    assert len({tuple(label.values()) for label in labels}) > 2  # or the comparison says little


def test_a_batch_equals_one_by_one(saved, monkeypatch):
    monkeypatch.setattr(chexbert, "BATCH", 3)
    model = load_chexbert(**saved.save())
    reports = [f"{word} {REPORTS[i % 5]}" for i, word in enumerate(WORDS[5:])]
    assert model.labels(reports) == [model.labels([report])[0] for report in reports]
    one_by_one = [model.embed([report])[0] for report in reports]
    assert abs(model.embed(reports) - one_by_one).max() < 1e-4
    assert model.labels([]) == []
    assert model.embed([]).shape == (0, 32)


def test_tokens_are_those_of_bert(saved):
    ours = load_chexbert(**saved.save())._tokenizer
    vocabulary = {word: i for i, word in enumerate(WORDS)}
    theirs = transformers.BertTokenizer(vocab=vocabulary, do_lower_case=True)
    for text in [*REPORTS, "Élargi: NO-effusions,a.line\u00a0[SEP] 心 \x00\u200bheart", "the " * 700]:
        expected = theirs(chexbert.normalise(text), truncation=True, max_length=512)["input_ids"]
        assert ours.encode(chexbert.normalise(text)).ids == expected


def test_heads_are_read_by_name(saved):
    for k, name in enumerate(ORDER):
        labels = load_chexbert(**saved.save(always(**{name.replace(" ", "_"): "positive"}))).labels(["heart"])[0]
        assert [label for label, value in labels.items() if value == 1] == [name], k
    assert set(ORDER) == set(CHEXPERT_14)


@pytest.mark.parametrize(
    ("policy", "hedged"), [("ones", ENTAILED), ("zeros", NOT_MENTIONED), ("ignore", NOT_MENTIONED)]
)
def test_states_of_the_four_classes(saved, policy, hedged):
    settings = saved.save(
        always(Edema="positive", Pneumothorax="negative", Pneumonia="uncertain", No_Finding="positive")
    )
    judge = get_judge("chexbert", policy, settings)
    assert isinstance(judge, Judge)
    expected = dict.fromkeys(CHEXPERT_14, NOT_MENTIONED)
    assert judge.states("heart") == expected | {"Edema": ENTAILED, "Pneumothorax": CONTRADICTED, "Pneumonia": hedged}
    assert judge.states_batch(["heart", " \n\t", "edema"]) == [judge.states("heart"), expected, judge.states("edema")]


def test_no_finding_stands_alone_and_an_empty_report_mentions_nothing(saved):
    judge = get_judge("chexbert", "ones", saved.save(always(No_Finding="positive", Support_Devices="positive")))
    states = judge.states("The heart is normal.")
    assert [name for name in CHEXPERT_14 if states[name] == ENTAILED] == [NO_FINDING, "Support Devices"]
    assert set(judge.states("").values()) == {NOT_MENTIONED}


def test_a_long_report_is_cut_to_512_tokens_and_said_so_once(saved, labeler, caplog):
    model = load_chexbert(**saved.save())
    long = "the heart is normal . " * 200 + "large effusion"
    with caplog.at_level(logging.WARNING):
        vector = model.embed([long])[0]
        model.embed([long, long])
    assert torch.tensor(vector).sub(by_hand(labeler, long)).abs().max() < 1e-4
    assert [record.message.split(";")[0] for record in caplog.records] == [
        "chexbert: 1 of 1 texts have more than 512 tokens"
    ]


def test_odd_text_gets_an_answer(saved):
    model = load_chexbert(**saved.save())
    for text in ["\ud800", "\x00\x07", "😀" * 50, "x" * 100_000, "[MASK]", "\u2028"]:
        assert set(model.labels([text])[0]) == set(CHEXPERT_14)


def test_one_model_a_process(saved):
    settings = saved.save()
    with ThreadPoolExecutor(4) as pool:
        models = list(pool.map(lambda _: load_chexbert(**settings), range(8)))
    assert len({id(model) for model in models}) == 1
    os.remove(settings["checkpoint"])  # it was read; a run goes on
    assert load_chexbert(**settings) is models[0]


def test_threads_get_the_answers_of_their_own_reports(saved):
    judge = get_judge("chexbert", "ones", saved.save())
    alone = [judge.states(report) for report in REPORTS]
    start = threading.Barrier(8)

    def many(i):
        start.wait()
        return [judge.states(report) for report in REPORTS[i % 5 :]] == alone[i % 5 :]

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(many, range(8)))


def test_settings_come_from_the_environment_too(saved, monkeypatch):
    settings = saved.save()
    monkeypatch.setenv(chexbert.CHECKPOINT, settings["checkpoint"])
    monkeypatch.setenv(chexbert.TOKENIZER, settings["tokenizer"])
    monkeypatch.setenv(chexbert.SHA256, settings["sha256"].upper())
    assert get_judge("chexbert")._model is load_chexbert(**settings)


def test_a_saved_tokenizer_json_does_as_well(saved):
    settings = saved.save()
    labels = load_chexbert(**settings).labels(REPORTS)
    vocabulary = {word: i for i, word in enumerate(WORDS)}
    transformers.BertTokenizer(vocab=vocabulary, do_lower_case=False).save_pretrained(saved.folder)
    (saved.folder / "vocab.txt").unlink()
    chexbert._loaded.clear()
    assert load_chexbert(**settings).labels(REPORTS) == labels  # lower-cased whatever the file says


def test_weights_without_module_and_of_other_transformers_load(saved, labeler):
    state = dict(labeler.state_dict()) | {"bert.embeddings.position_ids": torch.arange(512)[None]}
    half = {name: value.double() if value.is_floating_point() else value for name, value in state.items()}
    vector = load_chexbert(**saved.write({"model_state_dict": half})).embed(REPORTS[:1])[0]
    assert torch.tensor(vector).sub(by_hand(labeler, REPORTS[0])).abs().max() < 1e-4


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"checkpoint": None}, "no checkpoint; .*RADVERL_CHEXBERT"),
        ({"checkpoint": "none.pth"}, "none.pth is no file"),
        ({"checkpoint": 5}, "checkpoint is 5"),
        ({"tokenizer": None}, "no tokenizer; .*RADVERL_CHEXBERT_TOKENIZER"),
        ({"tokenizer": "nowhere"}, "nowhere does not exist"),
        ({"sha256": None}, "no sha256 is given; .*sha256sum"),
        ({"sha256": "d8a"}, "sha256 is 'd8a'"),
        ({"sha256": "0" * 64}, "has sha256 [0-9a-f]{64} and not 0{64}"),
        ({"device": "cuda:99"}, "device 'cuda:99' cannot be used"),
        ({"device": "tpu"}, "device 'tpu' cannot be used"),
        ({"model": "x"}, "unknown setting model; it has checkpoint"),
    ],
)
def test_settings_that_cannot_be_are_refused_in_one_sentence(saved, settings, message):
    with pytest.raises(ValueError, match=message) as caught:
        get_judge("chexbert", "ones", {**saved.save(), **settings})
    assert "\n" not in str(caught.value)


class Code:
    """A pickle that leaves a file behind if it is ever opened in earnest."""

    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return os.mkdir, (self.path,)


def test_a_checkpoint_with_code_is_refused_and_not_run(saved, tmp_path):
    trap = tmp_path / "ran"
    for options in ({}, {"_use_new_zipfile_serialization": False}):
        settings = saved.write({**saved.whole, "extra": Code(trap)}, **options)
        with pytest.raises(ValueError, match=r"no file of weights alone \(UnpicklingError.*has code in it"):
            load_chexbert(**settings)
    assert not trap.exists()


@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 0.999])
def test_a_truncated_file_is_refused(saved, share, tmp_path):
    for options in ({}, {"_use_new_zipfile_serialization": False}):
        whole = Path(saved.save(**options)["checkpoint"]).read_bytes()
        cut = tmp_path / "cut.pth"
        cut.write_bytes(whole[: int(len(whole) * share)])
        with pytest.raises(ValueError, match="no file of weights alone"):
            load_chexbert(**saved.pinned(cut))


def drop(*names):
    def change(weights):
        for name in [name for name in weights if name.startswith(names)]:
            del weights[name]

    return change


def put(name, *shape):
    return lambda weights: weights.__setitem__(name, torch.zeros(*shape))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (drop("module.linear_heads.13"), r"lacks linear_heads.13.weight, linear_heads.13.bias; give"),
        (drop("module.bert.encoder.layer.1"), r"lacks bert.encoder.layer.1.\S+, \S+, \S+ and 13 more"),
        (put("module.linear_heads.14.weight", 4, 32), r"has unknown linear_heads.14.weight"),
        (put("module.linear_heads.2.weight", 3, 32), r"other shapes for linear_heads.2.weight \(3, 32\) for \(4, 32\)"),
        (put("module.bert.embeddings.word_embeddings.weight", 9, 32), r"other shapes for bert.embeddings.word"),
    ],
)
def test_another_layout_is_refused_by_the_names_that_differ(saved, change, message):
    with pytest.raises(ValueError, match=message):
        load_chexbert(**saved.save(change))


@pytest.mark.parametrize(
    ("value", "has"),
    [
        ({"state_dict": {}}, "it has: state_dict"),
        ([1, 2], "it has: list"),
        ({"model_state_dict": {"a": 1}}, "it has: model_state_dict"),
    ],
)
def test_other_files_of_torch_are_refused(saved, value, has):
    with pytest.raises(ValueError, match=f"no weights at model_state_dict .{has}"):
        load_chexbert(**saved.write(value))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (WORDS[:-1], f"has {len(WORDS) - 1} entries and the model {len(WORDS)}"),
        ([*WORDS[:-1], "the"], f"has {len(WORDS) - 1} entries"),
        ([word.strip("[]") for word in WORDS], r"has no \[PAD\], \[UNK\], \[CLS\], \[SEP\]"),
        (["<html>404</html>"], "has no"),
    ],
)
def test_another_vocabulary_is_refused(saved, words, message):
    (saved.folder / "vocab.txt").write_text("\n".join(words) + "\n")
    with pytest.raises(ValueError, match=message):
        load_chexbert(**saved.save())


def test_a_vocabulary_of_equal_size_but_other_words_is_refused(saved, tmp_path):
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *(f"w{i}" for i in range(30_518))]
    file = tmp_path / "vocab.txt"
    file.write_text("\n".join(words))
    with pytest.raises(ValueError, match=r"another vocabulary \(\[UNK\], \[CLS\], \[SEP\], the stand elsewhere"):
        load_chexbert(**{**saved.save(), "tokenizer": str(file)})


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("config.json", '{"model_type": "roberta"}', "no config of BERT"),
        ("config.json", "<html>", "no config of BERT"),
        ("config.json", '{"model_type": "bert", "hidden_size": "many"}', "no config of BERT"),
        ("vocab.txt", None, "neither vocab.txt nor tokenizer.json"),
        ("vocab.txt", b"\xff\xfe\x00", "no vocabulary of word pieces"),
    ],
)
def test_bad_files_of_the_tokenizer_are_refused(saved, name, content, message):
    if content is None:
        (saved.folder / name).unlink()
    else:
        (saved.folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ValueError, match=message):
        load_chexbert(**saved.save())


def test_facts_reward_with_chexbert(saved):
    settings = saved.save(always(Pleural_Effusion="positive", Pneumothorax="negative"))
    result = facts.compute_score("test", facts.GOLD[0], TRUTH, judge="chexbert", judge_settings=settings)
    assert (result["score"], result["failed"], result["tp"]) == (1.0, False, 1.0)
    wrong = saved.save(always(Pneumothorax="positive", Pleural_Effusion="uncertain"))
    result = facts.compute_score(
        "test", facts.GOLD[0], TRUTH, judge="chexbert", judge_settings=wrong, uncertain="zeros"
    )
    assert (result["score"], result["failed"], result["fp"], result["fn"]) == (0.0, False, 1.0, 1.0)


@pytest.mark.parametrize("weight", ["linear_heads.4.bias", "bert.embeddings.LayerNorm.bias"])
def test_a_model_without_an_answer_is_a_failure_and_no_zero(saved, weight):
    settings = saved.save(lambda weights: weights[f"module.{weight}"].fill_(float("nan")))
    result = facts.compute_score("test", facts.GOLD[0], TRUTH, judge="chexbert", judge_settings=settings)
    assert result["failed"] is True
    assert failure_causes(result) == ["invalid"]
    with pytest.raises(JudgeFailure, match="NaN or infinity"):
        load_chexbert(**settings).labels(["heart"])


def test_the_pooler_is_not_used(saved, labeler):
    model = load_chexbert(**saved.save(lambda weights: weights["module.bert.pooler.dense.bias"].fill_(float("nan"))))
    assert torch.tensor(model.embed(REPORTS[:1])[0]).sub(by_hand(labeler, REPORTS[0])).abs().max() < 1e-4


def test_score_command(saved, tmp_path, capsys):
    settings = saved.save(always(Pleural_Effusion="positive"))
    rows = tmp_path / "predictions.jsonl"
    rows.write_text(json.dumps({"prediction": REPORTS[0], "labels": {"Pleural Effusion": 1}}) + "\n")
    call = ["facts", "--input", str(rows), "--judge", "chexbert", "--set"]
    assert score_cli.main([*call, f"judge_settings={json.dumps(settings)}"]) == 0
    assert "mean 1.0000 over 1 of 1" in capsys.readouterr().out
    assert score_cli.main([*call, f"judge_settings={json.dumps({**settings, 'sha256': '1' * 64})}"]) == 2
    assert "has sha256" in capsys.readouterr().err


def test_import_stays_light():
    heavy = "{'torch', 'transformers', 'tokenizers'}"
    code = f"import sys, radverl.judge.chexbert_judge; print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
