"""Rules of the tree that a linter does not know."""

import ast
import importlib
import importlib.metadata
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("schemas", "trajpilot_core", "tasks", "flows", "deployments")
FILES = sorted(p for package in PACKAGES for p in (ROOT / package).rglob("*.py"))
LONGEST_FILE, LONGEST_FUNCTION = 400, 60
WRITES_RELEASED_LAYOUT = "trajpilot_core/encoders/tiny.py"
"""The demo's random checkpoint is a .pt file as the released ones are; it is read with weights_only=True like them."""
BANNED_CALLS = {
    "pickle.load", "pickle.loads", "pickle.dump", "pickle.dumps", "cloudpickle.loads", "cloudpickle.dumps",
    "joblib.load", "joblib.dump", "yaml.load", "eval", "exec",
}  # fmt: skip


def called(node: ast.Call) -> str:
    return ast.unparse(node.func)


def banned(tree: ast.AST) -> list[str]:
    """Calls that read or write pickles or run text as code."""
    found = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        words = {k.arg: ast.unparse(k.value) for k in node.keywords}
        name = called(node)
        unsafe_load = name == "torch.load" and words.get("weights_only") != "True"
        unsafe_array = name.endswith("np.load") and words.get("allow_pickle") == "True"
        remote_code = words.get("trust_remote_code") == "True"
        if name in BANNED_CALLS or name == "torch.save" or unsafe_load or unsafe_array or remote_code:
            found.append(f"line {node.lineno}: {name}")
    return found


def reads_environment(tree: ast.AST) -> bool:
    return any(isinstance(n, ast.Attribute) and n.attr in ("environ", "getenv") for n in ast.walk(tree))


@pytest.mark.parametrize("name", PACKAGES)
def test_each_package_name_resolves_inside_the_checkout_and_belongs_to_one_distribution(name: str) -> None:
    module = importlib.import_module(name)
    assert module.__file__ is not None
    assert Path(module.__file__).is_relative_to(ROOT)
    assert set(importlib.metadata.packages_distributions().get(name, ["trajpilot"])) == {"trajpilot"}


def test_no_folder_of_the_tests_shadows_a_package() -> None:
    folders = {p.name for p in (ROOT / "tests").rglob("*") if p.is_dir()}
    assert not folders & set(PACKAGES)
    assert not list((ROOT / "tests").rglob("__init__.py"))


def test_no_file_is_over_400_lines() -> None:
    long = {str(p.relative_to(ROOT)): n for p in FILES if (n := len(p.read_text().splitlines())) > LONGEST_FILE}
    assert not long


def test_no_function_is_over_60_lines() -> None:
    long = [
        f"{path.relative_to(ROOT)}:{node.name}"
        for path in FILES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (node.end_lineno or 0) - node.lineno + 1 > LONGEST_FUNCTION
    ]
    assert not long


def test_no_module_reads_or_writes_pickles() -> None:
    found = {str(p.relative_to(ROOT)): calls for p in FILES if (calls := banned(ast.parse(p.read_text())))}
    allowed = found.pop(WRITES_RELEASED_LAYOUT)
    assert [call.split(": ")[1] for call in allowed] == ["torch.save"]
    assert not found


@pytest.mark.parametrize(
    "fault",
    ["torch.load(path)", "torch.load(path, weights_only=False)", "pickle.loads(b)", "np.load(p, allow_pickle=True)",
     "AutoModel.from_pretrained(m, trust_remote_code=True)", "torch.save(x, p)"],
)  # fmt: skip
def test_the_rule_against_pickles_sees_a_planted_fault(fault: str) -> None:
    assert banned(ast.parse(fault))


def test_one_file_reads_the_environment() -> None:
    readers = {str(p.relative_to(ROOT)) for p in FILES if reads_environment(ast.parse(p.read_text()))}
    assert readers == {"deployments/settings.py"}


def test_no_module_is_called_utils() -> None:
    assert not [p for p in FILES if p.stem in ("utils", "common", "misc", "helpers")]


def test_the_project_file_lists_every_package() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    folders = {".".join(p.parent.relative_to(ROOT).parts) for p in FILES if p.name == "__init__.py"}
    assert {name for name in folders if f'"{name}"' not in text} == set()
