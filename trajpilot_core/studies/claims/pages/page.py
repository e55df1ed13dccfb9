"""The pages of the claims, a function of the committed tables alone: claims.html, and blocks of three short pages."""

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from schemas.claims import ClaimsConfig
from trajpilot_core.report.blocks import Block, renewed
from trajpilot_core.report.document import Section, render_document
from trajpilot_core.report.loaded import PLANNERS_ONLY
from trajpilot_core.report.tables.table import Table
from trajpilot_core.studies.claims.evidence.tables import Evidence, read_evidence
from trajpilot_core.studies.claims.pages import checks, drawings, judged, power, run, scorer, summary, worlds
from trajpilot_core.studies.claims.pages.ceilings import ceilings_tables, ceilings_verdict
from trajpilot_core.studies.claims.verdicts.entries import EntryOrders, compare_entries
from trajpilot_core.studies.claims.verdicts.families import Compared, SquareAnswer, judge_plus, judge_square
from trajpilot_core.studies.claims.verdicts.judge import Judged, judge_claims

FOLDER = "claims"
"""Of the tables and pictures, next to the pages."""
README = "../README.md"
"""As seen from the folder of the documentation."""
TITLE = "The claims, tested in a simulated world"
BANNER = (
    "Simulated world. Every figure on this page comes from worlds that this project simulates, nearly all of them "
    f"without pixels: such a world is {PLANNERS_ONLY}. Nothing here speaks of real data, or may stand next to the "
    "paper's numbers."
)


class Findings(NamedTuple):
    """Everything that is judged, once for all pages."""

    claims: tuple[Judged, ...]
    plus: tuple[Compared, ...]
    square: tuple[SquareAnswer, ...]
    entries: tuple[EntryOrders, ...]
    scorers: dict[str, Table]


def render(docs: Path, cfg: ClaimsConfig | None = None) -> dict[str, bytes]:
    """Render claims.html, the pictures of the short page, and those short pages that are there.

    Args:
        docs: folder of the documentation; what is absent from its folder `claims` is printed as not run. The README
            above it is renewed where it has the block.
        cfg: None: the one that the claims were fixed with.

    Returns:
        Path below docs -> bytes; equal tables give equal bytes.

    Raises:
        InputError: a table contradicts itself, or a page lacks a block.
        StoreError: a damaged table.
    """
    cfg = cfg or ClaimsConfig()
    evidence = read_evidence(docs / FOLDER, cfg.horizons)
    found = Findings(
        judge_claims(evidence, cfg),
        judge_plus(evidence, cfg),
        judge_square(evidence, cfg),
        compare_entries(evidence, "m1", cfg),
        scorer.scorer_tables(evidence, cfg),
    )
    facts, tables = run.facts(evidence, cfg), tables_of(evidence, found, cfg)
    charts = drawings.all_drawings(evidence, cfg)
    sections = [
        Section(id_, title, held, tuple(drawing.chart() for drawing in charts if drawing.section == id_))
        for id_, (title, held) in tables.items()
    ]
    pictures = {name: [d for d in charts if d.section == name] for name in ("rows", "curve")}
    texts = texts_of(evidence, found, tables, cfg)
    return {
        "claims.html": render_document(TITLE, BANNER, facts, sections),
        **{f"{FOLDER}/{name}.svg": drawings.picture(drawn) for name, drawn in pictures.items()},
        **{
            page: renewed((docs / page).read_text(), blocks, page).encode()
            for page, blocks in texts.items()
            if (docs / page).is_file() and (page != README or summary.MARK in (docs / page).read_text())
        },
    }


def texts_of(
    evidence: Evidence, found: Findings, tables: dict[str, tuple[str, tuple[Table, ...]]], cfg: ClaimsConfig
) -> dict[str, dict[str, Block]]:
    """Return the blocks of the short pages."""
    lines = (
        f"{ceilings_verdict(evidence, cfg)}.",
        f"{tables['power'][1][1].note}.",
        f"{checks.leaks_verdict(evidence, cfg)}.",
        f"Trainings: {tables['trainings'][1][0].note}",
        f"Scorer+ above HMMs and Endpoint-Traj + Viterbi: {summary.plus_text(found.plus)}.",
    )
    return {
        "claims.md": {
            "in short": summary.wrapped(f"**In short:** {summary.in_short(found.claims)}"),
            "verdicts": judged.summary_table(found.claims, evidence, cfg).markdown(is_titled=False),
            "not judged": judged.not_judged_text(found.claims, evidence),
            "square": power.square_table(found.square, cfg).markdown(is_titled=False),
            "checks": _bullets(lines),
            "facts": _bullets(run.facts(evidence, cfg)),
        },
        "scorer.md": {name: table.markdown(is_titled=False) for name, table in found.scorers.items()},
        README: {summary.BLOCK: summary.readme_text(evidence, found.claims, found.plus, found.square, cfg)},
    }


def tables_of(evidence: Evidence, found: Findings, cfg: ClaimsConfig) -> dict[str, tuple[str, tuple[Table, ...]]]:
    """Return the title and the tables of every section of claims.html by its id."""
    of_power = (power.shares_table(evidence, cfg), power.leak_table(evidence, cfg), power.ranking_table(evidence, cfg))
    return {
        "claims": ("Claims and controls", judged.claims_tables(found.claims, evidence, cfg)),
        "words": ("What the words mean", (power.words_table(),)),
        "power": ("What the verdicts can rest on", of_power),
        "square": ("Do retrieved trajectories add anything?", power.square_tables(found.square, evidence, cfg)),
        "plus": ("Scorer+: a main row?", (power.plus_table(found.plus, cfg),)),
        "rows": ("Every row", (*worlds.rows_tables(evidence, cfg), power.reference_table(evidence, cfg))),
        "worlds": (
            "The main worlds and the sweep",
            (*worlds.controls_tables(evidence, cfg), *worlds.sweep_tables(evidence, cfg)),
        ),
        "curve": ("Training takes", worlds.takes_tables(evidence, cfg)),
        "entries": ("Video, frames, latents", worlds.entry_tables(evidence, found.entries, cfg)),
        "ceilings": ("Ceilings", ceilings_tables(evidence, cfg)),
        "leaks": ("Leak checks and self-checks", checks.checks_tables(evidence, cfg)),
        "scorer": ("The scorers", tuple(found.scorers.values())),
        "trainings": ("Trainings", (checks.trainings_table(evidence),)),
        "run": ("What was run, and what was not", run.run_tables(evidence, cfg)),
    }


def _bullets(lines: Iterable[str]) -> str:
    return "".join(f"- {line}\n" for line in lines)
