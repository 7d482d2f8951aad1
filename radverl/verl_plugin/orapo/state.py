"""The moving averages in a checkpoint folder: `global_step_N/orapo_state.json`."""

import json
import logging
import os
import tempfile
from pathlib import Path

from data_preprocess.core.skiplog import umask
from radverl.orapo import ZeroRewardEma

logger = logging.getLogger(__name__)
FILE = "orapo_state.json"


def save(average: ZeroRewardEma, folder: str | os.PathLike[str]) -> None:
    """Write the averages; the file is whole or not there.

    Raises:
        OSError: there is no place to write to; names the file.
    """
    path, unfinished = Path(folder), None
    try:
        path.mkdir(parents=True, exist_ok=True)
        handle, unfinished = tempfile.mkstemp(dir=path, prefix=FILE)
        with os.fdopen(handle, "w") as file:
            json.dump(average.state_dict(), file)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(unfinished, 0o666 & ~umask())  # as the rest of the checkpoint: somebody else may resume it
        os.replace(unfinished, path / FILE)
    except OSError as error:
        if unfinished:
            Path(unfinished).unlink(missing_ok=True)
        raise OSError(
            f"{path / FILE}: the zero-reward averages cannot be written ({error.strerror}); make room for them, or set "
            "trainer.default_local_dir to another folder."
        ) from error


def load(average: ZeroRewardEma, folder: str | os.PathLike[str]) -> bool:
    """Take the averages of a checkpoint; False, with a warning, where it holds none (it was not made by OraPO).

    Raises:
        ValueError: the file cannot be read as such a state.
    """
    path = Path(folder) / FILE
    if not os.path.lexists(path):  # a broken link is a file that was lost
        logger.warning("no %s in %s: the zero-reward averages start anew", FILE, folder)
        return False
    try:
        average.load_state_dict(json.loads(path.read_text()))
    except (OSError, ValueError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error).rstrip(".")
        raise ValueError(
            f"{path}: {reason}; resume from another checkpoint, or remove the file to start anew."
        ) from error
    return True
