"""The pages of the claims, a pure function of the committed tables: claims.html, and the blocks of two short pages."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from schemas.base import Record
from schemas.claims import BASE, FEATURE_SPACE, ClaimsConfig
from trajpilot_core.report.blocks import renewed
from trajpilot_core.report.document import Section, render_document
from trajpilot_core.report.tables.table import Cell, Table
from trajpilot_core.studies.claims.evidence.readings import METRIC_NAMES, SHOWN_METRICS
from trajpilot_core.studies.claims.evidence.tables import RUN_FILE, Evidence, Origin, read_evidence
from trajpilot_core.studies.claims.pages import checks, drawings, judged, power, run, scorer, worlds
from trajpilot_core.studies.claims.pages.ceilings import ceilings_tables, ceilings_verdict
from trajpilot_core.studies.claims.verdicts.aims import AIM_METRICS, Aims, judge_aims
from trajpilot_core.studies.claims.verdicts.entries import EntryOrders, compare_entries, pairs
from trajpilot_core.studies.claims.verdicts.judge import Judged, judge_claims

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
    orders = [compare_entries(evidence, metric, cfg, of) for of in pairs(cfg) for metric in SHOWN_METRICS]
    of_scorers, facts = scorer.scorer_tables(evidence, cfg), run.facts(evidence, cfg)
    charts = drawings.all_drawings(evidence, verdicts, aims, cfg)
    tables = tables_of(evidence, verdicts, aims, orders, of_scorers, cfg)
    sections = [
        Section(id_, title, held, tuple(drawing.chart() for drawing in charts if drawing.section == id_))
        for id_, (title, held) in tables.items()
    ]
    beaten = "; ".join(f"{METRIC_NAMES[metric]} {aims.verdict(metric)}" for metric in AIM_METRICS)
    planned = "; ".join(f"{METRIC_NAMES[o.metric]} {o.verdict}" for o in orders if o.worlds == (BASE, FEATURE_SPACE))
    lines = (
        f"{ceilings_verdict(evidence, cfg)}.",
        f"{tables['power'][1][1].note}.",
        f"{checks.leaks_verdict(evidence, cfg)}.",
        f"Same order of the rows through video and through frames: {planned}.",
        f"Trainings: {tables['trainings'][1][0].note}",
    )
    texts = {
        "claims.md": {
            "facts": _bullets(facts),
            "verdicts": tables["claims"][1][0].markdown(is_titled=False),
            "controls": tables["claims"][1][1].markdown(is_titled=False),
            "shares": tables["power"][1][0].markdown(is_titled=False),
            "words": tables["words"][1][0].markdown(is_titled=False),
            "rows": tables["worlds"][1][0].markdown(is_titled=False),
            "aims": f"All five rows beaten together: {beaten}.\n\n{tables['aims'][1][1].markdown(is_titled=False)}",
            "checks": _bullets(lines),
        },
        "scorer.md": {name: table.markdown(is_titled=False) for name, table in of_scorers.items()},
    }
    return {
        "claims.html": render_document(TITLE, BANNER, facts, sections),
        f"{FOLDER}/rows.svg": drawings.picture([d for d in charts if d.section == "rows"]),
        f"{FOLDER}/gate.svg": drawings.picture([d for d in charts if d.section == "scorer"][:2]),
        **{
            page: renewed((docs / page).read_text(), blocks, page).encode()
            for page, blocks in texts.items()
            if (docs / page).is_file()
        },
    }


def tables_of(
    evidence: Evidence,
    verdicts: tuple[Judged, ...],
    aims: Aims,
    orders: Sequence[EntryOrders],
    of_scorers: Mapping[str, Table],
    cfg: ClaimsConfig,
) -> dict[str, tuple[str, tuple[Table, ...]]]:
    """Return the title and the tables of every section of claims.html by its id."""
    return {
        "claims": ("Claims and controls", judged.claims_tables(verdicts, cfg)),
        "words": ("What the words mean", (power.words_table(),)),
        "power": (
            "What the verdicts can rest on",
            (power.shares_table(evidence, cfg), power.leak_table(evidence, cfg), power.ranking_table(evidence, cfg)),
        ),
        "aims": ("Scorer+ against its aims", judged.aims_tables(aims, cfg)),
        "rows": ("Every row", (*worlds.rows_tables(evidence, cfg), power.reference_table(evidence, cfg))),
        "worlds": ("Control worlds, sweep, training takes", worlds.worlds_tables(evidence, cfg)),
        "entries": ("Do both entries give the same order?", worlds.entry_tables(orders)),
        "ceilings": ("Ceilings", ceilings_tables(evidence, cfg)),
        "leaks": ("Leak checks and self-checks", checks.checks_tables(evidence, cfg)),
        "scorer": ("The scorers", tuple(of_scorers.values())),
        "trainings": ("Trainings", (checks.trainings_table(evidence),)),
        "run": ("What was run, and what was not", run.run_tables(evidence, cfg)),
        "tables": ("The tables themselves", _raw(evidence)),
    }


def _bullets(lines: Iterable[str]) -> str:
    return "".join(f"- {line}\n" for line in lines)


def raw_table(title: str, rows: Sequence[tuple[Origin | None, Record]]) -> Table:
    """Return records as they are, numbers to four digits; world and seed stand in front where they are known."""
    columns = [name for name in type(rows[0][1]).model_fields if name != "seed" or rows[0][0] is None] if rows else []
    header = (*(("world", "seed") if rows and rows[0][0] else ()), *columns)
    lines = tuple(
        (*((origin.world, str(origin.seed)) if origin else ()), *(_printed(getattr(record, name)) for name in columns))
        for origin, record in rows
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
