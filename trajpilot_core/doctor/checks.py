"""What a machine, a root and a corpus must have, against what is there. Nothing is changed; imports no torch."""

import importlib.util
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Literal

from packaging.requirements import Requirement

from schemas.config import IngestConfig
from trajpilot_core.command_line import command, shown
from trajpilot_core.corpora.base import Listing
from trajpilot_core.corpora.formats.folders import Folders
from trajpilot_core.corpora.registry import spec_of
from trajpilot_core.corpora.spec import CorpusSpec
from trajpilot_core.engine.capacity import free_memory
from trajpilot_core.engine.needs import Needs, advice, size_text
from trajpilot_core.engine.resolve import gpu_number, resolve_device
from trajpilot_core.errors import InputError, StoreError, StoreIOError
from trajpilot_core.stages import EVERY_STAGE
from trajpilot_core.store.corpus_files import Corpus, open_corpus
from trajpilot_core.store.files import open_folder
from trajpilot_core.store.lock import existing_folder, root_lock

HealthVerdict = Literal["ok", "note", "bad"]
PROJECT = "trajpilot"
PYPROJECT = Path(__file__).parents[1] / "pyproject.toml"
PYTHON = (3, 11)
VIDEO = ".mp4"
NAMED = 3
"""Missing things that are named."""


@dataclass(frozen=True)
class HealthFinding:
    """One thing that was looked at."""

    what: str
    expected: str
    found: str
    verdict: HealthVerdict
    """`note`: runs go on, but the user should know."""
    todo: str = ""
    """What fixes it."""


def check_python() -> HealthFinding:
    """Look at the interpreter."""
    expected = f">= {PYTHON[0]}.{PYTHON[1]}"
    name = f"{sys.version_info[0]}.{sys.version_info[1]} at {sys.executable}"
    if sys.version_info[:2] >= PYTHON:
        return HealthFinding("Python", expected, name, "ok")
    return HealthFinding("Python", expected, name, "bad", f"install {PYTHON[0]}.{PYTHON[1]}")


def check_packages(declared: Sequence[str] | None = None) -> list[HealthFinding]:
    """Compare what is installed with what the project declares; one row where all is well, else one for each fault.

    Args:
        declared: requirements such as `numpy>=2.0`; None: those of the checkout, or of the installed project.
    """
    if declared is None and PYPROJECT.exists():
        declared = tomllib.loads(PYPROJECT.read_text())["project"]["dependencies"]
    try:
        wanted = [Requirement(text) for text in declared or metadata.requires(PROJECT) or []]
    except metadata.PackageNotFoundError:
        todo = "pip install -e . in the checkout"
        return [HealthFinding("packages", f"{PROJECT} installed", "it is not", "bad", todo)]
    needed = [one for one in wanted if one.marker is None or one.marker.evaluate({"extra": ""})]
    bad = []
    for one in needed:
        try:
            found = metadata.version(one.name)
        except metadata.PackageNotFoundError:
            found = "absent"
        if found == "absent" or not one.specifier.contains(found.split("+")[0], prereleases=True):
            expected, todo = str(one.specifier) or "installed", "pip install -r requirements.lock"
            bad.append(HealthFinding(f"package {one.name}", expected, found, "bad", todo))
    return bad or [HealthFinding("packages", f"{len(needed)} as declared", "all there", "ok")]


def check_device(device: str) -> HealthFinding:
    """Look for a GPU that torch can use.

    Args:
        device: auto, cpu, cuda or cuda:<number>, as a run would be given it.
    """
    build = "absent" if importlib.util.find_spec("torch") is None else metadata.version("torch")
    try:
        used = resolve_device(device)
    except InputError as error:
        return HealthFinding("GPU", f"one, for --device {device}", f"torch {build}; {gpus()}", "bad", str(error))
    expected = "one that torch can use" if device.startswith("cuda") else "none is needed; used where it is"
    idle = used == "cpu" and device == "auto" and gpus() != "no driver"
    todo = "install the CUDA build of torch to use it" if idle else ""
    return HealthFinding("GPU", expected, f"{used}; torch {build}; {gpus()}", "note" if idle else "ok", todo)


def gpus() -> str:
    """State what the driver shows."""
    try:
        return "; ".join(asked_driver("name,memory.total")) or "no driver"
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"the driver does not answer ({type(error).__name__})"


def asked_driver(fields: str, form: str = "") -> list[str]:
    """Return what nvidia-smi says of every GPU, a line each; nothing without a driver.

    Args:
        fields: as its option `--query-gpu` names them.
        form: further forms of its option `--format`.
    """
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return []
    asked = [tool, f"--query-gpu={fields}", f"--format=csv,noheader{form}"]
    done = subprocess.run(asked, check=False, capture_output=True, text=True, timeout=30)
    return [line.strip() for line in done.stdout.splitlines() if line.strip()] if done.returncode == 0 else []


def check_needs(needs: Mapping[str, Needs | None], device: str, root: str) -> list[HealthFinding]:
    """Compare what stages took of memory, GPU and disk when they last ran with what is free here; stops no run.

    Args:
        needs: stage -> its last note, scaled; None: it never ran below the root.
        device: `cpu`, `cuda` or `cuda:<number>`; the whole memory of a GPU counts.
        root: folder or address; of an object store no room is known.
    """
    kinds = {"memory": free_memory()}
    if device.startswith("cuda"):
        kinds["gpu"] = gpu_memory(device)
    if "://" not in root:
        kinds["disk"] = shutil.disk_usage(existing_folder(Path(root))).free
    return [_compared(kind, needs, found, root) for kind, found in kinds.items()]


def _compared(kind: str, needs: Mapping[str, Needs | None], found: int | None, root: str) -> HealthFinding:
    took: dict[str, int] = {name: getattr(one, kind) or 0 for name, one in needs.items() if one is not None}
    most, n_unknown = max(took, key=lambda name: took[name], default=None), len(needs) - len(took)
    unknown = f"first run: unknown for {n_unknown} of {len(needs)}" if took else "first run: unknown"
    known = [] if most is None else [f"{size_text(took[most])} for {most}, by its last run"]
    what, expected = {"gpu": "GPU memory"}.get(kind, kind), "; ".join([*known, *([unknown] if n_unknown else [])])
    if found is None:
        return HealthFinding(what, expected, "this system does not say", "note")
    if most is None or took[most] <= found:
        return HealthFinding(what, expected, f"{size_text(found)} free", "ok")
    todo = f"free some, `{command('gc', '--root', shown(Path(root)))}` for one, or choose another --root"
    todo = todo if kind == "disk" else advice(EVERY_STAGE[most])
    return HealthFinding(what, expected, f"{size_text(found)} free", "note", todo)


def gpu_memory(device: str) -> int | None:
    """Return the bytes of memory of a GPU as the driver lists them; None where it does not.

    Args:
        device: `cuda` or `cuda:<number>`.
    """
    listed = asked_driver("memory.total", ",nounits")
    number = gpu_number(device)
    found = listed[number] if number < len(listed) else ""
    return int(found) << 20 if found.isdigit() else None


def check_root(address: str) -> list[HealthFinding]:
    """Look at the folder that a run writes to, which need not exist yet: permission, and who else is at it."""
    if "://" in address:
        try:
            open_folder(address)
        except (InputError, StoreError) as error:
            return [HealthFinding("root", "an answer", "none", "bad", str(error))]
        return [HealthFinding("root", "can be written", f"{address}: only a run finds out", "note")]
    root, place = Path(address), existing_folder(Path(address))
    try:
        with tempfile.TemporaryFile(dir=place):
            found = [HealthFinding("root", f"{place} can be written", "it can", "ok")]
    except OSError as error:
        return [HealthFinding("root", f"{place} can be written", str(error.strerror), "bad", "fix its permissions")]
    return [*found, *(_holder(root) if root.exists() else [])]


def _holder(root: Path) -> Iterator[HealthFinding]:
    try:
        with root_lock(str(root), 0.0):
            return
    except StoreIOError as error:
        yield HealthFinding("run", "none is at work", str(error), "bad", "fix its permissions")
    except StoreError as error:
        yield HealthFinding("run", "none is at work", str(error), "note", "a second run waits for it")


def check_corpus(data_root: str, config: IngestConfig) -> list[HealthFinding]:
    """Look at the corpus: the takes that its metadata name, and the files of theirs that are there.

    Args:
        data_root: folder or address.
        config: which corpus, which splits.
    """
    corpus, spec = None, spec_of(config.corpus)
    try:
        corpus = open_corpus(data_root)
        return _listed(corpus, spec, spec.listing(corpus, config))
    except (InputError, StoreError, OSError) as error:
        unusable = HealthFinding("data root", f"a download of {config.corpus}", "it cannot be used", "bad", str(error))
    return [unusable, *(_kinds(corpus, spec) if corpus is not None else ())]


def _listed(corpus: Corpus, spec: CorpusSpec, listed: Listing) -> list[HealthFinding]:
    """Look for the files of the takes that the metadata name; ingest ends where an annotation file is missing."""
    folders, download = Folders(corpus), spec.download
    videos = [path for path in listed.files if path.lower().endswith(VIDEO)]
    needed = [path for path in listed.files if path not in {*videos, *download.dispensable}]
    n_takes = len(videos) if listed.n_takes is None else listed.n_takes
    absent = [path for path in needed if not folders.is_there(path)]
    found = [_share("annotations", len(needed), absent, "download them; ingest needs each", is_needed=True)]
    if n_takes and not videos:
        by_metadata = f"{n_takes:,} takes by their metadata alone"
        found.append(HealthFinding("videos", "none (ingest.video=none)", by_metadata, "ok"))
    else:
        absent = [path for path in videos if not folders.is_there(path)]
        found.append(_share("videos", len(videos), absent, "download them; ingest rejects such takes"))
    if download.pose_file is not None:
        poses = sum(path.endswith(download.pose_file) for path in listed.present)
        todo = "takes without one are used without trajectory only"
        found.append(_share("pose files", n_takes, [""] * (n_takes - poses), todo))
    if listed.leftovers:
        named = f"{len(listed.leftovers):,}: {', '.join(listed.leftovers[:NAMED])}"
        found.append(HealthFinding("leftovers", "none", named, "note", "download them again"))
    return found


def _share(what: str, expected: int, missing: Sequence[str], todo: str, *, is_needed: bool = False) -> HealthFinding:
    """Report how many of some files are there; none at all stops a run, and where each is needed, one."""
    there = expected - len(missing)
    if not missing:
        return HealthFinding(what, f"{expected:,}", f"{there:,}", "ok")
    names = ", ".join(filter(None, missing[:NAMED]))
    named = f"{there:,}; missing for one: {names}" if names else f"{there:,}"
    return HealthFinding(what, f"{expected:,}", named, "bad" if is_needed or there == 0 else "note", todo)


def _kinds(corpus: Corpus, spec: CorpusSpec) -> Iterator[HealthFinding]:
    """Report for each kind of file that a download begins with whether it is there."""
    folders = Folders(corpus)
    for kind in spec.download.kinds:
        try:
            there = folders.first(kind.any_of)
        except OSError as error:
            yield HealthFinding(kind.what, kind.any_of[0], str(error), "bad", "fix its permissions")
            continue
        verdict: HealthVerdict = "bad" if there is None else "ok"
        yield HealthFinding(kind.what, kind.any_of[0], there or "missing", verdict, "" if there else "download it")
