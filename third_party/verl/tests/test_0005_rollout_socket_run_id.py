"""Jobs of two Ray clusters on one host use different sockets for the weights, although both are job 01000000.

Ray is replaced by a context with the job id and the GCS address; both ends of the socket are verl's own code.
"""

import os
from types import SimpleNamespace

import pytest
import ray

pytest.importorskip("vllm")

from verl.workers.rollout.vllm_rollout.utils import vLLMColocateWorkerExtension  # noqa: E402
from verl.workers.rollout.vllm_rollout.vllm_async_server import vLLMHttpServer  # noqa: E402
from verl.workers.rollout.vllm_rollout.vllm_rollout import ServerAdapter  # noqa: E402

JOB_ID = "01000000"  # every cluster counts its jobs from 1
LONGEST_SOCKET_PATH = 107  # bytes of sockaddr_un.sun_path, without the closing zero


class _EnvIsSet(Exception):
    pass


class _Server(vLLMHttpServer):
    """Stops where vLLMHttpServer.__init__ has set the environment of vLLM's processes."""

    def _init_config(self, config):
        raise _EnvIsSet


def _join_cluster(monkeypatch, gcs_address: str):
    context = SimpleNamespace(get_job_id=lambda: JOB_ID, gcs_address=gcs_address)
    monkeypatch.setattr(ray, "get_runtime_context", lambda: context)
    for name, value in {"RANK": "0", "RAY_LOCAL_WORLD_SIZE": "1"}.items():
        monkeypatch.setenv(name, value)
    for name in ("VERL_RAY_JOB_ID", "VERL_REPLICA_RANK", "CUDA_VISIBLE_DEVICES"):
        monkeypatch.setenv(name, "")  # restored after the test


def _trainer_end() -> str:
    config = SimpleNamespace(
        tensor_model_parallel_size=1,
        data_parallel_size=1,
        pipeline_model_parallel_size=1,
        layered_summon=False,
        disaggregation=None,
    )
    return ServerAdapter(config, None, None).zmq_handle


def _vllm_end() -> str:
    with pytest.raises(_EnvIsSet):
        _Server(
            config=None,
            model_config=None,
            rollout_mode=None,
            workers=[],
            replica_rank=0,
            node_rank=0,
            gpus_per_node=1,
            nnodes=1,
            cuda_visible_devices=os.environ["CUDA_VISIBLE_DEVICES"],
        )
    extension = vLLMColocateWorkerExtension.__new__(vLLMColocateWorkerExtension)
    extension.model_runner, extension.local_rank = SimpleNamespace(), 0
    return extension._get_zmq_handle()


def test_clusters_differ_and_ends_agree(monkeypatch):
    handles = set()
    for gcs_address in ("10.0.0.1:6379", "10.0.0.1:53117"):
        _join_cluster(monkeypatch, gcs_address)
        assert _trainer_end() == _vllm_end()
        handles.add(_trainer_end())
    assert len(handles) == 2
    assert all(JOB_ID in handle for handle in handles)


def test_path_fits_a_unix_socket(monkeypatch):
    _join_cluster(monkeypatch, "2001:db8:85a3:0000:0000:8a2e:0370:7334:53117")
    path = _trainer_end().removeprefix("ipc://").replace("replica-0-rank-0", "replica-9999-rank-9999")
    assert len(path.encode()) <= LONGEST_SOCKET_PATH
