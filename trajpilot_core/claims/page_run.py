"""Sections of the claims page: when and with what it was computed, on what size, what was not run, and what it cost."""

from collections.abc import Sequence

from schemas.claims import (
    BASE,
    DRAWN,
    RUN_DIGEST,
    WORLDS,
    ClaimsConfig,
    ClaimsJob,
    ClaimsRun,
    RecipeSize,
    curve_worlds,
    sweep_worlds,
    world_seeds,
)
from trajpilot_core.claims.markdown import number, section, table
from trajpilot_core.claims.tables import Evidence

KNOBS = {
    BASE: "rendered video, the knobs of the claims",
    "drawn": "the same knobs, tables of features",
    "no_information": "kappa 0 and style 0: motion tells nothing",
    "no_style": "style 0: motion tells no intent",
    "no_scene": "scene 0: takes look alike; distances only",
}
RECIPES = {"files": f"`files` (of `{BASE}`)", "features": "`features` (of every other world)"}
SIZES_TEXT = """\
A world's takes for training include those of the dev captures (a tenth). Width, layers, and the most epochs of a
training. Every seed has models of its own.
"""
COST_TEXT = """\
Wall time in minutes, summed over seeds. An output that several worlds hold counts once, where it stands first. What
was not timed, or only in part because a run went on where another stopped, is counted as *not timed*; a training that
went on from its own checkpoint counts from there.
"""


def header(evidence: Evidence, cfg: ClaimsConfig) -> str:
    """Say when, on what and with what the figures were computed, on what size, and what was fixed when."""
    return (
        f"- Run: {when(evidence.run)}.\n"
        f"- Digest of sizes, worlds and recipes: {digest_text(evidence.run)}.\n"
        f"- Sizes, margins and rules fixed on {cfg.fixed_on}, before any test figure of a row was looked at; digest "
        f"`{cfg.digest()[:12]}`. Sizes were cut for their cost after one control world had been evaluated, unseen; the "
        "rules on controls were tightened the same day, likewise.\n"
        f"- {size_text(evidence.run)}\n"
        f"- {len(cfg.seeds)} seeds ({', '.join(map(str, cfg.seeds))}): each a world of its own, with its own models. "
        f"Intervals: {cfg.bootstrap:,} resamples of takes within each seed's world.\n"
        "- `trajpilot claims` computes what is missing and renders this page from the tables in `docs/claims/`; "
        "a test renders it again and compares the bytes.\n"
    )


def when(run: ClaimsRun | None) -> str:
    """Say when the jobs were begun, and when, where and by which code the tables were gathered."""
    if run is None:
        return "not run"
    begun = ""
    if run.first_started:
        begun = f"jobs begun from {_minute(run.first_started)} to {_minute(run.last_started)} UTC; "
    other = f"; {run.elsewhere} jobs were computed on another machine" if run.elsewhere else ""
    code = f", version {run.version}" if run.version else ""
    return f"{begun}tables gathered on {run.date}{code}, on {run.machine} ({run.device.upper()}){other}"


def _minute(started: str) -> str:
    """Return a time to the minute."""
    return started[:16].replace("T", " ")


def digest_text(run: ClaimsRun | None) -> str:
    """Return the digest of what was computed, and say whether it is that of what was fixed."""
    if run is None:
        return f"not run; fixed: `{RUN_DIGEST[:12]}`"
    told = "as fixed" if run.config_digest == RUN_DIGEST else f"**not what was fixed** (`{RUN_DIGEST[:12]}`)"
    return f"`{run.config_digest[:12]}`, {told}"


def size_text(run: ClaimsRun | None) -> str:
    """Say in one line how large the worlds of both doors are."""
    sizes = {size.world: size for size in run.worlds} if run else {}
    if BASE not in sizes or DRAWN not in sizes:
        return "Size of worlds and models: not recorded."
    told = "; ".join(
        f"`{world}` has {sizes[world].train_takes} takes for training and {sizes[world].test_takes} test takes a seed"
        for world in (BASE, DRAWN)
    )
    return f"{told}; {sizes[BASE].labels} labels. Small models: see *What was run*."


def run_section(evidence: Evidence, cfg: ClaimsConfig) -> str:
    """Return what was run, in which world, on how many takes, with which models, and what was not."""
    what = {
        **{world: KNOBS[world] for world in WORLDS},
        **{world: f"kappa {kappa:g}, style {style:g}" for world, (kappa, style) in sweep_worlds(cfg).items()},
        **{world: f"as `{DRAWN}`, {takes} takes for training" for world, takes in curve_worlds(cfg).items()},
    }
    lines = [_world_line(evidence, world, told, cfg) for world, told in what.items()]
    header = ["world", "what it is", "recipe", "training takes", "labels", "seeds planned", "seeds scored"]
    blocks = [table([*header, "test takes", "jobs"], lines), *_sizes(evidence.run)]
    jobs = evidence.run.jobs if evidence.run else ()
    left = [[job.world, str(job.seed), job.job, job.status, job.note] for job in jobs if job.status != "done"]
    if left:
        blocks += ["Jobs that were not run or failed:", table(["world", "seed", "job", "status", "why"], left)]
    if evidence.absent:
        blocks.append(f"Files that are not there: {', '.join(f'`{file}`' for file in evidence.absent)}.")
    return section("What was run, and what was not", *blocks)


def _world_line(evidence: Evidence, world: str, what: str, cfg: ClaimsConfig) -> list[str]:
    """Return one world of the table of runs."""
    held = evidence.scores.get(world, {})
    seeds = sorted(held) or sorted(evidence.geometry.get(world, {}))
    takes = ", ".join(str(len(held[seed].takes)) for seed in sorted(held))
    size = next((s for s in evidence.run.worlds if s.world == world), None) if evidence.run else None
    sizes = [size.recipe, str(size.train_takes), str(size.labels)] if size else ["", "", ""]
    counts = {status: 0 for status in ("done", "not run", "failed")}
    for job in evidence.run.jobs if evidence.run else ():
        if job.world == world:
            counts[job.status] += 1
    told = ", ".join(f"{n} {status}" for status, n in counts.items() if n)
    planned = ", ".join(map(str, world_seeds(cfg, world)))
    return [f"`{world}`", what, *sizes, planned, ", ".join(map(str, seeds)) or "**not run**", takes, told]


def _sizes(run: ClaimsRun | None) -> list[str]:
    """Return the models of both recipes, side by side."""
    recipes = run.recipes if run else ()
    if not recipes:
        return ["Size of the models: not recorded."]
    columns = [_recipe_cells(recipe) for recipe in recipes]
    lines = [[what, *(column[what] for column in columns)] for what in columns[0]]
    return ["### Recipes\n", SIZES_TEXT, table(["recipe", *(RECIPES[recipe.recipe] for recipe in recipes)], lines)]


def _recipe_cells(recipe: RecipeSize) -> dict[str, str]:
    """Return what -> how large, of one recipe."""
    return {
        "what is encoded": recipe.video,
        "encoder of clips, frozen": recipe.encoder,
        "encoder of texts, frozen": recipe.text_encoder,
        "scorers learn on": recipe.learned_on,
        "E_tau": _model(recipe.alignment),
        "predictors": _model(recipe.predictor),
        "Scorer": f"{_model(recipe.scorer)}; K={recipe.candidates}",
    }


def _model(size: tuple[int, int, int]) -> str:
    """Return width, layers and epochs in words."""
    width, layers, epochs = size
    return f"width {width}, {layers} layers, {epochs} epochs"


def cost_section(evidence: Evidence) -> str:
    """Return the wall time of the jobs by world, and what nobody timed."""
    jobs = [job for job in (evidence.run.jobs if evidence.run else ()) if job.status == "done"]
    if not evidence.run or not jobs:
        return section("Cost", "No times.", table([], []))
    kinds = sorted({_kind(job) for job in jobs})
    lines = [
        [world, *(_cost([j for j in own if _kind(j) == kind]) for kind in kinds), _cost(own)]
        for world in dict.fromkeys(job.world for job in jobs)
        if (own := [job for job in jobs if job.world == world])
    ]
    total = sum(job.seconds or 0.0 for job in jobs)
    n_untimed = sum(_is_untimed(job) for job in jobs)
    untimed = f"; {n_untimed} of {len(jobs)} jobs not timed" if n_untimed else ""
    where = f"{evidence.run.machine}, {evidence.run.device.upper()}"
    lead = f"{number(total / 3600)} hours in all{untimed} ({where})."
    return section("Cost", COST_TEXT, lead, table(["world", *kinds, "sum"], lines))


def _kind(job: ClaimsJob) -> str:
    """Return the column of a job."""
    return job.job.split("/")[0]


def _is_untimed(job: ClaimsJob) -> bool:
    """Say whether nobody knows how long a job took; one that only linked an output took nothing."""
    return job.seconds is None and not job.shared_with


def _cost(jobs: Sequence[ClaimsJob]) -> str:
    """Return the minutes of some jobs, and how many of them were not timed."""
    timed = [job.seconds for job in jobs if job.seconds is not None]
    n_untimed = sum(_is_untimed(job) for job in jobs)
    if not timed:
        return "not timed" if n_untimed else "shared" if jobs else ""
    return number(sum(timed) / 60) + (f" + {n_untimed} not timed" if n_untimed else "")
