"""What a worker process does with a candidate: its content, then its images; before that, whether images are there."""

import contextlib
import functools
import itertools
import json
import os
from argparse import Namespace
from collections.abc import Callable, Sequence
from pathlib import Path

from data_preprocess.core.candidates import Candidate, Content, Row, data_source
from data_preprocess.core.image_files import ImageError, header_size
from data_preprocess.core.journal import Entry, as_dict, entry, row_key
from data_preprocess.core.skiplog import SkipRow
from data_preprocess.core.stored import Stored, plain_copy
from radverl.labels import Labels

CHECKS = ("decode", "exists", "no")
MAX_SIDE = 1_000_000  # pixels, by a table (ours)
LOOKED_FOR = 1000  # images whose files are looked for before the work starts
PLAIN_ENDINGS = (".png", ".jpg", ".jpeg")
ContentOf = Callable[[Candidate, Namespace], Content]


def make_entry(
    candidate: Candidate, *, content: ContentOf, args: Namespace, name: str, cache: str, salt: bytes
) -> Entry:
    """The journal's line of a candidate: its row, or why it has none.

    Args:
        name: of the data set.
        cache: folder for converted images.
        salt: of `row_key`.
    """
    result: Row | SkipRow
    try:
        result = make_row(candidate, content(candidate, args), args, name, cache)
        _refuse_unwritable(result)
    except SkipRow as error:
        result = error
    return entry(candidate.row_id, row_key(salt, candidate), result)


def make_row(candidate: Candidate, content: Content, args: Namespace, name: str, cache: str) -> Row:
    """All of the row but its place in the file.

    Raises:
        SkipRow: an image cannot be used.
    """
    images, (width, height), turned = _images(candidate, args, Path(cache))
    if turned and (content.truth.get("boxes") or content.truth.get("regions")):
        message = f"{candidate.images[0]}: its EXIF data turn it, and nobody says which way up its boxes were drawn"
        raise ImageError(f"{message}; save it upright.", "image turned")
    return Row(
        prompt_id=f"{data_source(name, args.task)}/{candidate.row_id}",  # no option changes it
        subject_id=candidate.subject_id,
        study_id=candidate.study_id,
        images=images,
        width=width,
        height=height,
        prompt=content.prompt,
        target=content.target,
        truth=content.truth,
        ability=args.task,
        view=candidate.view,
        priors=content.priors,
        original_report=content.original_report,
    )


def _refuse_unwritable(row: Row) -> None:
    """See that a Parquet file can hold the row: one that it cannot hold would cost all the others.

    Raises:
        SkipRow: half a surrogate pair, from a JSON table or a file name, or a number without end.
    """
    try:
        json.dumps(as_dict(row), ensure_ascii=False, allow_nan=False).encode("utf-8")
    except UnicodeEncodeError as error:
        message = f"has characters that are not valid Unicode ({error.object[max(0, error.start - 20) : error.end]!r})"
        raise SkipRow(message, "malformed text") from error
    except ValueError as error:
        raise SkipRow(f"has a number that no file holds ({error})", "malformed number") from error
    if max(row.width, row.height) > MAX_SIDE:
        raise SkipRow(f"the image is {row.width} x {row.height} pixels by its table", "no image size")


def labels_of(candidate: Candidate, *, content: ContentOf, args: Namespace) -> Labels | SkipRow:
    """The labels of a candidate that brings none, read in its report."""
    try:
        return content(candidate, args).truth["labels"]
    except SkipRow as error:
        return error


def forget_images() -> None:
    """For a new run in this process: what an earlier one made from an image may be gone."""
    _stored.cache_clear()


def refuse_absent_images(candidates: Sequence[Candidate], args: Namespace) -> None:
    """See that some of the images are where the options say, before hours of work list them all as missing.

    Raises:
        ImageError: of many images spread over the data set not one is there; names the first.
    """
    if args.check_images == "no" or not candidates:
        return
    # Far apart first: a part of a data set is often one group of its patients.
    step = max(1, len(candidates) // LOOKED_FOR)
    spread = itertools.chain.from_iterable(candidates[start::step] for start in range(step))
    if not any(os.path.isfile(path) for candidate in spread for path in candidate.images):
        first = next((candidate.images[0] for candidate in candidates if candidate.images), "")
        option = "--mimic-root" if hasattr(args, "mimic_root") else "--image-root"
        raise ImageError(f"not one image is there, for example {first}; check {option}.")


def _images(candidate: Candidate, args: Namespace, cache: Path) -> tuple[list[str], tuple[int, int], bool]:
    """Paths of the images as stored, the size of the first, and whether it lies there turned (`Stored.turned`)."""
    if args.check_images == "decode":
        stored = [_stored(path, _state(path), cache, args.max_pixels) for path in candidate.images]
        return [copy.path for copy in stored], (stored[0].width, stored[0].height), stored[0].turned
    for path in candidate.images:
        if not path.lower().endswith(PLAIN_ENDINGS):
            message = f"{path}: is no PNG or JPEG, so it must be opened; pass --check-images decode."
            raise ImageError(message, "image form")
        if args.check_images == "exists" and not os.path.isfile(path):
            raise ImageError(f"{path}: no such file; check the path and the image root.", "image missing")
    return list(candidate.images), candidate.size or header_size(candidate.images[0]), False  # nobody turns it


@functools.lru_cache(maxsize=8)
def _stored(path: str, state: tuple[int, int] | None, cache: Path, max_pixels: int | None) -> Stored:
    """`plain_copy`; rows that follow each other often share an image."""
    return plain_copy(Path(path), cache, max_pixels)


def _state(path: str) -> tuple[int, int] | None:
    with contextlib.suppress(OSError, ValueError):
        state = os.stat(path)
        return state.st_size, state.st_mtime_ns
    return None
