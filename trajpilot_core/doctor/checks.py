"""Checks of a machine, a root and a corpus: what a run needs against what exists. Changes nothing; imports no torch."""

import importlib.util
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Literal

from packaging.requirements import Requirement

from schemas.config import IngestConfig
from trajpilot_core.corpora.base import Listing
from trajpilot_core.corpora.formats.folders import Folders
from trajpilot_core.corpora.registry import spec_of
from trajpilot_core.corpora.spec import CorpusSpec
from trajpilot_core.engine.needs import Needs, advice, free_memory, size_text
from trajpilot_core.engine.resolve import gpu_number, resolve_device
from trajpilot_core.errors import InputError, StoreError, command, shown
from trajpilot_core.stages import EVERY_STAGE
from trajpilot_core.store.corpus_files import Corpus, open_corpus
from trajpilot_core.store.files import open_folder
from trajpilot_core.store.lock import existing_folder

HealthVerdict = Literal["ok", "note", "bad"]


@dataclass(frozen=True)
class HealthFinding:
    """Result of one check."""

    what: str
    expected: str
    found: str
    verdict: HealthVerdict
    """`note`: runs work, but the user should know."""
    todo: str = ""
    """How to fix it."""


def check_packages(declared: Sequence[str] | None = None) -> HealthFinding:
    """Compare the installed packages with the declared ones, such as `numpy>=2.0`; None: those of this project."""
    requirements = map(Requirement, declared or metadata.requires("trajpilot") or [])
    needed = [row for row in requirements if row.marker is None or row.marker.evaluate({"extra": ""})]
    wrong = []
    for requirement in needed:
        try:
            version = metadata.version(requirement.name)
        except metadata.PackageNotFoundError:
            wrong.append(f"{requirement.name} absent")
        else:
            if not requirement.specifier.contains(version, prereleases=True):
                wrong.append(f"{requirement.name} {version}, not {requirement.specifier}")
    todo = "pip install -r requirements.lock" if wrong else ""
    found = "; ".join(wrong) or "all installed"
    return HealthFinding("packages", f"{len(needed)} as declared", found, "bad" if wrong else "ok", todo)


def check_device(device: str) -> HealthFinding:
    """Check for a GPU that torch can use; `device` is that of a run."""
    build = "absent" if importlib.util.find_spec("torch") is None else metadata.version("torch")
    listed = gpus()
    known = f"torch {build}; {'; '.join(listed) or 'no driver'}"
    try:
        used = resolve_device(device)
    except InputError as error:
        return HealthFinding("GPU", f"one, for --device {device}", known, "bad", str(error))
    expected = "one that torch can use" if device.startswith("cuda") else "optional; used if there is one"
    idle = used == "cpu" and device == "auto" and listed
    todo = "install the CUDA build of torch to use it" if idle else ""
    return HealthFinding("GPU", expected, f"{used}; {known}", "note" if idle else "ok", todo)


def gpus() -> list[str]:
    """Return name and memory of each GPU that the driver reports, as nvidia-smi prints them; empty without a driver."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return []
    arguments = [tool, "--query-gpu=name,memory.total", "--format=csv,noheader"]
    try:
        done = subprocess.run(arguments, check=False, capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired) as error:
        return [f"the driver does not answer ({type(error).__name__})"]
    return done.stdout.splitlines() if done.returncode == 0 else []


def check_needs(needs: Mapping[str, Needs | None], device: str, root: str) -> list[HealthFinding]:
    """Compare `needs`, what the last run of each stage used, scaled (None: it never ran), with this machine.

    The total memory of a GPU is compared; the free space of an object store is unknown. Stops no run.
    """
    ran = {name: of_stage for name, of_stage in needs.items() if of_stage is not None}
    unknown = f"first run: unknown{f' for {len(needs) - len(ran)} of {len(needs)}' if ran else ''}"
    findings = []
    for kind, available in amounts(device, root).items():
        took = {name: getattr(of_stage, kind) or 0 for name, of_stage in ran.items()}
        most = max(took, key=lambda name: took[name], default="")
        expected = [f"{size_text(took[most])} for {most}, by its last run"] if most else []
        expected += [unknown] if len(ran) < len(needs) else []
        found = "unknown on this system" if available is None else f"{size_text(available)} available"
        todo = ""
        if most and available is not None and took[most] > available:
            todo = f"free some, `{command('gc', '--root', shown(Path(root)))}` for one, or choose another --root"
            todo = todo if kind == "disk" else advice(EVERY_STAGE[most])
        verdict: HealthVerdict = "note" if todo or available is None else "ok"
        what = "GPU memory" if kind == "gpu" else kind
        findings.append(HealthFinding(what, "; ".join(expected), found, verdict, todo))
    return findings


def amounts(device: str, root: str) -> dict[str, int | None]:
    """Return the bytes available on this machine for each kind of need that can be compared; None: unknown."""
    available = {"memory": free_memory()}
    listed = gpus() if device != "cpu" else []
    if listed:  # such as "NVIDIA H200, 143771 MiB"
        number = 0 if device == "auto" else gpu_number(device)
        size = listed[number].rpartition(", ")[2].removesuffix(" MiB") if number < len(listed) else ""
        available["gpu"] = int(size) << 20 if size.isdigit() else None
    if "://" not in root:
        available["disk"] = shutil.disk_usage(existing_folder(Path(root))).free
    return available


def check_root(address: str) -> HealthFinding:
    """Check the folder that a run writes to, which need not exist yet; of an object store, whether it answers."""
    try:
        if "://" in address:
            open_folder(address)
            return HealthFinding("root", "writable", f"{address} answers; not written to before a run", "note")
        place = existing_folder(Path(address))
        with tempfile.TemporaryFile(dir=place):
            return HealthFinding("root", "writable", str(place), "ok")
    except (InputError, StoreError, OSError) as error:
        return HealthFinding("root", "writable", "no", "bad", f"{error}; fix it or choose another --root")


def check_corpus(data_root: str, config: IngestConfig) -> list[HealthFinding]:
    """Check which of the files that the metadata of a corpus name exist; the first unusable file ends the check."""
    spec = spec_of(config.corpus)
    try:
        corpus = open_corpus(data_root)
        return _listed(corpus, spec, spec.listing(corpus, config))
    except (InputError, StoreError, OSError) as error:
        return [HealthFinding("data root", f"a download of {config.corpus}", "unusable", "bad", str(error))]


def _listed(corpus: Corpus, spec: CorpusSpec, listed: Listing) -> list[HealthFinding]:
    """Look for the files of all takes that the metadata name; ingest fails if an annotation file is missing."""
    folders, download = Folders(corpus), spec.download
    videos = [path for path in listed.files if path.lower().endswith(".mp4")]
    needed = [path for path in listed.files if path not in set(videos)]
    n_takes = len(videos) if listed.n_takes is None else listed.n_takes
    absent = [path for path in needed if not folders.is_there(path)]
    findings = [_share("annotations", len(needed), absent, "download them; ingest needs all of them", is_needed=True)]
    if n_takes and not videos:
        by_metadata = f"{n_takes:,} takes by their metadata alone"
        findings.append(HealthFinding("videos", "none (ingest.video=none)", by_metadata, "ok"))
    else:
        absent = [path for path in videos if not folders.is_there(path)]
        findings.append(_share("videos", len(videos), absent, "download them; ingest rejects takes without a video"))
    if download.pose_file is not None:
        poses = sum(path.endswith(download.pose_file) for path in listed.present)
        todo = "takes without one are used without a trajectory"
        findings.append(_share("pose files", n_takes, [""] * (n_takes - poses), todo))
    return findings


def _share(what: str, expected: int, missing: Sequence[str], todo: str, *, is_needed: bool = False) -> HealthFinding:
    """Report how many files exist; a run stops if none does, or, with `is_needed`, if any is missing."""
    n_present = expected - len(missing)
    if not missing:
        return HealthFinding(what, f"{expected:,}", f"{n_present:,}", "ok")
    names = ", ".join(filter(None, missing[:3]))
    named = f"{n_present:,}; missing, for example: {names}" if names else f"{n_present:,}"
    return HealthFinding(what, f"{expected:,}", named, "bad" if is_needed or n_present == 0 else "note", todo)
