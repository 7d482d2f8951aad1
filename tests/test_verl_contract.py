"""The installed verl still has every name radverl builds on (radverl/REQUIRED_VERL.txt)."""

import importlib.metadata

import pytest

from radverl import required_verl
from radverl.required_verl import missing_hooks, required_hooks, required_series, unsupported_verl


def test_installed_verl_has_every_hook() -> None:
    assert missing_hooks() == []


def test_installed_verl_is_in_a_supported_series() -> None:
    assert unsupported_verl(importlib.metadata.version("verl")) is None


def test_a_lost_hook_is_named_with_its_file(tmp_path, monkeypatch) -> None:
    changed = tmp_path / "REQUIRED_VERL.txt"
    changed.write_text("series 0.9\nhook protocol.py class DataProto\nhook protocol.py class Gone\nhook gone.py x\n")
    monkeypatch.setattr(required_verl, "REQUIRED", changed)
    problems = missing_hooks()
    assert len(problems) == 2
    assert "verl/protocol.py" in problems[0]
    assert "class Gone" in problems[0]
    assert "verl/gone.py does not exist" in problems[1]


@pytest.mark.parametrize("version", ["0.8.0", "0.10.0", "1.0.0", "0.90.1"])
def test_other_series_are_refused_with_what_to_do(version: str) -> None:
    problem = unsupported_verl(version)
    assert problem is not None
    assert version in problem
    assert "install verl==0.9.1" in problem


def test_no_verl_at_all_names_the_extras() -> None:
    assert "extra `verl`" in str(unsupported_verl(None))


def test_requirements_are_not_empty() -> None:
    assert required_series() == ("0.9",)
    assert len(required_hooks()) > 10
