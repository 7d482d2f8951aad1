"""DICOM radiographs become grey levels as a viewer shows them, or one sentence that says why not."""

import json
import math
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pydicom
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydicom.data import get_testdata_file
from pydicom.pixels import apply_modality_lut, apply_voi_lut, get_decoder
from pydicom.uid import ExplicitVRLittleEndian, HTJ2KLossless, ImplicitVRLittleEndian

from data_preprocess.core.images import ImageError, load_image

DICOM = Path(__file__).parent / "data" / "dicom"
COLUMNS = [0, 16, 24, 32, 40, 48, 63]
EXPECTED = json.loads((DICOM / "expected_row0_cols_0_16_24_32_40_48_63.json").read_text())
SINGLE = "dicomdirtests/77654033/CR1/6154"
BITS_12 = np.linspace(0, 4095, 64).round().astype(np.uint16) * np.ones((48, 1), np.uint16)


def change(path: Path, name: str = "mono2_window.dcm", **elements: Any) -> Path:
    data = pydicom.dcmread(DICOM / name)
    for keyword, value in elements.items():
        if value is None:
            del data[keyword]
        elif keyword.startswith("PixelPadding"):
            data.add_new(keyword, "US", value)
        else:
            setattr(data, keyword, value)
    data.save_as(path)
    return path


def levels(path: Path) -> list[int]:
    return np.asarray(load_image(path))[0, COLUMNS].tolist()


def of_pixels(path: Path, pixels: np.ndarray, **elements: Any) -> np.ndarray:
    """The picture of a file with these pixels and no window."""
    elements = {"Rows": pixels.shape[0], "Columns": pixels.shape[1], "PixelData": pixels.tobytes()} | elements
    return np.asarray(load_image(change(path, "mono2_nowindow.dcm", **elements)))


@pytest.mark.parametrize("name", sorted(set(EXPECTED) - {"mono2_constant.dcm"}))
def test_grey_levels(name: str) -> None:
    picture = load_image(DICOM / name)
    assert (picture.mode, picture.size) == ("L", (64, 48))
    assert levels(DICOM / name) == EXPECTED[name]


def test_constant_is_refused() -> None:
    with pytest.raises(ImageError, match="every pixel has the value 7") as error:
        load_image(DICOM / "mono2_constant.dcm")
    assert error.value.reason == "image blank"


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    centre=st.integers(200, 3800), width=st.integers(400, 6000), slope=st.sampled_from([0.5, 1, 2.5]),
    intercept=st.sampled_from([-1024, 0, 77]), function=st.sampled_from(["LINEAR", "LINEAR_EXACT", "SIGMOID"]),
    photometric=st.sampled_from(["MONOCHROME1", "MONOCHROME2"]),
)  # fmt: skip
def test_same_levels_as_the_recipe_pixel_by_pixel(
    tmp_path: Path, centre: int, width: int, slope: float, intercept: float, function: str, photometric: str
) -> None:
    path = change(
        tmp_path / "x.dcm", WindowCenter=centre * slope + intercept, WindowWidth=width * slope, RescaleSlope=slope,
        RescaleIntercept=intercept, VOILUTFunction=function, PhotometricInterpretation=photometric,
    )  # fmt: skip
    data = pydicom.dcmread(path)
    shown = apply_voi_lut(apply_modality_lut(data.pixel_array, data), data, index=0)
    if photometric == "MONOCHROME1":
        shown = shown.max() - shown
    expected = (shown - shown.min()) / (shown.max() - shown.min()) * 255
    assert np.abs(np.asarray(load_image(path)) - expected).max() <= 0.5 + 1e-6


@pytest.mark.parametrize("width", [0, -5, 0.5, [0, 100], "", "NaN"])
def test_a_window_without_width_is_no_window(tmp_path: Path, width: Any) -> None:
    path = change(tmp_path / "x.dcm", WindowWidth=300, WindowCenter=[2048, 50] if isinstance(width, list) else 2048)
    if width == "NaN":  # pydicom does not write it, others do
        path.write_bytes(path.read_bytes().replace(b"300.0 ", b"NaN   "))
        assert math.isnan(pydicom.dcmread(path).WindowWidth)
    else:
        path = change(path, WindowWidth=width, WindowCenter=[2048, 50] if isinstance(width, list) else 2048)
    assert levels(path) == EXPECTED["mono2_nowindow.dcm"]


@pytest.mark.parametrize("window", [(60000, 10), (-9000, 100), (1e9, 1)])
def test_a_window_that_shows_nothing_is_no_window(tmp_path: Path, window: tuple[float, float]) -> None:
    path = change(tmp_path / "x.dcm", WindowCenter=window[0], WindowWidth=window[1])
    assert levels(path) == EXPECTED["mono2_nowindow.dcm"]


def test_an_unknown_window_function_is_linear(tmp_path: Path) -> None:
    for word in ("", "CURVED"):
        assert levels(change(tmp_path / "x.dcm", VOILUTFunction=word)) == EXPECTED["mono2_window.dcm"]


@pytest.mark.parametrize(
    ("photometric", "shape", "inverted"),
    [
        ("MONOCHROME2", "IDENTITY", False), ("MONOCHROME1", "INVERSE", True), ("MONOCHROME1", None, True),
        ("MONOCHROME2", "INVERSE", True), ("monochrome1 ", "", True),
    ],
)  # fmt: skip
def test_inverted_once(tmp_path: Path, photometric: str, shape: str | None, inverted: bool) -> None:
    elements = {} if shape is None else {"PresentationLUTShape": shape}
    picture = of_pixels(tmp_path / "x.dcm", BITS_12, PhotometricInterpretation=photometric, **elements)
    assert (picture[0, 0], picture[0, -1]) == ((255, 0) if inverted else (0, 255))


@pytest.mark.parametrize(
    ("value", "limit", "photometric"), [(0, None, "MONOCHROME2"), (0, 9, "MONOCHROME2"), (4095, None, "MONOCHROME1")]
)
def test_padding_is_black_and_has_no_part_in_the_range(
    tmp_path: Path, value: int, limit: int | None, photometric: str
) -> None:
    pixels = 1000 + BITS_12 // 4  # 1000 to 2023
    pixels[:5] = value if limit is None else np.arange(64) % (limit + 1)
    elements = {"PixelPaddingValue": value} | ({} if limit is None else {"PixelPaddingRangeLimit": limit})
    picture = of_pixels(tmp_path / "x.dcm", pixels, PhotometricInterpretation=photometric, **elements)
    assert picture[:5].max() == 0
    assert (picture[5:].min(), picture[5:].max()) == (0, 255)


def test_signed_pixels_and_padding_stated_as_unsigned(tmp_path: Path) -> None:
    pixels = BITS_12.astype(np.int16) - 2048
    pixels[0, :] = -2000
    picture = of_pixels(tmp_path / "a.dcm", pixels, PixelRepresentation=1, BitsStored=16, HighBit=15)
    assert (picture[1, 0], picture[1, -1]) == (0, 255)
    pixels[0, :] = -20000
    path = change(tmp_path / "x.dcm", "mono2_nowindow.dcm", PixelData=pixels.tobytes(), BitsStored=16, HighBit=15)
    data = pydicom.dcmread(path)
    data.PixelRepresentation = 1
    data.add_new("PixelPaddingValue", "US", 65536 - 20000)
    data.save_as(path)
    picture = np.asarray(load_image(path))
    assert (picture[0, 0], picture[1, 0], picture[1, -1]) == (0, 0, 255)


def test_all_padding_is_none(tmp_path: Path) -> None:
    picture = of_pixels(tmp_path / "x.dcm", BITS_12, PixelPaddingValue=0, PixelPaddingRangeLimit=4095)
    assert (picture[0, 0], picture[0, -1]) == (0, 255)


def test_rubbish_and_overlays_above_the_stored_bits_are_cut_off(tmp_path: Path) -> None:
    rubbish = np.random.default_rng(0).integers(0, 16, BITS_12.shape, dtype=np.uint16) << 12
    clean = of_pixels(tmp_path / "a.dcm", BITS_12, BitsStored=12, HighBit=11)
    assert np.array_equal(of_pixels(tmp_path / "b.dcm", BITS_12 | rubbish, BitsStored=12, HighBit=11), clean)


@pytest.mark.parametrize("first", [0, 1000])
def test_a_lut_of_8_bit_entries_does_not_wrap_around(tmp_path: Path, first: int) -> None:
    item = pydicom.Dataset()
    item.LUTDescriptor, item.LUTData = [2048, first, 8], np.linspace(0, 255, 2048).astype("<u2").tobytes()
    path = change(tmp_path / "x.dcm", VOILUTSequence=[item])
    data = pydicom.dcmread(path)
    expected = np.clip((data.pixel_array.astype(float) - first) / 2047, 0, 1) * 255
    assert np.abs(np.asarray(load_image(path)) - expected).max() <= 2


def test_a_damaged_lut_gives_way_to_the_window(tmp_path: Path) -> None:
    item = pydicom.Dataset()
    item.LUTDescriptor, item.LUTData = [0, 0, 16], b""
    assert levels(change(tmp_path / "x.dcm", VOILUTSequence=[item])) == EXPECTED["mono2_window.dcm"]


@pytest.mark.parametrize(
    ("elements", "reason"),
    [
        ({"NumberOfFrames": 2}, "image has several frames"),
        ({"Rows": 400}, "image truncated"),
        ({"Rows": 60000, "Columns": 60000}, "image too large"),
        ({"Rows": 2}, "image too small"),
        ({"PixelData": b""}, "image unreadable"),
        ({"PixelData": None}, "not an image"),
        ({"PhotometricInterpretation": None}, "image unreadable"),
        ({"RescaleSlope": 0, "RescaleIntercept": 3, "WindowWidth": 0}, "image blank"),
    ],
)
def test_unusable(tmp_path: Path, elements: dict[str, Any], reason: str) -> None:
    with pytest.raises(ImageError) as error:
        load_image(change(tmp_path / "x.dcm", **elements))
    assert error.value.reason == reason, str(error.value)


def test_known_by_its_content_with_and_without_preamble(tmp_path: Path) -> None:
    whole = (DICOM / "mono2_nowindow.dcm").read_bytes()
    (tmp_path / "no_suffix").write_bytes(whole)
    (tmp_path / "no_preamble").write_bytes(whole[132:])
    data = pydicom.dcmread(DICOM / "mono2_nowindow.dcm")
    pydicom.dcmwrite(tmp_path / "no_meta.png", pydicom.Dataset(data), implicit_vr=True, little_endian=True)
    for name in ("no_suffix", "no_preamble", "no_meta.png"):
        assert levels(tmp_path / name) == EXPECTED["mono2_nowindow.dcm"], name
    (tmp_path / "text.dcm").write_text("not a DICOM file" * 50)
    with pytest.raises(ImageError, match="no DICOM pixel data"):
        load_image(tmp_path / "text.dcm")


@pytest.mark.parametrize("lost", ["PixelRepresentation", "SamplesPerPixel", "BitsStored"])
def test_stripped_headers_are_filled_in(tmp_path: Path, lost: str) -> None:
    assert levels(change(tmp_path / "x.dcm", "mono2_nowindow.dcm", **{lost: None})) == EXPECTED["mono2_nowindow.dcm"]


@pytest.mark.parametrize(
    ("name", "size"),
    [
        ("SC_rgb_jpeg_dcmtk.dcm", (100, 100)),  # JPEG baseline
        ("JPGExtended.dcm", (256, 1024)),
        ("MR_small_jpeg_ls_lossless.dcm", (64, 64)),
        ("MR_small_jp2klossless.dcm", (64, 64)),
        ("MR_small_RLE.dcm", (64, 64)),
        ("JPGLosslessP14SV1_1s_1f_8b.dcm", (1024, 768)),
        ("image_dfl.dcm", (512, 512)),  # deflated
        ("ExplVR_BigEnd.dcm", (80, 60)),
        ("examples_palette.dcm", (800, 350)),
        (SINGLE, (16, 16)),
    ],
)
def test_transfer_syntaxes(name: str, size: tuple[int, int]) -> None:
    path = get_testdata_file(name, download=False)
    assert isinstance(path, str)
    assert load_image(path).size == size
    if name.startswith("MR_small"):  # all without loss
        assert load_image(path).tobytes() == load_image(str(get_testdata_file("MR_small.dcm"))).tobytes()


@pytest.mark.parametrize("name", ["MR_small_jpeg_ls_lossless.dcm", "MR_small_jp2klossless.dcm", "MR_small_RLE.dcm"])
def test_compressed_without_the_name_of_the_compression(tmp_path: Path, name: str) -> None:
    data = pydicom.dcmread(str(get_testdata_file(name)))
    data.file_meta.TransferSyntaxUID = ExplicitVRLittleEndian  # so that the elements are written like that
    content = tmp_path / "x.dcm"
    data["PixelData"].is_undefined_length = True
    pydicom.dcmwrite(content, data, enforce_file_format=False)
    raw = content.read_bytes()
    start = 132 + 12 + int.from_bytes(raw[140:144], "little")
    content.write_bytes(raw[start:])
    assert load_image(content).tobytes() == load_image(str(get_testdata_file("MR_small.dcm"))).tobytes()


def test_what_nothing_decodes_is_named(tmp_path: Path) -> None:
    data = pydicom.dcmread(str(get_testdata_file("MR_small_RLE.dcm")))
    data.file_meta.TransferSyntaxUID = "1.2.840.10008.1.2.4.103"  # MPEG-4
    data.save_as(tmp_path / "video.dcm")
    with pytest.raises(ImageError, match="MPEG-4") as error:
        load_image(tmp_path / "video.dcm")
    assert error.value.reason == "no DICOM decoder"
    if not get_decoder(HTJ2KLossless).is_available:
        data.file_meta.TransferSyntaxUID = HTJ2KLossless
        data.save_as(tmp_path / "new.dcm")
        with pytest.raises(ImageError, match=r"pip install .*pylibjpeg-openjpeg") as error:
            load_image(tmp_path / "new.dcm")
        assert error.value.reason == "no DICOM decoder"


def test_bombs(tmp_path: Path) -> None:
    data = pydicom.dcmread(str(get_testdata_file("JPGLosslessP14SV1_1s_1f_8b.dcm")))
    frame = bytearray(data.PixelData)
    marker = frame.index(b"\xff\xc3")
    frame[marker + 5 : marker + 9] = b"\xff\xff\xff\xff"  # 65535 x 65535 in a file that claims 1024 x 768
    data.PixelData = bytes(frame)
    data.save_as(tmp_path / "stream.dcm")
    with pytest.raises(ImageError, match="65535 x 65535") as error:
        load_image(tmp_path / "stream.dcm")
    assert error.value.reason == "image too large"
    small = Path(str(get_testdata_file("image_dfl.dcm"))).read_bytes()
    start = 144 + int.from_bytes(small[140:144], "little")
    squeeze = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    inflated = b"".join(squeeze.compress(bytes(1 << 20)) for _ in range(300)) + squeeze.flush()
    (tmp_path / "deflated.dcm").write_bytes(small[:start] + inflated)
    with pytest.raises(ImageError, match="inflates") as error:
        load_image(tmp_path / "deflated.dcm")
    assert error.value.reason == "image too large"


def test_every_file_of_pydicom_is_a_picture_or_a_reason() -> None:
    folder = Path(str(get_testdata_file("MR_small.dcm"))).parent
    outcomes = {"picture": 0}
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        try:
            outcome = "picture" if load_image(path).mode in ("L", "RGB") else "strange mode"
        except ImageError as error:  # anything else fails the test
            outcome = error.reason if str(path) in str(error) else "nameless"
        outcomes[outcome] = outcomes.get(outcome, 0) + 1
    assert not {"strange mode", "nameless"} & set(outcomes)
    assert outcomes["picture"] > 70
    assert outcomes["image has several frames"] > 5


def test_implicit_files_are_read(tmp_path: Path) -> None:
    data = pydicom.dcmread(DICOM / "mono2_voilut_and_window.dcm")
    data.file_meta.TransferSyntaxUID = ImplicitVRLittleEndian
    data.save_as(tmp_path / "x.dcm", implicit_vr=True)
    assert levels(tmp_path / "x.dcm") == EXPECTED["mono2_voilut_and_window.dcm"]
