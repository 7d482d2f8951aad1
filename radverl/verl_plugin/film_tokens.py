"""Films that are too large for the prompt, found without a tokenizer: verl drops such rows, or stops at them, mid-run.

A Qwen-VL model makes one token of each square of patch_size x merge_size pixels; our rows carry width and height of
their (first) image. A processor shrinks what is larger than its max_pixels.
"""

import json
from pathlib import Path

# Start of a hub name -> pixels of a token, patches of 14 or 16 merged two by two.
SQUARES = {"Qwen/Qwen2-VL-": 28 * 28, "Qwen/Qwen2.5-VL-": 28 * 28, "Qwen/Qwen3-VL-": 32 * 32}
HUB_MAX_TOKENS = 16384  # max_pixels of their preprocessor_config.json, in squares


def largest_films(path: str, model: str, max_prompt_length: int) -> tuple[int, int, int] | None:
    """(films that need more than `max_prompt_length` tokens, films, tokens of the largest) of a Parquet file.

    None where the model is none whose squares are known, or the rows carry no size.
    """
    import pyarrow.parquet

    limits = _limits(model)
    if limits is None:
        return None
    square, max_pixels = limits
    rows = pyarrow.parquet.read_table(path, columns=["extra_info"]).column("extra_info").to_pylist()
    sizes = [(row.get("width"), row.get("height")) for row in rows if row]
    tokens = [min(w * h, max_pixels) // square for w, h in sizes if isinstance(w, int) and isinstance(h, int)]
    if not tokens:
        return None
    return sum(count > max_prompt_length for count in tokens), len(tokens), max(tokens)


def _limits(model: str) -> tuple[int, int] | None:
    """Pixels of a token and the most pixels the processor lets through."""
    folder = Path(model).expanduser()
    if not folder.is_dir():
        square = next((pixels for start, pixels in SQUARES.items() if model.startswith(start)), None)
        return (square, HUB_MAX_TOKENS * square) if square else None
    for name in ("preprocessor_config.json", "processor_config.json"):
        try:
            config = json.loads((folder / name).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        config = config.get("image_processor", config)
        size = config.get("size") or {}
        most = config.get("max_pixels") or size.get("longest_edge")
        if config.get("patch_size") and config.get("merge_size") and most:
            return (config["patch_size"] * config["merge_size"]) ** 2, most
    return None
