"""JSON that others wrote: where it is too large, too deep or not UTF-8, there is one kind of error, with the reason."""

import json
import os
from pathlib import Path
from typing import Any


class JsonError(ValueError):
    """JSON that cannot be read; the message is only the reason."""


def load_json(path: str | os.PathLike[str], most: int) -> Any:
    """What a JSON file of at most `most` bytes holds.

    Raises:
        JsonError: missing, larger, or as `parse_json`.
    """
    try:
        with Path(path).open("rb") as file:
            data = file.read(most + 1)
    except OSError as error:
        raise JsonError(error.strerror or str(error)) from error
    if len(data) > most:
        raise JsonError(f"it has more than {most} bytes")
    return parse_json(data)


def parse_json(data: bytes) -> Any:
    """What UTF-8 bytes hold, with or without a byte order mark.

    Raises:
        JsonError: no JSON, or nested too deeply.
    """
    try:
        return json.loads(data.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:  # UnicodeDecodeError and JSONDecodeError too
        raise JsonError(f"it is not JSON: {error}") from error
