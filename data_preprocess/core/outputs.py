"""Where results go, checked before the work starts: hours of it must not be lost to a folder nobody may write to."""

import os
import tempfile
from pathlib import Path


def output_folder(path: str | os.PathLike[str], option: str = "--out") -> Path:
    """Make the folder `path` where it is missing, and see that a file can be written there.

    Raises:
        ValueError: an empty or unusable name, or no place to write to; one sentence that names `option`.
    """
    name = usable_text(os.fspath(path), option)
    usable_text(os.path.abspath(name), f"the folder of {option}")  # rows name images below it
    if os.path.lexists(name) and not os.path.isdir(name):
        raise ValueError(f"{option} {name}: is a file; name a folder.")
    try:
        Path(name).mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=name).close()
    except OSError as error:
        raise ValueError(f"{option} {name}: cannot be written to ({error.strerror}); choose another place.") from error
    return Path(name)


def usable_text(text: str, option: str) -> str:
    """`text`, where a data file can hold it and a path can be named so.

    Raises:
        ValueError: blank, a NUL character, or bytes that are not UTF-8.
    """
    if not text.strip() or "\0" in text:
        raise ValueError(f"{option} is {text!r}; write something there.")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ValueError(f"{option} {text!r} is not valid UTF-8, so no data file can hold it; change it.") from error
    return text


def output_file(path: str | os.PathLike[str], option: str = "--out") -> Path:
    """The same for a file: its folder is made and tried, and `path` itself must not be a folder.

    Raises:
        ValueError: as `output_folder`.
    """
    name = os.fspath(path)
    if not name.strip() or os.path.isdir(name):
        raise ValueError(f"{option} {name or repr(name)}: is no name for a file; add one.")
    output_folder(os.path.dirname(name) or ".", f"the folder of {option}")
    return Path(name)
