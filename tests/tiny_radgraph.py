"""A RadGraph checkpoint with random weights, in the published layout and with the published architecture.

Its labels are noise, but there are many of them, so that two ways to run it can be compared. Biases are set from the
scores of a few texts: a share of the spans are entities, and a share of the pairs of spans are relations.
"""

import json
import random
import tarfile
from pathlib import Path
from typing import Any

FINDINGS = (
    "pleural effusion", "pneumothorax", "consolidation", "interstitial edema", "cardiomegaly", "atelectasis", "nodule",
    "rib fracture", "hiatal hernia", "endotracheal tube", "opacity", "vascular congestion", "pneumoperitoneum",
)  # fmt: skip
PLACES = (
    "left", "right", "bibasilar", "left lower lobe", "right apical", "retrocardiac", "bilateral", "costophrenic angle",
    "carina", "hilar", "right hemidiaphragm", "mediastinum",
)  # fmt: skip
FRAMES = (
    "No evidence of {f}.", "There is a small {p} {f}.", "{f} in the {p} region, unchanged.", "Moderate {f} (2.5 cm).",
    "{f} may represent {g}, less likely {f}.", "The tip of the tube is 4 cm above the {p}.", "No {f}, {g} or {f}.",
    "Heart size is normal.", "Compared with ___, the {p} {f} has increased by 20%, now severe;", "{p} {f}?",
)  # fmt: skip
NER = (
    "Observation::definitely present", "Anatomy::definitely present", "Observation::definitely absent",
    "Observation::uncertain", "Anatomy::uncertain", "Anatomy::definitely absent",
)  # fmt: skip
RELATIONS = ("modify", "located_at", "suggestive_of")


def report(rng: random.Random, sentences: int) -> str:
    """An invented text."""
    text = " ".join(
        rng.choice(FRAMES).format(f=rng.choice(FINDINGS), g=rng.choice(FINDINGS), p=rng.choice(PLACES))
        for _ in range(sentences)
    )
    return text if rng.random() < 0.5 else text.replace(". ", ".\n\n", 1)


def write_base_model(folder: Path, **sizes: int) -> Path:
    """The BERT that the checkpoint names: config and word pieces, no weights."""
    from tokenizers.implementations import BertWordPieceTokenizer
    from transformers import BertConfig

    rng = random.Random(0)
    text = " ".join(report(rng, 5) for _ in range(200)).lower()
    words = sorted({word for word in "".join(c if c.isalnum() else " " for c in text).split() if len(word) < 12})
    marks = [chr(i) for i in range(33, 127) if not chr(i).isupper()]
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *marks, *words]
    pieces += [f"##{mark}" for mark in marks] + [f"##{word[i:]}" for word in words for i in range(2, len(word) - 1)]
    vocabulary = {piece: i for i, piece in enumerate(dict.fromkeys(pieces))}
    folder.mkdir(parents=True, exist_ok=True)
    BertWordPieceTokenizer(vocab=vocabulary, lowercase=True).save(str(folder / "tokenizer.json"))
    special = {f"{name}_token": f"[{name.upper()}]" for name in ("pad", "unk", "cls", "sep", "mask")}
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "BertTokenizerFast", **special}))
    size = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64, **sizes}
    BertConfig(vocab_size=max(len(vocabulary), size.pop("vocab_size", 0)), **size).save_pretrained(folder)
    return folder


def write_checkpoint(
    folder: Path, model: str = "radgraph-xl", feature_size: int = 8, hidden: int = 16, entities: float = 0.1,
    relations: float = 0.4, **sizes: int,
) -> Path:  # fmt: skip
    """config.json, weights.th and vocabulary/ under folder/<model>; the base model under folder/base."""
    import torch

    from radverl.radgraph.checkpoint import build
    from radverl.radgraph.transformers5 import load_base_model

    base = write_base_model(folder / "base", **sizes)
    out = folder / model
    (out / "vocabulary").mkdir(parents=True, exist_ok=True)
    vocabulary = {
        "non_padded_namespaces.txt": "*labels\n*tags\n",
        f"{model}__ner_labels.txt": "\n".join(("", *NER)) + "\n",
        f"{model}__relation_labels.txt": "\n".join(RELATIONS) + "\n",
    }
    for name, text in vocabulary.items():
        (out / "vocabulary" / name).write_text(text)
    (out / "config.json").write_text(json.dumps(config(base, feature_size, hidden), indent=1))
    torch.manual_seed(7)
    built = build(config(base, feature_size, hidden), vocabulary, load_base_model(base))
    dygie = built.model.eval()
    for module in dygie.modules():  # the start values are so small that every span would look alike
        if isinstance(module, torch.nn.Linear):
            torch.nn.init.normal_(module.weight, std=1.2 / module.in_features**0.5)
    _set_biases(built, model, entities, relations)
    torch.save(dygie.state_dict(), out / "weights.th")
    return out


def config(base: Path | str, feature_size: int = 8, hidden: int = 16) -> dict[str, Any]:
    """As the published config.json, of other sizes."""
    bert = {"type": "pretrained_transformer_mismatched", "model_name": str(base), "max_length": 512}
    return {
        "dataset_reader": {"type": "dygie", "max_span_width": 8, "token_indexers": {"bert": bert}},
        "model": {
            "type": "dygie",
            "embedder": {"token_embedders": {"bert": bert}},
            "initializer": {"regexes": [["_span_width_embedding.weight", {"type": "xavier_normal"}]]},
            "module_initializer": {"regexes": [[".*weight", {"type": "xavier_normal"}]]},
            "modules": {
                "coref": {"spans_per_word": 0.3, "max_antecedents": 100, "coref_prop": 0},
                "ner": {},
                "relation": {"spans_per_word": 0.5},
                "events": {
                    "trigger_spans_per_word": 0.3,
                    "argument_spans_per_word": 0.8,
                    "loss_weights": {"trigger": 1.0, "arguments": 1.0},
                },
            },
            "feature_size": feature_size,
            "max_span_width": 8,
            "target_task": "relation",
            "feedforward_params": {"num_layers": 2, "hidden_dims": hidden, "dropout": 0.4},
            "loss_weights": {"ner": 0.2, "relation": 1.0, "coref": 0.0, "events": 0.0},
        },
    }


def upstream(root: Path, base: Path, model: str = "radgraph-xl") -> Any:
    """radgraph's own class on the checkpoint in root/<model>."""
    import contextlib
    import io

    from radverl.radgraph.transformers5 import building, give_old_methods, import_radgraph, load_base_model

    package = import_radgraph()
    tokenizer, config = load_base_model(base)
    with building(give_old_methods(tokenizer), config), contextlib.redirect_stdout(io.StringIO()):
        return package.RadGraph(model_type=model, model_cache_dir=str(root), cuda=-1)


def pack(folder: Path, archive: Path) -> Path:
    """The checkpoint as it is published: one .tar.gz."""
    with tarfile.open(archive, "w:gz") as tar:
        for name in ("config.json", "weights.th", "vocabulary"):
            tar.add(folder / name, arcname=name)
    return archive


def _set_biases(built: Any, model: str, entities: float, relations: float) -> None:
    """Move the last layers so that these shares of spans and of pairs have a label."""
    import torch

    from radverl.radgraph.forward import Scores, forward, make_batch

    rng = random.Random(1)
    sentences = [report(rng, 4).lower().replace(".", " .").split() for _ in range(8)]
    ner, relation = built.model._ner._ner_scorers[f"{model}__ner_labels"], built.model._relation
    relation_scorer = relation._relation_scorers[f"{model}__relation_labels"]

    def scores() -> list[Scores]:
        return [forward(built, make_batch(built, [words], model))[1] for words in sentences]

    with torch.no_grad():
        highest = torch.cat([found.ner.max(-1).values.flatten() for found in scores()])
        ner[1]._module.bias -= highest.quantile(1 - entities)
        highest = torch.cat([found.relation[..., 1:].max(-1).values.flatten() for found in scores()])
        relation_scorer.bias -= highest.quantile(1 - relations)
