"""Films too large for the prompt are found from the sizes in the rows."""

import json

import pytest

pytest.importorskip("pyarrow")
import pyarrow
import pyarrow.parquet

from radverl.verl_plugin.film_tokens import largest_films

HUB = "Qwen/Qwen2.5-VL-3B-Instruct"


def table(path, sizes):
    rows = [{"extra_info": {"width": w, "height": h}} for w, h in sizes]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    return str(path)


def test_known_sizes(tmp_path):
    path = table(tmp_path / "a.parquet", [(560, 560), (2320, 2828), (28, 28)])
    assert largest_films(path, HUB, 768) == (1, 3, 2320 * 2828 // 784)
    assert largest_films(path, HUB, 400) == (1, 3, 8368)  # 560 x 560 is 400 tokens, which fit
    assert largest_films(path, HUB, 399) == (2, 3, 8368)


def test_the_processor_shrinks_what_is_larger(tmp_path):
    path = table(tmp_path / "a.parquet", [(20_000, 20_000)])
    assert largest_films(path, HUB, 768) == (1, 1, 16384)


def test_a_local_models_own_squares(tmp_path):
    path = table(tmp_path / "a.parquet", [(320, 320)])
    (tmp_path / "model").mkdir()
    config = {"patch_size": 16, "merge_size": 2, "max_pixels": 10**6}
    (tmp_path / "model/preprocessor_config.json").write_text(json.dumps(config))
    assert largest_films(path, str(tmp_path / "model"), 99) == (1, 1, 100)


@pytest.mark.parametrize("model", ["google/medgemma-4b-it", "."])
def test_other_models_are_not_judged(tmp_path, model):
    assert largest_films(table(tmp_path / "a.parquet", [(9, 9)]), model, 1) is None


def test_rows_without_a_size_are_not_judged(tmp_path):
    assert largest_films(table(tmp_path / "a.parquet", [(None, None)]), HUB, 1) is None
