"""`radverl cost`: the estimate's arithmetic, its sources, its exit codes."""

import json

import pytest

from radverl.cli import main
from radverl.judge.budget import Prices, Usage
from radverl.judge.cost import QUESTIONS, Plan, as_record, estimate
from radverl.judge.facts_judge import ENTAIL, EXTRACT
from radverl.judge.prompt_files import load_prompt


@pytest.fixture(autouse=True)
def no_settings(monkeypatch):
    for name in ("RADVERL_JUDGE_PRICES", "RADVERL_JUDGE_BUDGET"):
        monkeypatch.delenv(name, raising=False)


def record_of(capsys, *options):
    assert main(["cost", *options, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_two_calls_for_a_distinct_report():
    plan = Plan(prompts=100, rollouts=8, validation=50, distinct=0.5)
    assert (plan.reports, plan.asked) == (850, 425)
    usage = estimate(plan, "facts")
    assert {name: used.calls for name, used in usage.items()} == {"extract_facts.v1": 425, "entail_labels.v1": 425}


def test_the_questions_are_those_that_the_judge_asks():
    assert [question.prompt for question in QUESTIONS["facts"]] == [EXTRACT, ENTAIL]


def test_the_prompt_s_files_are_measured():
    prompt = load_prompt("remove_priors", 1)
    one = sum(len(m["content"]) for m in prompt.messages('{"report": ""}'))
    usage = estimate(Plan(10), "priors", report_chars=400, chars_per_token=2)["remove_priors.v1"]
    assert usage == Usage(10, round(10 * (one / 2 + 200)), 10 * (200 + 20))


def test_tokens_grow_with_the_report_and_the_prompt_stays():
    short, long = (estimate(Plan(1000), "facts", n)["extract_facts.v1"].input_tokens for n in (400, 800))
    assert long - short == 1000 * 400 / 4


def test_money():
    usage = {"p.v1": Usage(2, 1_000_000, 500_000)}
    record = as_record(Plan(1), usage, Prices(2, 8))
    assert (record["money"], record["questions"]["p.v1"]["money"]) == (6.0, 6.0)
    assert as_record(Plan(1), usage, None)["money"] is None


def test_rows_epochs_and_steps(capsys):
    by_rows = record_of(capsys, "--prompts", "1000", "--epochs", "3")
    assert (by_rows["reports"], by_rows["calls"]) == (24_000, 48_000)
    by_steps = record_of(capsys, "--batch", "16", "--steps", "100", "--rollouts", "4", "--val-rows", "50",
                         "--validations", "3")  # fmt: skip
    assert by_steps["reports"] == 16 * 100 * 4 + 150
    assert record_of(capsys, "--prompts", "10", "--task", "priors")["calls"] == 10


def test_a_warm_cache_costs_nothing(capsys):
    record = record_of(capsys, "--prompts", "1000", "--distinct", "0", "--prices", "input=2,output=8")
    assert (record["calls"], record["input_tokens"], record["money"]) == (0, 0, 0.0)


def write_rows(path, truths):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    rows = [{"style": "rule", "ground_truth": truth} for truth in truths]
    pq.write_table(pa.table({"data_source": ["x"] * len(rows), "reward_model": rows}), path)


def test_rows_are_counted_and_their_reports_measured(tmp_path, capsys):
    path = tmp_path / "train.parquet"
    sections = {"findings": "f" * 198, "impression": "i" * 400}
    write_rows(path, [json.dumps({"report": "r" * 200}), json.dumps(sections), json.dumps({"labels": {}}), "no JSON"])
    record = record_of(capsys, "--data", str(path), "--epochs", "2")
    assert (record["reports"], record["report_chars"]) == (64, 400.0)
    assert record_of(capsys, "--data", str(path), "--report-chars", "50")["report_chars"] == 50


def test_rows_without_reports_are_taken_as_usual_ones(tmp_path, capsys):
    path = tmp_path / "train.parquet"
    write_rows(path, [json.dumps({"labels": {"Edema": 1}})] * 3)
    assert record_of(capsys, "--data", str(path))["report_chars"] == 600


def test_the_table_and_the_budget(tmp_path, capsys):
    table = tmp_path / "prices.json"
    table.write_text('{"small": {"input": 0.1, "output": 0.4}, "large": {"input": 10, "output": 40}}')
    options = ["cost", "--prompts", "1000", "--prices", str(table), "--budget", "money=20"]
    assert main([*options, "--model", "small"]) == 0
    out = capsys.readouterr().out
    assert "within the budget" in out
    assert [line.split()[0] for line in out.splitlines()[2:5]] == ["extract_facts.v1", "entail_labels.v1", "total"]
    assert main([*options, "--model", "large"]) == 1
    assert "above the budget of 20.00 in money" in capsys.readouterr().out
    assert main([*options, "--model", "other"]) == 2
    assert "no prices of model 'other'" in capsys.readouterr().err
    assert main(["cost", "--prompts", "10", "--budget", "calls=159"]) == 1
    assert main(["cost", "--prompts", "10", "--budget", "calls=160"]) == 0


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ([], "how many prompts"),
        (["--steps", "3"], "belong together"),
        (["--steps", "3", "--batch", "2", "--epochs", "1"], "say the same twice"),
        (["--steps", "3", "--batch", "2", "--prompts", "9"], "say the same twice"),
        (["--prompts", "0"], "whole number"),
        (["--prompts", "2.5"], "whole number"),
        (["--prompts", "nan"], "whole number"),
        (["--prompts", "3", "--distinct", "1.1"], "from 0 to 1"),
        (["--prompts", "3", "--report-chars", "-4"], "argument"),
        (["--prompts", "3", "--prices", "input=2"], "input and output"),
        (["--prompts", "3", "--budget", "money=2"], "needs --prices"),
        (["--data", "/nowhere.parquet"], "does not exist"),
        (["--data", __file__], "is no Parquet file"),
        (["--task", "poetry"], "invalid choice"),
    ],
)
def test_bad_input_is_exit_2_and_one_sentence(capsys, options, says):
    try:
        code = main(["cost", *options])
    except SystemExit as error:
        code = error.code
    assert code == 2
    assert says in capsys.readouterr().err


RECIPE = """#!/usr/bin/env bash
echo 'checking data'
cat <<'YAML'
data:
  train_files: {train}
  val_files:
  - {val}
  train_batch_size: 3
actor_rollout_ref:
  rollout:
    n: 4
trainer:
  total_epochs: 2
  total_training_steps: {steps}
  test_freq: 2
  val_before_train: true
YAML
echo 'dry run: valid'
"""


@pytest.mark.parametrize(("steps", "reports"), [("null", 6 * 3 * 4 + 5 * 4), ("4", 4 * 3 * 4 + 5 * 3)])
def test_a_recipe_is_read_from_its_dry_run(tmp_path, capsys, steps, reports):
    import pyarrow as pa
    import pyarrow.parquet as pq

    for name, rows in (("train", 11), ("val", 5)):  # 11 rows are three whole batches of 3
        truth = json.dumps({"report": "x" * 300})
        pq.write_table(
            pa.Table.from_pylist([{"reward_model": {"ground_truth": truth}}] * rows), tmp_path / f"{name}.pq"
        )
    script = tmp_path / "recipe.sh"
    script.write_text(RECIPE.format(train=tmp_path / "train.pq", val=tmp_path / "val.pq", steps=steps))
    record = record_of(capsys, "--recipe", str(script))
    assert (record["reports"], record["report_chars"]) == (reports, 300)


def test_a_recipe_of_ours(capsys):
    record = record_of(capsys, "--recipe", "recipes/orapo_qwen25vl3b.sh", "--prompts", "1000")
    assert record["reports"] == 1000 // 16 * 3 * 16 * 8


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--recipe", "gone.sh"], "gone.sh is no script"),
        (["--recipe", "README.md"], "README.md is no script"),
        (["--recipe", "recipes/cpu_env.sh"], "its dry run prints no config"),
        (["--recipe", "recipes/orapo_qwen25vl3b.sh", "--rollouts", "4"], "--recipe says --rollouts itself"),
        (["--recipe", "recipes/orapo_qwen25vl3b.sh", "--validations", "4"], "--recipe says --validations itself"),
        (["--recipe", "recipes/orapo_qwen25vl3b.sh", "--task", "priors"], "--task priors is not"),
    ],
)
def test_a_recipe_that_is_none(capsys, options, message):
    assert main(["cost", *options]) == 2
    assert message in capsys.readouterr().err
