"""What every data script shares: draw, journal, resume, files. The data set is `tests.tiny_release`."""

import dataclasses
import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from data_preprocess.core import pipeline
from data_preprocess.core.rows import read_rows
from tests.judge_server import MODEL, Request, answer, error, serve
from tests.tiny_release import dataset
from tests.written_files import files

ROWS = 600  # more than two chunks of the journal


@pytest.fixture
def table(tmp_path: Path) -> Path:
    Image.fromarray(np.arange(480).reshape(20, 24).astype(np.uint8)).save(tmp_path / "film.png")
    return write(tmp_path / "table.txt", [f"r{n:04d} p{n // 2} train Stable effusion {n}." for n in range(ROWS)])


def write(path: Path, lines: list[str]) -> Path:
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def run(table: Path, *options: str, out: str = "out", **names: str) -> tuple[int, Path]:
    folder = table.parent / out
    return pipeline.run(dataset(**names), ["--table", str(table), "--out", str(folder), *options]), folder


def script(
    table: Path, *options: str, env: dict[str, str] | None = None, **more: Any
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.tiny_release", "--table", str(table), "--out", str(table.parent / "out")]
    return subprocess.run(
        [*command, *options],
        env=os.environ | (env or {}),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        **more,
    )


def reports(path: Path) -> dict[str, str]:
    return {
        row["extra_info"]["study_id"]: json.loads(row["reward_model"]["ground_truth"])["report"]
        for row in read_rows(path)
    }


def test_all_files_of_a_run(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, out = run(table)
    assert status == 0
    assert sorted(files(out)) == [
        "sft_train.parquet", "subjects.json", "test.skipped.jsonl", "train.json", "train.md", "train.parquet",
        "train.png", "train.skipped.jsonl", "val.skipped.jsonl",
    ]  # fmt: skip
    assert len(reports(out / "train.parquet")) == ROWS
    assert f"train.parquet: {ROWS} rows; skipped 0 rows" in capsys.readouterr().out
    assert read_rows(out / "train.parquet")[7] == {
        "data_source": "tiny",
        "prompt": [{"role": "user", "content": "<image>Write the findings and impression of this chest radiograph."}],
        "images": [{"image": f"file://{table.parent}/film.png"}],
        "ability": "report",
        "reward_model": {
            "style": "rule",
            "ground_truth": json.dumps(
                {
                    "findings": "Effusion 7.",
                    "impression": "No other finding.",
                    "report": "Findings: Effusion 7. Impression: No other finding.",
                    "labels": json.loads(read_rows(out / "train.parquet")[0]["reward_model"]["ground_truth"])["labels"],
                    "regions": [],
                    "boxes": [],
                }
            ),
        },
        "extra_info": {
            "index": 7, "split": "train", "prompt_id": "tiny/r0007", "subject_id": "p3", "study_id": "r0007",
            "width": 24, "height": 20, "box_space": "unit", "view": "PA", "priors": "drop",
            "original_report": "Findings: Stable effusion 7. Impression: No other finding.",
        },
    }  # fmt: skip
    assert read_rows(out / "sft_train.parquet")[7]["messages"][1] == {
        "role": "assistant", "content": "Findings: Effusion 7. Impression: No other finding.",
    }  # fmt: skip


def test_a_killed_run_goes_on_where_it_stopped(table: Path) -> None:
    _, whole = run(table, out="whole")
    assert script(table, env={"KILL_AT": "r0550"}).returncode == -signal.SIGKILL
    out = table.parent / "out"
    journal = out / ".unfinished" / "rows.jsonl"
    lines = journal.read_bytes().splitlines(keepends=True)
    assert len(lines) == 512  # two chunks
    assert not list(out.glob("*.parquet"))
    # A mark in a finished row shows that it is not made again; the torn line at the end is.
    lines[3] = lines[3].replace(b"Effusion 3.", b"A mark no. 3.")
    journal.write_bytes(b"".join(lines) + lines[5][:40])
    assert script(table).returncode == 0
    assert not journal.exists()
    assert b"A mark no. 3." in (out / "train.parquet").read_bytes()
    (out / "train.parquet").unlink()
    assert script(table).returncode == 0
    assert files(out) == files(whole)


@pytest.mark.parametrize("change", ["options", "report", "image"])
def test_a_finished_row_is_made_again_when_what_it_is_made_from_changed(table: Path, change: str) -> None:
    assert script(table, env={"KILL_AT": "r0550"}).returncode == -signal.SIGKILL
    options = ["--priors", "keep"] if change == "options" else []
    if change == "report":
        write(table, [line.replace("effusion 3.", "edema.") for line in table.read_text().splitlines()])
    if change == "image":
        Image.fromarray(np.arange(600).reshape(20, 30).astype(np.uint8)).save(table.parent / "film.png")
    assert script(table, *options).returncode == 0
    row = read_rows(table.parent / "out" / "train.parquet")[3]
    report = json.loads(row["reward_model"]["ground_truth"])["findings"]
    expected = {"options": "Stable effusion 3.", "report": "Edema.", "image": "Effusion 3."}
    assert report == expected[change]
    assert row["extra_info"]["width"] == (30 if change == "image" else 24)


def test_a_killed_worker_is_an_error_and_not_a_hang(table: Path) -> None:
    _, whole = run(table, out="whole")
    done = script(table, "--workers", "2", env={"KILL_AT": "r0550"})
    assert done.returncode == 1
    assert "a worker process was killed" in done.stderr
    assert "the same command goes on" in done.stderr
    assert script(table, "--workers", "2").returncode == 0
    assert files(table.parent / "out") == files(whole)


def started(table: Path, *options: str) -> subprocess.Popen[str]:
    """A run with two workers that has finished some of its rows."""
    command = [sys.executable, "-m", "tests.tiny_release", "--table", str(table), "--out", str(table.parent / "out")]
    run = subprocess.Popen(
        [*command, "--workers", "2", *options], stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    journal = table.parent / "out" / ".unfinished" / "rows.jsonl"
    while run.poll() is None and not (journal.is_file() and journal.stat().st_size):
        time.sleep(0.01)
    return run


def test_a_finished_row_whose_converted_image_is_gone_is_made_again(table: Path) -> None:
    Image.fromarray(np.arange(480, dtype=np.uint16).reshape(20, 24) * 99).save(table.with_name("film.png"))
    assert script(table, env={"KILL_AT": "r0550"}).returncode == -signal.SIGKILL
    (made,) = (table.parent / "out" / "images").iterdir()
    made.unlink()
    assert script(table).returncode == 0
    assert made.is_file()
    assert len(reports(table.parent / "out" / "train.parquet")) == ROWS


def test_interrupted_by_ctrl_c_it_says_one_line(table: Path) -> None:
    lines = [f"r{n:04d} p{n} train Stable effusion {n}." for n in range(3000)]
    write(table, lines)
    process = started(table)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to the workers, too
    _, said = process.communicate(timeout=60)
    assert (process.returncode, said.splitlines()) == (
        130, ["tiny: interrupted; the same command goes on where this one stopped."],
    )  # fmt: skip
    assert script(table).returncode == 0
    assert len(reports(table.parent / "out" / "train.parquet")) == len(lines)


def test_workers_end_when_their_parent_is_killed(table: Path) -> None:
    write(table, [f"r{n:04d} p{n} train Stable effusion {n}." for n in range(3000)])
    process = started(table)
    process.kill()
    process.communicate(timeout=60)  # they hold the pipe until they end
    deadline = time.monotonic() + 60
    while left := [pid for pid in os.listdir("/proc") if pid.isdigit() and _session(pid) == process.pid]:
        assert time.monotonic() < deadline, left
        time.sleep(0.05)


def _session(pid: str) -> int | None:
    try:
        fields = Path("/proc", pid, "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] == "Z" else int(fields[3])


def test_files_that_others_wrote_stay(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = table.parent / "out"
    out.mkdir()
    (out / "train.json").write_text("mine")
    assert run(table)[0] == 2
    assert "holds train.json, which this script did not write" in capsys.readouterr().err
    assert [path.name for path in out.iterdir() if path.is_file()] == ["train.json"]
    assert run(table, "--split", "val", "test")[0] == 1  # nothing of these is in the way


def test_what_a_killed_run_left_half_written_is_removed(table: Path) -> None:
    _, whole = run(table, out="whole")
    run(table)
    for name in (".train.parquet.ab12_xyz", "images/.0f.png.ab12_xyz"):
        (table.parent / "out" / name).touch()
    _, out = run(table)
    assert files(out) == files(whole)


def test_a_row_no_file_can_hold_costs_no_other_row(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def content(drawn: Any, args: Any) -> Any:
        made = dataset().content(drawn, args)
        made.truth["mesh"] = {"r0001": ["half \ud800"], "r0002": [float("inf")]}.get(drawn.row_id, [])
        return made

    broken = dataclasses.replace(dataset(), content=content)
    out = table.parent / "out"
    assert pipeline.run(broken, ["--table", str(table), "--out", str(out)]) == 0
    skipped = [json.loads(line) for line in (out / "train.skipped.jsonl").read_text().splitlines()]
    assert [(e["row"], e["reason"]) for e in skipped] == [("r0001", "malformed text"), ("r0002", "malformed number")]
    assert len(reports(out / "train.parquet")) == ROWS - 2


def test_another_version_makes_its_own_rows(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = script(table, env={"KILL_AT": "r0550"})
    assert done.returncode == -signal.SIGKILL
    journal = table.parent / "out" / ".unfinished" / "rows.jsonl"
    before = journal.stat().st_size
    monkeypatch.setattr(pipeline, "__version__", "0.0.0")
    monkeypatch.setattr(pipeline.Journal, "remove", lambda self: None)
    assert run(table)[0] == 0
    assert journal.stat().st_size > before * ROWS / 550  # all of them, after those that were there


def test_a_full_disk_is_named_and_nothing_is_lost(table: Path) -> None:
    _, whole = run(table, out="whole")
    small = 300_000  # the journal is larger

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (small, small))

    done = script(table, preexec_fn=limit)
    assert done.returncode == 1
    assert "is not finished" in done.stderr
    assert not list((table.parent / "out").glob("*.parquet"))
    assert script(table).returncode == 0
    assert files(table.parent / "out") == files(whole)


def test_two_runs_do_not_share_a_folder(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pipeline.Journal(table.parent / "out"):
        assert run(table)[0] == 2
    assert "another run is writing there" in capsys.readouterr().err
    assert run(table)[0] == 0


def test_same_bytes_whatever_the_workers_and_the_order(table: Path) -> None:
    lines = table.read_text().splitlines()
    write(table, [line.replace(" train ", [" train ", " val ", " test "][n // 2 % 3]) for n, line in enumerate(lines)])
    _, one = run(table, "--limit", "50", "--labels", "rules")
    write(table, table.read_text().splitlines()[::-1])
    _, two = run(table, "--limit", "50", "--labels", "rules", "--workers", "2", out="two")
    assert files(one) == files(two)
    assert len(reports(one / "train.parquet")) == len(reports(one / "test.parquet")) == 50


def test_labels_are_read_before_balancing(table: Path) -> None:
    _, out = run(table, "--labels", "rules", "--balance", "40", "--split", "train")
    card = json.loads((out / "train.json").read_text())
    assert card["rows"] == 40
    assert card["balance"]["labels"]["Pleural Effusion"] == {"pool": ROWS, "sample": 40, "exhausted": False}
    assert card["labels"]["Pleural Effusion"]["present"] == 40


def test_images_that_are_not_opened(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    film = table.parent / "film.png"
    film.write_bytes(b"no image")
    assert run(table)[0] == 1
    status, out = run(table, "--check-images", "exists", "--contact-sheet", "0")
    assert status == 0
    assert read_rows(out / "train.parquet")[0]["extra_info"]["width"] == 24  # by the table
    film.unlink()
    capsys.readouterr()
    assert run(table, "--check-images", "exists")[0] == 2
    assert f"not one image is there, for example {film}" in capsys.readouterr().err
    assert run(table, "--check-images", "no")[0] == 0
    assert run(table, "--check-images", "no", "--embed-images")[0] == 2
    assert "--embed-images open the images" in capsys.readouterr().err


def test_a_row_twice_and_a_report_that_is_none(table: Path) -> None:
    lines = ["a p1 train Clear lungs.", "a p1 train Edema.", f"b p2 train {'Clear. ' * 1_500_000}", "c p3 train 1 2 3"]
    _, out = run(write(table, lines))
    assert reports(out / "train.parquet") == {"a": "Findings: Clear lungs. Impression: No other finding."}
    skipped = [json.loads(line) for line in (out / "train.skipped.jsonl").read_text().splitlines()]
    assert [(entry["row"], entry["reason"]) for entry in skipped] == [
        ("a", "duplicate row"), ("b", "report too long"), ("c", "no findings"),
    ]  # fmt: skip


# --priors llm, with a stand-in for the server


def edits(request: Request) -> Any:
    report = json.loads(request.data_line)["report"]
    if "3." in report["findings"]:
        return error(400)
    return answer({"report": {name: text.replace("Stable e", "E") for name, text in report.items()}})


def test_a_model_rewrites_reports(table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("openai")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("RADVERL_CACHE", str(tmp_path / "cache"))
    write(table, table.read_text().splitlines()[:6])
    with serve(edits) as server:
        options = ["--priors", "llm", "--judge-url", server.url, "--judge-model", MODEL]
        status, out = run(table, *options)
        assert status == 0
        assert reports(out / "train.parquet")["r0001"] == "Findings: Effusion 1. Impression: No other finding."
        (skipped,) = (out / "train.skipped.jsonl").read_text().splitlines()
        assert json.loads(skipped)["row"] == "r0003"
        assert json.loads(skipped)["reason"] == "llm call failed"
        info = read_rows(out / "train.parquet")[1]["extra_info"]
        assert info["priors"] == "llm"
        assert info["original_report"] == "Findings: Stable effusion 1. Impression: No other finding."


@pytest.mark.parametrize(
    ("url", "status", "message"),
    [
        ("https://8.8.8.8/v1", 2, "--judge-remote-ok"),
        ("http://127.0.0.1:9/v1", 1, "connection"),
    ],
)
def test_a_server_that_may_not_or_cannot_be_asked(
    table: Path, url: str, status: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("openai")
    write(table, table.read_text().splitlines()[:3])
    assert run(table, "--priors", "llm", "--judge-url", url)[0] == status
    assert message in capsys.readouterr().err
