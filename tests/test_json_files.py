"""JSON that others wrote: one kind of error, whatever is wrong."""

from pathlib import Path

import pytest

from data_preprocess.core.json_files import JsonError, load_json, parse_json


def test_it_reads_with_and_without_a_byte_order_mark(tmp_path: Path) -> None:
    assert parse_json(b'\xef\xbb\xbf{"a": ["\xc3\xa9"]}') == {"a": ["é"]}
    (tmp_path / "x.json").write_text("[1, 2]")
    assert load_json(tmp_path / "x.json", 6) == [1, 2]


@pytest.mark.parametrize(
    ("data", "reason"),
    [(b"[1, 2, 3]", "more than 8 bytes"), (b"[1,", "not JSON"), (b'"\xff"', "not JSON"), (b"", "not JSON")],
)
def test_what_cannot_be_read_has_a_reason(tmp_path: Path, data: bytes, reason: str) -> None:
    (tmp_path / "x.json").write_bytes(data)
    with pytest.raises(JsonError, match=reason):
        load_json(tmp_path / "x.json", 8)


def test_deep_and_absent_files_are_no_other_error(tmp_path: Path) -> None:
    with pytest.raises(JsonError, match="not JSON"):
        parse_json(b"[" * 200_000)
    for path in (tmp_path / "none.json", tmp_path):
        with pytest.raises(JsonError):
            load_json(path, 8)
