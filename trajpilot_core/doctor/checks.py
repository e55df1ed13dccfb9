"""What a machine, a root and a corpus must have, against what is there. Nothing is changed; imports no torch."""

import importlib.util
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Mapping, Sequence
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
from trajpilot_core.engine.capacity import free_memory
from trajpilot_core.engine.needs import Needs, advice, size_text
from trajpilot_core.engine.resolve import gpu_number, resolve_device
from trajpilot_core.errors import InputError, StoreError, StoreIOError
from trajpilot_core.stages import EVERY_STAGE
from trajpilot_core.store.corpus_files import Corpus, open_corpus
from trajpilot_core.store.files import open_folder
from trajpilot_core.store.lock import root_lock

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
        kinds["disk"] = shutil.disk_usage(_existing(root)).free
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


def _existing(root: str) -> Path:
    """Return a folder, or the nearest above it that exists."""
    return next(folder for folder in (Path(root), *Path(root).parents) if folder.exists())


def check_root(address: str) -> list[HealthFinding]:
    """Look at the folder that a run writes to, which need not exist yet: permission, and who else is at it."""
    if "://" in address:
        try:
            open_folder(address)
        except (InputError, StoreError) as error:
            return [HealthFinding("root", "an answer", "none", "bad", str(error))]
        return [HealthFinding("root", "can be written", f"{address}: only a run finds out", "note")]
    root, place = Path(address), _existing(address)
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
    videos = [path for path in listed.files if path.lower().endswith(VIDEO)]
    documents = [path for path in listed.files if not path.lower().endswith(VIDEO)]
    documents = [path for path in documents if path not in spec.download.dispensable]
    folders = Folders(corpus)
    n_takes = len(videos) if listed.n_takes is None else listed.n_takes
    found = [_annotations(documents, folders), _videos(videos, n_takes, folders)]
    if spec.download.pose_file is not None:
        poses = sum(path.endswith(spec.download.pose_file) for path in listed.present)
        found.append(_share("pose files", poses, n_takes, [], "takes without one are used without trajectory only"))
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


def _videos(paths: Sequence[str], n_takes: int, folders: Folders) -> HealthFinding:
    """Look for the videos; a run without them asks for none."""
    if n_takes and not paths:
        return HealthFinding("videos", "none (ingest.video=none)", f"{n_takes:,} takes by their metadata alone", "ok")
    return _files("videos", paths, folders)


def _files(what: str, paths: Sequence[str], folders: Folders) -> HealthFinding:
    missing = [path for path in paths if not folders.is_there(path)]
    return _share(what, len(paths) - len(missing), len(paths), missing, "download them; ingest rejects such takes")


def _share(what: str, there: int, expected: int, missing: Sequence[str], todo: str) -> HealthFinding:
    if there >= expected:
        return HealthFinding(what, f"{expected:,}", f"{there:,}", "ok")
    named = f"; missing for one: {', '.join(missing[:NAMED])}" if missing else ""
    return HealthFinding(what, f"{expected:,}", f"{there:,}{named}", "bad" if there == 0 else "note", todo)
