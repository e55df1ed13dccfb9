"""The pages of the claims, a pure function of the committed tables: claims.html, and the blocks of two short pages."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from schemas.base import Record
from schemas.claims import BASE, FEATURE_SPACE, ClaimsConfig
from trajpilot_core.report.blocks import Block, renewed
from trajpilot_core.report.document import Section, render_document
from trajpilot_core.report.tables.table import Cell, Table
from trajpilot_core.studies.claims.aims import AIM_METRICS, Aims, judge_aims
from trajpilot_core.studies.claims.entries import compare_entries, pairs
from trajpilot_core.studies.claims.pages import checks, drawings, judged, run, scorer, worlds
from trajpilot_core.studies.claims.pages.ceilings import ceilings_tables, ceilings_verdict
from trajpilot_core.studies.claims.readings import METRIC_NAMES, SHOWN_METRICS
from trajpilot_core.studies.claims.tables import RUN_FILE, Evidence, Placed, read_evidence
from trajpilot_core.studies.claims.verdicts import Judged, judge_claims

FOLDER = "claims"
"""Of the tables and pictures, next to the pages."""
TITLE = "The claims, tested in a simulated world"
BANNER = (
    "Simulated world. Every figure on this page comes from a world that this project simulates, with encoders of "
    "random weights. It says nothing about real data, and nothing here may stand next to the paper's numbers."
)
RAW = ("gate", "headroom", "study", "leaks", "judgements")
"""Tables that are shown row by row; the others are summed up above, and lie in docs/claims."""


def render(docs: Path, cfg: ClaimsConfig | None = None) -> dict[str, bytes]:
    """Render claims.html, the pictures of the short pages, and those short pages that are there.

    Args:
        docs: folder of the documentation; what is absent from its folder `claims` is printed as not run.
        cfg: None: the one that the claims were fixed with.

    Returns:
        Path below docs -> bytes; equal tables give equal bytes.

    Raises:
        InputError: a table contradicts itself, or a page lacks a block.
        StoreError: a damaged table.
    """
    cfg = cfg or ClaimsConfig()
    evidence = read_evidence(docs / FOLDER, cfg.horizons)
    verdicts, aims = judge_claims(evidence, cfg), judge_aims(evidence, cfg)
    drawn = drawings.all_drawings(evidence, verdicts, aims, cfg)
    sections = sections_of(evidence, verdicts, aims, drawn, cfg)
    blocks: dict[str, Callable[[], dict[str, Block]]] = {
        "claims.md": lambda: claims_blocks(evidence, verdicts, aims, cfg),
        "scorer.md": lambda: scorer_blocks(evidence, cfg),
    }
    return {
        "claims.html": render_document(TITLE, BANNER, run.facts(evidence, cfg), sections),
        f"{FOLDER}/rows.svg": drawings.picture([d for d in drawn if d.section == "rows"]),
        f"{FOLDER}/gate.svg": drawings.picture([d for d in drawn if d.section == "scorer"][:2]),
        **{
            page: renewed((docs / page).read_text(), made(), page).encode()
            for page, made in blocks.items()
            if (docs / page).is_file()
        },
    }


def sections_of(
    evidence: Evidence,
    verdicts: tuple[Judged, ...],
    aims: Aims,
    drawn: list[drawings.Drawing],
    cfg: ClaimsConfig,
) -> list[Section]:
    """Return all tables and charts of claims.html."""
    orders = [compare_entries(evidence, metric, cfg, of) for of in pairs(cfg) for metric in SHOWN_METRICS]
    claims = (judged.summary_table(verdicts), judged.statements_table(verdicts), judged.parts_table(verdicts, cfg))
    others = (judged.equivalence_table(verdicts, cfg), judged.distances_table(verdicts))
    of_worlds = (*worlds.controls_tables(evidence, cfg), *worlds.sweep_tables(evidence, cfg))
    tables: tuple[tuple[str, str, tuple[Table, ...]], ...] = (
        ("claims", "Claims and controls", (*claims, *others, judged.rules_table())),
        ("aims", "Scorer+ against its aims", judged.aims_tables(aims, cfg)),
        ("rows", "Every row", worlds.rows_tables(evidence, cfg)),
        ("worlds", "Control worlds, sweep, training takes", (*of_worlds, *worlds.takes_tables(evidence, cfg))),
        ("entries", "Do both entries give the same order?", worlds.entry_tables(orders)),
        ("ceilings", "Ceilings", ceilings_tables(evidence, cfg)),
        ("leaks", "Leak checks and self-checks", _checks(evidence, cfg)),
        ("scorer", "The scorers", _scorers(evidence, cfg)),
        ("trainings", "Trainings", (checks.trainings_table(evidence),)),
        ("run", "What was run, and what was not", run.run_tables(evidence, cfg)),
        ("tables", "The tables themselves", _raw(evidence)),
    )
    return [
        Section(id_, title, held, tuple(drawing.chart() for drawing in drawn if drawing.section == id_))
        for id_, title, held in tables
    ]


def _checks(evidence: Evidence, cfg: ClaimsConfig) -> tuple[Table, ...]:
    return (*checks.leaks_tables(evidence, cfg), *checks.self_checks_tables(evidence, cfg))


def _scorers(evidence: Evidence, cfg: ClaimsConfig) -> tuple[Table, ...]:
    return (
        scorer.gate_table(evidence, cfg),
        scorer.pool_table(evidence, cfg),
        scorer.inputs_table(evidence, cfg),
        *(scorer.attribution_table(evidence, row, cfg) for row in ("scorer", "scorer_plus")),
        scorer.beside_table(evidence, cfg),
        scorer.queries_table(evidence, cfg),
    )


def raw_table(title: str, rows: Sequence[tuple[Placed | None, Record]]) -> Table:
    """Return records as they are, numbers to four digits; world and seed stand in front where they are known."""
    columns = [name for name in type(rows[0][1]).model_fields if name != "seed" or rows[0][0] is None] if rows else []
    header = (*(("world", "seed") if rows and rows[0][0] else ()), *columns)
    lines = tuple(
        (*((place.world, str(place.seed)) if place else ()), *(_printed(getattr(record, name)) for name in columns))
        for place, record in rows
    )
    return Table(title, header, lines)


def _raw(evidence: Evidence) -> tuple[Table, ...]:
    """Return the small tables of docs/claims row by row."""
    tables = [raw_table(f"{name}.parquet", getattr(evidence, name)) for name in RAW]
    of_run = [(part, getattr(evidence.run, part, ())) for part in ("worlds", "recipes", "jobs")]
    return (*tables, *(raw_table(f"{RUN_FILE}: {part}", [(None, row) for row in rows]) for part, rows in of_run))


def _printed(value: object) -> Cell:
    """Print one value of a table."""
    if isinstance(value, tuple):
        return ", ".join(str(_printed(part)) for part in value)
    if isinstance(value, float):
        return f"{value:.4g}".replace("-", "−")
    return "" if value is None else str(value)


def claims_blocks(evidence: Evidence, verdicts: tuple[Judged, ...], aims: Aims, cfg: ClaimsConfig) -> dict[str, Block]:
    """Return the computed blocks of claims.md."""
    orders = [compare_entries(evidence, metric, cfg, (BASE, FEATURE_SPACE)) for metric in SHOWN_METRICS]
    said_orders = "; ".join(f"{METRIC_NAMES[found.metric]} {found.verdict}" for found in orders)
    beaten = "; ".join(f"{METRIC_NAMES[metric]} {aims.verdict(metric)}" for metric in AIM_METRICS)
    share = judged.aims_tables(aims, cfg)[1]
    main = worlds.controls_tables(evidence, cfg)[0]
    trained = checks.trainings_table(evidence).note
    said = (
        ceilings_verdict(evidence, cfg),
        checks.leaks_verdict(evidence, cfg),
        f"Same order of the rows through video and through frames: {said_orders}",
        f"Trainings: {trained.rstrip('.')}",
    )
    return {
        "facts": _bullets(run.facts(evidence, cfg)),
        "verdicts": judged.summary_table(verdicts).markdown(is_titled=False),
        "rows": main.markdown(is_titled=False),
        "aims": f"All five rows beaten together: {beaten}.\n\n{share.markdown(is_titled=False)}",
        "checks": _bullets(f"{line}." for line in said),
    }


def _bullets(lines: Iterable[str]) -> str:
    return "".join(f"- {line}\n" for line in lines)


def scorer_blocks(evidence: Evidence, cfg: ClaimsConfig) -> dict[str, Block]:
    """Return the computed blocks of scorer.md."""
    tables = {
        "gate": scorer.gate_table(evidence, cfg),
        "pool": scorer.pool_table(evidence, cfg),
        "inputs": scorer.inputs_table(evidence, cfg),
        "queries": scorer.queries_table(evidence, cfg),
        "source": scorer.attribution_table(evidence, "scorer", cfg),
        "source of Scorer+": scorer.attribution_table(evidence, "scorer_plus", cfg),
        "beside": scorer.beside_table(evidence, cfg),
    }
    return {name: table.markdown(is_titled=False) for name, table in tables.items()}
