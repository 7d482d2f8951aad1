"""Which verl radverl works with: the versions and hooks listed in REQUIRED_VERL.txt, checked without importing verl."""

import importlib.util
import re
from pathlib import Path

REQUIRED = Path(__file__).with_name("REQUIRED_VERL.txt")


def required_series() -> tuple[str, ...]:
    """The release series radverl supports, e.g. ("0.9",)."""
    return tuple(line.split()[1] for line in _lines() if line.startswith("series "))


def required_hooks() -> list[tuple[str, str]]:
    """The verl names radverl builds on, as (file under verl/, pattern that must occur in it)."""
    hooks = []
    for line in _lines():
        if line.startswith("hook "):
            path, pattern = line[len("hook ") :].split(maxsplit=1)
            hooks.append((path, pattern))
    return hooks


def unsupported_verl(version: str | None) -> str | None:
    """One sentence that says why `version` cannot be used, or None if it can."""
    series = required_series()
    if version is None:
        return "verl is not installed here; install radverl with its extra `verl` (GPU) or `cpu`."
    if not any(version == s or version.startswith(s + ".") for s in series):
        wanted = " or ".join(f"{s}.x" for s in series)
        return f"radverl needs verl {wanted} but verl {version} is installed; install verl=={series[-1]}.1."
    return None


def missing_hooks() -> list[str]:
    """One sentence for each hook of REQUIRED_VERL.txt that the installed verl lacks; empty if all are there."""
    spec = importlib.util.find_spec("verl") if _verl_present() else None
    if spec is None or not spec.submodule_search_locations:
        return [str(unsupported_verl(None))]
    root = Path(next(iter(spec.submodule_search_locations)))
    problems = []
    for path, pattern in required_hooks():
        file = root / path
        if not file.is_file():
            problems.append(f"verl/{path} does not exist in the installed verl; radverl builds on `{pattern}` there.")
        elif not re.search(pattern, file.read_text(encoding="utf-8")):
            problems.append(f"verl/{path} of the installed verl has no match for `{pattern}`, which radverl builds on.")
    return problems


def _lines() -> list[str]:
    text = REQUIRED.read_text(encoding="utf-8")
    return [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("#")]


def _verl_present() -> bool:
    import importlib.metadata

    try:
        importlib.metadata.version("verl")
    except importlib.metadata.PackageNotFoundError:
        return False
    return True
