"""Image files of every kind become 8-bit pictures, or one sentence that says why not."""

import io
import json
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
    is_plain,
    load_image,
    open_stored,
    png_bytes,
    save_png,
    shrink,
)

DICOM = Path(__file__).parent / "data" / "dicom"
COLUMNS = [0, 16, 24, 32, 40, 48, 63]
EXPECTED = json.loads((DICOM / "expected_row0_cols_0_16_24_32_40_48_63.json").read_text())
RAMP = np.tile(np.linspace(0, 255, 64).round().astype(np.uint8), (48, 1))


def save(path: Path, image: Image.Image, **options: Any) -> Path:
    image.save(path, **options)
    return path


@pytest.mark.parametrize("name", sorted(set(EXPECTED) - {"mono2_constant.dcm"}))
def test_dicom_grey_levels(name: str) -> None:
    picture = load_image(DICOM / name)
    assert (picture.mode, picture.size) == ("L", (64, 48))
    assert np.asarray(picture)[0, COLUMNS].tolist() == EXPECTED[name]


def test_constant_dicom_is_refused() -> None:
    with pytest.raises(ImageError, match="every pixel has the value 7") as error:
        load_image(DICOM / "mono2_constant.dcm")
    assert error.value.reason == "image blank"


def change(path: Path, name: str = "mono2_window.dcm", **elements: Any) -> Path:
    import pydicom

    data = pydicom.dcmread(DICOM / name)
    for keyword, value in elements.items():
        setattr(data, keyword, value)
    data.save_as(path)
    return path


def test_modality_lut_comes_before_the_window(tmp_path: Path) -> None:
    # Stored value v means 2 v - 1000, so the same window in those units gives the same picture.
    path = change(tmp_path / "x.dcm", RescaleSlope=2, RescaleIntercept=-1000, WindowCenter=3096, WindowWidth=4096)
    levels = np.asarray(load_image(path))[0, COLUMNS].astype(int)
    assert np.abs(levels - EXPECTED["mono2_window.dcm"]).max() <= 1


@pytest.mark.parametrize("width", [0, -5, 0.5, [0, 100]])
def test_a_window_without_width_is_no_window(tmp_path: Path, width: Any) -> None:
    centre = [2048, 50] if isinstance(width, list) else 2048
    picture = load_image(change(tmp_path / "x.dcm", WindowWidth=width, WindowCenter=centre))
    assert np.asarray(picture)[0, COLUMNS].tolist() == EXPECTED["mono2_nowindow.dcm"]


@pytest.mark.parametrize(
    ("elements", "reason"),
    [
        ({"NumberOfFrames": 2}, "image has several frames"),
        ({"Rows": 400}, "image truncated"),
        ({"Rows": 60000, "Columns": 60000}, "image too large"),
        ({"Rows": 2}, "image too small"),
        ({"PixelData": b""}, "image unreadable"),
        ({"RescaleSlope": 0, "RescaleIntercept": 3, "WindowWidth": 0}, "image blank"),
    ],
)
def test_unusable_dicom(tmp_path: Path, elements: dict[str, Any], reason: str) -> None:
    with pytest.raises(ImageError) as error:
        load_image(change(tmp_path / "x.dcm", **elements))
    assert error.value.reason == reason, str(error.value)


def test_dicom_is_known_by_its_content(tmp_path: Path) -> None:
    (tmp_path / "no_suffix").write_bytes((DICOM / "mono2_nowindow.dcm").read_bytes())
    assert load_image(tmp_path / "no_suffix").size == (64, 48)
    (tmp_path / "text.dcm").write_text("not a DICOM file" * 50)
    with pytest.raises(ImageError):
        load_image(tmp_path / "text.dcm")


def test_compressed_dicom() -> None:
    from pydicom.data import get_testdata_file

    path = get_testdata_file("SC_rgb_jpeg.dcm", download=False)
    assert isinstance(path, str)
    assert load_image(path).size == (256, 256)


@pytest.mark.parametrize("scale", [1, 16, 257])
def test_16_bit_png_is_scaled_not_clipped(tmp_path: Path, scale: int) -> None:
    path = save(tmp_path / "x.png", Image.fromarray(RAMP.astype(np.uint16) * scale))
    assert np.array_equal(np.asarray(load_image(path)), RAMP)


def test_exif_orientation_is_applied(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # turn right by 90 degrees to see it upright
    path = save(tmp_path / "x.jpg", Image.fromarray(RAMP), exif=exif, quality=95)
    picture = load_image(path)
    assert picture.size == (48, 64)
    assert picture.getpixel((24, 2)) < 20 < 230 < picture.getpixel((24, 61))  # type: ignore[operator]
    assert not is_plain(open_stored(path))


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


def png_claiming(width: int, height: int) -> bytes:
    def chunk(name: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"\0" * 99)) + chunk(b"IEND", b"")
    )


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (png_claiming(100_000, 100_000), "image too large"),
        (png_claiming(10_000, 10_000), "image too large"),
        (png_claiming(4, 400), "image too small"),
        (png_claiming(64, 48), "image truncated"),
        (b"", "not an image"),
        (b"<html>404</html>", "not an image"),
    ],
)
def test_bombs_and_rubbish(tmp_path: Path, content: bytes, reason: str) -> None:
    path = tmp_path / "x.png"
    path.write_bytes(content)
    with pytest.raises(ImageError) as error:
        load_image(path)
    assert error.value.reason == reason
    assert str(path) in str(error.value)


def test_missing_folder_and_frames(tmp_path: Path) -> None:
    for path in (tmp_path / "gone.png", tmp_path, tmp_path / "nul\0.png"):
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
