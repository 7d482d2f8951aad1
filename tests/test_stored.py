"""The file a row points to: the original, or one PNG made from it, whole or not there at all."""

import errno
import hashlib
import io
import multiprocessing
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from data_preprocess.core.images import ImageError, load_image
from data_preprocess.core.stored import Stored, plain_copy

DICOM = Path(__file__).parent / "data" / "dicom"
FILM = np.random.default_rng(0).integers(0, 256, (120, 90), dtype=np.uint8)


def film(path: Path, pixels: np.ndarray = FILM, **options: Any) -> Path:
    Image.fromarray(pixels).save(path, **options)
    return path


@pytest.mark.parametrize("name", ["x.png", "x.jpg", "X.JPEG"])
def test_a_plain_file_stays_where_it_is(tmp_path: Path, name: str) -> None:
    path = film(tmp_path / name)
    assert plain_copy(path, tmp_path / "cache", 90 * 120) == Stored(str(path), 90, 120)
    assert not (tmp_path / "cache").exists()


def test_a_large_file_becomes_a_small_png_named_by_its_content(tmp_path: Path) -> None:
    stored = plain_copy(film(tmp_path / "x.png"), tmp_path / "cache", 60 * 45)
    assert stored[1:] == (45, 60, False)
    content = Path(stored.path).read_bytes()
    assert Path(stored.path).name == hashlib.sha256(content).hexdigest()[:24] + ".png"
    small = Image.open(io.BytesIO(content))
    assert (small.format, small.mode, small.size) == ("PNG", "L", (45, 60))


@pytest.mark.parametrize("kind", ["exif", "deep", "palette", "dicom", "suffix"])
def test_what_is_not_plain_becomes_a_png_of_the_upright_picture(tmp_path: Path, kind: str) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    path = tmp_path / "x.png"
    if kind == "exif":
        path = film(tmp_path / "x.jpg", exif=exif)
    elif kind == "deep":
        film(path, FILM.astype(np.uint16) * 200)
    elif kind == "palette":
        Image.fromarray(FILM).convert("P").save(path)
    elif kind == "dicom":
        path = DICOM / "mono2_nowindow.dcm"
    else:
        path = film(tmp_path / "x.bmp")
    stored = plain_copy(path, tmp_path / "cache", None)
    picture = load_image(path)
    assert (stored.width, stored.height, stored.turned) == (*picture.size, kind == "exif")
    assert np.array_equal(Image.open(stored.path), picture)
    assert picture.size == ((64, 48) if kind == "dicom" else (120, 90) if kind == "exif" else (90, 120))


def test_a_second_run_finds_the_file_and_mends_half_of_it(tmp_path: Path) -> None:
    path = film(tmp_path / "x.bmp")
    stored = plain_copy(path, tmp_path / "cache", None)
    content, time = Path(stored.path).read_bytes(), os.stat(stored.path).st_mtime_ns
    assert plain_copy(path, tmp_path / "cache", None) == stored
    assert os.stat(stored.path).st_mtime_ns == time
    Path(stored.path).write_bytes(content[:50])  # what a power cut leaves
    assert plain_copy(path, tmp_path / "cache", None) == stored
    assert Path(stored.path).read_bytes() == content


def test_an_image_that_cannot_be_used_leaves_nothing(tmp_path: Path) -> None:
    film(tmp_path / "x.png").write_bytes((tmp_path / "x.png").read_bytes()[:2000])
    with pytest.raises(ImageError):
        plain_copy(tmp_path / "x.png", tmp_path / "cache", 1000)
    assert not (tmp_path / "cache").exists()


def test_a_full_disk_is_an_error_with_the_path_and_no_skipped_row(tmp_path: Path) -> None:
    resource = pytest.importorskip("resource")
    path = film(tmp_path / "x.bmp")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))  # a write beyond fails, as on a full disk
    try:
        with pytest.raises(OSError, match="is not converted") as error:
            plain_copy(path, tmp_path / "cache", None)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, before)
    assert error.value.errno == errno.EFBIG
    assert str(tmp_path / "cache") in str(error.value)
    assert str(path) in str(error.value)
    assert list((tmp_path / "cache").iterdir()) == []


def _many(folder: str) -> list[Stored]:
    return [plain_copy(Path(folder, f"{i}.bmp"), Path(folder, "cache"), None) for i in range(12)]


def test_several_processes_make_the_same_files(tmp_path: Path) -> None:
    for i in range(12):
        film(tmp_path / f"{i}.bmp", np.roll(FILM, i // 2))  # pairs of twins
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        first, second = pool.map(_many, [str(tmp_path)] * 2)
    assert first == second
    names = sorted(p.name for p in (tmp_path / "cache").iterdir())
    assert names == sorted({Path(stored.path).name for stored in first})
    assert len(names) == 6
    for stored in first:
        assert np.asarray(Image.open(stored.path)).shape == FILM.shape
