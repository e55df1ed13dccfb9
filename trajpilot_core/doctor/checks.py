"""Checks of a machine, a root and a corpus: what a run needs against what exists. Changes nothing; imports no torch."""

import importlib.util
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
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
from trajpilot_core.engine.needs import Needs, advice, size_text
from trajpilot_core.engine.order import free_memory
from trajpilot_core.engine.resolve import gpu_number, resolve_device
from trajpilot_core.errors import InputError, StoreError, StoreIOError, command, shown
from trajpilot_core.stages import EVERY_STAGE
from trajpilot_core.store.corpus_files import Corpus, open_corpus
from trajpilot_core.store.files import open_folder
from trajpilot_core.store.lock import existing_folder, root_lock

HealthVerdict = Literal["ok", "note", "bad"]
PROJECT = "trajpilot"
VIDEO = ".mp4"
NAMED = 3
"""How many missing files a finding names."""


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


def check_packages(declared: Sequence[str] | None = None) -> list[HealthFinding]:
    """Compare the installed packages with the declared ones; one row if all match, else one for each mismatch.

    Args:
        declared: requirements such as `numpy>=2.0`; None: those of the installed project.
    """
    try:
        wanted = [Requirement(text) for text in declared or metadata.requires(PROJECT) or []]
    except metadata.PackageNotFoundError:
        todo = "pip install -e . in the checkout"
        return [HealthFinding("packages", f"{PROJECT} installed", "not installed", "bad", todo)]
    needed = [
        requirement
        for requirement in wanted
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""})
    ]
    bad = []
    for requirement in needed:
        try:
            version = metadata.version(requirement.name)
        except metadata.PackageNotFoundError:
            version = "absent"
        if version == "absent" or not requirement.specifier.contains(version.split("+")[0], prereleases=True):
            expected, todo = str(requirement.specifier) or "installed", "pip install -r requirements.lock"
            bad.append(HealthFinding(f"package {requirement.name}", expected, version, "bad", todo))
    return bad or [HealthFinding("packages", f"{len(needed)} as declared", "all installed", "ok")]


def check_device(device: str) -> HealthFinding:
    """Check for a GPU that torch can use.

    Args:
        device: auto, cpu, cuda or cuda:<number>, as for a run.
    """
    build = "absent" if importlib.util.find_spec("torch") is None else metadata.version("torch")
    try:
        used = resolve_device(device)
    except InputError as error:
        return HealthFinding("GPU", f"one, for --device {device}", f"torch {build}; {gpus()}", "bad", str(error))
    expected = "one that torch can use" if device.startswith("cuda") else "optional; used if there is one"
    idle = used == "cpu" and device == "auto" and gpus() != "no driver"
    todo = "install the CUDA build of torch to use it" if idle else ""
    return HealthFinding("GPU", expected, f"{used}; torch {build}; {gpus()}", "note" if idle else "ok", todo)


def gpus() -> str:
    """List the GPUs that the driver reports."""
    try:
        return "; ".join(asked_driver("name,memory.total")) or "no driver"
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"the driver does not answer ({type(error).__name__})"


def asked_driver(fields: str, form: str = "") -> list[str]:
    """Return what nvidia-smi prints for each GPU, one line each; empty without a driver.

    Args:
        fields: as its option `--query-gpu` names them.
        form: further forms of its option `--format`.
    """
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return []
    arguments = [tool, f"--query-gpu={fields}", f"--format=csv,noheader{form}"]
    done = subprocess.run(arguments, check=False, capture_output=True, text=True, timeout=30)
    return [line.strip() for line in done.stdout.splitlines() if line.strip()] if done.returncode == 0 else []


def check_needs(needs: Mapping[str, Needs | None], device: str, root: str) -> list[HealthFinding]:
    """Compare the memory, GPU memory and disk space of the last run of each stage with what is free; stops no run.

    Args:
        needs: stage -> what it last used, scaled; None: it never ran below the root.
        device: `cpu`, `cuda` or `cuda:<number>`; the total memory of the GPU is compared.
        root: folder or address; the free space of an object store is unknown.
    """
    kinds = {"memory": free_memory()}
    if device.startswith("cuda"):
        listed, number = asked_driver("memory.total", ",nounits"), gpu_number(device)
        line = listed[number] if number < len(listed) else ""
        kinds["gpu"] = int(line) << 20 if line.isdigit() else None
    if "://" not in root:
        kinds["disk"] = shutil.disk_usage(existing_folder(Path(root))).free
    return [_compared(kind, needs, available, root) for kind, available in kinds.items()]


def _compared(kind: str, needs: Mapping[str, Needs | None], available: int | None, root: str) -> HealthFinding:
    took: dict[str, int] = {
        name: getattr(of_stage, kind) or 0 for name, of_stage in needs.items() if of_stage is not None
    }
    most, n_unknown = max(took, key=lambda name: took[name], default=None), len(needs) - len(took)
    unknown = f"first run: unknown for {n_unknown} of {len(needs)}" if took else "first run: unknown"
    known = [] if most is None else [f"{size_text(took[most])} for {most}, by its last run"]
    what, expected = {"gpu": "GPU memory"}.get(kind, kind), "; ".join([*known, *([unknown] if n_unknown else [])])
    if available is None:
        return HealthFinding(what, expected, "unknown on this system", "note")
    if most is None or took[most] <= available:
        return HealthFinding(what, expected, f"{size_text(available)} free", "ok")
    todo = f"free some, `{command('gc', '--root', shown(Path(root)))}` for one, or choose another --root"
    todo = todo if kind == "disk" else advice(EVERY_STAGE[most])
    return HealthFinding(what, expected, f"{size_text(available)} free", "note", todo)


def check_root(address: str) -> list[HealthFinding]:
    """Check the folder that a run writes to, which need not exist yet: permissions, and whether a run holds it."""
    if "://" in address:
        try:
            open_folder(address)
        except (InputError, StoreError) as error:
            return [HealthFinding("root", "reachable", "no answer", "bad", str(error))]
        return [HealthFinding("root", "writable", f"{address}: not checked before a run", "note")]
    root, place = Path(address), existing_folder(Path(address))
    try:
        with tempfile.TemporaryFile(dir=place):
            findings = [HealthFinding("root", f"{place} is writable", "yes", "ok")]
    except OSError as error:
        return [HealthFinding("root", f"{place} is writable", str(error.strerror), "bad", "fix its permissions")]
    try:
        with root_lock(str(root), 0.0) if root.exists() else nullcontext():
            return findings
    except StoreIOError as error:
        return [*findings, HealthFinding("run", "no other run at work", str(error), "bad", "fix its permissions")]
    except StoreError as error:
        return [
            *findings,
            HealthFinding("run", "no other run at work", str(error), "note", "a second run waits for it"),
        ]


def check_corpus(data_root: str, config: IngestConfig) -> list[HealthFinding]:
    """Check which of the files that the metadata of a corpus name exist; without metadata, which kinds of files do."""
    corpus, spec = None, spec_of(config.corpus)
    try:
        corpus = open_corpus(data_root)
        return _listed(corpus, spec, spec.listing(corpus, config))
    except (InputError, StoreError, OSError) as error:
        findings = [HealthFinding("data root", f"a download of {config.corpus}", "unusable", "bad", str(error))]
    if corpus is None:
        return findings
    for kind in spec.download.kinds:
        try:
            folder = Folders(corpus).first(kind.any_of)
        except OSError as error:
            findings.append(HealthFinding(kind.what, kind.any_of[0], str(error), "bad", "fix its permissions"))
            continue
        todo = "" if folder else "download it"
        findings.append(HealthFinding(kind.what, kind.any_of[0], folder or "missing", "bad" if todo else "ok", todo))
    return findings


def _listed(corpus: Corpus, spec: CorpusSpec, listed: Listing) -> list[HealthFinding]:
    """Look for the files of all takes that the metadata name; ingest fails if an annotation file is missing."""
    folders, download = Folders(corpus), spec.download
    videos = [path for path in listed.files if path.lower().endswith(VIDEO)]
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
    if listed.leftovers:
        named = f"{len(listed.leftovers):,}: {', '.join(listed.leftovers[:NAMED])}"
        findings.append(HealthFinding("leftovers", "none", named, "note", "download them again"))
    return findings


def _share(what: str, expected: int, missing: Sequence[str], todo: str, *, is_needed: bool = False) -> HealthFinding:
    """Report how many files exist; a run stops if none does, or, with `is_needed`, if any is missing."""
    n_present = expected - len(missing)
    if not missing:
        return HealthFinding(what, f"{expected:,}", f"{n_present:,}", "ok")
    names = ", ".join(filter(None, missing[:NAMED]))
    named = f"{n_present:,}; missing, for example: {names}" if names else f"{n_present:,}"
    return HealthFinding(what, f"{expected:,}", named, "bad" if is_needed or n_present == 0 else "note", todo)
