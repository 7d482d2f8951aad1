"""Training logs: what verl's own loggers and dump writer produce is read back, and zero-reward rates are counted."""

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from radverl.evaluation.plot import parse_run
from radverl.evaluation.verl_log import group_rates, merge, parse_line, read_log, rollout_rates

METRICS = {
    "critic/score/mean": np.float64(0.25),
    "actor/lr": 1e-06,
    "val-core/simulated/reward/mean@1": -0.5,
    "training/global_step": 3,
}
EXPECTED = {name: float(value) for name, value in METRICS.items()} | {"step": 3}


def test_reads_what_verls_console_logger_prints():
    logger = pytest.importorskip("verl.utils.logger.aggregate_logger")
    assert parse_line(logger.concat_dict_to_str(METRICS, step=3)) == EXPECTED


def test_reads_what_verls_file_logger_writes(tmp_path, monkeypatch):
    tracking = pytest.importorskip("verl.utils.tracking")
    monkeypatch.setenv("VERL_FILE_LOGGER_PATH", str(tmp_path / "log.jsonl"))
    logger = tracking.FileLogger("project", "run")
    logger.log(METRICS | {"text": "words", "bad": float("nan")}, step=3)
    logger.log({"critic/score/mean": 0.5}, step=4)
    logger.finish()
    assert read_log(tmp_path / "log.jsonl") == [EXPECTED, {"step": 4, "critic/score/mean": 0.5}]


@pytest.mark.parametrize(
    "line",
    [
        "step:3 - a/b:0.5 - c@1:2",
        "\x1b[36m(TaskRunner pid=812)\x1b[0m step:3 - a/b:np.float64(0.5) - c@1:np.int64(2)\n",
        "Training Progress:  10%|# | 3/30 [00:01<00:09]step:3 - a/b:5e-1 - c@1:2.0 [repeated 2x across cluster]",
        '{"step": 3, "data": {"a/b": 0.5, "c@1": 2, "flag": true, "nothing": null}}',
        '{"step": 3, "a/b": 0.5, "c@1": 2}',
    ],
)
def test_forms_of_a_line(line):
    assert parse_line(line) == {"step": 3, "a/b": 0.5, "c@1": 2.0}


@pytest.mark.parametrize(
    "line",
    ["", "loading", "training/global_step:3 - x:1", "step: three - x:1", "step:3 - words", '{"step": "3"}', "{broken"],
)
def test_other_lines_are_not_records(line):
    assert parse_line(line) is None


def test_values_that_are_not_finite_are_left_out():
    assert parse_line("step:3 - a:nan - b:inf - c:-inf - d:1 - e:-1e-05") == {"step": 3, "d": 1.0, "e": -1e-05}


def test_a_resumed_run_is_read_from_both_logs(tmp_path):
    (tmp_path / "1.jsonl").write_text('{"step":1,"data":{"a":1}}\n{"step":2,"data":{"a":2,"b":9}}\n')
    (tmp_path / "2.log").write_text("starting\nstep:2 - a:20\nstep:3 - a:30\n")
    expected = [{"step": 1, "a": 1.0}, {"step": 2, "a": 20.0, "b": 9.0}, {"step": 3, "a": 30.0}]
    assert read_log(tmp_path / "1.jsonl", tmp_path / "2.log") == expected


def test_logs_that_are_none_are_named(tmp_path):
    with pytest.raises(ValueError, match=r"none\.log does not exist"):
        read_log(tmp_path / "none.log")
    (tmp_path / "x.log").write_text("nothing here\n")
    with pytest.raises(ValueError, match=r"x\.log holds no metrics"):
        read_log(tmp_path / "x.log")


def rollout(uid, score, **more):
    return {"input": "same text", "output": "o", "gts": "{}", "score": score, "step": 1, "uid": uid} | more


def test_zero_rates_by_hand():
    """Three prompts, K = 2: [0, 0], [0, .5], [1, 1]: 3 of 6 rollouts are zero, 1 of 3 groups is all zero."""
    scores = {"a-1": [0.0, 0.0], "b_2": [0.0, 0.5], "c": [1.0, 1.0]}
    rollouts = [rollout(f"{uid}_{j}_0", s) for uid, pair in scores.items() for j, s in enumerate(pair)]
    assert group_rates(rollouts) == {
        "rollouts": 6,
        "groups": 3,
        "left_out": 0,
        "reward_mean": pytest.approx(2.5 / 6),
        "zero_reward_rate": 0.5,
        "all_zero_groups": pytest.approx(1 / 3),
    }


def test_tiny_and_negative_rewards_are_not_zero():
    assert group_rates([rollout("a_0_0", 1e-9), rollout("a_1_0", -1.0)])["zero_reward_rate"] == 0.0


def test_of_several_outputs_of_a_rollout_the_last_counts():
    rates = group_rates([rollout("a_0_1", 1.0), rollout("a_0_0", 0.0), rollout("a_1_0", 0.0)])
    assert (rates["rollouts"], rates["zero_reward_rate"], rates["all_zero_groups"]) == (2, 0.5, 0.0)


def test_ground_truth_rows_and_failures_are_no_zeros():
    rates = group_rates([rollout("a_0_gt", 0.0), rollout("a_0_0", 1.0), rollout("a_1_0", 0.0, failed=1.0)])
    assert (rates["rollouts"], rates["left_out"], rates["zero_reward_rate"]) == (1, 2, 0.0)


def test_without_uid_the_ground_truth_tells_prompts_apart():
    rows = [rollout(None, 0.0), rollout(None, 1.0), rollout(None, 0.0, gts="other")]
    assert group_rates(rows)["all_zero_groups"] == 0.5
    for row in rows:
        del row["uid"]
    assert group_rates(rows)["groups"] == 2


@given(
    st.dictionaries(
        st.uuids().map(str), st.lists(st.sampled_from([0.0, 0.3, 1.0]), min_size=1, max_size=6), min_size=1, max_size=6
    ),
    st.randoms(),
)
def test_rates_do_not_depend_on_order(groups, random):
    rollouts = [rollout(f"{uid}_{j}_0", s) for uid, scores in groups.items() for j, s in enumerate(scores)]
    random.shuffle(rollouts)
    rates = group_rates(rollouts)
    flat = [s for scores in groups.values() for s in scores]
    assert rates["zero_reward_rate"] == pytest.approx(flat.count(0) / len(flat))
    assert rates["all_zero_groups"] == pytest.approx(sum(not any(s) for s in groups.values()) / len(groups))
    assert rates["all_zero_groups"] <= rates["zero_reward_rate"] * max(map(len, groups.values()))


DUMPS = ((10, [0.0, 0.0]), (9, [0.0, 1.0]))
UIDS = ["u_0_0", "u_1_0"]
RATES = [(9, 0.5, 0.0), (10, 1.0, 1.0)]


def rates_of(folder):
    return [(r["step"], r["zero_reward_rate"], r["all_zero_groups"]) for r in rollout_rates(folder)]


def test_dumps_are_read_in_order_of_steps(tmp_path):
    for step, scores in DUMPS:
        rows = [rollout(uid, s, output="a\u2028b") for uid, s in zip(UIDS, scores, strict=True)]
        lines = [json.dumps(row, ensure_ascii=False) for row in rows]
        (tmp_path / f"{step}.jsonl").write_text("\n".join(lines) + "\n")
    (tmp_path / "notes.jsonl").write_text("not a step")
    assert rates_of(tmp_path) == RATES


@pytest.mark.slow
def test_dumps_are_read_as_the_installed_verl_writes_them(tmp_path):
    trainer = pytest.importorskip("verl.trainer.ppo.v1.trainer_base")
    for step, scores in DUMPS:
        columns = [["p"] * 2, ["a\u2028b", "c"], ["{}"] * 2, scores, {"uid": UIDS}]
        trainer.PPOTrainer._write_generations(*columns, str(tmp_path), step)
    assert rates_of(tmp_path) == RATES


def test_dump_folders_that_are_none_are_named(tmp_path):
    with pytest.raises(ValueError, match="holds no rollout dump"):
        rollout_rates(tmp_path)
    (tmp_path / "1.jsonl").write_text(json.dumps(rollout("a_0_0", 1.0)) + '\n{"uid": "a_')
    with pytest.raises(ValueError, match=r"1\.jsonl is no rollout dump"):
        rollout_rates(tmp_path)


def test_merge_joins_by_step():
    left, right = [{"step": 2, "a": 1.0}, {"step": 1, "a": 0.0}], [{"step": 2, "b": 5.0}]
    assert merge(left, right) == [{"step": 1, "a": 0.0}, {"step": 2, "a": 1.0, "b": 5.0}]


def test_lines_that_python_cannot_hold_are_no_records(tmp_path):
    digits = "9" * 5000
    lines = ['{"a":' * 100_000, f'{{"step": {digits}}}', f"step:{digits} - critic/score/mean:1", '{"step": true}']
    big = {"step": 1, "data": {"huge": 10**400, "also": 1e300, "fine": 2.0}}
    (tmp_path / "x").write_text("\n".join([*lines, json.dumps(big)]))
    assert read_log(tmp_path / "x") == [{"step": 1, "fine": 2.0}]


@pytest.mark.parametrize(
    "content", [b"[1]", b'"x"', b"\xff\xfe", b'{"input": 1, "score": "abc"}', b'{"a":' * 100_000,
                b'{"input": 1, "score": ' + b"9" * 400 + b"}"],
)  # fmt: skip
def test_a_dump_that_is_none_names_its_file(tmp_path, content):
    (tmp_path / "7.jsonl").write_bytes(content)
    with pytest.raises(ValueError, match=r"7\.jsonl is no rollout dump"):
        rollout_rates(tmp_path)


@pytest.mark.parametrize(
    "rollouts", [[], [{"input": "x", "score": 0.0, "failed": True}], [{"input": 1, "score": math.nan}]]
)
def test_without_a_reward_there_is_no_rate(rollouts):
    record = group_rates(rollouts)
    assert record["rollouts"] == 0
    assert not {"reward_mean", "zero_reward_rate", "all_zero_groups"} & set(record)


def test_paths_of_a_run_may_hold_equals_and_colons(tmp_path):
    log = tmp_path / "lr=3e-4" / "a:b" / "m.jsonl"
    log.parent.mkdir(parents=True)
    log.write_text("")
    assert parse_run(str(log)) == ("", str(log), "")
    assert parse_run(f"{log}:rolls") == ("", str(log), "rolls")
    assert parse_run(f"first={log}") == ("first", str(log), "")
    assert parse_run(f"first={log}:/r=1/rolls") == ("first", str(log), "/r=1/rolls")
