"""Files and rewards in TRL: its GRPOTrainer trains on them, in a process of its own (verl cannot start beside it)."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from data_preprocess.simulated import main as simulate
from radverl.rewards.facts import compute_score
from radverl.trl import read_dataset, reward_func

TRL = Path(sys.prefix) / "trl"
TRAIN = """
import json, sys
sys.path.insert(0, sys.argv[2])
from trl import GRPOConfig, GRPOTrainer
from radverl.tiny_model import make_tiny_model
from radverl.trl import read_dataset, reward_func

folder = sys.argv[1]
make_tiny_model("qwen2_5_vl", folder + "/model", ["Findings: the lungs are clear."] * 20, image_size=112)
seen = []

def lengths(completions, ground_truth, extra_info, **_):
    seen.extend(zip(ground_truth, [info["prompt_id"] for info in extra_info]))
    return [float(len(completion[0]["content"])) for completion in completions]

config = GRPOConfig(
    output_dir=folder + "/out", per_device_train_batch_size=4, num_generations=4, max_completion_length=12, max_steps=2,
    use_cpu=True, bf16=False, report_to=[], logging_steps=1, save_strategy="no", shuffle_dataset=False, beta=0.0,
)
data = read_dataset(folder + "/sim/train.parquet")
trainer = GRPOTrainer(folder + "/model", reward_funcs=[reward_func("facts"), lengths], args=config, train_dataset=data)
trainer.train()
log = [entry for entry in trainer.state.log_history if "reward" in entry]
print("RESULT", json.dumps({"log": log, "seen": seen}))
"""


@pytest.fixture(scope="module")
def films(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trl")
    assert simulate(["--out", str(folder / "sim"), "--n-train", "4", "--size", "112", "--quiet"]) == 0
    embedded = ["--out", str(folder / "bytes"), "--n-train", "4", "--size", "112", "--quiet", "--embed-images"]
    assert simulate(embedded) == 0
    return folder


def test_several_files(films: Path) -> None:
    pytest.importorskip("datasets")
    assert len(read_dataset([films / "sim" / "train.parquet"] * 2)) == 8


@pytest.mark.parametrize("form", ["sim", "bytes"])
def test_rows(films: Path, form: str) -> None:
    pytest.importorskip("datasets")
    row = read_dataset(films / form / "train.parquet")[0]
    assert row["prompt"] == [{"role": "user", "content": "Write the findings and impression of this chest radiograph."}]
    assert [image.size for image in row["images"]] == [(112, 112)]
    assert json.loads(row["ground_truth"])["report"].startswith("Findings:")
    assert (row["data_source"], row["extra_info"]["index"]) == ("simulated", 0)


def test_a_placeholder_in_the_middle_is_refused(films: Path) -> None:
    pytest.importorskip("datasets")
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = pq.read_table(films / "sim" / "train.parquet").to_pylist()
    rows[2]["prompt"][0]["content"] = "See <image> and report."
    pq.write_table(pa.Table.from_pylist(rows), films / "middle.parquet")
    with pytest.raises(ValueError, match="row 2: its 1 <image> do not stand at the start"):
        read_dataset(films / "middle.parquet")


def test_rewards_are_those_of_compute_score() -> None:
    truth = json.dumps({"report": "", "labels": {"Edema": 1, "Pneumonia": 0}})
    texts = ["Findings: pulmonary edema.", "Findings: pneumonia."]
    columns: dict[str, Any] = {"ground_truth": [truth] * 2, "data_source": ["x"] * 2, "extra_info": [{}] * 2}
    expected = [compute_score("x", text, truth)["score"] for text in texts]
    assert expected[0] > expected[1]
    reward = reward_func("facts")
    assert reward.__name__ == "facts"
    assert reward(prompts=texts, completions=texts, trainer_state=None, **columns) == expected
    parts = [[{"role": "assistant", "content": [{"type": "text", "text": text}]}] for text in texts]
    assert reward(prompts=texts, completions=parts, **columns) == expected


def test_a_failed_judge_is_no_zero() -> None:
    truth = json.dumps({"report": "", "labels": {"Edema": 1}})
    columns = {"completions": ["Findings: edema."], "ground_truth": [truth]}

    class Broken:
        def states(self, *_: Any) -> Any:
            raise ConnectionError("down")

    broken = Broken()
    with pytest.raises(RuntimeError, match=r"the reward facts failed at sample 0 \(other\)"):
        reward_func("facts", judge=broken)(**columns)
    assert reward_func("facts", judge=broken, skip_failed=True)(**columns) == [None]


def test_an_unknown_reward_is_named() -> None:
    with pytest.raises(ValueError, match="no reward 'fact'"):
        reward_func("fact")


@pytest.mark.slow
def test_trl_trains_on_them(films: Path) -> None:
    if not (TRL / "trl").is_dir():
        pytest.skip("there is no TRL beside the environment; run make setup.")
    pytest.importorskip("datasets")
    done = subprocess.run(
        [sys.executable, "-c", TRAIN, str(films), str(TRL)], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    result = json.loads(done.stdout.split("RESULT ")[1])
    assert [entry["step"] for entry in result["log"]] == [1, 2]
    assert all(entry["rewards/lengths/mean"] > 0 for entry in result["log"])
    assert all(0 <= entry["rewards/facts/mean"] <= 1 for entry in result["log"])
    rows = {
        row["extra_info"]["prompt_id"]: row["ground_truth"] for row in read_dataset(films / "sim" / "train.parquet")
    }
    assert len(result["seen"]) == 8
    assert all(rows[prompt_id] == truth for truth, prompt_id in result["seen"])
