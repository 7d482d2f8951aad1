"""The data check on reasoning traces: regions of the ground truth, and what the SFT twin teaches."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from data_preprocess import simulated
from data_preprocess.core.rows import report_row, sft_row, write_rows
from data_preprocess.core.traces import trace_text
from radverl.datacheck import check_parquet, main
from radverl.datacheck.traces import check_answer, check_regions, differs

Row = dict[str, Any]
REGION = {"name": "left lung", "box": [0.5, 0.1, 0.9, 0.8], "finding": "Small effusion."}
REPORT = {
    "findings": "Small effusion.", "impression": "Effusion.",
    "report": "Findings: Small effusion. Impression: Effusion.",
}  # fmt: skip
LABELS = {"labels": {"Pleural Effusion": 1}}


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., Row]:
    Image.fromarray(np.arange(56 * 56, dtype=np.uint8).reshape(56, 56)).save(tmp_path / "x.png")

    def build(index: int = 0, ability: str = "trace", **truth: Any) -> Row:
        return report_row(
            data_source="mine", split="train", index=index, prompt_id=f"mine/{index}", subject_id=f"p{index}",
            study_id=f"s{index}", images=[str(tmp_path / "x.png")], prompt="<image>List, then write.", width=56,
            height=56, ability=ability, ground_truth=REPORT | LABELS | {"regions": [REGION]} | truth,
        )  # fmt: skip

    return build


@pytest.mark.parametrize(
    ("truth", "kind", "severity"),
    [
        ({}, None, ""),
        ({"regions": []}, "no regions", "error"),
        ({"regions": None}, "no regions", "error"),
        ({"regions": [REGION | {"finding": ""}]}, "no findings", "warning"),
        ({"regions": [REGION, REGION | {"name": "Left  lung"}]}, "duplicate region", "error"),
        ({"regions": [REGION, REGION | {"name": " "}]}, "region name", "error"),
        ({"regions": [REGION, {"region": "spine", "box": [0, 0, 1, 1], "finding": ""}]}, "region name", "error"),
        ({"regions": [REGION, {"name": "spine", "box": [0, 0, 1, 1]}]}, "region finding", "error"),
        ({"regions": [REGION, {"name": "spine", "box": [0, 0, 1, 1], "finding": ["a"]}]}, "region finding", "error"),
        ({"regions": [REGION | {"box": [0.5, 0.1, 0.5, 0.8]}]}, "box out of bounds", "error"),
        ({"regions": [REGION | {"box": [10, 10, 200, 300]}]}, "box out of bounds", "error"),
        ({"regions": [REGION | {"box": None}]}, "box shape", "error"),
        ({"report": ""}, "no report", "error"),
        ({"impression": "Pneumothorax."}, "answer differs", "error"),
    ],
)
def test_a_trace_needs_regions_and_a_report(
    tmp_path: Path, make: Callable[..., Row], truth: Row, kind: str | None, severity: str
) -> None:
    write_rows(tmp_path / "train.parquet", [make(0), make(1, **truth)], kind="rl")
    report = check_parquet(tmp_path / "train.parquet")
    found = {(problem.row, problem.kind, problem.severity) for problem in report.problems}
    assert {one for one in found if one[1] != "missing label"} == ({(1, kind, severity)} if kind else set())


def test_a_report_row_needs_no_regions(tmp_path: Path, make: Callable[..., Row]) -> None:
    rows = [make(0, ability="report", regions=[]), make(1, ability="report", regions=[REGION | {"finding": None}])]
    write_rows(tmp_path / "train.parquet", rows, kind="rl")
    assert check_parquet(tmp_path / "train.parquet").ok


GOOD = trace_text([REGION], REPORT["report"])


@pytest.mark.parametrize(
    ("text", "kind", "severity"),
    [
        (GOOD, None, ""),
        ("Findings: Clear.", None, ""),  # a report without a trace
        (GOOD.replace("</think>", "</think>\n"), None, ""),
        (GOOD.removesuffix("</answer>"), "trace form", "error"),
        (GOOD.replace("</think>", ""), "trace form", "error"),
        (GOOD + GOOD, "trace form", "error"),
        ("<think>" + GOOD, "trace form", "error"),
        (GOOD.replace('"}]', '"},]'), "trace form", "error"),
        ("<think>[]</think><answer>Clear.</answer>", "trace form", "error"),
        ("<think>[3]</think><answer>Clear.</answer>", "trace form", "error"),
        ("<think>First I look.</think><answer>Clear.</answer>", "plain reasoning", "warning"),
        (trace_text([REGION], ""), "empty answer", "error"),
        (trace_text([REGION, REGION], "Clear."), "duplicate region", "error"),
        (GOOD.replace("0.9,", "9,"), "box out of bounds", "error"),
        (GOOD.replace("0.9,", "0.5,"), "box out of bounds", "error"),
        (GOOD.replace("0.9,", "NaN,"), "box shape", "error"),
        (GOOD.replace("0.9, ", ""), "box shape", "error"),
        (GOOD.replace('"left lung"', "7"), "region name", "error"),
        (GOOD.replace('"Small effusion."}', "null}"), "region finding", "error"),
    ],
)
def test_the_text_that_is_taught(text: str, kind: str | None, severity: str) -> None:
    found = {(found_kind, found_severity) for found_severity, found_kind, _ in check_answer(text)}
    assert found == ({(kind, severity)} if kind else set())


def test_the_answer_is_the_report_of_the_twin(
    tmp_path: Path, make: Callable[..., Row], capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [make(number) for number in range(4)]
    texts = [GOOD, trace_text([REGION], "Clear."), trace_text([REGION | {"name": "spine"}], REPORT["report"]), GOOD]
    twins = [sft_row(row, text) for row, text in zip(rows, texts, strict=True)]
    twins[3] = twins[3] | {"messages": [{"role": "user", "content": "<image>Another."}, twins[3]["messages"][1]]}
    write_rows(tmp_path / "train.parquet", rows, kind="rl")
    write_rows(tmp_path / "sft_train.parquet", twins, kind="sft")
    report = check_parquet(tmp_path / "sft_train.parquet", twin=tmp_path / "train.parquet")
    assert [(problem.row, problem.kind) for problem in report.problems] == [
        (1, "answer differs"), (2, "answer differs"), (3, "other prompt"),
    ]  # fmt: skip
    assert main([str(tmp_path / "sft_train.parquet")]) == 1  # the twin beside it is found
    assert "the answer is not the report of row 1" in capsys.readouterr().out
    write_rows(tmp_path / "sft_train.parquet", twins[:1], kind="sft")
    assert main([str(tmp_path / "sft_train.parquet")]) == 0
    assert "has 4 rows, so answers were not held against its reports" in capsys.readouterr().out


@pytest.mark.parametrize("task", ["report", "trace"])
def test_simulated_traces_are_clean(tmp_path: Path, task: str) -> None:
    arguments = ["--n-train", "6", "--n-val", "2", "--size", "64", "--task", task, "--quiet"]
    assert simulated.main(["--out", str(tmp_path), *arguments]) == 0
    assert main([str(tmp_path)]) == 0


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2) | st.floats() | st.text(max_size=4), 
    lambda inner: st.lists(inner, max_size=4)
    | st.dictionaries(st.sampled_from(["region", "name", "box", "finding", "regions", "report"]), inner, max_size=4),
    max_leaves=12,
)  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(JSON, st.text(st.sampled_from('<think>/answer[]{}":,0.1 '), max_size=60))
def test_nothing_makes_it_crash(value: Any, text: str) -> None:
    list(check_answer(text))
    list(check_answer(f"<think>{json.dumps(value)}</think><answer>{text}</answer>"))
    list(check_regions({"regions": value, "report": "Clear.", "findings": value}, is_trace=True))
    differs(GOOD, json.dumps(value))
    differs(
        f"<think>{json.dumps(value)}</think><answer>Clear.</answer>", json.dumps({"report": "Clear.", "regions": 3})
    )
