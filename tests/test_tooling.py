"""What `make` installs and how it runs the tests: pinned packages, the order of the tests, what they share."""

import re
import subprocess
import tomllib
from pathlib import Path

import pytest
from checkout import CHECKOUT
from once import DATABASE, EmptyDatabase, Shelf
from order import FIRST, place
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

NAMES = ("requirements.lock", "requirements-dev.lock")
PROJECT = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]
STAMPS = {
    "installed": ("demo", "benchmarks", "rehearse"),
    "installed-dev": ("test", "test-portable", "check", "format", "soak", "stack-test"),
}

FOLDERS = {"benchmarks", "deployments", "docs", "examples", "flows", "schemas", "tasks", "tests", "trajpilot_core"}
TOP = re.compile(r"\.ci/run|[A-Z][A-Za-z]+(\.md|\.cff)?|docker-compose\.yml|pyproject\.toml|requirements(-dev)?\.lock")
DOTTED = {".dockerignore", ".env.example", ".gitignore", ".pre-commit-config.yaml"}


def strays(files: list[str]) -> list[str]:
    """Return the tracked files that are no part of the project: what a run or an experiment has left."""
    return [name for name in files if name.partition("/")[0] not in FOLDERS | DOTTED and not TOP.fullmatch(name)]


def test_nothing_is_tracked_that_a_run_has_left() -> None:
    """Seen before: the log and the lock files of an experiment, with paths of its machine."""
    listed = subprocess.run(["git", "ls-files"], cwd=CHECKOUT, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("this checkout is not a git repository")
    assert strays(listed.stdout.splitlines()) == []
    assert strays(["README.md", "schemas/x.py", "try.log", "try/.lock"]) == ["try.log", "try/.lock"]


def pinned(name: str) -> dict[str, str]:
    """Return name of a package -> its line."""
    lines = [line for line in (CHECKOUT / name).read_text().splitlines() if not line.startswith("#")]
    return {canonicalize_name(Requirement(line).name): line for line in lines}


def wanted(*extras: str) -> list[Requirement]:
    """Return what pyproject.toml asks for."""
    texts = [*PROJECT["dependencies"], *(text for extra in extras for text in PROJECT["optional-dependencies"][extra])]
    return [Requirement(text) for text in texts]


def test_every_declared_package_is_pinned_to_a_version_that_is_allowed_and_no_line_names_a_place() -> None:
    """Any build of torch will do."""
    for name, extras in ((NAMES[0], ("s3",)), (NAMES[1], ("s3", "dev"))):
        lines = pinned(name)
        for requirement in wanted(*extras):
            (pin,) = Requirement(lines[canonicalize_name(requirement.name)]).specifier
            assert (pin.operator, requirement.specifier.contains(pin.version)) == ("==", True), requirement
        assert lines["torch"] == "torch==2.13.0"
        assert lines["decord"].endswith("; platform_machine == 'x86_64'")
        assert not [line for line in lines.values() if re.search(r"https?:|file:|git\+| @ |^-", line)]


def test_the_short_list_has_the_lines_of_the_long_one_and_no_test_tool() -> None:
    short, long = (pinned(name) for name in NAMES)
    assert short.items() < long.items()
    runtime = {canonicalize_name(requirement.name) for requirement in wanted("s3")}
    tools = {canonicalize_name(requirement.name) for requirement in wanted("dev")} - runtime
    assert tools
    assert not tools & short.keys()


def test_the_demo_is_installed_without_the_test_tools() -> None:
    rules = dict(re.findall(r"^([\w-]+): \$\(VENV\)/([\w-]+)$", (CHECKOUT / "Makefile").read_text(), re.M))
    assert rules == {target: stamp for stamp, targets in STAMPS.items() for target in targets}


def test_the_longest_tests_that_are_named_exist_and_come_in_that_order() -> None:
    assert [entry for entry in FIRST if not (CHECKOUT / "tests" / entry).exists()] == []
    places = [place(path) for path in (*FIRST, "orchestration/test_ui.py", "core/store/test_store.py")]
    assert places == [*range(len(FIRST)), FIRST.index("orchestration"), len(FIRST)]


def test_the_database_of_a_server_that_may_be_running_is_never_replaced(tmp_path: Path) -> None:
    """A live server would go on with a damaged one, and every question would be answered with 503."""
    made = tmp_path / "once" / "database"
    made.mkdir(parents=True)
    (made / DATABASE).write_bytes(b"empty")
    empty, home = EmptyDatabase(Shelf(tmp_path / "once")), tmp_path / "home"
    assert (empty.copy(home) / DATABASE).read_bytes() == b"empty"
    (home / DATABASE).write_bytes(b"of a server")
    assert (empty.copy(home) / DATABASE).read_bytes() == b"of a server"
