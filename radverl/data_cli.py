"""`radverl data NAME ...` runs `python -m data_preprocess.NAME ...`; `... check FILE` examines a Parquet."""

import importlib
import pkgutil
import sys


def main(argv: list[str] | None = None) -> int:
    """Dispatch; exit codes are those of the script called, 2 for an unknown name."""
    argv = sys.argv[1:] if argv is None else argv
    import data_preprocess

    names = sorted(m.name for m in pkgutil.iter_modules(data_preprocess.__path__) if not m.ispkg)
    if not argv or argv[0] in ("-h", "--help"):
        print("usage: radverl data NAME [arguments]   (radverl data NAME --help shows an example)")
        print(f"data sets: {', '.join(names)}\ncheck: examine a Parquet file, ours or any other for verl")
        return 0 if argv else 2
    if argv[0] == "check":
        from radverl import datacheck

        return datacheck.main(argv[1:])
    if argv[0] not in names:
        print(f"radverl data: no data set {argv[0]!r}; choose one of {', '.join(names)}, or check.", file=sys.stderr)
        return 2
    code: int = importlib.import_module(f"data_preprocess.{argv[0]}").main(argv[1:])
    return code
