"""Rules of the tree that a linter does not know."""

import ast
import functools
import importlib
import importlib.metadata
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = ("schemas", "trajpilot_core", "tasks", "flows", "deployments")
FILES = sorted(p for package in PACKAGES for p in (ROOT / package).rglob("*.py"))
LONGEST_FILE, LONGEST_FUNCTION = 400, 60
WRITES_RELEASED_LAYOUT = ("trajpilot_core/encoders/video/tiny.py", "trajpilot_core/simworld/latents.py")
"""The demo's random checkpoint is a .pt file as the released ones are; it is read with weights_only=True like them."""
FILES_THAT_RUN = FILES + sorted((ROOT / "benchmarks").rglob("*.py"))
BANNED_MODULES = {"pickle", "_pickle", "cPickle", "cloudpickle", "dill", "joblib", "shelve", "marshal", "jsonpickle"}
"""Loading their files runs the files' code. The name of pickle's error may be imported: torch raises it."""
BANNED_CALLS = {
    *("eval", "exec", "compile", "__import__", "os.system", "os.popen"),
    *("yaml.load", "yaml.load_all", "yaml.full_load", "yaml.unsafe_load"),
    *("torch.save", "torch.hub.load", "torch.jit.load", "torch.package.PackageImporter"),
    *("torch.serialization.add_safe_globals", "pandas.read_pickle", "numpy.core.multiarray.unpickle"),
}
MUST_BE = {"allow_pickle": "False", "shell": "False", "trust_remote_code": "False", "weights_only": "True"}
"""Keywords that open a hole: only this value may be written."""


@functools.cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@functools.cache
def nodes(tree: ast.AST) -> list[ast.AST]:
    """All nodes of a tree, in the order of `ast.walk`, which several rules ask for."""
    return list(ast.walk(tree))


def faults(rule: Callable[[ast.Module], list[str]], files: list[Path]) -> dict[str, list[str]]:
    """Return file -> what a rule finds in it, without the files in which it finds nothing."""
    return {str(path.relative_to(ROOT)): found for path in files if (found := rule(tree_of(path)))}


@functools.cache
def imported(tree: ast.AST) -> dict[str, str]:
    """Name in the module -> what it stands for: `np` -> `numpy`, `loads` -> `pickle.loads`."""
    names = {}
    for node in nodes(tree):
        if isinstance(node, ast.Import):
            names |= {
                a.asname or a.name.split(".")[0]: a.name if a.asname else a.name.split(".")[0] for a in node.names
            }
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {a.asname or a.name: f"{node.module}.{a.name}" for a in node.names}
    return names


def called(node: ast.Call, names: dict[str, str]) -> str:
    front, dot, rest = ast.unparse(node.func).partition(".")
    return names.get(front, front) + dot + rest


def banned(tree: ast.AST) -> list[str]:
    """What reads or writes pickles, or runs text or files as code."""
    names = imported(tree)
    modules = {full.split(".")[0] for full in names.values() if full != "pickle.UnpicklingError"} & BANNED_MODULES
    found = [f"import of {module}" for module in sorted(modules)]
    for node in nodes(tree):
        if not isinstance(node, ast.Call):
            continue
        name = called(node, names)
        words = {k.arg: ast.unparse(k.value) for k in node.keywords if k.arg in MUST_BE}
        unsafe = [f"{word}={value}" for word, value in words.items() if word and value != MUST_BE[word]]
        if name == "torch.load" and "weights_only" not in words:
            unsafe.append("without weights_only=True")
        if name in BANNED_CALLS or unsafe:
            found.append(f"line {node.lineno}: {' '.join([name, *unsafe])}")
    return found


def test_each_package_name_resolves_inside_the_checkout_and_belongs_to_one_distribution() -> None:
    distributions = importlib.metadata.packages_distributions()
    for name in PACKAGES:
        assert Path(importlib.import_module(name).__file__).is_relative_to(ROOT)
        assert set(distributions.get(name, ["trajpilot"])) == {"trajpilot"}
    folders = {p.name for p in (ROOT / "tests").rglob("*") if p.is_dir()}
    assert not folders & set(PACKAGES), "pytest would import them in place of ours"
    assert not list((ROOT / "tests").rglob("__init__.py"))


BUDGETS = {
    # room: (lines that it should have, lines that it may have now, why it has more)
    "schemas": (3200, 3200, ""),
    "store": (1600, 1800, "object stores, locks and the inventory of hashes"),
    "engine": (2400, 2400, ""),
    "video": (1100, 1250, "isolated decoders; the augmentation of the published probe"),
    "corpora": (4200, 3800, ""),
    "poses": (2200, 2100, ""),
    "encoders": (1800, 1500, ""),
    "simworld": (3500, 3750, "six layouts and exact inference"),
    "models": (2700, 2750, "three planners of other papers"),
    "data": (1500, 1650, "clips, events and plans are loaded differently"),
    "retrieval": (800, 650, ""),
    "training": (3200, 3650, "a fit for each model; the scorer's queries in files"),
    "vlm": (1200, 1400, "two ways to a model, files and a server, and the training data of the recogniser"),
    "methods": (2000, 2000, ""),
    "stages": (2400, 3550, "parts of events, latents and planners lie here; probes read stored tokens or every patch"),
    "evaluation": (5300, 4100, ""),
    "report": (5400, 5400, ""),
    "predict": (1300, 1100, ""),
    "small": (1200, 1200, ""),
    "tasks and flows": (1100, 1000, ""),
    "deployments": (3200, 2500, ""),
    "benchmarks": (1400, 850, ""),
}
PART_OF = {"metrics": "evaluation", "paper": "evaluation", "studies": "report", "tasks": "tasks and flows"}
PART_OF |= {"flows": "tasks and flows"}


def rooms(root: Path) -> Counter[str]:
    lines: Counter[str] = Counter()
    for package in (*PACKAGES, "benchmarks"):
        for path in (path for path in (root / package).rglob("*") if path.suffix in (".py", ".j2", ".css", ".js")):
            parts = path.relative_to(root).parts
            room = parts[0] if parts[0] != "trajpilot_core" else parts[1]
            room = PART_OF.get(room, room)
            lines[room if room in BUDGETS else "small"] += len(path.read_text().splitlines())
    return lines


def over_budget(lines: Mapping[str, int]) -> dict[str, str]:
    """Rooms with more lines than they may have, and rooms above their plan without a reason."""
    over = {room: f"{n} lines" for room, n in lines.items() if n > BUDGETS[room][1]}
    return over | {room: "no reason" for room, (plan, now, why) in BUDGETS.items() if now > plan and not why}


def test_no_room_grows_beyond_its_budget() -> None:
    """A room that needs more takes it from another one, or states here why."""
    assert over_budget(rooms(ROOT)) == {}
    assert over_budget({"store": 1801, "video": 10}) == {"store": "1801 lines"}, "the planted fault"


def test_no_file_is_over_400_and_no_function_over_60_lines() -> None:
    assert not [str(path) for path in FILES if len(path.read_text().splitlines()) > LONGEST_FILE]
    functions = [
        (path, node)
        for path in FILES
        for node in nodes(tree_of(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    assert not [(str(path), f.name) for path, f in functions if f.end_lineno - f.lineno >= LONGEST_FUNCTION]


def test_no_module_reads_or_writes_pickles_or_runs_text_as_code() -> None:
    found = faults(banned, FILES_THAT_RUN)
    allowed = [call for path in WRITES_RELEASED_LAYOUT for call in found.pop(path)]
    assert [call.split(": ")[1] for call in allowed] == ["torch.save"] * len(WRITES_RELEASED_LAYOUT)
    assert not found


RUNS_CODE = [
    "import pickle as p",
    "from pickle import UnpicklingError, load",
    "import _pickle",
    "from joblib import load",
    "torch.load(path)",
    "torch.load(p, weights_only=safe)",
    "from torch import load\nload(path)",
    "import torch as t\nt.load(path)",
    "torch.serialization.add_safe_globals([x])",
    "numpy.load(p, allow_pickle=flag)",
    "from yaml import load\nload(text)",
    "eval(text)",
    "os.system(text)",
    "subprocess.run(text, shell=True)",
    "f(trust_remote_code=cfg.trust)",
]
INNOCENT = [
    "from pickle import UnpicklingError",
    "torch.load(p, weights_only=True)",
    "np.load(p, allow_pickle=False)",
    "re.compile(text)",
    "model.eval()",
    "yaml.safe_load(text)",
]


def test_the_rule_against_pickles_and_code_sees_a_planted_fault_and_leaves_the_innocent_alone() -> None:
    assert [text for text in RUNS_CODE if not banned(ast.parse(text))] == []
    assert [text for text in INNOCENT if banned(ast.parse(text))] == []


def encoded_by_chance(tree: ast.AST) -> list[str]:
    """Calls that read or write text in whatever encoding the user's locale has."""
    calls = [node for node in nodes(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)]
    texts = [call for call in calls if call.func.attr in ("read_text", "write_text")]  # type: ignore[attr-defined]
    return [f"line {call.lineno}" for call in texts if "encoding" not in {word.arg for word in call.keywords}]


def test_every_text_is_read_and_written_as_utf_8_in_every_locale() -> None:
    """Seen before: under LC_ALL=C without UTF-8 mode, the report could not read its own style sheet."""
    assert faults(encoded_by_chance, FILES_THAT_RUN) == {}
    assert encoded_by_chance(ast.parse("a.read_text()\nb.write_text(x, encoding='utf-8')")) == ["line 1"]


def prefect_switches(tree: ast.AST) -> list[str]:
    """Flows and tasks that do not say that they keep no result; `with_options` may not say that it does."""
    found = []
    for node in nodes(tree):
        if not isinstance(node, ast.Call):
            bare = node.decorator_list if isinstance(node, ast.FunctionDef) else []
            found += [f"line {d.lineno}: bare @{d.id}" for d in bare if isinstance(d, ast.Name) and d.id in SWITCHED]
            continue
        words = {k.arg: ast.unparse(k.value) for k in node.keywords}
        name = ast.unparse(node.func).rsplit(".", 1)[-1]
        kept = words.get("persist_result", "False" if name not in SWITCHED else "not said") != "False"
        named = sorted(NEVER & {word for word in words if word})
        if kept or named:
            found.append(f"line {node.lineno}: {name} keeps results ({', '.join(named) or 'persist_result'})")
    return found


SWITCHED = {"flow", "task", "Flow", "Task"}
NEVER = {"result_storage", "result_serializer", "result_storage_key", "cache_key_fn", "persist"}


KEEPS_RESULTS = [
    "@flow\ndef f(): ...",
    "@task(name='x')\ndef f(): ...",
    "@flow(persist_result=False, result_storage='local')\ndef f(): ...",
    "flow(name='x')(f)",
    "x.with_options(persist_result=True)",
    "@prefect.task()\ndef f(): ...",
]


def test_every_flow_and_task_says_that_prefect_keeps_no_result() -> None:
    layers = [p for p in FILES if p.relative_to(ROOT).parts[0] in ("tasks", "flows", "deployments")]
    assert faults(prefect_switches, layers) == {}
    assert [text for text in KEEPS_RESULTS if not prefect_switches(ast.parse(text))] == [], "planted faults"


def test_one_file_reads_the_environment() -> None:
    attributes = {p: {n.attr for n in nodes(tree_of(p)) if isinstance(n, ast.Attribute)} for p in FILES}
    readers = [str(path.relative_to(ROOT)) for path, names in attributes.items() if names & {"environ", "getenv"}]
    assert readers == ["deployments/settings.py"]


def test_every_folder_of_code_is_a_package_and_no_module_is_called_utils() -> None:
    assert [path.parent for path in FILES if not (path.parent / "__init__.py").exists()] == []
    assert not [path for path in FILES if path.stem in ("utils", "common", "misc", "helpers")]


def private_names(tree: ast.AST) -> list[str]:
    """Names with a leading underscore of other modules of ours, imported or reached through the module."""
    ours = {name: whole for name, whole in imported(tree).items() if whole.split(".")[0] in PACKAGES}
    found = [whole for whole in ours.values() if is_private(whole.rpartition(".")[2])]
    for node in nodes(tree):
        if isinstance(node, ast.Attribute) and is_private(node.attr) and isinstance(node.value, ast.Name):
            found += [f"{ours[node.value.id]}.{node.attr}"] if node.value.id in ours else []
    return found


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


PRIVATE = [
    "from trajpilot_core.engine.key import _check_sources",
    "def f():\n    from schemas.base import _x as x",
    "from trajpilot_core.engine import key\nkey._check_sources(1, 2)",
]


def test_no_module_uses_a_private_name_of_another() -> None:
    assert faults(private_names, FILES) == {}
    assert [text for text in PRIVATE if not private_names(ast.parse(text))] == [], "planted faults"


def type_names(tree: ast.Module) -> list[str]:
    """Names of the types that a module defines: its classes, and what it assigns to a capitalised name."""
    found = []
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            found.append(node.name)
        elif isinstance(node, ast.Assign):
            names = (t.id for t in node.targets if isinstance(t, ast.Name))
            found += [name for name in names if name.lstrip("_")[:1].isupper() and not name.isupper()]
    return found


def defined_twice(modules: dict[str, ast.Module]) -> dict[str, list[str]]:
    """Type name -> the modules that define it, where they are several."""
    where: dict[str, list[str]] = {}
    for path, tree in modules.items():
        for name in type_names(tree):
            where.setdefault(name, []).append(path)
    return {name: paths for name, paths in where.items() if len(paths) > 1}


def test_no_type_name_is_defined_twice_in_the_core() -> None:
    core = [p for p in FILES if p.is_relative_to(ROOT / "trajpilot_core")]
    found = defined_twice({str(p.relative_to(ROOT)): tree_of(p) for p in core})
    assert not found, "give each a name in the field's terms, or define it once and import it"
    first = ast.parse("class Sample:\n    pass\nSIZE = 3")
    for second in ("class Sample:\n    pass", "Sample = dict[str, int]", "class Sample(NamedTuple):\n    take: str"):
        assert defined_twice({"a.py": first, "b.py": ast.parse(second)}) == {"Sample": ["a.py", "b.py"]}
    assert not defined_twice({"a.py": first, "b.py": ast.parse("from a import Sample\nSIZE = 3\nsample = 1")})


HEAVY = ("aiohttp", "matplotlib", "polars", "scipy.spatial", "torch", "transformers")
"""Libraries that take from a tenth of a second to two seconds of CPU to import; every command and worker would pay."""


def heavy(*modules: str) -> list[str]:
    """Return which of these libraries the import of modules in a fresh interpreter loads."""
    code = f"import {', '.join(modules)}, sys; print(*[name for name in {HEAVY} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_commands_and_deployments_load_no_heavy_library_and_the_process_of_a_training_loads_torch_alone() -> None:
    assert heavy("deployments.cli.main", "flows.stages") == []
    assert heavy("trajpilot_core.training.fit_predictor") == ["torch"]
