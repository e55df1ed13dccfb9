"""Checks of a machine and of a download: what a run needs against what exists. Changes nothing; imports no torch."""

import importlib.util
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata
from typing import Literal

from schemas.config import IngestConfig
from trajpilot_core.corpora.base import Listing
from trajpilot_core.corpora.formats.folders import Folders
from trajpilot_core.corpora.registry import spec_of
from trajpilot_core.corpora.spec import CorpusSpec
from trajpilot_core.engine.resolve import resolve_device
from trajpilot_core.errors import InputError, StoreError
from trajpilot_core.store.corpus_files import Corpus, open_corpus

HealthVerdict = Literal["ok", "note", "bad"]
NO_DRIVER = "no driver"
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
    idle = used == "cpu" and device == "auto" and gpus() != NO_DRIVER
    todo = "install the CUDA build of torch to use it" if idle else ""
    return HealthFinding("GPU", expected, f"{used}; torch {build}; {gpus()}", "note" if idle else "ok", todo)


def gpus() -> str:
    """List the GPUs that the driver reports, by nvidia-smi."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return NO_DRIVER
    command = [tool, "--query-gpu=name,memory.total", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"the driver does not answer ({type(error).__name__})"
    return "; ".join(done.stdout.splitlines()) or NO_DRIVER


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
    needed = [path for path in listed.files if path not in {*videos, *download.dispensable}]
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
