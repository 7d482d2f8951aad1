"""The file and the line of a benchmark's result."""

import json
from pathlib import Path
from typing import Any

FOLDER = Path("outputs/bench")


def write(name: str, ratio: float, goal: float, detail: dict[str, Any], text: str) -> bool:
    """Write outputs/bench/<name>.json {name, ratio, goal, holds, detail}, print a line; True if ratio <= goal."""
    holds = ratio <= goal
    result = {"name": name, "ratio": round(ratio, 4), "goal": goal, "holds": holds, "detail": detail}
    FOLDER.mkdir(parents=True, exist_ok=True)
    (FOLDER / f"{name}.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(f"{name}: ratio {ratio:.4f}, goal {goal:g} {'holds' if holds else 'MISSED'} ({text})", flush=True)
    return holds
