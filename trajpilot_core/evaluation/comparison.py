"""Comparison of two runs: their settings, inputs and metrics."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from schemas.artifacts import Manifest
from schemas.config import EvaluationConfig
from trajpilot_core.engine.key import producers
from trajpilot_core.engine.planning.staleness import changed_settings, content_by_take, differing, takes_of_rows
from trajpilot_core.engine.stage import AnyStage
from trajpilot_core.errors import InputError
from trajpilot_core.evaluation.paired import Pairing, pair
from trajpilot_core.store.files import Folder, open_folder
from trajpilot_core.store.locations import resolved
from trajpilot_core.store.manifest import current_manifest, read_manifest
from trajpilot_core.store.reading import keys_of, made_from, read_entry_table

EVALUATION, INGEST = "evaluation", "ingest"
SCORES = "take_scores"
BY_TAKE = {"motions": "trajectories", "features": "features"}
"""Tables that are compared take by take -> the stage that writes them."""
SHOWN = 5
"""Labels or classes that an error lists."""
OF_RUN = ("report: config_digest", "report: corpus", "report: is_closed", "report: heads")
"""Prefixes of settings of the report that repeat others."""


@dataclass(frozen=True)
class Side:
    """One of two runs: an evaluation and everything that it was made from."""

    name: str
    folder: Folder
    outputs: Mapping[str, Manifest]
    """Stage -> output; stages whose output is gone are absent."""

    def table(self, stage: str, entry: str, columns: tuple[str, ...] | None = None) -> pa.Table | None:
        """Read a table, None where it is gone."""
        manifest = self.outputs.get(stage)
        if manifest is None or entry not in manifest.entries:
            return None
        return read_entry_table(self.folder, manifest, entry, columns)


@dataclass(frozen=True)
class AnswerSpace:
    """The answers among which a run chooses."""

    kind: str
    """labels or classes, as `EvaluationConfig.vocabulary` has it."""
    answer_of: Mapping[str, str]
    """Label id -> id of its right answer; empty where the run no longer has these tables."""
    text_of: Mapping[str, str]
    """Label id -> text; a class has the text of the label with its id."""

    @property
    def answers(self) -> set[str]:
        """Return the ids of all answers."""
        return set(self.answer_of.values())

    def words(self) -> str:
        """Return the number and the kind of the answers as text."""
        if not self.answer_of:
            return self.kind
        labels = f" of {len(self.answer_of):,} labels" if self.kind == "classes" else ""
        return f"{len(self.answers):,} {self.kind}{labels}"

    def named(self, ids: Collection[str]) -> str:
        """Return the texts of the first few labels or classes."""
        texts = sorted(repr(self.text_of.get(id_, id_)) for id_ in ids)
        return ", ".join(texts[:SHOWN]) + (", ..." if len(texts) > SHOWN else "")


@dataclass(frozen=True)
class InputDifference:
    """Differences between the inputs of two runs."""

    only_first: tuple[str, ...]
    """Takes that the second run did not use, sorted."""
    only_second: tuple[str, ...]
    moved: tuple[str, ...]
    """Takes in another split."""
    changed: Mapping[str, tuple[str, ...]]
    """Table -> the takes of both runs in which it differs."""
    unknown: tuple[str, ...]
    """Tables that one of the runs no longer has."""


def open_side(name: str, stages: Mapping[str, AnyStage]) -> Side:
    """Open a run: a root (its current evaluation), or `ROOT@KEY` (an earlier one, by the beginning of its key).

    Raises:
        InputError: there is no evaluation, or the key matches none or several.
        StoreError: the store is damaged.
    """
    root, key = name, ""
    if "://" not in name and not Path(name).is_dir():
        root, at, key = name.rpartition("@")
        if not at or not key or not Path(root).is_dir():
            raise InputError(f"{name} is not a folder; give the root of a run, or ROOT@KEY")
    folder = open_folder(root if "://" in root else str(resolved(root)))
    if key:
        known = keys_of(folder, EVALUATION)
        keys = [candidate for candidate in known if candidate.startswith(key)]
        if len(keys) != 1:
            raise InputError(
                f"{name}: {len(keys)} evaluations below {root} match {key!r}, exactly one must; known evaluations: "
                f"{', '.join(key[:8] for key in known) or 'none'} (`gc` removes outdated ones)"
            )
        evaluation = read_manifest(folder, EVALUATION, keys[0])
    else:
        evaluation = current_manifest(folder, EVALUATION)
    if evaluation is None:
        raise InputError(f"{name} has no evaluation; give the --root of a run that has evaluated its models")
    return Side(name, folder, made_from(folder, evaluation, producers(stages)))


def settings(first: Side, second: Side, stages: Mapping[str, AnyStage]) -> dict[str, tuple[str, str]]:
    """Return the settings, code versions and libraries that differ between two runs: name -> (first, second)."""
    different: dict[str, tuple[str, str]] = {}
    for stage in stages:
        one, other = first.outputs.get(stage), second.outputs.get(stage)
        if one is None or other is None:
            continue
        changed = changed_settings(one.config, other.config)
        named = {f"{stage}: {name}": pair_ for name, pair_ in changed.items()}
        different |= {name: pair_ for name, pair_ in named.items() if not name.startswith(OF_RUN)}
        if one.version != other.version:
            different[f"{stage}: code version"] = (str(one.version), str(other.version))
        for library in sorted({*one.libraries, *other.libraries}):
            versions = one.libraries.get(library, "-"), other.libraries.get(library, "-")
            if versions[0] != versions[1]:
                different[f"library {library}"] = versions
    return different


def inputs(first: Side, second: Side) -> InputDifference:
    """Return the takes for which the two runs read different data."""
    splits = [_splits(side) for side in (first, second)]
    both = set(splits[0]) & set(splits[1])
    changed: dict[str, tuple[str, ...]] = {}
    unknown: list[str] = []
    segments = [side.table(INGEST, "segments") for side in (first, second)]
    if segments[0] is None or segments[1] is None:
        unknown.append("segments")
    else:
        changed["segments"] = tuple(take for take in takes_of_rows(segments[0], segments[1]) if take in both)
    for entry, stage in BY_TAKE.items():
        one, other = first.outputs.get(stage), second.outputs.get(stage)
        if one is None or other is None:
            unknown.append(entry)
        else:
            takes = differing(content_by_take(one, entry), content_by_take(other, entry))
            changed[entry] = tuple(take for take in takes if take in both)
    return InputDifference(
        tuple(sorted(set(splits[0]) - both)),
        tuple(sorted(set(splits[1]) - both)),
        tuple(sorted(take for take in both if splits[0][take] != splits[1][take])),
        {entry: takes for entry, takes in changed.items() if takes},
        tuple(unknown),
    )


def _splits(side: Side) -> dict[str, str]:
    """Return take -> split; empty where the takes are gone."""
    table = side.table(INGEST, "takes", ("take_id", "split"))
    return {} if table is None else dict(zip(*(table[n].to_pylist() for n in ("take_id", "split")), strict=True))


def metrics(first: Side, second: Side) -> Pairing:
    """Compare the metrics of the two runs on the takes that both scored on the same windows and labels.

    Raises:
        InputError: a run has no scores by take, the corpora differ, or the labels or classes of the answers do.
    """
    corpora = [corpora_of(side) for side in (first, second)]
    if all(corpora) and corpora[0] != corpora[1]:
        names = " and ".join(", ".join(sorted(corpus)) for corpus in corpora)
        raise InputError(f"{first.name} and {second.name} are of different corpora ({names}), so nothing can be paired")
    refuse_other_answers(first, second)
    tables = [side.table(EVALUATION, SCORES) for side in (first, second)]
    if tables[0] is None or tables[1] is None:
        raise InputError(f"an evaluation has no {SCORES}: it is of an older version; run it again")
    read = [side.table(INGEST, name) for name in ("segments", "windows") for side in (first, second)]
    known = [table for table in read if table is not None]
    apart: set[str] = set()  # takes whose segments, labels or windows differ; unknown where tables are gone
    if len(known) == len(read):
        both = pa.array(set.intersection(*(set(table["horizon"].to_pylist()) for table in known[2:])), pa.int64())
        windows = [table.filter(pc.is_in(table["horizon"], value_set=both)) for table in known[2:]]
        apart = {*takes_of_rows(*known[:2]), *takes_of_rows(*windows)}
    return pair(tables[0], tables[1], EvaluationConfig(), apart)


def answers_of(side: Side) -> AnswerSpace:
    """Return what a run answers with."""
    evaluation = side.outputs[EVALUATION].config
    kind = str(evaluation.get("vocabulary", EvaluationConfig().vocabulary))
    mapped = side.table(INGEST, "label_classes", ("label_id", "class_id"))
    named = side.table(INGEST, "labels", ("label_id", "label"))
    if mapped is None or named is None:
        return AnswerSpace(kind, {}, {})
    labels = mapped["label_id"].to_pylist()
    answers = mapped["class_id"].to_pylist() if kind == "classes" else labels
    texts = dict(zip(named["label_id"].to_pylist(), named["label"].to_pylist(), strict=True))
    return AnswerSpace(kind, dict(zip(labels, answers, strict=True)), texts)


def refuse_other_answers(first: Side, second: Side) -> None:
    """Refuse two runs that choose among different answers: their metrics measure different tasks.

    Raises:
        InputError: labels against classes, other labels, or other classes.
    """
    one, other = answers_of(first), answers_of(second)
    if one.answer_of and other.answer_of:
        shared = set(one.answer_of) & set(other.answer_of)
        moved = {label for label in shared if one.answer_of[label] != other.answer_of[label]}
        if one.answers == other.answers and not moved:
            return
    elif one.kind == other.kind:
        return
    spaces = f"{first.name} answers with {one.words()}, {second.name} with {other.words()}"
    if one.kind != other.kind:
        raise InputError(
            f"{spaces}: these are different tasks, so nothing is paired; evaluate one of them as the other "
            f"(--set evaluation.vocabulary={one.kind} or {other.kind}, --from evaluation), then compare again"
        )
    lacking = [
        f"only {side.name} has {space.named(ids)}"
        for side, space, ids in (
            (first, one, one.answers - other.answers),
            (second, other, other.answers - one.answers),
        )
        if ids
    ]
    lacking = lacking or [f"the class differs for {one.named(moved)}"]
    raise InputError(
        f"{spaces}, and they differ: {'; '.join(lacking)}; nothing is paired; give both the same annotations and "
        "settings of ingest, run both, then compare again"
    )


def corpora_of(side: Side) -> set[str]:
    """Return the corpora of a run's takes; empty where the takes are gone."""
    table = side.table(INGEST, "takes", ("corpus",))
    return set() if table is None else set(table["corpus"].to_pylist())
