"""Image files of every kind become 8-bit pictures, or one sentence that says why not."""

import errno
import io
import os
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from data_preprocess.core.images import (
    ImageError,
    is_blank,
    is_plain,
    load_image,
    open_stored,
    png_bytes,
    read_picture,
    save_png,
    shrink,
)

DICOM = Path(__file__).parent / "data" / "dicom"
RAMP = np.tile(np.linspace(0, 255, 64).round().astype(np.uint8), (48, 1))


def save(path: Path, image: Image.Image, **options: Any) -> Path:
    image.save(path, **options)
    return path


def png_of(width: int, height: int, depth: int, kind: int, rows: bytes, interlace: int = 0) -> bytes:
    def chunk(name: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, kind, 0, 0, interlace))
    return b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


@pytest.mark.parametrize("scale", [1, 16, 257])
def test_16_bit_png_is_scaled_not_clipped(tmp_path: Path, scale: int) -> None:
    path = save(tmp_path / "x.png", Image.fromarray(RAMP.astype(np.uint16) * scale))
    assert np.array_equal(np.asarray(load_image(path)), RAMP)


@pytest.mark.parametrize("suffix", ["png", "tif"])
def test_16_bit_keeps_what_8_bits_would_lose(tmp_path: Path, suffix: str) -> None:
    low, high = RAMP.astype(np.uint16) // 4 + 20_000, RAMP.astype(np.uint16) // 4 + 20_063
    for values in (low, high):
        levels = np.asarray(load_image(save(tmp_path / f"x.{suffix}", Image.fromarray(values))))
        assert (levels[0, 0], levels[0, -1]) == (0, 255)
        assert np.abs(levels.astype(int) - RAMP).max() <= 4


def test_tiff_of_16_bit_with_white_as_zero_is_inverted(tmp_path: Path) -> None:
    deep = Image.fromarray(RAMP.astype(np.uint16) * 16)
    assert np.array_equal(load_image(save(tmp_path / "1.tif", deep, tiffinfo={262: 1})), RAMP)
    assert np.array_equal(load_image(save(tmp_path / "0.tif", deep, tiffinfo={262: 0})), 255 - RAMP)


def test_float_tiff_is_scaled_and_not_a_number_is_refused(tmp_path: Path) -> None:
    values = RAMP.astype(np.float32) / 1000 - 7
    assert np.array_equal(load_image(save(tmp_path / "x.tif", Image.fromarray(values))), RAMP)
    values[3, 3] = np.nan
    with pytest.raises(ImageError, match="not finite"):
        load_image(save(tmp_path / "x.tif", Image.fromarray(values)))


@pytest.mark.parametrize(("largest", "read"), [(65535, True), (4095, False)])
def test_16_bit_colour_is_read_only_where_8_bits_hold_it(tmp_path: Path, largest: int, read: bool) -> None:
    row = np.linspace(0, largest, 64).round().astype(">u2").repeat(3).tobytes()
    (tmp_path / "x.png").write_bytes(png_of(64, 48, 16, 2, (b"\0" + row) * 48))
    if read:
        assert np.abs(np.asarray(load_image(tmp_path / "x.png")).astype(int) - RAMP).max() <= 1
    else:
        with pytest.raises(ImageError, match="16-bit colour") as error:
            load_image(tmp_path / "x.png")
        assert error.value.reason == "image 16-bit colour"


def test_exif_orientation_is_applied(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # turn right by 90 degrees to see it upright
    path = save(tmp_path / "x.jpg", Image.fromarray(RAMP), exif=exif, quality=95)
    picture = load_image(path)
    assert picture.size == (48, 64)
    assert picture.getpixel((24, 2)) < 20 < 230 < picture.getpixel((24, 61))  # type: ignore[operator]
    assert not is_plain(open_stored(path))
    assert read_picture(path)[1:] == (False, True)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_every_orientation_of_jpeg_png_and_tiff(tmp_path: Path, orientation: int) -> None:
    grid = np.kron(np.array([[10, 90, 170], [50, 130, 250]], np.uint8), np.ones((16, 16), np.uint8))
    turn = {
        1: lambda a: a, 2: np.fliplr, 3: lambda a: np.rot90(a, 2), 4: np.flipud, 5: np.transpose,
        6: lambda a: np.rot90(a, 3), 7: lambda a: np.rot90(a, 2).T, 8: np.rot90,
    }[orientation]  # fmt: skip
    exif = Image.Exif()
    exif[0x0112] = orientation
    for name in ("x.jpg", "x.png", "x.tif"):
        options = {"tiffinfo": {0x0112: orientation}} if name == "x.tif" else {"exif": exif}
        levels = np.asarray(load_image(save(tmp_path / name, Image.fromarray(grid), **options)))
        assert levels.shape == turn(grid).shape, name
        assert np.abs(levels.astype(int) - turn(grid)).max() <= 6, name


def test_interlaced_and_progressive(tmp_path: Path) -> None:
    wide = np.repeat(RAMP, 8, axis=0)
    path = save(tmp_path / "x.jpg", Image.fromarray(wide), progressive=True, quality=95)
    assert b"\xff\xc2" in path.read_bytes()
    assert np.abs(np.asarray(load_image(path)).astype(int) - wide).max() <= 3
    path.write_bytes(path.read_bytes()[:-300])
    with pytest.raises(ImageError) as error:
        load_image(path)
    assert error.value.reason == "image truncated"
    # Two pixels by two of Adam7: passes 1, 6 and 7 hold one, one and two pixels; here 8 x 8, all seven.
    passes = ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2))
    tile = np.arange(64, dtype=np.uint8).reshape(8, 8) * 4
    rows = b"".join(b"\0" + row.tobytes() for x, y, dx, dy in passes for row in tile[y::dy, x::dx])
    (tmp_path / "x.png").write_bytes(png_of(8, 8, 8, 0, rows, interlace=1))
    assert np.array_equal(load_image(tmp_path / "x.png"), tile)


def test_cmyk_palette_and_bilevel(tmp_path: Path) -> None:
    grey = Image.fromarray(RAMP)
    for name, image in {
        "cmyk.jpg": Image.merge("RGB", [grey] * 3).convert("CMYK"),
        "palette.png": Image.merge("RGB", [grey] * 3).quantize(256),
        "bilevel.png": grey.convert("1", dither=Image.Dither.NONE),
        "rgb.png": Image.merge("RGB", [grey] * 3),
    }.items():
        levels = np.asarray(load_image(save(tmp_path / name, image)).convert("L")).astype(int)
        tolerance = 128 if name.startswith("bilevel") else 6
        assert np.abs(levels - RAMP).max() <= tolerance, name
        assert levels[0, 0] < 10 < 245 < levels[0, -1], name


def test_equal_channels_become_grey_and_colour_stays(tmp_path: Path) -> None:
    grey = Image.fromarray(RAMP)
    assert load_image(save(tmp_path / "g.png", Image.merge("RGB", [grey] * 3))).mode == "L"
    assert (
        load_image(save(tmp_path / "c.png", Image.merge("RGB", [grey, grey, Image.new("L", (64, 48))]))).mode == "RGB"
    )


@pytest.mark.parametrize("mode", ["LA", "RGBA"])
def test_transparent_parts_are_black(tmp_path: Path, mode: str) -> None:
    image = Image.fromarray(np.maximum(RAMP, 100)).convert(mode)
    image.putalpha(Image.fromarray(np.where(np.arange(48)[:, None] < 24, 0, 255).repeat(64, 1).astype(np.uint8)))
    levels = np.asarray(load_image(save(tmp_path / "x.png", image)))
    assert levels[:24].max() == 0
    assert levels[24:].min() == 100


@pytest.mark.parametrize(("shade", "word"), [(255, "white"), (0, "black"), (90, "grey"), (252, "white")])
def test_blank_pictures_are_refused(tmp_path: Path, shade: int, word: str) -> None:
    noisy = np.clip(np.full((48, 64), shade) + np.arange(64) % 3, 0, 255).astype(np.uint8)
    with pytest.raises(ImageError, match=word) as error:
        load_image(save(tmp_path / "x.png", Image.fromarray(noisy)))
    assert error.value.reason == "image blank"


def test_a_page_with_only_a_marker_is_blank() -> None:
    page = np.full((500, 400), 255, np.uint8)
    page[10:40, 10:40] = np.arange(30)  # under 1 % of the pixels
    assert is_blank(Image.fromarray(page))
    page[:200, :100] = np.arange(100)
    assert not is_blank(Image.fromarray(page))


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (png_of(100_000, 100_000, 8, 0, bytes(99)), "image too large"),
        (png_of(10_000, 10_000, 8, 0, bytes(99)), "image too large"),
        (png_of(4, 400, 8, 0, bytes(99)), "image too small"),
        (png_of(64, 48, 8, 0, bytes(99)), "image truncated"),
        (b"", "image file empty"),
        (b"<html>404</html>", "image is text"),
        (b"\xef\xbb\xbf\n <!DOCTYPE HTML><title>Sign in</title>", "image is text"),
        (b"<?xml version='1.0'?><Error><Code>AccessDenied</Code></Error>", "image is text"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n", "image is a Git LFS pointer"),
        (b"\x1f\x8b\x08\x00rest", "image is compressed"),
        (bytes(5000), "image truncated"),
        (b"not found", "not an image"),
    ],
)
@pytest.mark.parametrize("suffix", ["png", "jpg", "dcm"])
def test_bombs_and_rubbish(tmp_path: Path, content: bytes, reason: str, suffix: str) -> None:
    path = tmp_path / f"x.{suffix}"
    path.write_bytes(content)
    with pytest.raises(ImageError) as error:
        load_image(path)
    assert error.value.reason == reason
    assert str(path) in str(error.value)


@pytest.mark.parametrize("name", ["x.dcm", "x.jpg", "x", "ü ö 肺.png", "x.png.tmp"])
def test_the_content_tells_what_a_file_is(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(png_bytes(Image.fromarray(RAMP)))
    assert np.array_equal(load_image(tmp_path / name), RAMP)
    (tmp_path / name).write_bytes((DICOM / "mono2_nowindow.dcm").read_bytes())
    assert load_image(str(tmp_path / name)).size == (64, 48)


def test_a_huge_file_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "x.dcm").open("wb") as file:
        file.truncate(1 << 40)  # a terabyte of hole
    with pytest.raises(ImageError, match="bytes") as error:
        load_image(tmp_path / "x.dcm")
    assert error.value.reason == "image too large"


def test_no_path_is_a_missing_image() -> None:
    for path in (float("nan"), None, 3, ""):
        with pytest.raises(ImageError, match="is not a path") as error:
            load_image(path)  # type: ignore[arg-type]
        assert error.value.reason == "image missing"


def test_the_machines_fault_is_no_fault_of_the_image(tmp_path: Path) -> None:
    resource = pytest.importorskip("resource")
    path = save(tmp_path / "x.png", Image.fromarray(RAMP))
    load_image(path)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    held = []
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))
    try:
        with pytest.raises(OSError, match="Too many open files") as error:  # noqa: PT012
            while len(held) < 100:
                held.append(os.open(os.devnull, os.O_RDONLY))
        with pytest.raises(OSError, match="Too many open files") as error:
            load_image(path)
    finally:
        for handle in held:
            os.close(handle)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert error.value.errno == errno.EMFILE


def test_missing_folder_and_frames(tmp_path: Path) -> None:
    (tmp_path / "loop.png").symlink_to(tmp_path / "pool.png")
    (tmp_path / "pool.png").symlink_to(tmp_path / "loop.png")
    (tmp_path / "folder.png").mkdir()
    os.mkfifo(tmp_path / "pipe.png")
    names = ("gone.png", "folder.png", "nul\0.png", "loop.png", "pipe.png", "x" * 5000, "half \ud800.png")
    for path in [tmp_path / name for name in names]:
        with pytest.raises(ImageError) as error:
            load_image(path)
        assert error.value.reason == "image missing"
    frames = [Image.fromarray(RAMP), Image.fromarray(RAMP[::-1].copy())]
    save(tmp_path / "x.tif", frames[0], save_all=True, append_images=frames[1:])
    with pytest.raises(ImageError) as error:
        load_image(tmp_path / "x.tif")
    assert error.value.reason == "image has several frames"


@pytest.mark.parametrize("suffix", ["png", "jpg", "dcm"])
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_damage_never_raises_anything_else(tmp_path: Path, suffix: str, data: st.DataObject) -> None:
    if suffix == "dcm":
        content = bytearray((DICOM / "mono2_voilut_and_window.dcm").read_bytes()[:2400])
    else:
        buffer = io.BytesIO()
        Image.fromarray(RAMP).save(buffer, "PNG" if suffix == "png" else "JPEG")
        content = bytearray(buffer.getvalue())
    for _ in range(data.draw(st.integers(1, 6))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path / f"x.{suffix}"
    path.write_bytes(bytes(content[: data.draw(st.integers(1, len(content)))]))
    try:
        picture = load_image(path)
    except ImageError:
        return  # anything else fails the test
    assert picture.mode in ("L", "RGB")


@settings(max_examples=80, deadline=None)
@given(st.integers(8, 300), st.integers(8, 300), st.integers(64, 20_000))
def test_shrink_keeps_the_shape_and_the_limit(width: int, height: int, max_pixels: int) -> None:
    small, (sx, sy) = shrink(Image.new("L", (width, height)), max_pixels)
    assert small.size == (round(width * sx), round(height * sy))
    assert small.width * small.height <= max(max_pixels, max(width, height))
    if width * height <= max_pixels:
        assert small.size == (width, height)
    exact = (min(1, max_pixels / (width * height))) ** 0.5
    assert abs(small.width - width * exact) <= 1
    assert abs(small.height - height * exact) <= 1


def test_shrink_hits_whole_numbers_and_refuses_nothing_left() -> None:
    assert shrink(Image.new("L", (1760, 1760)), 112 * 112)[0].size == (112, 112)
    assert shrink(Image.new("L", (50, 50)), None)[1] == (1.0, 1.0)
    with pytest.raises(ValueError, match="max_pixels is 10"):
        shrink(Image.new("L", (50, 50)), 10)


def test_png_has_no_metadata_and_comes_back(tmp_path: Path) -> None:
    image = Image.fromarray(RAMP)
    image.info["comment"] = "patient name"
    image.info["dpi"] = (72, 72)
    save_png(image, tmp_path / "deep" / "x.png")
    content = (tmp_path / "deep" / "x.png").read_bytes()
    assert content == png_bytes(image)
    assert b"patient" not in content
    assert Image.open(io.BytesIO(content)).info == {}
    assert np.array_equal(np.asarray(load_image(tmp_path / "deep" / "x.png")), RAMP)
