"""Head motions of different origin do not go together: the guard wherever motions are joined."""

import pyarrow as pa
import pyarrow.compute as pc

from trajpilot_core.errors import MixedSourcesError

ORIGIN = ("source", "frame", "scale")
"""Columns of the motions that must agree; `frame` names the axes too."""


def origins(motions: pa.Table) -> list[tuple[str, str, str]]:
    """Return the different (source, frame, scale) in a table of motions, sorted."""
    rows = motions.select(list(ORIGIN)).group_by(list(ORIGIN)).aggregate([]).to_pylist()
    return sorted((row["source"], row["frame"], row["scale"]) for row in rows)


def check_one_source(*tables: pa.Table) -> None:
    """Assert that motions which are used together are of one origin, or of sources that were asked for together.

    A table says in its metadata which sources its settings asked for (`TrajectoryConfig.fallback`). The frame must be
    one in any case: motions in different axes are never comparable.

    Args:
        tables: motions; those of a training set, or those of a bank and those of its queries.

    Raises:
        MixedSourcesError: names what was found, with the number of segments of each.
    """
    found = sorted({origin for table in tables for origin in origins(table)})
    if len(found) < 2:
        return
    frames = {frame for _, frame, _ in found}
    asked = [set((table.schema.metadata or {}).get(b"mixed", b"").decode().split(",")) for table in tables]
    together = set.intersection(*asked)
    if len(frames) == 1 and {source for source, _, _ in found} <= together:
        return
    counted = "; ".join(f"{_count(tables, origin):,} segments from {', '.join(origin)}" for origin in found)
    advice = (
        "bring all of them into one frame (--set trajectories.frame)"
        if len(frames) > 1
        else "read all from one source (--set trajectories.source), or ask for both with --set trajectories.fallback"
    )
    raise MixedSourcesError(f"motions of different origin (source, frame, scale) would be mixed: {counted}; {advice}")


def _count(tables: tuple[pa.Table, ...], origin: tuple[str, str, str]) -> int:
    """Return how many segments are of one origin."""
    wanted = dict(zip(ORIGIN, origin, strict=True))
    total = 0
    for table in tables:
        same = [pc.equal(table[name], value) for name, value in wanted.items()]
        total += int(pc.sum(pc.and_(pc.and_(same[0], same[1]), same[2])).as_py() or 0)
    return total
