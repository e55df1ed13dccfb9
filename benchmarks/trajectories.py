"""Measure trajectory reading: a 2,000,000-row, 28-column pose file, 140 segments, from the file to the 16 x 6 motions.

    python benchmarks/trajectories.py --folder <scratch>

Our reader against polars with the same resampling, in turn, each measurement in a new process with imports excluded and
a warm file cache; the medians are compared. Required (docs/decisions/gaps.md, which has the figures of the official
reader too): 10x polars, at most 60 MB of memory above the imports, results within 1e-9.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

ROWS, SEGMENTS, SEGMENT_S, KNOTS = 2_000_000, 140, 2.0, 17
DEMAND_POLARS, DEMAND_DIFFERENCE, DEMAND_MB = 10.0, 1e-9, 60.0
POSE = (*(f"t{a}_world_device" for a in "xyz"), *(f"q{a}_world_device" for a in "xyzw"))
ECEF = ("geo_available", *(f"t{a}_ecef_device" for a in "xyz"), *(f"q{a}_ecef_device" for a in "xyzw"))
HEADER = (
    "graph_uid",
    "tracking_timestamp_us",
    "utc_timestamp_ns",
    *POSE,
    *(f"device_linear_velocity_{a}_device" for a in "xyz"),
    *(f"angular_velocity_{a}_device" for a in "xyz"),
    *(f"gravity_{a}_world" for a in "xyz"),
    "quality_score",
    *ECEF,
)
NO_ECEF = ",".join(["0", *["0.000000"] * 3, *["0.000000000"] * 3, "1.000000000"])
FIELDS = ["%d", "%d", *["%.6f"] * 3, *["%.9f"] * 4, *["%.6f"] * 9, "1.0", NO_ECEF]
LINE = ",".join(["ea7288b8-b6a0-012d-8156-257aba6bd796", *FIELDS]) + "\n"


def smooth_noise(rng: np.random.Generator, t_s: np.ndarray, width: int, scale: float) -> np.ndarray:
    """Return (N, width) sums of slow sines."""
    frequency, phase = rng.uniform(0.05, 2.0, (6, width)), rng.uniform(0, 6.28, (6, width))
    return scale * sum(
        np.sin(2 * np.pi * f * t_s[:, None] + p) / (1 + 2 * f) for f, p in zip(frequency, phase, strict=True)
    )


def write_file(path: Path) -> None:
    """Write the pose file: an uneven clock near 1 kHz, smooth motion, constant fields as in real files."""
    rng = np.random.default_rng(0)
    stamp = 149_202_610 + np.cumsum(np.clip(np.rint(rng.normal(1000, 30, ROWS)), 1, 1179)).astype(np.int64)
    t_s = (stamp - stamp[0]) * 1e-6
    position, velocity = smooth_noise(rng, t_s, 3, 1.0), smooth_noise(rng, t_s, 6, 0.3)
    rotation = smooth_noise(rng, t_s, 4, 0.4) + np.array([0.5, 0.5, -0.5, 0.5])
    rotation /= np.linalg.norm(rotation, axis=1, keepdims=True)
    with path.with_suffix(".part").open("w") as out:
        out.write(",".join(HEADER) + "\n")
        for at in range(0, ROWS, 100_000):
            part = slice(at, at + 100_000)
            gravity = np.tile([0.0, 0.0, -9.81], (len(stamp[part]), 1))
            floats = np.hstack([position[part], rotation[part], velocity[part], gravity]).tolist()
            rows = zip(stamp[part].tolist(), floats, strict=True)
            out.writelines(LINE % (us, 1686767222002923694 + us * 1000, *numbers) for us, numbers in rows)
    path.with_suffix(".part").rename(path)


def knots(path: Path) -> np.ndarray:
    """Return the (S, 17) knot times, ns, of segments spread evenly over the file."""
    with path.open("rb") as stream:
        stream.readline()
        first = int(stream.readline().split(b",")[1])
        stream.seek(-2000, 2)
        last = int(stream.readlines()[-1].split(b",")[1])
    start = np.linspace(first + 1e4, last - SEGMENT_S * 1e6 - 1e4, SEGMENTS) * 1000
    return np.rint(start[:, None] + SEGMENT_S * 1e9 * np.linspace(0, 1, KNOTS)).astype(np.int64)


def memory_mb(field: str) -> float:
    """Return this process's resident memory, MB: `VmRSS` is now, `VmHWM` the peak so far."""
    line = next(x for x in Path("/proc/self/status").read_text(encoding="utf-8").splitlines() if x.startswith(field))
    return int(line.split()[1]) / 1024


def polars_whole(path: Path, knots_ns: np.ndarray) -> np.ndarray:
    """Polars projection of the eight columns, then our resampling of all knots at once."""
    import polars as pl

    from trajpilot_core.poses.aria.closed_loop import PoseStream
    from trajpilot_core.poses.geometry import Poses
    from trajpilot_core.poses.motions import bracket, relative_motions, sample

    frame = pl.scan_csv(path).select("tracking_timestamp_us", *POSE).collect()
    pose, n = frame.select(POSE).to_numpy(), frame.height
    stream = PoseStream(
        frame["tracking_timestamp_us"].to_numpy(),
        Poses(pose[:, 3:], pose[:, :3]),
        np.zeros(n, np.uint32),
        np.ones(n),
        np.ones(n, bool),
        True,
    )
    return relative_motions(sample(stream, bracket(stream, knots_ns)), len(knots_ns))


def ours(path: Path, knots_ns: np.ndarray) -> np.ndarray:
    """Our reader with all its checks, then our resampling."""
    from schemas.poses import TrajectoryConfig
    from trajpilot_core.poses.aria import closed_loop
    from trajpilot_core.poses.motions import bracket, find_fault, inner_gap_us, measure, relative_motions, sample

    cfg = TrajectoryConfig()
    stream = closed_loop.read_poses(str(path.parent), path.name, knots_ns // 1000, inner_gap_us(cfg))
    brackets = bracket(stream, knots_ns)
    measures = measure(stream, brackets)
    faults = [find_fault(measures, cfg, at) for at in range(len(knots_ns))]
    assert brackets.covered.all(), "the segments are inside the file"
    assert not any(faults), faults
    return relative_motions(sample(stream, brackets), len(knots_ns))


WAYS = {"polars": polars_whole, "ours": ours}


def measure(way: str, path: Path) -> None:
    """Run one way once, save its result, and print its time and memory; libraries are imported and run once before."""
    import io

    import polars as pl
    from scipy.spatial.transform import Rotation

    import trajpilot_core.poses.sources.take  # noqa: F401

    knots_ns = knots(path)
    Rotation.from_quat([[0.0, 0, 0, 1]]).as_rotvec()
    pl.read_csv(io.BytesIO(b"a,b\n1,2\n"))
    pl.scan_csv(io.BytesIO(b"a,b\n1,2\n")).select("a").collect()
    before_mb, began, cpu = memory_mb("VmRSS"), time.perf_counter(), time.process_time()
    result = WAYS[way](path, knots_ns)
    seconds, cpu_s = time.perf_counter() - began, time.process_time() - cpu
    np.save(path.with_name(f"{way}.npy"), result)
    print(json.dumps({"wall_s": seconds, "cpu_s": cpu_s, "peak_mb": memory_mb("VmHWM") - before_mb}))


def run_once(way: str, path: Path) -> dict[str, float]:
    """Measure one way in a fresh process."""
    command = [sys.executable, str(Path(__file__).resolve()), "--way", way, "--folder", str(path.parent)]
    checkout = Path(__file__).parents[1]
    environment = {"PYTHONPATH": str(checkout), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=checkout, env=environment)
    if done.returncode != 0:
        sys.exit(f"{way} failed:\n{done.stderr}")
    return dict(json.loads(done.stdout.splitlines()[-1]))


def compare(path: Path, rounds: int) -> bool:
    """Measure both ways in turn, print medians and ratios, and return whether the demands are met."""
    path.read_bytes()
    results: dict[str, list[dict[str, float]]] = {way: [] for way in WAYS}
    for _ in range(rounds):
        for way in WAYS:
            results[way].append(run_once(way, path))
    middle = {w: {k: statistics.median(r[k] for r in rs) for k in rs[0]} for w, rs in results.items()}
    print(f"{ROWS} rows, {path.stat().st_size / 1e6:.0f} MB, {SEGMENTS} segments of {SEGMENT_S} s, median of {rounds}")
    for way, m in middle.items():
        walls = " ".join(f"{r['wall_s']:.3f}" for r in results[way])
        print(f"{way:11s} {m['wall_s']:8.4f} s wall ({walls}) {m['cpu_s']:8.4f} s CPU {m['peak_mb']:7.0f} MB peak")
    theirs, ours_ = (np.load(path.with_name(f"{way}.npy")) for way in WAYS)
    checks = [
        ("memory above imports, MB", middle["ours"]["peak_mb"], "<=", DEMAND_MB),
        ("largest difference between results", float(np.abs(theirs - ours_).max()), "<=", DEMAND_DIFFERENCE),
        ("times polars + vectorised", middle["polars"]["wall_s"] / middle["ours"]["wall_s"], ">=", DEMAND_POLARS),
    ]
    met = [value >= demand if sign == ">=" else value <= demand for _, value, sign, demand in checks]
    for (what, value, sign, demand), ok in zip(checks, met, strict=True):
        print(f"{'met ' if ok else 'MISSED'} {what}: {value:.4g} (demand {sign} {demand:g})")
    return all(met)


def main() -> None:
    """Write the file if it is absent, then measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True, help="scratch folder for the 590 MB file")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--way", choices=sorted(WAYS), help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    path = options.folder / "closed_loop_trajectory.csv"
    if not path.exists():
        write_file(path)
    if options.way:
        measure(options.way, path)
        return
    sys.exit(0 if compare(path, options.rounds) else 1)


if __name__ == "__main__":
    main()
