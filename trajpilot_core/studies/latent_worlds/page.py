"""docs/latent.md: a committed page whose blocks are a function of the committed tables alone.

What was not run is printed as not run.
"""

from pathlib import Path

from schemas.claims import LIMITS
from schemas.latent_worlds import BASE, LATENT_WORLDS, STRAIGHT, LatentWorldsConfig
from trajpilot_core.evaluation.segment_pairs import ADJACENT, FAR, RANDOM, SAME_ACTION
from trajpilot_core.methods.latent import ROWS
from trajpilot_core.report.blocks import renewed
from trajpilot_core.report.tables.table import NOTHING, Cell, Table, Value
from trajpilot_core.studies.claims.evidence.contrasts import TRAINED
from trajpilot_core.studies.claims.evidence.readings import change, name, rate, takes
from trajpilot_core.studies.claims.evidence.shares import reached_share
from trajpilot_core.studies.claims.evidence.statistics import Equivalence, Estimate
from trajpilot_core.studies.claims.pages.drawings import picture
from trajpilot_core.studies.claims.pages.run import when
from trajpilot_core.studies.latent_worlds.drawings import FIGURES, drawings_of
from trajpilot_core.studies.latent_worlds.profiles import Quantity, claims_of, correlations_of, mean_conditions
from trajpilot_core.studies.latent_worlds.statements import RULES
from trajpilot_core.studies.latent_worlds.tables import FOLDER, LatentTables, read_tables
from trajpilot_core.studies.latent_worlds.verdicts import BEHIND, JudgedLatent, JudgedLatentClaim, judge_latents_study

NAME = "latent.md"
UNITS: dict[Quantity, str] = {"l1": "hundredths of l1", "accuracy": "points of Full mAcc", "r": "r"}
SHOWN_METRICS = ("SR", "Full mAcc")
PAIRS = {
    ADJACENT: "neighbours in a take",
    FAR: "far apart in a take",
    SAME_ACTION: "one label, two takes",
    RANDOM: "random",
}
"""Kinds of pairs of segments, as the table says them."""


def render_latent(docs: Path, cfg: LatentWorldsConfig | None = None) -> dict[str, bytes]:
    """Render the page and its pictures.

    Args:
        docs: folder of the documentation, which holds the page; tables lie in its folder `latent`.
        cfg: None: as it was fixed.

    Returns:
        Path below docs -> bytes; equal tables give equal bytes.

    Raises:
        InputError: a table contradicts itself, or the page lacks a block.
        StoreError: a damaged table.
    """
    cfg = cfg or LatentWorldsConfig()
    tables = read_tables(docs / FOLDER, cfg.horizons)
    judged = judge_latents_study(tables, cfg)
    made = {
        "verdicts": verdicts_table(judged),
        "statements": statements_table(judged),
        "rules": Table("Rules", ("kind", "holds where"), tuple(RULES.items())),
        "motivation": motivation_table(tables),
        "geometry": geometry_table(tables),
        **{f"rows {world}": rows_table(tables, world, cfg) for world in (BASE, STRAIGHT)},
        "correlation": correlation_table(tables, cfg),
        "learned": learned_table(tables, cfg),
    }
    blocks = {key: table.markdown(is_titled=False) for key, table in made.items()}
    drawn = {label: drawings_of(tables, metric, cfg) for label, metric in FIGURES.items()}
    blocks |= {"run": run_text(tables), "figures": figures_text([label for label, held in drawn.items() if held])}
    page = renewed((docs / NAME).read_text(encoding="utf-8"), blocks, NAME).encode()
    return {NAME: page, **{f"{FOLDER}/{label}.svg": picture(held) for label, held in drawn.items() if held}}


def run_text(tables: LatentTables) -> str:
    """Say when and where the tables were made, and which worlds were not run."""
    held = set(tables.evidence.scores)
    absent = [world for world in LATENT_WORLDS if world not in held]
    left = f" Not run: {', '.join(absent)}." if absent else ""
    return f"Run: {when(tables.evidence.run)}.{left}"


def figures_text(labels: list[str]) -> str:
    """Show the figures that could be drawn."""
    shown = [f"![{FIGURES[label]} over the horizon, simulated worlds]({FOLDER}/{label}.svg)" for label in labels]
    return "\n\n".join(shown) or "*Nothing was run for the figures.*"


def figure_text(found: Estimate | Equivalence | None, quantity: Quantity) -> Cell:
    """Return a figure with its interval."""
    return change(found, 3 if quantity == "r" else 2)


def verdicts_table(judged: tuple[JudgedLatentClaim, ...]) -> Table:
    """Return one line for every claim, with its controls."""
    rows = []
    for claim, findings in judged:
        mine, controls = ([f for f in findings if f.statement.role == role] for role in ("claim", "control"))
        row = JudgedLatentClaim(claim, findings)
        verdict, shown = row.verdict("claim"), row.shown("claim")
        rows.append(
            (
                claim.text,
                "; ".join(str(figure_text(f.figure, f.statement.quantity)) for f in mine),
                UNITS[mine[0].statement.quantity],
                verdict if verdict == shown else f"{verdict} (intervals: {shown})",
                "; ".join(control_text(f) for f in controls),
            )
        )
    return Table("Verdicts", ("claim", "figure", "unit", "verdict", "control: without, with"), tuple(rows))


def control_text(found: JudgedLatent) -> str:
    """Return a control with its figure, and the same figure in the informative world."""
    quantity = found.statement.quantity
    there = f", {figure_text(found.broken, quantity)}" if found.statement.against else ""
    return f"{found.verdict}: {figure_text(found.figure, quantity)}{there}"


def statements_table(judged: tuple[JudgedLatentClaim, ...]) -> Table:
    """Return a line per statement, with what decides it."""
    rows = tuple(
        (
            f"{f.statement.role}: {f.statement.text} ({f.statement.kind})",
            f.statement.world + (", shortest H" if f.statement.is_short else ""),
            figure_text(f.figure, f.statement.quantity),
            "; ".join(str(figure_text(part, f.statement.quantity)) for part in f.parts),
            figure_text(f.broken, f.statement.quantity) if f.statement.against else "",
            takes(f.figure),
            f.verdict,
            f.note,
        )
        for _, findings in judged
        for f in findings
    )
    header = ("statement", "world", "figure", "at each H", f"the same in {BASE}", "takes", "verdict", "note")
    return Table("Every statement", header, rows)


def motivation_table(tables: LatentTables) -> Table:
    """Return the l1 of every condition in every world, and what it gains on `none`, on test takes."""
    held = {world: mean_conditions(tables, world) for world in LATENT_WORLDS}
    names = list(dict.fromkeys(condition for of in held.values() for condition in of))
    rows = []
    for condition in names:
        cells: list[Cell] = [condition.replace("_", " ")]
        for world in LATENT_WORLDS:
            one = held[world].get(condition)
            cells += (
                [NOTHING, NOTHING]
                if one is None
                else [
                    Value(one.l1, digits=3),
                    Value(one.gain, one.low, one.high, 3, True) if condition != "none" else "",
                ]
            )
        rows.append(tuple(cells))
    header = ("condition", *(head for world in LATENT_WORLDS for head in (f"{world}, l1", "less none")))
    return Table("Conditions", header, tuple(rows))


def geometry_table(tables: LatentTables) -> Table:
    """Return the distances between segments of test takes, raw features."""
    found = {
        (at.world, one.pairs, one.quantity): one
        for at, one in tables.distances
        if one.split == "test" and one.quantity != "standardised_l1"
    }
    worlds = [world for world in LATENT_WORLDS if any(key[0] == world for key in found)]
    rows = tuple(
        (
            text,
            *(
                Value(one.value, one.low, one.high, 3) if (one := found.get((world, kind, quantity))) else NOTHING
                for world in worlds
                for quantity in ("mean_l1", "mean_cosine")
            ),
        )
        for kind, text in PAIRS.items()
        if worlds
    )
    header = ("pairs", *(f"{world}, {what}" for world in worlds for what in ("l1", "cosine")))
    return Table("Geometry", header, rows)


def rows_table(tables: LatentTables, world: str, cfg: LatentWorldsConfig) -> Table:
    """Return SR and Full mAcc of every row of a world at each H."""
    found = {
        (one.variant, one.metric, one.horizon): one
        for at, one in tables.metrics
        if (at.world, at.seed) == (world, cfg.seed)
    }
    known = [one.id for one in (*ROWS,) if any(key[0] == one.id for key in found)]
    rows = tuple(
        (
            name(row),
            *(
                Value(one.value, one.low, one.high) if (one := found.get((row, metric, h))) else NOTHING
                for metric in SHOWN_METRICS
                for h in cfg.horizons
            ),
        )
        for row in (*known, *(["majority"] if known else []))
    )
    header = ("row", *(f"{metric}, H={h}" for metric in SHOWN_METRICS for h in cfg.horizons))
    return Table("Rows", header, rows)


def correlation_table(tables: LatentTables, cfg: LatentWorldsConfig) -> Table:
    """Return Pearson's r of energy (l1) and step accuracy at each H, over training windows."""
    rows = []
    for world in LATENT_WORLDS:
        held = correlations_of(tables, world)
        for energy, motion in sorted({key[:2] for key in held}):
            cells = [held.get((energy, motion, h)) for h in cfg.horizons]
            values = (
                NOTHING if one is None or one.pearson is None else Value(one.pearson, digits=3, is_signed=True)
                for one in cells
            )
            rows.append((world, energy, motion, *values))
    return Table("Correlation", ("world", "energy", "motion", *(f"H={h}" for h in cfg.horizons)), tuple(rows))


def learned_table(tables: LatentTables, cfg: LatentWorldsConfig) -> Table:
    """Return what the models of every world have learned: trainings that are not, shares of ceilings, energies."""
    own = claims_of(cfg, "accuracy")
    rows = []
    for world in LATENT_WORLDS:
        judged = [one for at, one in tables.evidence.judgements if (at.world, at.seed) == (world, cfg.seed)]
        if not judged:
            continue
        weak = [
            one.check.removeprefix(f"{TRAINED}final/").split(",")[0]
            for one in judged
            if one.check.startswith(TRAINED) and one.verdict != "holds"
        ]
        shares = [reached_share(tables.evidence, world, row, own, LIMITS).figure for row in BEHIND]
        spreads = [one.spread for at, one in tables.spreads if at.world == world and one.energy == "last_mid"]
        least = Value(100 * min(spreads)) if spreads else NOTHING
        rows.append((world, ", ".join(weak) or "none", *(rate(share, 2) for share in shares), least))
    header = ("world", "undertrained", *(f"share, {name(row)}" for row in BEHIND), "least spread of the energy, %")
    return Table("What was learned", header, tuple(rows))
