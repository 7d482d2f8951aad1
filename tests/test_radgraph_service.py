"""RadGraph behind the queue: a checkpoint with random weights, asked directly and through the service."""

import asyncio
import os
import random
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from radverl.radgraph import AnnotationFailure, Annotator
from radverl.radgraph.service import shared_annotator
from radverl.rewards.base import failed
from tests.tiny_radgraph import report, write_checkpoint

TEXTS = ["", "No pneumothorax.", *(report(random.Random(i), 1 + i % 4) for i in range(24))]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    pytest.importorskip("radgraph")
    return write_checkpoint(tmp_path_factory.mktemp("radgraph"))


@pytest.fixture(scope="module")
def direct(checkpoint):
    from radverl.radgraph import RadGraphAnnotator

    annotator = RadGraphAnnotator(checkpoint=checkpoint, cache=False)
    return dict(zip(TEXTS, annotator.annotate(TEXTS), strict=True))


def test_the_service_gives_the_annotations_of_direct_calls(checkpoint, direct):
    annotator = shared_annotator({"checkpoint": checkpoint, "cache": False}, where="process")
    assert isinstance(annotator, Annotator)
    assert annotator.name == "radgraph-xl"
    asked = [random.Random(i).choices(TEXTS, k=1 + i % 9) for i in range(40)]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(annotator.annotate, asked))
    assert found == [[direct[text] for text in texts] for texts in asked]
    assert any(annotation["entities"] for annotation in direct.values())

    async def in_loop():
        return await asyncio.gather(*map(annotator.annotate_async, asked))

    assert asyncio.run(in_loop()) == found
    counts = annotator.counts()
    assert (counts["calls"], counts["failures"]) == (80, 0)
    assert counts["computed"] == counts["items"] - counts["duplicates"]


def test_a_text_without_an_annotation_is_a_counted_failure(checkpoint, direct):
    annotator = shared_annotator({"checkpoint": checkpoint, "cache": False, "max_tokens": 60}, where="process")
    long = "No effusion. " * 40
    with pytest.raises(AnnotationFailure) as found:
        annotator.annotate([TEXTS[1], long])
    assert found.value.cause == "invalid"
    assert failed(("failed_invalid",), found.value)["failed"] is True
    outs = asyncio.run(annotator.annotate_each_async([long, TEXTS[1], TEXTS[0]]))
    assert (outs[0].cause, outs[1:]) == ("invalid", [direct[TEXTS[1]], direct[TEXTS[0]]])
    with pytest.raises(AnnotationFailure):
        asyncio.run(annotator.annotate_async([long]))
    for bad in (None, b"No effusion.", ["No effusion."]):
        with pytest.raises(TypeError, match="give strings"):
            annotator.annotate([TEXTS[1], bad])
    assert annotator.annotate([]) == []


def test_a_checkpoint_that_cannot_be_loaded_is_a_failure_of_each_call(tmp_path):
    pytest.importorskip("radgraph")
    (tmp_path / "config.json").write_text("{}")
    annotator = shared_annotator({"checkpoint": str(tmp_path)}, where="process")
    for _ in range(2):
        with pytest.raises(AnnotationFailure, match="cannot be loaded: ValueError") as found:
            annotator.annotate(["No effusion."])
        assert found.value.cause == "server_error"


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        ({"modell": "radgraph"}, "unknown setting modell"),
        ({"model": "radgraph-9"}, "use one of"),
        ({"model": "modern-radgraph-xl"}, "modern-radgraph-xl"),
        ({"checkpoint": "/no/such/radgraph.tar.gz"}, "is not there"),
        ({"timeout": 0}, "timeout is 0"),
        ({"max_batch": "many"}, "max_batch is 'many'"),
        ({"gpu": -0.5}, "num_gpus is -0.5"),
    ],
)
def test_bad_settings(checkpoint, bad, said):
    with pytest.raises(ValueError, match=said):
        shared_annotator({"checkpoint": str(checkpoint), **bad})


def test_the_environment_of_the_caller_and_relative_paths_hold(checkpoint, tmp_path, monkeypatch):
    monkeypatch.chdir(checkpoint.parent)
    monkeypatch.setenv("RADVERL_RADGRAPH", checkpoint.name)
    monkeypatch.setenv("RADVERL_RADGRAPH_CACHE", str(tmp_path / "cache.sqlite"))
    annotator = shared_annotator(where="process")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RADVERL_RADGRAPH")
    monkeypatch.delenv("RADVERL_RADGRAPH_CACHE")
    first = annotator.annotate(["Small left pleural effusion."])
    assert (tmp_path / "cache.sqlite").stat().st_size > 0
    assert annotator.annotate(["Small left pleural effusion."]) == first


def test_importing_the_service_takes_no_torch_and_no_ray():
    code = "import sys, radverl.radgraph.service; print([m for m in ('ray', 'torch', 'radgraph') if m in sys.modules])"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


@pytest.fixture(scope="module")
def ray():
    ray = pytest.importorskip("ray")
    ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    yield ray
    ray.shutdown()


@pytest.mark.slow
def test_ray_workers_share_the_model(ray, checkpoint, direct):
    from radverl.serve.client import _backend_of

    class Worker:
        """A reward worker, which makes its annotator by itself."""

        def __init__(self, settings):
            self.annotator = shared_annotator(settings)

        async def annotate(self, texts):
            return await self.annotator.annotate_async(texts)

        async def place(self):
            backend = _backend_of(self.annotator.client.model, self.annotator.client.where)
            return await backend.actor().process.remote()

    settings = {"checkpoint": str(checkpoint), "cache": False, "threads": 2}
    one, two = (ray.remote(num_cpus=0)(Worker).remote(settings) for _ in range(2))
    asked = [worker.annotate.remote(TEXTS[i : i + 9]) for worker in (one, two) for i in range(0, len(TEXTS), 4)]
    expected = [[direct[text] for text in TEXTS[i : i + 9]] for i in range(0, len(TEXTS), 4)] * 2
    assert ray.get(asked, timeout=300) == expected
    (pid,) = set(ray.get([one.place.remote(), two.place.remote()]))
    annotator = shared_annotator(settings)
    assert annotator.counts()["calls"] == len(asked)

    def threads(actor):
        import torch

        return torch.get_num_threads()

    actor = _backend_of(annotator.client.model, "ray").actor()
    assert ray.get(actor.__ray_call__.remote(threads)) == 2
    os.kill(pid, signal.SIGKILL)
    assert ray.get(two.annotate.remote(TEXTS), timeout=300) == [direct[text] for text in TEXTS]
    assert ray.get(one.place.remote()) != pid
