"""Embedded mode against a plain Pillow loop: goal at least 0.8 of its throughput, with and without --max-pixels.

    python -m benchmarks.embed [--films 30] [--max-pixels 262144]

Ours is what a data script does with an image in one process: `plain_copy` (checks, decoding, shrinking, PNG) and
reading the bytes back. The loop opens, decodes, resizes and saves PNG to memory, with no check at all. Both run over
the same simulated films, JPEG of about 2000 x 2500 pixels, in alternation; each film counts with its fastest time.
The ratio is seconds of ours / seconds of the loop, so 1 / 0.8 is the limit. Without --max-pixels a plain JPEG is not
encoded again, which is all of the gain; embed_16_bit are the same films as 16-bit PNG, where both must convert.
"""

import argparse
import io
import math
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import Image

from benchmarks.result import write
from data_preprocess.core.stored import plain_copy

THROUGHPUT_GOAL = 0.8  # of the plain loop
WIDTH, HEIGHT, DRAWN = 2000, 2500, 512  # pixels of a film, and of the simulated one it is enlarged from


def make_films(folder: Path, count: int, seed: int = 0) -> tuple[list[Path], list[Path]]:
    """`count` films with detector noise, as 8-bit JPEG and as 12 bits in 16-bit PNG."""
    from data_preprocess.phantom import draw_study

    plain, deep = [], []
    for i in range(count):
        rng = np.random.default_rng([seed, i])
        drawn = Image.fromarray(draw_study(seed + i, DRAWN).image).resize((WIDTH, HEIGHT), Image.Resampling.BICUBIC)
        levels_HW = np.asarray(drawn, dtype=np.float32) * 16 + rng.normal(0, 40, (HEIGHT, WIDTH)).astype(np.float32)
        levels_HW = levels_HW.clip(0, 4095)
        plain.append(folder / f"{i}.jpg")
        Image.fromarray((levels_HW / 16).astype(np.uint8)).save(plain[-1], quality=95)
        deep.append(folder / f"{i}.png")
        Image.fromarray(levels_HW.astype(np.uint16)).save(deep[-1], compress_level=1)
    return plain, deep


def ours(path: Path, cache: Path, max_pixels: int | None) -> int:
    """Bytes of the embedded image, as a data script makes them."""
    stored = plain_copy(path, cache, max_pixels)
    data = Path(stored.path).read_bytes()
    if Path(stored.path) != path:
        Path(stored.path).unlink()  # so that the next pass has all the work again
    return len(data)


def plain_loop(path: Path, max_pixels: int | None) -> int:
    """Bytes of the image through Pillow alone."""
    with Image.open(path) as stored:
        image: Image.Image = stored
        image.load()
        if image.mode.startswith("I"):
            levels_HW = np.asarray(image, dtype=np.float32)
            image = Image.fromarray((levels_HW * (255 / levels_HW.max())).astype(np.uint8))
        if max_pixels:
            scale = math.sqrt(max_pixels / (image.width * image.height))
            image = image.resize((int(image.width * scale), int(image.height * scale)), Image.Resampling.LANCZOS)
        buffer = io.BytesIO()
        image.save(buffer, "PNG")
    return len(buffer.getvalue())


def main(argv: list[str] | None = None) -> int:
    """Run the benchmark; exit 0 if all goals hold, else 1."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--films", type=int, default=30)
    parser.add_argument("--max-pixels", type=int, default=512 * 512)
    parser.add_argument("--repeats", type=int, default=2, help="passes; the fastest counts, per film")
    args = parser.parse_args(argv)
    folder = Path(tempfile.mkdtemp(prefix="embed."))
    try:
        jpeg, deep = make_films(folder, args.films)
        holds = True
        for name, films, limit in (
            ("embed", jpeg, None), ("embed_max_pixels", jpeg, args.max_pixels), ("embed_16_bit", deep, None),
        ):  # fmt: skip
            holds &= _compare(name, films, limit, folder / "cache", args.repeats)
    finally:
        shutil.rmtree(folder)
    return 0 if holds else 1


def _compare(name: str, films: list[Path], max_pixels: int | None, cache: Path, repeats: int) -> bool:
    our_seconds = loop_seconds = 0.0
    for path in films:
        times = [
            (_seconds(lambda p=path: ours(p, cache, max_pixels)), _seconds(lambda p=path: plain_loop(p, max_pixels)))
            for _ in range(repeats)
        ]
        our_seconds += min(t for t, _ in times)
        loop_seconds += min(t for _, t in times)
    ratio = our_seconds / loop_seconds
    detail = {
        "throughput_ratio": round(1 / ratio, 3),
        "ms_per_film": round(our_seconds / len(films) * 1e3, 1),
        "loop_ms_per_film": round(loop_seconds / len(films) * 1e3, 1),
        "films": len(films),
        "size": [WIDTH, HEIGHT],
        "max_pixels": max_pixels,
    }
    text = f"{1 / ratio:.2f} of the throughput of a plain loop"
    return write(name, ratio, 1 / THROUGHPUT_GOAL, detail, text)


def _seconds(work: Callable[[], int]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


if __name__ == "__main__":
    sys.exit(main())
