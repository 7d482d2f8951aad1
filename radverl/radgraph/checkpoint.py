"""A published RadGraph checkpoint: where it is, what is in it, and the model it makes.

A checkpoint is a folder or a .tar.gz with config.json, weights.th and vocabulary/. Nothing of an archive is written to
disk: the files that are needed are read from it, the rest is passed over. Nothing in it runs: the weights are opened
with `weights_only`, and of the configuration, which may name any class in AllenNLP, only numbers are used.
"""

import hashlib
import io
import json
import os
import tarfile
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from radverl.radgraph.transformers5 import RADGRAPH, building, give_old_methods, import_radgraph, load_base_model

CHECKPOINT, TOKENIZER = "RADVERL_RADGRAPH", "RADVERL_RADGRAPH_TOKENIZER"
REPOSITORY = "StanfordAIMI/RRG_scorers"  # on the Hugging Face hub: <model>.tar.gz
# Ours; the published archives have some ten files and 440 MB.
MAX_FILES, MAX_BYTES, MAX_SMALL_FILE = 256, 8 << 30, 4 << 20
_TASKS = ("ner", "relation", "coref", "events")
_OLD_BUFFER = "embeddings.position_ids"  # saved by some versions of transformers; no weight


@dataclass(frozen=True)
class Checkpoint:
    """config: of config.json. vocabulary: file name -> text. weights: the bytes of weights.th, to be read once."""

    path: Path
    config: dict[str, Any]
    vocabulary: dict[str, str]
    weights: Any
    digest: str

    @property
    def base_model(self) -> str:
        """The BERT whose tokenizer and configuration it needs."""
        return str(self.config["dataset_reader"]["token_indexers"]["bert"]["model_name"])


@dataclass(frozen=True)
class Built:
    """radgraph's own reader and model, and the tokenizer both use."""

    reader: Any
    model: Any
    tokenizer: Any
    max_length: int  # word pieces the encoder takes at a time


def find_checkpoint(model: str, checkpoint: str | os.PathLike[str] | None = None, download: bool = False) -> Path:
    """The path given, or RADVERL_RADGRAPH, or where the hub's client or the radgraph package keep theirs.

    RADVERL_RADGRAPH may be the folder above those of several models.

    Raises:
        ValueError: it is nowhere, or could not be downloaded.
    """
    if chosen := checkpoint or os.environ.get(CHECKPOINT):
        path = Path(chosen).expanduser()
        inner = [path / model, path / f"{model}.tar.gz"] if not (path / "config.json").exists() else []
        return next((candidate for candidate in inner if candidate.exists()), path)
    from appdirs import user_cache_dir
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    own = Path(user_cache_dir("radgraph")) / RADGRAPH / model
    if (own / "config.json").is_file() and (own / "weights.th").is_file():
        return own
    try:
        return Path(hf_hub_download(REPOSITORY, f"{model}.tar.gz", local_files_only=not download))
    except (LocalEntryNotFoundError, HfHubHTTPError, OSError) as error:
        why = f" ({str(error).strip().splitlines()[0][:120]})" if download else ""
        raise ValueError(
            f"{model}: no checkpoint on this machine{why}; fetch it with `hf download {REPOSITORY} {model}.tar.gz`, "
            f"give its path (annotator_settings.checkpoint=PATH or {CHECKPOINT}), or allow it with download=True."
        ) from None


def read_checkpoint(path: str | os.PathLike[str]) -> Checkpoint:
    """Read a folder or an archive.

    Raises:
        ValueError: something is missing, too large, damaged, or a link; the sentence names it.
    """
    path = Path(path)
    files = _read_folder(path) if path.is_dir() else _read_archive(path)
    for name in ("config.json", "weights.th"):
        if name not in files:
            raise ValueError(
                f"{path} has no {name}; give a RadGraph checkpoint (config.json, weights.th, vocabulary/)."
            )
    digest = hashlib.sha256()
    for name in sorted(files):
        digest.update(f"{name}\0".encode())
        digest.update(hashlib.file_digest(files[name], "sha256").digest())
        files[name].seek(0)
    vocabulary = {name.removeprefix("vocabulary/"): files[name].read().decode("utf-8") for name in files if "/" in name}
    if "non_padded_namespaces.txt" not in vocabulary:
        raise ValueError(f"{path} has no vocabulary/non_padded_namespaces.txt; the checkpoint is not complete.")
    config = _read_config(files["config.json"].read(), path)
    return Checkpoint(path, config, vocabulary, files["weights.th"], digest.hexdigest())


def build(config: Mapping[str, Any], vocabulary: Mapping[str, str], base: tuple[Any, Any]) -> Built:
    """The reader and the untrained model of a configuration, as `radgraph.RadGraph` makes them."""
    package = import_radgraph()
    tokenizer, bert = give_old_methods(base[0]), base[1]
    settings = _model_settings(config)
    width, max_length = int(settings["max_span_width"]), int(bert.max_position_embeddings)
    given = config["dataset_reader"]["token_indexers"]["bert"].get("max_length")
    max_length = min(int(given), max_length) if given else max_length
    with building(tokenizer, bert), tempfile.TemporaryDirectory() as folder:
        for name, text in vocabulary.items():
            (Path(folder) / name).write_text(text, encoding="utf-8")
        words = package.Vocabulary.from_files(folder)
        indexer = package.token_indexers.PretrainedTransformerMismatchedIndexer(
            model_name="bert", max_length=max_length if given else None
        )
        reader = package.DyGIEReader(max_span_width=width, token_indexers={"bert": indexer})
        embedder = package.token_embedders.PretrainedTransformerMismatchedEmbedder(
            model_name="bert", max_length=max_length if given else None
        )
        model = package.dygie.DyGIE(
            vocab=words, embedder=package.text_field_embedders.BasicTextFieldEmbedder({"bert": embedder}), **settings
        )
    return Built(reader, model, tokenizer, max_length)


def load(checkpoint: Checkpoint, tokenizer: str | os.PathLike[str] | None = None, download: bool = False) -> Built:
    """The trained model, in evaluation mode, on the CPU.

    Raises:
        ValueError: the weights are damaged, have code in them, or do not fit; or the base model is missing.
    """
    import torch

    name = tokenizer or os.environ.get(TOKENIZER) or checkpoint.base_model
    built = build(checkpoint.config, checkpoint.vocabulary, load_base_model(os.fspath(name), download))
    try:
        saved = torch.load(checkpoint.weights, map_location="cpu", weights_only=True)
    except Exception as error:
        raise ValueError(
            f"{checkpoint.path}: weights.th is no file of weights alone ({_first_line(error)}); it is damaged, or has "
            "code in it."
        ) from error
    finally:
        checkpoint.weights.close()
    if not isinstance(saved, Mapping) or not all(isinstance(value, torch.Tensor) for value in saved.values()):
        raise ValueError(f"{checkpoint.path}: weights.th has no weights by name; give a RadGraph checkpoint.")
    weights = {key: value for key, value in saved.items() if not key.endswith(_OLD_BUFFER)}
    if spoilt := [key for key, value in weights.items() if not bool(torch.isfinite(value.float()).all())]:
        raise ValueError(f"{checkpoint.path}: {spoilt[0]} has NaN or infinity; the checkpoint is damaged.")
    try:
        built.model.load_state_dict(weights, strict=True)
    except RuntimeError as error:
        detail = " ".join(str(error).split()[:40])
        raise ValueError(
            f"{checkpoint.path} does not fit the model its config.json describes with the base model {name} ({detail})."
        ) from None
    built.model.eval()
    return built


def _read_config(content: bytes, path: Path) -> dict[str, Any]:
    try:
        config = json.loads(content)
        name = config["dataset_reader"]["token_indexers"]["bert"]["model_name"]
        if not isinstance(name, str):
            raise TypeError("model_name is no string")
        _model_settings(config)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(
            f"{path}: config.json is not that of a RadGraph model ({type(error).__name__}: {_first_line(error)})."
        ) from None
    return dict(config)


def _model_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of DyGIE: sizes and shares, numbers all. A "type" may name any class, so there is none."""
    given = config["model"]
    task = given["target_task"]
    if task not in _TASKS:
        raise ValueError(f"target_task is {task!r:.40}")
    sizes = ("feature_size", "max_span_width")
    numbers = {name: _numbers(given[name], name) for name in (*sizes, "feedforward_params", "loss_weights")}
    modules = {name: _numbers(given["modules"][name], f"modules.{name}") for name in _TASKS}
    return {**numbers, "modules": modules, "target_task": task}


def _numbers(value: Any, name: str) -> Any:
    if isinstance(value, Mapping):
        return {key: _numbers(part, f"{name}.{key}") for key, part in value.items() if part is not None}
    if isinstance(value, bool | int | float):
        return value
    raise ValueError(f"{name} is {value!r:.60}, where a number belongs")


def _read_folder(path: Path) -> dict[str, Any]:
    names = ["config.json", "weights.th"]
    if (path / "vocabulary").is_dir():
        names += [f"vocabulary/{file.name}" for file in sorted((path / "vocabulary").glob("*.txt"))]
    out: dict[str, Any] = {}
    try:
        for name in names:
            file = path / name
            if name == "weights.th" and file.is_file():
                out[name] = open(file, "rb")  # noqa: SIM115 - read once, later; `load` closes it
            elif file.is_file():
                if file.stat().st_size > MAX_SMALL_FILE:
                    raise ValueError(f"{file} is larger than {MAX_SMALL_FILE >> 20} MB; it is another file.")
                out[name] = io.BytesIO(file.read_bytes())
    except OSError as error:
        raise ValueError(f"{path} cannot be read ({error}); give a RadGraph checkpoint.") from None
    return out


def _read_archive(path: Path) -> dict[str, Any]:
    out: dict[str, Any] = {}
    count = total = 0
    try:
        with tarfile.open(path, "r|gz") as tar:  # a stream: nothing is sought, each file is seen once
            for member in tar:
                count, total = count + 1, total + max(member.size, 0)
                if count > MAX_FILES or total > MAX_BYTES:
                    raise ValueError(
                        f"{path} has over {MAX_FILES} files or {MAX_BYTES >> 30} GB; it is not RadGraph's."
                    )
                name = PurePosixPath(member.name)
                if name.is_absolute() or ".." in name.parts or not (member.isfile() or member.isdir()):
                    raise ValueError(f"{path} holds {member.name!r:.80}, a link or a path that leads out; get it anew.")
                text = str(name)
                small = text == "config.json" or (name.parent == PurePosixPath("vocabulary") and name.suffix == ".txt")
                if not member.isfile() or not (small or text == "weights.th") or name.name.startswith("."):
                    continue
                if small and member.size > MAX_SMALL_FILE:
                    raise ValueError(f"{path}: {text} is larger than {MAX_SMALL_FILE >> 20} MB; get it anew.")
                content = tar.extractfile(member)
                out[text] = io.BytesIO(content.read() if content else b"")
    except (OSError, tarfile.TarError, EOFError) as error:
        raise ValueError(f"{path} is no checkpoint that can be read ({_first_line(error)}); get it anew.") from None
    return out


def _first_line(error: BaseException) -> str:
    return str(error).strip().split("\n")[0].rstrip(".")[:160]
