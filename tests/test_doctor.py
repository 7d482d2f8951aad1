"""`radverl doctor` says in words and by its exit code what is there, and finds a plugin that failed in silence."""

import http.server
import sys
import threading
from pathlib import Path

import pytest

from radverl import doctor
from radverl.doctor import Finding, examine, main, shared_memory


def statuses(findings: list[Finding]) -> set[str]:
    return {finding.status for finding in findings}


@pytest.fixture
def without_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_ray_worker", list)


@pytest.mark.slow
def test_all_well_in_a_real_ray_worker(monkeypatch, capsys) -> None:
    monkeypatch.setenv("VERL_PLATFORM", "cpu")
    monkeypatch.setenv("VERL_USE_EXTERNAL_MODULES", "radverl.verl_plugin")
    assert main([]) == 0
    out = capsys.readouterr().out
    assert "plugin loaded in a Ray worker by VERL_USE_EXTERNAL_MODULES and its entry point" in out
    assert "reward manager radverl; rewards accuracy, facts" in out
    assert "trainers: orapo_sync, orapo_colocate_async; fixes: position_ids, cpu platform" in out
    assert "platform cpu, 0 GPU(s)" in out


@pytest.mark.slow
def test_a_plugin_that_verl_swallowed_is_found(monkeypatch, capsys) -> None:
    monkeypatch.setenv("VERL_PLATFORM", "")
    monkeypatch.delenv("VERL_USE_EXTERNAL_MODULES", raising=False)
    monkeypatch.setenv("VERL_USE_EXTERNAL_PLUGINS", "none")
    assert main([]) == 1
    assert "FAIL the plugin is not loaded in a Ray worker" in capsys.readouterr().out


def test_wrong_verl_is_a_failure_and_starts_no_ray(monkeypatch) -> None:
    monkeypatch.setattr(doctor, "_ray_worker", lambda: pytest.fail("Ray was started"))
    monkeypatch.setattr("importlib.metadata.version", lambda name: "0.8.1")
    findings = examine()
    assert any("verl 0.8.1 is installed" in f.text and f.status == "FAIL" for f in findings)


def test_a_trl_that_verl_cannot_start_beside_is_found(without_ray, monkeypatch) -> None:
    folder = Path(sys.prefix) / "trl"  # put there by the Makefile for tests/test_orapo_trl.py
    if not folder.is_dir():
        pytest.skip("there is no such trl; run make setup.")
    assert not [f for f in examine() if "trl" in f.text]
    monkeypatch.syspath_prepend(str(folder))
    assert [f.status for f in examine() if "has no AutoModelForCausalLMWithValueHead" in f.text] == ["FAIL"]


def test_too_little_shared_memory_says_how_to_get_more() -> None:
    finding = shared_memory("/dev/shm", minimum_gb=1e6)
    assert finding.status == "FAIL"
    assert "--shm-size" in finding.text
    assert shared_memory("/no/such/folder").status == "FAIL"
    assert shared_memory("/dev/shm", minimum_gb=0.0).status == "ok"


@pytest.mark.parametrize("answer", [200, 401, 500])
def test_judge_is_asked_and_its_answer_reported(without_ray, answer: int) -> None:
    class Server(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            assert self.path == "/v1/models"
            self.send_response(answer)
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    server = http.server.HTTPServer(("127.0.0.1", 0), Server)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}/v1"
    finding = examine(judge=url)[-1]
    server.shutdown()
    assert finding.status == ("ok" if answer == 200 else "FAIL")
    assert str(answer) in finding.text
    assert url in finding.text


def test_judge_out_of_reach_model_and_encoder_that_are_none(without_ray, tmp_path: Path) -> None:
    judge, encoder = examine(judge="http://127.0.0.1:9/v1", encoder=str(tmp_path))[-2:]
    assert judge.status == "FAIL"
    assert "cannot be reached" in judge.text
    assert encoder.status == "FAIL"
    model = examine(model=str(tmp_path))[-1]
    assert model.status == "FAIL"
    assert str(tmp_path) in model.text


@pytest.mark.parametrize("url", ["", "x", "http://[::1", "http://a b/v1", "file:///etc"])
def test_a_judge_url_that_is_none_is_a_finding(without_ray, url: str) -> None:
    assert examine(judge=url)[-1].status == "FAIL"


def test_an_encoder_folder_is_recognised(without_ray, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").write_bytes(b"")
    assert examine(encoder=str(tmp_path))[-1].status == "ok"


def test_findings_are_printed_one_a_line_and_summed_up(monkeypatch, capsys) -> None:
    monkeypatch.setattr(doctor, "examine", lambda *_: [Finding("ok", "a"), Finding("FAIL", "b")])
    assert main([]) == 1
    assert capsys.readouterr().out == "ok   a\nFAIL b\nradverl doctor: 1 check(s) failed\n"
