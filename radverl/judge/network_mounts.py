"""Whether a path lies on a network file system, by the kernel's list of mounts (Linux; elsewhere unknown, so no)."""

import os
import re
from pathlib import Path

MOUNTS = Path("/proc/mounts")
# File systems that several machines mount, or that pass through a process or another system (FUSE, 9p, virtiofs).
_NETWORK = re.compile(
    r"nfs\d*|cifs|smb\w*|lustre|gpfs|beegfs|glusterfs|ceph|afs|auristorfs|ocfs2|gfs2|orangefs|pvfs2|panfs|wekafs|fuse\..*"
    r"|fuseblk|fuse|9p|virtiofs|davfs2?|sshfs|vboxsf|prl_fs|drvfs"
)


def on_network(path: str | os.PathLike[str], mounts: Path = MOUNTS) -> bool:
    """Whether the file, or the folder it would be made in, is on a network file system."""
    kind = file_system(path, mounts)
    return kind is not None and _NETWORK.fullmatch(kind) is not None


def file_system(path: str | os.PathLike[str], mounts: Path = MOUNTS) -> str | None:
    """The type of the file system of a path, as in /proc/mounts; None where it cannot be told."""
    try:
        lines = mounts.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
        where = Path(path).resolve()
    except (OSError, RuntimeError):
        return None
    found, longest = None, -1
    for line in lines:
        parts = line.split(" ")
        if len(parts) < 3:
            continue
        point = Path(re.sub(r"\\([0-7]{3})", lambda m: chr(int(m[1], 8)), parts[1]))  # blanks are written \040
        if where.is_relative_to(point) and len(point.parts) >= longest:  # the last of equal ones lies on top
            found, longest = parts[2], len(point.parts)
    return found
