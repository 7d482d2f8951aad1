"""The file of a benchmark says whether its goal holds."""

import json

import pytest

from benchmarks import result


@pytest.mark.parametrize(("ratio", "holds"), [(0.5, True), (1.0, True), (1.01, False)])
def test_file_and_line(tmp_path, monkeypatch, capsys, ratio: float, holds: bool) -> None:
    monkeypatch.setattr(result, "FOLDER", tmp_path / "bench")
    assert result.write("step", ratio, 1.0, {"cores": 2}, "4 s") is holds
    written = json.loads((tmp_path / "bench/step.json").read_text())
    assert written == {"name": "step", "ratio": ratio, "goal": 1.0, "holds": holds, "detail": {"cores": 2}}
    assert ("holds" if holds else "MISSED") in capsys.readouterr().out
