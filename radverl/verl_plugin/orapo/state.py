"""The moving averages in a checkpoint folder: `global_step_N/orapo_state.json`."""

import json
import logging
import os
import tempfile
from pathlib import Path

from radverl.orapo import ZeroRewardEma

logger = logging.getLogger(__name__)
FILE = "orapo_state.json"


def save(average: ZeroRewardEma, folder: str | os.PathLike[str]) -> None:
    """Write the averages; the file is whole or not there."""
    path = Path(folder)
    path.mkdir(parents=True, exist_ok=True)
    handle, unfinished = tempfile.mkstemp(dir=path, prefix=FILE)
    with os.fdopen(handle, "w") as file:
        json.dump(average.state_dict(), file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(unfinished, path / FILE)


def load(average: ZeroRewardEma, folder: str | os.PathLike[str]) -> bool:
    """Take the averages of a checkpoint; False, with a warning, where it holds none (it was not made by OraPO).

    Raises:
        ValueError: the file cannot be read as such a state.
    """
    path = Path(folder) / FILE
    if not path.exists():
        logger.warning("no %s in %s: the zero-reward averages start anew", FILE, folder)
        return False
    try:
        average.load_state_dict(json.loads(path.read_text()))
    except (ValueError, TypeError, AttributeError) as error:
        raise ValueError(
            f"{path}: {error}; resume from another checkpoint, or remove the file to start anew."
        ) from error
    return True
