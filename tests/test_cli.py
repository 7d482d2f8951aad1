"""The console script dispatches, explains itself, and imports nothing heavy."""

import subprocess
import sys

import pytest

from radverl.cli import COMMANDS, main


@pytest.mark.parametrize("argv", [["--help"], ["--version"], ["data", "--help"]])
def test_help_is_exit_0(argv: list[str], capsys) -> None:
    assert main(argv) == 0
    assert capsys.readouterr().out


@pytest.mark.parametrize("command", [name for name in COMMANDS if name != "data"])
def test_each_command_has_help_with_an_example(command: str, capsys) -> None:
    with pytest.raises(SystemExit) as error:
        main([command, "--help"])
    assert error.value.code == 0
    assert "example:" in capsys.readouterr().out


@pytest.mark.parametrize(("argv", "says"), [(["scor"], "choose one of"), (["data", "mimik"], "simulated")])
def test_an_unknown_name_is_exit_2_with_the_names_there_are(argv: list[str], says: str, capsys) -> None:
    assert main(argv) == 2
    assert says in capsys.readouterr().err


def test_no_command_is_exit_2() -> None:
    assert main([]) == 2


def test_data_reaches_the_scripts(tmp_path, capsys) -> None:
    arguments = ["--n-train", "4", "--n-val", "0", "--n-test", "0", "--size", "64", "--quiet"]
    assert main(["data", "simulated", "--out", str(tmp_path), *arguments]) == 0
    assert main(["data", "check", str(tmp_path / "train.parquet")]) == 0
    assert main(["data", "check", str(tmp_path / "none.parquet")]) == 2


def test_import_radverl_is_light() -> None:
    heavy = "[m for m in ('torch', 'verl', 'numpy', 'PIL', 'ray') if m in sys.modules]"
    run = subprocess.run(
        [sys.executable, "-c", f"import sys, radverl; print({heavy})"], capture_output=True, text=True, check=True
    )
    assert run.stdout.strip() == "[]"


def test_the_stable_names_of_this_release_can_be_imported() -> None:
    from radverl.chexpert import label_report
    from radverl.labels import CHEXPERT_14
    from radverl.rewards.facts import compute_score, f_beta
    from radverl.text import remove_prior_references, split_sections, split_sentences

    assert all(map(callable, (label_report, compute_score, f_beta, split_sections, split_sentences)))
    assert callable(remove_prior_references)
    assert len(CHEXPERT_14) == 14


def test_an_interrupted_command_says_so_without_a_traceback(monkeypatch, capsys) -> None:
    def stop(argv: list[str]) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("radverl.evaluation.score.main", stop)
    assert main(["score"]) == 130
    assert capsys.readouterr().err == "radverl score: interrupted; run it again to finish.\n"


def test_a_reader_that_goes_away_gets_no_traceback() -> None:
    command = f"{sys.executable} -m radverl.cli data --help | true"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60)
    assert "Traceback" not in done.stderr
    assert "BrokenPipe" not in done.stderr
