"""README names every file of the tree, and only commands and files that exist."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
TREE = README.split("## The tree")[1].split("```")[1]


def source_files() -> list[str]:
    found = [p for folder in ("radverl", "data_preprocess", "benchmarks") for p in (ROOT / folder).rglob("*.py")]
    return sorted(str(p.relative_to(ROOT)) for p in [*found, *(ROOT / "recipes").glob("*.sh")])


@pytest.mark.parametrize("file", [f for f in source_files() if not f.endswith("__init__.py")])
def test_every_file_has_its_line(file: str) -> None:
    name = file.split("/", 1)[1] if not file.startswith(("recipes/", "benchmarks/")) else file
    assert name in TREE or (file.startswith("benchmarks/") and Path(file).name in TREE)


def test_recipes_named_in_the_text_exist() -> None:
    for recipe in set(re.findall(r"recipes/\w+\.sh", README)):
        assert (ROOT / recipe).is_file()


def test_python_example_says_the_truth() -> None:
    code, expected = re.search(r"(compute_score\(\"mine\".*?\[\"score\"\])  # ([\d.]+)", README).groups()
    from radverl.rewards.facts import compute_score

    assert eval(code, {"compute_score": compute_score}) == float(expected)
