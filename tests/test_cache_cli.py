"""`radverl cache`: what is in the file, taking answers out, writing them to a file."""

import contextlib
import json
import multiprocessing
import sqlite3
import stat
import time

import pytest

from radverl.cli import main
from radverl.judge.cache import AnswerCache
from radverl.judge.cache_file import open_file, prune, size, statistics

DAY = 86400


@pytest.fixture
def path(tmp_path, monkeypatch):
    """Six answers: by age in days, model and prompt."""
    file = tmp_path / "judge.sqlite"
    monkeypatch.setenv("RADVERL_JUDGE_CACHE", str(file))
    rows = [(0, "a", "extract_facts.v1"), (1, "a", "extract_facts.v2"), (10, "a", "entail_labels.v1")]
    rows += [(20, "b", "extract_facts.v1"), (30, "b", "extract_facts.v10"), (40, "b", "extract_facts_more.v1")]
    fill(file, rows)
    return file


def fill(file, rows, text="No effusion."):
    cache = AnswerCache(file)
    for number, (_, model, prompt) in enumerate(rows):
        cache.put(f"{number:064}", model, prompt, {"facts": [f"{number} {text}"]})
    cache.close()
    with contextlib.closing(sqlite3.connect(file)) as connection, connection:
        for number, (days, _, _) in enumerate(rows):
            connection.execute(
                "UPDATE answers SET created = ? WHERE key = ?", (time.time() - days * DAY, f"{number:064}")
            )


def left(file):
    with contextlib.closing(sqlite3.connect(file)) as connection:
        return [int(key) for (key,) in connection.execute("SELECT key FROM answers ORDER BY key")]


def test_stats(path, capsys):
    assert main(["cache", "stats"]) == 0
    out = capsys.readouterr().out
    assert "6 answers" in out
    assert "b  extract_facts.v10: 1 answers" in out
    assert main(["cache", "stats", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["entries"], len(found["by"]), found["bytes"]) == (6, 6, size(path))
    assert sum(group["entries"] for group in found["by"]) == 6
    assert found["newest"] - found["oldest"] == pytest.approx(40 * DAY, abs=60)


def test_an_empty_cache(tmp_path, capsys):
    AnswerCache(tmp_path / "c.sqlite").get("k")
    assert main(["cache", "stats", "--cache", str(tmp_path / "c.sqlite")]) == 0
    assert "0 answers" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "kept"),
    [
        (["--older-than", "15d"], [0, 1, 2]),
        (["--older-than", "2w", "--model", "b"], [0, 1, 2]),
        (["--model", "a"], [3, 4, 5]),
        (["--prompt", "extract_facts.v1"], [1, 2, 4, 5]),
        (["--prompt", "extract_facts"], [2, 5]),
        (["--prompt", "extract_facts", "--older-than", "25d"], [0, 1, 2, 3, 5]),
        (["--model", "none"], [0, 1, 2, 3, 4, 5]),
        (["--prompt", "extract_facts%"], [0, 1, 2, 3, 4, 5]),
    ],
)
def test_every_given_condition_must_hold(path, capsys, options, kept):
    assert main(["cache", "prune", *options, "--dry-run"]) == 0
    assert left(path) == [0, 1, 2, 3, 4, 5]
    assert f"{6 - len(kept)} answers would be taken out" in capsys.readouterr().out
    assert main(["cache", "prune", *options]) == 0
    assert left(path) == kept
    assert f"{6 - len(kept)} answers taken out" in capsys.readouterr().out


def test_the_oldest_go_until_the_file_is_small_enough(tmp_path):
    file = tmp_path / "c.sqlite"
    fill(file, [(i, "m", "p.v1") for i in range(300)], text="x" * 2000)
    before = size(file)
    assert main(["cache", "prune", "--cache", str(file), "--max-bytes", f"{before // 3000}k"]) == 0
    assert size(file) <= before // 3000 * 1000
    kept = left(file)
    assert 60 < len(kept) < 110
    assert kept == list(range(len(kept)))  # the newest
    assert main(["cache", "prune", "--cache", str(file), "--max-bytes", "1G"]) == 0
    assert left(file) == kept


def test_no_more_is_taken_out_while_somebody_reads(tmp_path):
    """SQLite cannot empty its log then, so file and log together stay large."""
    file = tmp_path / "c.sqlite"
    fill(file, [(i, "m", "p.v1") for i in range(300)], text="x" * 2000)
    limit = size(file) // 3
    with contextlib.closing(sqlite3.connect(file, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        assert reader.execute("SELECT count(*) FROM answers").fetchone() == (300,)
        with open_file(file, write=True) as connection:
            connection.execute("PRAGMA busy_timeout = 0")
            prune(connection, file, max_bytes=limit)
    assert 60 < len(left(file)) < 110


def test_a_run_goes_on_while_its_cache_is_pruned(path):
    running = AnswerCache(path)
    assert running.get(f"{0:064}") == {"facts": ["0 No effusion."]}
    assert main(["cache", "prune", "--older-than", "1h"]) == 0
    assert running.get(f"{0:064}") == {"facts": ["0 No effusion."]}
    assert running.get(f"{5:064}") is None
    running.put("k", "m", "p", {"facts": []})
    assert running.get("k") == {"facts": []}


def keep_on_writing(path, over):
    cache, number = AnswerCache(path), 0
    while not over.is_set():
        cache.put(f"w{number}", "m", "p.v1", {"facts": ["x" * 200]})
        number += 1


def test_pruning_beside_a_process_that_writes(path):
    spawn = multiprocessing.get_context("spawn")
    over = spawn.Event()
    process = spawn.Process(target=keep_on_writing, args=(path, over))
    process.start()
    try:
        while len(list_keys(path)) < 20:
            time.sleep(0.05)
        assert main(["cache", "prune", "--model", "b"]) == 0
        assert main(["cache", "stats"]) == 0
    finally:
        over.set()
        process.join()
    with open_file(path) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert {group["model"] for group in statistics(connection, path)["by"]} == {"a", "m"}


def list_keys(path):
    with contextlib.closing(sqlite3.connect(path)) as connection:
        return connection.execute("SELECT key FROM answers").fetchall()


def test_export(path, tmp_path, capsys):
    out = tmp_path / "new" / "answers.jsonl"
    assert main(["cache", "export", "--out", str(out), "--model", "a"]) == 0
    assert "3 answers written" in (said := capsys.readouterr().err)
    assert "report text" in said
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert [row["answer"] for row in rows] == [{"facts": [f"{i} No effusion."]} for i in (2, 1, 0)]  # oldest first
    assert rows[0].keys() == {"key", "model", "prompt", "created", "answer"}
    assert stat.S_IMODE(out.stat().st_mode) == 0o600
    assert main(["cache", "export", "--out", str(out)]) == 2
    assert main(["cache", "export"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 6
    assert list(out.parent.iterdir()) == [out]


def test_a_damaged_row_is_exported_as_none(path, capsys):
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE answers SET answer = '{\"facts' WHERE model = 'b'")
    assert main(["cache", "export"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert sum(row["answer"] is None for row in rows) == 3


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["stats", "--cache", "/nowhere/c.sqlite"], "does not exist"),
        (["prune"], "give --older-than"),
        (["prune", "--older-than", "soon"], "write 90d"),
        (["prune", "--max-bytes", "-3"], "write 500M"),
        (["prune", "--max-bytes", "much"], "write 500M"),
        ([], "required"),
    ],
)
def test_bad_input_is_exit_2(path, capsys, options, says):
    try:
        code = main(["cache", *options])
    except SystemExit as error:
        code = error.code
    assert code == 2
    assert says in capsys.readouterr().err


@pytest.mark.parametrize("content", [b"this is not a database" * 500, b"", b"SQLite format 3\x00" + b"\xff" * 5000])
@pytest.mark.parametrize("command", [["stats"], ["prune", "--model", "a"], ["export"]])
def test_what_is_no_cache_is_left_as_it_is(tmp_path, capsys, content, command):
    file = tmp_path / "c.sqlite"
    file.write_bytes(content)
    assert main(["cache", *command, "--cache", str(file)]) == 2
    assert str(file) in capsys.readouterr().err
    assert file.read_bytes() == content
