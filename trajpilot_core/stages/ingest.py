"""ingest: corpus files -> takes, segments, labels, planning windows. Decisions: docs/decisions/ingest.md."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from pydantic import JsonValue

from schemas.annotation import CorpusCount
from schemas.arrow import table_of
from schemas.base import fingerprint
from schemas.config import IngestConfig
from schemas.rejects import Reject, RejectCode
from trajpilot_core.corpora.base import Candidate, CorpusReading, Fault, Released
from trajpilot_core.corpora.records.annotations import read_paraphrases
from trajpilot_core.corpora.records.contents import contents_of
from trajpilot_core.corpora.records.splits import dev_captures
from trajpilot_core.corpora.records.tables import (
    CutTake,
    Labelling,
    counts_of,
    cut_take,
    details_of,
    scenario_labels_of,
    tables_of,
)
from trajpilot_core.corpora.records.videos import stated_video
from trajpilot_core.corpora.registry import spec_of
from trajpilot_core.corpora.spec import CorpusSpec
from trajpilot_core.data.imported_fits import dev_of_captures
from trajpilot_core.engine.stage import Output, Source, Stage, Work
from trajpilot_core.errors import InputError
from trajpilot_core.store.corpus_files import Corpus, open_corpus, read_whole
from trajpilot_core.store.reading import Inputs

if TYPE_CHECKING:
    from trajpilot_core.video.probe import VideoProbe

VERSION = 3  # raise when the tables that this module writes change
LATE_START_S = 0.5
"""Warn if the first frame is later on the file's clock, because annotations may use that clock."""
LOCAL_CHUNK, REMOTE_CHUNK = 256, 8
"""Videos per pool of decoders; for a remote corpus, videos copied at a time."""


def sources(_: Inputs, config: IngestConfig, data_root: str) -> list[Source]:
    """Return the files that ingest reads, and as facts everything else that its result depends on.

    Raises InputError: the corpus root, takes.json, splits.json or the run with the inherited dev captures cannot be
    used.
    """
    dev_of_captures(config.splits_of)
    corpus = open_corpus(data_root)
    listing = spec_of(config.corpus).listing(corpus, config)
    table = [config.paraphrase_table] if config.paraphrase_table else []
    facts: dict[str, JsonValue] = {"present": fingerprint(list(listing.present)), "n_present": len(listing.present)}
    if not spec_of(config.corpus).has_plans:
        facts["windows"] = "none"
    return [Source(shard="", files=tuple(sorted({*listing.files, *table})), facts=facts)]


def run(work: Work[IngestConfig]) -> None:
    """Read the corpus, probe the videos or trust the metadata, and write the tables.

    Raises InputError: the metadata cannot be used, or a split has no take left.
    """
    from trajpilot_core.corpora.records.closed_vocabulary import label_classes

    config = work.config
    corpus = open_corpus(work.runtime.data_root)
    label_of = Labelling(_paraphrases(corpus, config), config)
    spec = spec_of(config.corpus)
    reading = spec.read(corpus, config)
    rejects = list(reading.rejects)
    _check_left(spec, reading, reading.candidates, rejects, config)
    without = config.video == "none"
    probes = map(stated_video, reading.candidates) if without else _probed(work, corpus, reading.candidates)
    cut: list[CutTake] = []
    for candidate, probe in zip(reading.candidates, probes, strict=True):
        kept, lost = _cut(candidate, probe, label_of, config)
        cut += kept
        rejects += lost
    _check_left(spec, reading, [c.candidate for c in cut], rejects, config)
    captures = (c.candidate.take.capture for c in cut if c.candidate.released == "train")
    dev = dev_captures(captures, config, dev_of_captures(config.splits_of))
    tables = tables_of(cut, dev, config, spec.horizons if spec.has_plans else (1, 0))  # no windows
    splits = {*tables.takes.column("split").to_pylist()}
    if "dev" in splits and "train" not in splits:
        raise InputError(
            f"train is empty: all usable training captures ({len(dev)}) went to dev, which needs at least "
            f"{config.dev_min}; add captures (two are needed) or lower it with --set ingest.dev_min"
        )
    for gone in sorted(reading.scenarios - {c.candidate.take.scenario for c in cut}):
        rejects.append(Fault(RejectCode.SCENARIO_VANISHED, f"no take of {gone!r} can be used").reject("", 0))
    work.sink.table("details", details_of(cut, tables.segments))
    work.sink.table("scenario_labels", scenario_labels_of(tables))
    classes, collapsed = label_classes(tables.labels, spec.n_classes(config))
    work.sink.table("label_classes", classes)
    reading = replace(reading, counts=(*reading.counts, *collapsed))
    work.sink.table("counts", table_of(CorpusCount, counts_of(tables, reading, spec.published)))
    work.sink.table("takes", tables.takes)
    work.sink.table("segments", tables.segments)
    work.sink.table("labels", tables.labels)
    work.sink.table("windows", tables.windows)
    work.sink.table("take_contents", contents_of(tables.takes, tables.segments, tables.windows))
    work.sink.reject(rejects)
    work.sink.count(reading.n_in, tables.segments.num_rows)


def _paraphrases(corpus: Corpus, config: IngestConfig) -> dict[str, str]:
    """Return normalised text -> label id; empty without a table."""
    table = config.paraphrase_table
    if table is None:
        return {}
    try:
        return read_paraphrases(read_whole(corpus, table), table)
    except FileNotFoundError as error:
        raise InputError(
            f"the paraphrase table {table} is not under {corpus.root}; put it there or "
            "--set ingest.paraphrase_table=null"
        ) from error


def _probed(
    work: Work[IngestConfig], corpus: Corpus, candidates: Sequence[Candidate]
) -> "Iterator[VideoProbe | Fault]":
    """Yield the probe of each candidate's video; few videos of a remote corpus are on this disk at a time."""
    from trajpilot_core.corpora.records.videos import probe_videos

    runtime, timeout_s = work.runtime, work.config.probe_timeout_s
    size = LOCAL_CHUNK if corpus.is_local else REMOTE_CHUNK
    for first in range(0, len(candidates), size):
        chunk = candidates[first : first + size]

        def report(n_done: int, first: int = first) -> None:
            runtime.progress(first + n_done, len(candidates), "videos probed")

        yield from probe_videos(
            corpus, chunk, workers=runtime.workers, timeout_s=timeout_s, scratch=runtime.scratch, progress=report
        )


def _cut(
    candidate: Candidate, probe: "VideoProbe | Fault", label_of: Labelling, config: IngestConfig
) -> tuple[list[CutTake], list[Reject]]:
    """Cut the points of a candidate into segments; a take without a usable one is left out."""
    take = candidate.take
    if isinstance(probe, Fault):
        return [], [probe.reject(take.take_id, len(candidate.points), take.video or candidate.source_file)]
    cut, rejects = cut_take(candidate, probe, label_of, config)
    if probe.is_vfr:
        vfr = Fault(RejectCode.VFR, f"{probe.n_frames} frames in {probe.duration_s:.3f} s are not evenly spaced")
        rejects.append(vfr.reject(take.take_id, 0, take.video))
    if probe.start_s > LATE_START_S:
        late = Fault(RejectCode.LATE_START, f"the first picture is shown at {probe.start_s:.3f} s of the file's clock")
        rejects.append(late.reject(take.take_id, 0, take.video))
    if cut.points:
        return [cut], rejects
    unlabelled = Fault(RejectCode.UNLABELLED, "none of its segments can be used")
    return [], [*rejects, unlabelled.reject(take.take_id, 0, candidate.source_file)]


def _check_left(
    spec: CorpusSpec, reading: CorpusReading, left: Iterable[Candidate], rejects: Sequence[Reject], config: IngestConfig
) -> None:
    """Raise InputError where no split is used, or a required one has no take left."""
    named = Counter(reading.released.values())
    if not reading.wanted:
        raise InputError(
            f"no take of the splits train and {config.test_split} in {spec.splits}; download the annotations of one "
            "release, or --set ingest.test_split"
        )
    gone = reading.wanted - {candidate.released for candidate in left}
    for split in (s for s in ("train", "test") if s in gone):
        released = "train" if split == "train" else config.test_split
        raise InputError(
            f"no take of the released split {released} is left: {named[split]} takes in {spec.splits}, "
            f"0 can be used. {_causes(reading.released, rejects, split, spec.unit)}"
        )


def _causes(released: dict[str, Released], rejects: Sequence[Reject], split: str, unit: str) -> str:
    """Return the reject codes that emptied a split, each with the number of takes, an example and the remedy."""
    of: dict[RejectCode, list[Reject]] = defaultdict(list)
    for row in rejects:
        if row.severity == "drop" and released.get(row.take, split) == split:
            of[row.code].append(row)
    parts = []
    for code, rows in sorted(of.items(), key=lambda item: -len(item[1])):
        where = rows[0].take or rows[0].source_file or ""
        n_units = sum(row.n_units for row in rows)
        parts.append(
            f"{code}: {len({row.take for row in rows})} takes, {n_units} {unit} "
            f"(e.g. {where}: {rows[0].detail}; to do: {rows[0].action})"
        )
    return (
        "; ".join(parts) or "There is no reject: the annotations list no such take; download them again (docs/data.md)"
    )


STAGE = Stage(
    name="ingest",
    reads=(),
    writes=(
        "takes",
        "segments",
        "labels",
        "label_classes",
        "windows",
        "take_contents",
        "details",
        "scenario_labels",
        "counts",
    ),
    config=IngestConfig,
    run=run,
    version=VERSION,
    summary="Annotations, splits, video headers -> takes, segments, labels, planning windows",
    sources=sources,
    lowers=("ingest.max_horizon",),
    output=Output("action segments", "segments", ("split",)),
)
