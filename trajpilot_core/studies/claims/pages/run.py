"""What was run: when and with what, on what size, what was left out, what it cost."""

from schemas import claims as fixed
from schemas.claims import (
    BASE,
    ENTRIES,
    LIMITS,
    ClaimsConfig,
    ClaimsRun,
    curve_worlds,
    sweep_worlds,
    world_names,
    world_seeds,
)
from trajpilot_core.report.tables.table import NOTHING, Table, number
from trajpilot_core.studies.claims.evidence.tables import Evidence

KNOBS = {
    BASE: "kappa 1.5, style 2: motion tells of label and intent",
    "no_style": "style 0: motion carries no information on intent",
    "no_information": "kappa 0 and style 0: motion carries no information",
}


def facts(evidence: Evidence, cfg: ClaimsConfig) -> tuple[str, ...]:
    """Say when, on what and with what the figures were computed, on what size, and what was fixed when."""
    run, absent = evidence.run, absent_worlds(evidence, cfg)
    return (
        f"Run: {when(run)}.",
        f"Digest of sizes, worlds and recipe: {digest_text(run)}. Of margins: {cfg.digest()[:12]}; of the limits that "
        f"withhold a verdict: {LIMITS.digest()[:12]}.",
        f"{len(cfg.seeds)} seeds ({', '.join(map(str, cfg.seeds))}), each a world and models of its own: "
        f"{cfg.train_takes:,} takes for training, {cfg.test_takes} test takes. Intervals: {cfg.bootstrap:,} resamples "
        "of takes within each seed's world.",
        *([cost_text(run)] if run else []),
        *([f"Not run: {', '.join(absent)}."] if absent else []),
    )


def absent_worlds(evidence: Evidence, cfg: ClaimsConfig) -> list[str]:
    """Return the worlds of which a planned seed has no scores; `all worlds` where none has."""
    absent = {
        world: [str(seed) for seed in world_seeds(cfg, world) if seed not in evidence.scores.get(world, {})]
        for world in world_names(cfg)
    }
    if not evidence.scores:
        return ["all worlds"]
    return [f"{world} (seed {', '.join(seeds)})" for world, seeds in absent.items() if seeds]


def when(run: ClaimsRun | None) -> str:
    """Report when the jobs were begun, and when, where and by which code the tables were gathered."""
    if run is None:
        return NOTHING
    begun = ""
    if run.first_started:
        first, last = (started[:16].replace("T", " ") for started in (run.first_started, run.last_started))
        begun = f"jobs begun from {first} to {last} UTC; "
    code = f", version {run.version}" if run.version else ""
    return f"{begun}tables gathered on {run.date}{code}, on {'; '.join(run.machines)} ({run.device.upper()})"


def digest_text(run: ClaimsRun | None) -> str:
    """Return the digest of what was computed, and say whether it is that of what was fixed."""
    if run is None:
        return "not run" if fixed.RUN_DIGEST is None else f"not run; fixed: {fixed.RUN_DIGEST[:12]}"
    if fixed.RUN_DIGEST is None:
        return f"{run.config_digest[:12]}, NOT fixed"
    verdict = "as fixed" if run.config_digest == fixed.RUN_DIGEST else f"NOT what was fixed ({fixed.RUN_DIGEST[:12]})"
    return f"{run.config_digest[:12]}, {verdict}"


def cost_text(run: ClaimsRun) -> str:
    """State what the jobs cost, and how many nobody timed."""
    done = [job for job in run.jobs if job.status == "done"]
    n_untimed = sum(job.seconds is None for job in done)
    untimed = f"; {n_untimed} of {len(done)} jobs not timed" if n_untimed else ""
    hours = number(sum(job.seconds or 0.0 for job in done) / 3600)
    return f"Cost: {hours} hours, summed over the jobs, of which several may have run at once{untimed}."


def run_tables(evidence: Evidence, cfg: ClaimsConfig) -> tuple[Table, ...]:
    """Return the worlds, what is computed in them, and the jobs that were not done."""
    what = {
        **KNOBS,
        **{world: f"as {BASE}, by {world.removeprefix('by_')}; the same takes" for world in ENTRIES},
        **{world: f"kappa {kappa:g}, style {style:g}; exact" for world, (kappa, style) in sweep_worlds(cfg).items()},
        **{world: f"as {BASE}, {takes:,} takes for training" for world, takes in curve_worlds(cfg).items()},
    }
    header = ("world", "what it is", "seeds planned", "seeds scored", "test takes", "jobs")
    lines = tuple(_world_line(evidence, world, text, cfg) for world, text in what.items())
    jobs = evidence.run.jobs if evidence.run else ()
    left = tuple((job.world, str(job.seed), job.job, job.status, job.note) for job in jobs if job.status != "done")
    recipe = evidence.run.recipe if evidence.run else None
    sizes = tuple((key, str(value)) for key, value in recipe) if recipe else ()
    return (
        Table("Worlds", header, lines),
        Table("Models: width, layers, epochs; what they read and learn on", ("", ""), sizes),
        Table("Jobs that were not run or failed", ("world", "seed", "job", "status", "why"), left),
    )


def _world_line(evidence: Evidence, world: str, what: str, cfg: ClaimsConfig) -> tuple[str, ...]:
    """Return one world of the table of runs."""
    held = evidence.scores.get(world, {})
    takes = ", ".join(str(len(held[seed].takes)) for seed in sorted(held))
    states = [job.status for job in (evidence.run.jobs if evidence.run else ()) if job.world == world]
    counts = ", ".join(f"{states.count(s)} {s}" for s in ("done", "not run", "failed") if s in states)
    planned = ", ".join(map(str, world_seeds(cfg, world)))
    return (world, what, planned, ", ".join(map(str, sorted(held))) or NOTHING, takes, counts)
