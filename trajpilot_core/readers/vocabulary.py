"""Cuts of a closed vocabulary by how often a label stands in training."""

from collections import Counter
from dataclasses import replace

from schemas.rejects import Reject, RejectCode
from trajpilot_core.readers.reading import Candidate, Fault, Point, Reading


def drop_rare(reading: Reading, least: int) -> Reading:
    """Return a reading without the labels that have fewer than `least` training segments; the cuts become rejects.

    What is left out never was in the sequence: windows go across it.

    Args:
        reading: of a corpus whose points have label ids; all training segments that were read count.
        least: training segments, 0 for no cut; a corpus without training segments is not cut, nothing can be counted.
    """
    trained = Counter(p.label_id for c in reading.candidates if c.released == "train" for p in c.points)
    if not least or not trained:
        return reading
    rejects: list[Reject] = list(reading.rejects)
    candidates: list[Candidate] = []
    for candidate in reading.candidates:
        kept = tuple(p for p in candidate.points if trained[p.label_id] >= least)
        rare = [p for p in candidate.points if trained[p.label_id] < least]
        rejects += [_reject(candidate, p, trained[p.label_id], least) for p in rare]
        candidates += [replace(candidate, points=kept)] if kept else []
    return replace(reading, candidates=tuple(candidates), rejects=tuple(rejects))


def _reject(candidate: Candidate, point: Point, n: int, least: int) -> Reject:
    fault = Fault(RejectCode.LABEL_RARE, f"label {point.label_id} has {n} training segments, wanted are {least}")
    return fault.reject(candidate.take.take_id, 1, candidate.source_file, point.offset)
