"""`radverl score`: forms of input, counted failures, exit codes."""

import csv
import json
from types import SimpleNamespace

import pytest

from radverl.evaluation.score import ground_truth, main, read_rows, score_rows
from radverl.labels import CHEXPERT_14
from radverl.rewards import load
from radverl.rewards.facts import compute_score

REFERENCE = "Findings: The heart is enlarged. No pneumothorax. Impression: Cardiomegaly."
LABELS = dict.fromkeys(CHEXPERT_14) | {"Cardiomegaly": 1, "Pneumothorax": 0}
TRUTH = json.dumps(
    {"findings": "", "impression": "", "report": REFERENCE, "labels": LABELS, "regions": [], "boxes": []}
)
GOOD, BAD = "Impression: Cardiomegaly.", "Impression: Large right pneumothorax."


def write_jsonl(path, rows):
    path.write_text("".join(row if isinstance(row, str) else json.dumps(row) + "\n" for row in rows))
    return path


def write_csv(path, rows):
    with path.open("w", newline="", encoding="utf-8-sig") as stream:
        writer = csv.DictWriter(stream, sorted({name for row in rows for name in row}))
        writer.writeheader()
        writer.writerows(rows)
    return path


def test_a_right_report_beats_a_wrong_one():
    summary, results = score_rows(
        [{"prediction": GOOD, "labels": LABELS}, {"prediction": BAD, "labels": LABELS}], "facts"
    )
    assert results[0]["score"] > 0.99
    assert results[1]["score"] == 0.0
    assert summary["mean"] == pytest.approx(results[0]["score"] / 2)
    assert (summary["rows"], summary["scored"], summary["failed"], summary["skipped"]) == (2, 2, 0, {})


@pytest.mark.parametrize(
    "row",
    [
        {"prediction": GOOD, "ground_truth": TRUTH},
        {"prediction": GOOD, "ground_truth": json.loads(TRUTH)},
        {"output": GOOD, "gts": TRUTH, "input": "", "score": 0.0, "step": 1},
        {"prediction": GOOD, "reference": REFERENCE},
        {"prediction": GOOD, "reference": REFERENCE, "labels": LABELS},
        {"prediction": GOOD, "labels": json.dumps(LABELS)},
        {"prediction": GOOD, "labels": {"cardiomegaly": "1.0", "Pneumothorax": ""}},
    ],
)
def test_every_form_of_truth_gives_the_reward_itself(row):
    summary, _ = score_rows([row], "facts")
    assert summary["mean"] == compute_score("x", GOOD, TRUTH)["score"]
    assert summary["labels_from_reference"] == (not {"labels", "ground_truth", "gts"} & set(row))


def test_csv_and_jsonl_agree(tmp_path):
    rows = [{"prediction": text, "reference": 'Has "quotes", and\na second line.'} for text in (GOOD, BAD)]
    as_json = read_rows(write_jsonl(tmp_path / "x.jsonl", [row | {"labels": LABELS} for row in rows]))
    columns = {name: "" if value is None else f"{value}.0" for name, value in LABELS.items()}
    as_csv = read_rows(write_csv(tmp_path / "x.csv", [row | columns for row in rows]))
    assert score_rows(as_csv, "facts") == score_rows(as_json, "facts")


def test_line_separators_inside_a_report_do_not_split_rows(tmp_path):
    text = "Heart\u2028enlarged\x85.\x0cEnd"
    path = tmp_path / "x.jsonl"
    path.write_text(json.dumps({"prediction": text, "reference": "r"}, ensure_ascii=False), encoding="utf-8")
    assert [row["prediction"] for row in read_rows(path)] == [text]
    assert [row["prediction"] for row in read_rows(write_csv(tmp_path / "x.csv", [{"prediction": text}]))] == [text]


def test_bad_rows_are_counted_by_reason_and_kept_out_of_the_mean(tmp_path):
    rows = [
        {"prediction": GOOD, "labels": LABELS},
        "{broken\n",
        "[1]\n",
        {"reference": REFERENCE},
        {"prediction": GOOD},
        {"prediction": GOOD, "labels": "{broken"},
        {"prediction": GOOD, "labels": {"Cardiomegly": 1}},
        {"prediction": GOOD, "ground_truth": "no JSON"},
    ]
    summary, results = score_rows(read_rows(write_jsonl(tmp_path / "x.jsonl", rows)), "facts")
    assert summary["scored"] == 1
    assert summary["mean"] > 0.99
    assert sum(summary["skipped"].values()) == 7
    for reason in ("the line is not JSON", "the line is not a JSON object", "no prediction", "a field is not JSON"):
        assert summary["skipped"][reason] == 1
    assert [result["row"] for result in results] == list(range(8))
    assert results[7]["skipped"] == "the reward refused the row"
    assert results[7]["detail"]


@pytest.fixture
def flaky(monkeypatch):
    """An asynchronous reward whose judge fails on one text."""

    async def compute(data_source, solution_str, ground_truth, extra_info=None, weight=1.0):
        down = solution_str == "down"
        return {"score": 0.0 if down else weight, "failed": down, "recall": 0.0 if down else 0.5}

    monkeypatch.setattr(
        "radverl.evaluation.score.load", lambda name: SimpleNamespace(compute_score=compute, GOLD=(GOOD, TRUTH))
    )


def test_a_failed_judge_is_counted_and_is_no_zero(flaky):
    rows = [{"prediction": text, "labels": LABELS} for text in ("up", "down", "up")]
    summary, _ = score_rows(rows, "flaky", weight=0.8)
    assert (summary["mean"], summary["components"], summary["failed"]) == (pytest.approx(0.8), {"recall": 0.5}, 1)


def test_nothing_scored_exits_1(flaky, tmp_path, capsys):
    path = write_jsonl(tmp_path / "x.jsonl", [{"prediction": "down", "labels": LABELS}])
    assert main(["flaky", "--input", str(path)]) == 1
    assert "failed, not in the mean: 1 rows" in capsys.readouterr().out


def test_command_prints_and_writes(tmp_path, capsys):
    path = write_jsonl(tmp_path / "x.jsonl", [{"prediction": GOOD, "labels": LABELS}, {"prediction": BAD}])
    out = tmp_path / "new" / "scored.jsonl"
    assert main(["facts", "--input", str(path), "--out", str(out), "--set", "beta=1.0"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("facts: mean 1.0000 over 1 of 2 rows")
    assert "skipped: 1 rows, no reference, labels or ground_truth" in printed
    written = [json.loads(line) for line in out.read_text().splitlines()]
    assert written[0]["score"] == compute_score("x", GOOD, TRUTH, beta=1.0)["score"]
    assert written[1] == {"row": 1, "skipped": "no reference, labels or ground_truth"}
    assert [file.name for file in out.parent.iterdir()] == ["scored.jsonl"]


@pytest.mark.parametrize(
    ("reward", "name", "content", "more", "words"),
    [
        ("fax", "x.jsonl", "{}", [], "no reward 'fax'; choose one of"),
        ("facts", "none.jsonl", None, [], "does not exist"),
        ("facts", "x.txt", "{}", [], "the ending .txt is unknown"),
        ("facts", "x.jsonl", "\n\n", [], "holds no row"),
        ("facts", "x.csv", "prediction\n", [], "holds no row"),
        ("facts", "x.jsonl", b"\xff\xfe{", [], "is not UTF-8 text"),
        ("facts", "x.jsonl", "{}", ["--set", "beta"], "is not NAME=VALUE"),
        ("facts", "x.jsonl", "{}", ["--set", "bta=1"], "has no setting 'bta': use one of beta"),
        ("facts", "x.jsonl", "{}", ["--set", "ground_truth=1"], "has no setting 'ground_truth'"),
    ],
)
def test_bad_input_exits_2_with_one_sentence(tmp_path, capsys, reward, name, content, more, words):
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    assert main([reward, "--input", str(path), *more]) == 2
    error = capsys.readouterr().err
    assert words in error
    assert error.count("\n") == 1


def test_a_name_that_is_no_module_of_ours_is_not_imported():
    with pytest.raises(ValueError, match="no reward"):
        load("base")
    with pytest.raises(ValueError, match="no reward"):
        load("..evaluation.score")


def test_reference_is_cut_into_sections():
    truth, labelled = ground_truth({"reference": REFERENCE})
    assert labelled
    assert json.loads(truth)["impression"].strip() == "Cardiomegaly."
    assert set(json.loads(truth)["labels"]) == set(CHEXPERT_14)


DEEP, DIGITS = "[" * 100_000, "9" * 5000
LONG_LABEL = f"label 'Edema' has value {DIGITS[:40]!r}; use 1, 0, -1 or blank."


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('{"a":' * 100_000, "the line is not JSON"),
        (f'{{"prediction": "x", "labels": {{"Edema": {DIGITS}}}}}', "the line is not JSON"),
        (f'{{"prediction": "x", "labels": {{"Edema": {DIGITS[:400]}}}}}', LONG_LABEL),
        (json.dumps({"prediction": "x", "labels": DEEP}), "a field is not JSON"),
        (json.dumps({"prediction": "x", "ground_truth": DEEP}), "the reward refused the row"),
        (json.dumps({"prediction": "x", "reference": 5}), "the reference is not text"),
        (json.dumps({"prediction": "x", "reference": [GOOD]}), "the reference is not text"),
        (json.dumps({"prediction": GOOD, "reference": "pending"}), "the reference says nothing about a chest image"),
    ],
)
def test_odd_lines_are_counted(tmp_path, line, reason):
    path = write_jsonl(tmp_path / "x.jsonl", [line + "\n", {"prediction": GOOD, "labels": LABELS}])
    summary, _ = score_rows(read_rows(path), "facts")
    assert (summary["scored"], summary["skipped"]) == (1, {reason: 1})


@pytest.mark.parametrize(
    "setting", ["beta=abc", "beta=NaN", "beta=1e200", "beta=true", "beta=" + DIGITS, "xi=0", "judge=5", "judge=openai"]
)
def test_a_bad_setting_is_bad_input_and_no_fault_of_the_rows(tmp_path, setting, capsys):
    path = write_jsonl(tmp_path / "x.jsonl", [{"prediction": GOOD, "labels": LABELS}])
    assert main(["facts", "--input", str(path), "--set", setting]) == 2
    error = capsys.readouterr().err
    assert setting.split("=")[0] in error
    assert error.count("\n") == 1
    assert len(error) < 300


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("prediction,prediction,reference\na,b,c\n", "more than once"),
        (f'prediction,reference\n{GOOD},"{REFERENCE}\nx,y\n', "never closed"),
        ("text,reference\na,b\n", "no column prediction"),
    ],
)
def test_a_csv_that_would_lose_rows_is_refused(tmp_path, text, words, capsys):
    (tmp_path / "x.csv").write_text(text)
    assert main(["facts", "--input", str(tmp_path / "x.csv")]) == 2
    assert words in capsys.readouterr().err


def test_semicolons_and_short_rows(tmp_path):
    (tmp_path / "x.csv").write_text(f"prediction;reference\n{GOOD};{REFERENCE}\n{GOOD}\n")
    summary, _ = score_rows(read_rows(tmp_path / "x.csv"), "facts")
    assert (summary["scored"], summary["skipped"]) == (1, {"a CSV row has more or fewer fields than the header": 1})


def test_the_input_is_not_overwritten(tmp_path, capsys):
    path = write_jsonl(tmp_path / "x.jsonl", [{"prediction": GOOD, "labels": LABELS}])
    before = path.read_text()
    assert main(["facts", "--input", str(path), "--out", str(tmp_path / "y" / ".." / "x.jsonl")]) == 2
    assert "is the input itself" in capsys.readouterr().err
    assert path.read_text() == before


def test_a_row_of_regions_is_scored_with_the_size_of_its_image(tmp_path, capsys):
    """`extra_info`, an object or its JSON, reaches the reward: boxes in pixels need it."""
    truth = json.dumps({"regions": [{"name": "left lung", "box": [0.5, 0.25, 1.0, 0.75], "finding": "clear lung"}]})
    output = (
        '<think>[{"region": "left lung", "box": [100, 25, 200, 75], "finding": "clear lung"}]</think>'
        "<answer>Clear lungs.</answer>"
    )
    size = {"width": 200, "height": 100}
    rows = [
        {"prediction": output, "ground_truth": truth, "extra_info": info} for info in (size, json.dumps(size), None)
    ]
    path = write_jsonl(tmp_path / "x.jsonl", rows)
    assert main(["gated", "--input", str(path), "--set", "box_space=pixel", "--out", str(tmp_path / "y.jsonl")]) == 0
    first, second, third = [json.loads(line) for line in (tmp_path / "y.jsonl").read_text().splitlines()]
    assert (first["score"], second["score"]) == (2.0, 2.0)
    assert "width" in third["detail"]
    assert "spatial: 1.0000" in capsys.readouterr().out
