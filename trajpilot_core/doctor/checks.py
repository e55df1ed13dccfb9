"""What a machine, a root and a corpus must have, against what is there. Nothing is changed; imports no torch."""

import importlib.util
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
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
from trajpilot_core.engine.resolve import resolve_device
from trajpilot_core.errors import InputError, StoreError, StoreIOError
from trajpilot_core.store.corpus_files import Corpus, open_corpus
from trajpilot_core.store.files import open_folder
from trajpilot_core.store.lock import root_lock

HealthVerdict = Literal["ok", "note", "bad"]
PROJECT = "trajpilot"
PYPROJECT = Path(__file__).parents[1] / "pyproject.toml"
PYTHON = (3, 11)
MEMORY_BYTES = 3 * 10**9
"""What the demo needs; the models of the paper need more, on a GPU."""
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
    found = sys.version_info[:2]
    name = f"{found[0]}.{found[1]} at {sys.executable}"
    verdict: HealthVerdict = "ok" if found >= PYTHON else "bad"
    return HealthFinding(
        "Python", f">= {PYTHON[0]}.{PYTHON[1]}", name, verdict, "" if verdict == "ok" else "install 3.11"
    )


def check_packages(declared: Sequence[str] | None = None) -> list[HealthFinding]:
    """Compare what is installed with what the project declares; one row where all is well, else one for each fault.

    Args:
        declared: requirements such as `numpy>=2.0`; None: those of the checkout, or of the installed project.
    """
    try:
        wanted = [Requirement(text) for text in (declared_here() if declared is None else declared)]
    except metadata.PackageNotFoundError:
        return [
            HealthFinding("packages", f"{PROJECT} installed", "it is not", "bad", "pip install -e . in the checkout")
        ]
    needed = [one for one in wanted if one.marker is None or one.marker.evaluate({"extra": ""})]
    bad = [finding for one in needed if (finding := _package_fault(one)) is not None]
    return bad or [HealthFinding("packages", f"{len(needed)} as declared", "all there", "ok")]


def declared_here() -> list[str]:
    """Return the requirements of this checkout; where it is installed without one, those that were declared then."""
    if PYPROJECT.exists():
        declared = tomllib.loads(PYPROJECT.read_text())["project"]["dependencies"]
        return [str(text) for text in declared]
    return metadata.requires(PROJECT) or []


def _package_fault(wanted: Requirement) -> HealthFinding | None:
    try:
        found = metadata.version(wanted.name)
    except metadata.PackageNotFoundError:
        found = "absent"
    if found != "absent" and wanted.specifier.contains(found.split("+")[0], prereleases=True):
        return None
    todo = "pip install -r requirements.lock"
    return HealthFinding(f"package {wanted.name}", str(wanted.specifier) or "installed", found, "bad", todo)


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
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return "no driver"
    asked = [tool, "--query-gpu=name,memory.total", "--format=csv,noheader"]
    try:
        done = subprocess.run(asked, check=False, capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"the driver does not answer ({type(error).__name__})"
    found = "; ".join(line.strip() for line in done.stdout.splitlines() if line.strip())
    return found if done.returncode == 0 and found else "no driver"


def check_memory() -> HealthFinding:
    """Look at the memory that is free."""
    expected = f">= {MEMORY_BYTES / 1e9:.0f} GB free"
    listing = Path("/proc/meminfo")
    if not listing.exists():
        return HealthFinding("memory", expected, "this system does not say", "note")
    lines = dict(line.split(":", 1) for line in listing.read_text().splitlines() if ":" in line)
    free = int(lines.get("MemAvailable", "0 kB").split()[0]) * 1024
    todo = "end other programs, or use a smaller recipe" if free < MEMORY_BYTES else ""
    return HealthFinding("memory", expected, f"{free / 1e9:.1f} GB", "note" if todo else "ok", todo)


def check_root(address: str, needed_bytes: int) -> list[HealthFinding]:
    """Look at the folder that a run writes to: room, permission, and who else is at it.

    Args:
        address: it need not exist yet; of an object store nothing is known but that it answers.
        needed_bytes: what a run asks for before it starts.
    """
    if "://" in address:
        try:
            open_folder(address)
        except (InputError, StoreError) as error:
            return [HealthFinding("root", "an answer", "none", "bad", str(error))]
        return [HealthFinding("root", "can be written", f"{address}: only a run finds out", "note")]
    root = Path(address)
    place = next(folder for folder in (root, *root.parents) if folder.exists())
    free = shutil.disk_usage(place).free
    room = free >= needed_bytes
    found = [
        HealthFinding(
            "disk",
            f">= {needed_bytes / 1e9:.1f} GB under {root}",
            f"{free / 1e9:.1f} GB",
            "ok" if room else "bad",
            "" if room else f"free some, `{command('gc', '--root', shown(root))}` for one, or choose another --root",
        )
    ]
    try:
        with tempfile.TemporaryFile(dir=place):
            found.append(HealthFinding("root", f"{place} can be written", "it can", "ok"))
    except OSError as error:
        return [
            *found,
            HealthFinding("root", f"{place} can be written", str(error.strerror), "bad", "fix its permissions"),
        ]
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
    videos = [path for path in listed.files if path.lower().endswith(VIDEO)]
    documents = [path for path in listed.files if not path.lower().endswith(VIDEO)]
    documents = [path for path in documents if path not in spec.download.dispensable]
    folders = Folders(corpus)
    found = [_annotations(documents, folders), _files("videos", videos, folders)]
    if spec.download.pose_file is not None:
        poses = sum(path.endswith(spec.download.pose_file) for path in listed.present)
        found.append(_share("pose files", poses, len(videos), [], "takes without one are used without trajectory only"))
    if listed.leftovers:
        named = ", ".join(listed.leftovers[:NAMED])
        found.append(
            HealthFinding("leftovers", "none", f"{len(listed.leftovers):,}: {named}", "note", "download them again")
        )
    return found


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


def _annotations(paths: Sequence[str], folders: Folders) -> HealthFinding:
    """Look for the annotation files; ingest ends where one of them is missing."""
    found = _files("annotations", paths, folders)
    return found if found.verdict == "ok" else replace(found, verdict="bad", todo="download them; ingest needs each")


def _files(what: str, paths: Sequence[str], folders: Folders) -> HealthFinding:
    missing = [path for path in paths if not folders.is_there(path)]
    return _share(what, len(paths) - len(missing), len(paths), missing, "download them; ingest rejects such takes")


def _share(what: str, there: int, expected: int, missing: Sequence[str], todo: str) -> HealthFinding:
    if there >= expected:
        return HealthFinding(what, f"{expected:,}", f"{there:,}", "ok")
    named = f"; missing for one: {', '.join(missing[:NAMED])}" if missing else ""
    return HealthFinding(what, f"{expected:,}", f"{there:,}{named}", "bad" if there == 0 else "note", todo)
