"""Tables of what was run: when and with what, on what size, what was left out, what it cost."""

from schemas.claims import (
    BASE,
    FEATURE_SPACE,
    LIMITS,
    RUN_DIGEST,
    WORLDS,
    ClaimsConfig,
    ClaimsRun,
    curve_worlds,
    sweep_worlds,
    world_seeds,
)
from trajpilot_core.report.loaded import PLANNERS_ONLY
from trajpilot_core.report.tables.table import NOTHING, Table, number
from trajpilot_core.studies.claims.evidence.tables import Evidence

KNOBS = {
    BASE: "rendered video, the settings of the claims",
    FEATURE_SPACE: "the same settings, encoded frames in place of video",
    "no_information": "kappa 0 and style 0: motion carries no information",
    "no_style": "style 0: motion carries no information on intent",
    "no_scene": "scene 0: takes look alike; distances only",
}


def facts(evidence: Evidence, cfg: ClaimsConfig) -> tuple[str, ...]:
    """Say when, on what and with what the figures were computed, on what size, and what was fixed when."""
    return (
        f"Run: {when(evidence.run)}.",
        f"Digest of sizes, worlds and recipes: {digest_text(evidence.run)}.",
        f"Sizes, margins and rules fixed on {cfg.fixed_on}, before any test figure of a row was looked at (digest "
        f"{cfg.digest()[:12]}). What withholds a verdict was added on {LIMITS.fixed_on}, after figures of "
        f"the seeds 0 to 2 were known, and can turn none into holds (digest {LIMITS.digest()[:12]}).",
        size_text(evidence.run),
        f"{len(cfg.seeds)} seeds ({', '.join(map(str, cfg.seeds))}): each a world of its own, with its own models. "
        f"Intervals: {cfg.bootstrap:,} resamples of takes within each seed's world.",
        *latents_text(evidence.run),
        *([cost_text(evidence.run)] if evidence.run else []),
        *([f"Files that are not there: {', '.join(evidence.absent)}."] if evidence.absent else []),
    )


def when(run: ClaimsRun | None) -> str:
    """Report when the jobs were begun, and when, where and by which code the tables were gathered."""
    if run is None:
        return NOTHING
    begun = ""
    if run.first_started:
        first, last = (started[:16].replace("T", " ") for started in (run.first_started, run.last_started))
        begun = f"jobs begun from {first} to {last} UTC; "
    other = f"; {run.elsewhere} jobs were computed on another machine" if run.elsewhere else ""
    code = f", version {run.version}" if run.version else ""
    return f"{begun}tables gathered on {run.date}{code}, on {run.machine} ({run.device.upper()}){other}"


def digest_text(run: ClaimsRun | None) -> str:
    """Return the digest of what was computed, and say whether it is that of what was fixed."""
    if run is None:
        return f"not run; fixed: {RUN_DIGEST[:12]}"
    verdict = "as fixed" if run.config_digest == RUN_DIGEST else f"NOT what was fixed ({RUN_DIGEST[:12]})"
    return f"{run.config_digest[:12]}, {verdict}"


def size_text(run: ClaimsRun | None) -> str:
    """State in one line how large the worlds of both entries are."""
    sizes = {size.world: size for size in run.worlds} if run else {}
    if BASE not in sizes or FEATURE_SPACE not in sizes:
        return "Size of worlds and models: not recorded."
    sizes_text = "; ".join(
        f"{world} has {sizes[world].train_takes} takes for training and {sizes[world].test_takes} test takes a seed"
        for world in (BASE, FEATURE_SPACE)
    )
    return f"{sizes_text}; {sizes[BASE].labels} labels. Small models."


def latents_text(run: ClaimsRun | None) -> tuple[str, ...]:
    """Say which worlds have no pixels, in one sentence; nothing where there is none."""
    named = sorted(size.world for size in run.worlds if size.recipe == "latents") if run else []
    return (f"Simulated without pixels: {', '.join(named)}. Each is {PLANNERS_ONLY}.",) if named else ()


def cost_text(run: ClaimsRun) -> str:
    """State what the jobs cost, and how many nobody timed; a job that only linked an output took nothing."""
    done = [job for job in run.jobs if job.status == "done"]
    n_untimed = sum(job.seconds is None and not job.shared_with for job in done)
    untimed = f"; {n_untimed} of {len(done)} jobs not timed" if n_untimed else ""
    return f"Cost: {number(sum(job.seconds or 0.0 for job in done) / 3600)} hours of wall time in all{untimed}."


def run_tables(evidence: Evidence, cfg: ClaimsConfig) -> tuple[Table, ...]:
    """Return the worlds, and the jobs that were not done."""
    what = {
        **{world: KNOBS[world] for world in WORLDS},
        **{world: f"kappa {kappa:g}, style {style:g}" for world, (kappa, style) in sweep_worlds(cfg).items()},
        **{world: f"as {FEATURE_SPACE}, {takes} takes for training" for world, takes in curve_worlds(cfg).items()},
    }
    header = ("world", "what it is", "seeds planned", "seeds scored", "test takes", "jobs")
    lines = tuple(_world_line(evidence, world, text, cfg) for world, text in what.items())
    jobs = evidence.run.jobs if evidence.run else ()
    left = tuple((job.world, str(job.seed), job.job, job.status, job.note) for job in jobs if job.status != "done")
    return (
        Table("Worlds", header, lines),
        Table("Jobs that were not run or failed", ("world", "seed", "job", "status", "why"), left),
    )


def _world_line(evidence: Evidence, world: str, what: str, cfg: ClaimsConfig) -> tuple[str, ...]:
    """Return one world of the table of runs."""
    held = evidence.scores.get(world, {})
    seeds = sorted(held) or sorted(evidence.geometry.get(world, {}))
    takes = ", ".join(str(len(held[seed].takes)) for seed in sorted(held))
    states = [job.status for job in (evidence.run.jobs if evidence.run else ()) if job.world == world]
    counts = ", ".join(f"{states.count(s)} {s}" for s in ("done", "not run", "failed") if s in states)
    planned = ", ".join(map(str, world_seeds(cfg, world)))
    return (world, what, planned, ", ".join(map(str, seeds)) or NOTHING, takes, counts)
