"""Tensors of answers -> the plan as a record: labels as texts, windows with their takes, and notes."""

from schemas.annotation import SIMULATED
from schemas.predict import FORMAT, OwnTake, Plan, PlanQuery, PlanRow, PlanStep, RankedLabel, Retrieved
from schemas.results import Variant
from trajpilot_core.methods.base import REFERENCE
from trajpilot_core.predict.answers import Given
from trajpilot_core.predict.footage import Footage
from trajpilot_core.predict.motion import Found
from trajpilot_core.predict.trained import TrainedRoot
from trajpilot_core.report.tables.table import row_name
from trajpilot_core.stages.ingest import LATE_START_S

NEAREST = 5
"""Retrieved windows that are shown."""
LEARNED = {
    "train": "the models were trained on it, so the plan is better than for a new video",
    "dev": "checkpoints and thresholds were chosen on it, so the plan is better than for a new video",
    "test": "no model has seen it",
}
"""Split of the video's take -> consequence for the plan."""


def plan_of(query: PlanQuery, root: TrainedRoot, footage: Footage, poses: Found, given: Given, encoder: str) -> Plan:
    """Return the whole record; No-Traj decides where the head motion is of a kind that nobody chose (`Found`)."""
    corpora = {take.corpus for take in root.takes.values()}
    rows = plan_rows(given, root, root.undertrained(given.seed), REFERENCE if poses.is_unasked_mixture else None)
    shown = 0 if given.found is None else min(NEAREST, int(given.found.valid[0].sum()))
    return Plan(
        format=FORMAT,
        simulated=SIMULATED in corpora,
        query=query,
        video_sha256=footage.sha256,
        duration_s=footage.probe.duration_s,
        fps=footage.probe.fps,
        root=root.folder.url,
        corpus=tuple(sorted(corpora)),
        seed=given.seed,
        horizon=query.horizon,
        own_take=own_take(query, footage, root),
        motion=poses.motion,
        encoder=encoder,
        keys={stage: manifest.key for stage, manifest in root.manifests.items()},
        notes=notes(query, root, footage, poses, any(row.undertrained for row in rows)),
        rows=rows,
        nearest=tuple(retrieved(place, given, root) for place in range(shown)),
    )


def plan_rows(
    given: Given, root: TrainedRoot, weak: frozenset[str], deciding: Variant | None = None
) -> tuple[PlanRow, ...]:
    """Return the rows, the deciding one first (None: that of the answers); `weak`: those not counted as trained."""
    first = deciding or next(iter(given.answers))
    rows, label_ids = [], given.view.data.label_ids
    for id_ in sorted(given.answers, key=lambda id_: id_ != first):
        answers = given.answers[id_]
        ids, scores = answers.ids[0].tolist(), answers.scores[0].double().tolist()
        decoded = [row[0] for row in ids] if answers.decoded is None else answers.decoded[0].tolist()
        opened = None if answers.opened is None else bool(answers.opened[0])
        window = -1 if answers.window is None else int(answers.window[0])
        trusted = None
        if window >= 0 and given.found is not None:
            trusted = retrieved(given.found.window[0].tolist().index(window), given, root)
        row = PlanRow(
            row=id_,
            name=row_name(id_),
            decides=id_ == first,
            scores=answers.kind,
            gate=None if answers.gate is None else float(answers.gate[0]),
            threshold=answers.threshold,
            opened=opened,
            trusted=trusted,
            undertrained=id_ in weak,
            steps=tuple(
                PlanStep(
                    position=at,
                    role="start" if at == 0 else "goal" if at == len(ids) - 1 else "middle",
                    label_id=label_ids[chosen],
                    label=root.label(label_ids[chosen]),
                    top=tuple(
                        RankedLabel(label_id=label_ids[i], label=root.label(label_ids[i]), score=score)
                        for i, score in zip(ids[at], scores[at], strict=True)
                    ),
                )
                for at, chosen in enumerate(decoded)
            ),
        )
        rows.append(row)
    return tuple(rows)


def retrieved(place: int, given: Given, root: TrainedRoot) -> Retrieved:
    """Return the candidate at a place of the retrieved pool."""
    candidates, data = given.found, given.view.data
    assert candidates is not None
    windows, row = data.windows[candidates.horizon], int(candidates.window[0, place])
    take = root.takes[data.take_ids[int(windows.take[row])]]
    segments = [root.segments[data.segment_ids[i]] for i in windows.segments[row].tolist()]
    return Retrieved(
        window_id=windows.window_ids[row],
        take_id=take.take_id,
        take=take.name,
        split=take.split,
        cosine=float(candidates.cosine[0, place]),
        labels=tuple(root.label(row["label_id"]) for row in segments),
        spans_s=tuple((row["start_s"], row["end_s"]) for row in segments),
    )


def own_take(query: PlanQuery, footage: Footage, root: TrainedRoot) -> OwnTake | None:
    """Return the annotations of the video from Start to Goal, if it is a take of the corpus."""
    take = footage.own
    if take is None:
        return None
    segments = [row for row in root.segments.values() if row["take_id"] == take.take_id]
    segments.sort(key=lambda row: float(row["start_s"]))

    def place(span_s: tuple[float, float]) -> int | None:
        """Return the place of the segment that contains the middle of an interval."""
        middle = sum(span_s) / 2
        return next((i for i, row in enumerate(segments) if row["start_s"] <= middle < row["end_s"]), None)

    first, last = place(query.start_s), place(query.goal_s)
    annotated = [] if first is None or last is None else segments[first : last + 1]
    return OwnTake(
        take_id=take.take_id,
        name=take.name,
        split=take.split,
        annotated=tuple(root.label(row["label_id"]) for row in annotated),
    )


def notes(query: PlanQuery, root: TrainedRoot, footage: Footage, poses: Found, weak: bool) -> tuple[str, ...]:
    """Return what a reader must know before trusting the plan."""
    lines = [f"Rows of plugins do not answer: {', '.join(root.plugin_rows)}."] if root.plugin_rows else []
    motion = poses.motion
    if motion is None:
        lines.append(f"No head motion, so only No-Traj answers: {'; '.join(poses.notes)}.")
    else:
        lines += [f"{note}." for note in poses.notes]
        if poses.is_unasked_mixture:
            lines.append(f"So No-Traj decides; --poses {motion.source} lets the other rows decide.")
        if query.trajectory is not None:
            lines.append(f"Times as given: {motion.clock}. A wrong offset makes the Endpoint rows worse.")
    if footage.own is not None:
        lines.append(
            f"This video is the take {footage.own.name} of the models' own corpus, split {footage.own.split}: "
            f"{LEARNED[footage.own.split]}. Nothing is retrieved from it."
        )
    if footage.probe.start_s > LATE_START_S:
        lines.append(
            f"The first frame is at {footage.probe.start_s:.2f} s of the file's clock; seconds count from it here."
        )
    if weak:
        lines.append(
            "UNDERTRAINED: according to the evaluation of this root, models of the marked rows were not trained enough."
        )
    return tuple(lines)
