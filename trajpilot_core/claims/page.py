"""The claims page: a pure function of the committed tables, so that anyone can render it again and compare bytes."""

from pathlib import Path

from schemas.claims import ClaimsConfig
from trajpilot_core.claims.aims import judge_aims
from trajpilot_core.claims.doors import compare_doors, pairs
from trajpilot_core.claims.judge import judge_claims
from trajpilot_core.claims.page_ceilings import ceilings_section
from trajpilot_core.claims.page_checks import curves_picture, geometry_section, training_section
from trajpilot_core.claims.page_claims import (
    aims_section,
    claims_section,
    differences_picture,
    equivalence_section,
    plus_picture,
)
from trajpilot_core.claims.page_leaks import leaks_section, self_checks_section
from trajpilot_core.claims.page_run import cost_section, header, run_section
from trajpilot_core.claims.page_takes import takes_picture, takes_section
from trajpilot_core.claims.page_worlds import (
    SHOWN_METRICS,
    controls_section,
    doors_section,
    rows_picture,
    rows_section,
    sweep_picture,
    sweep_section,
)
from trajpilot_core.claims.scorer_page import scorer_pages
from trajpilot_core.claims.tables import Evidence, read_evidence

FOLDER = "claims"
"""Of the tables and pictures, beside the pages."""
SIMULATED = """\
> **Simulated world.** Every figure on this page comes from a world that this project simulates, with encoders of
> random weights. It shows whether the method does what is claimed where the truth is known; it says nothing about
> real data, and nothing here may stand beside the paper's numbers.
"""


def render(folder: Path, cfg: ClaimsConfig | None = None) -> dict[str, bytes]:
    """Render the pages and their pictures.

    Args:
        folder: docs/claims, with the tables. What is absent is printed as not run.
        cfg: None: the one that the claims were fixed with.

    Returns:
        Path below docs -> bytes; equal tables give equal bytes.

    Raises:
        InputError: a table contradicts itself.
        StoreError: a damaged table.
    """
    cfg = cfg or ClaimsConfig()
    evidence = read_evidence(folder, cfg.horizons)
    return {**claims_pages(evidence, cfg), **scorer_pages(evidence, cfg)}


def write_claims_pages(docs: Path, cfg: ClaimsConfig | None = None) -> list[Path]:
    """Render the pages from docs/claims and write them; returns what was written.

    Args:
        docs: folder of the documentation.
        cfg: None: the one that the claims were fixed with.
    """
    written = []
    for name, content in render(docs / FOLDER, cfg).items():
        path = docs / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        written.append(path)
    return written


def claims_pages(evidence: Evidence, cfg: ClaimsConfig) -> dict[str, bytes]:
    """Return claims.md and its pictures."""
    judged, aims = judge_claims(evidence, cfg), judge_aims(evidence, cfg)
    blocks = [
        "# The claims, tested in a simulated world\n",
        SIMULATED,
        header(evidence, cfg),
        claims_section(judged, cfg),
        equivalence_section(judged, cfg),
        geometry_section(judged),
        aims_section(aims, cfg),
        rows_section(evidence, cfg),
        controls_section(evidence, cfg),
        sweep_section(evidence, cfg),
        takes_section(evidence, cfg),
        doors_section(
            [compare_doors(evidence, metric, cfg, worlds) for worlds in pairs(cfg) for metric in SHOWN_METRICS]
        ),
        ceilings_section(evidence, cfg),
        leaks_section(evidence, cfg),
        self_checks_section(evidence, cfg),
        run_section(evidence, cfg),
        training_section(evidence),
        cost_section(evidence),
    ]
    pictures = {
        "differences.svg": differences_picture(judged, cfg),
        "scorer_plus.svg": plus_picture(aims, cfg),
        "rows.svg": rows_picture(evidence, cfg),
        "sweep.svg": sweep_picture(evidence, cfg),
        "takes.svg": takes_picture(evidence, cfg),
        "curves.svg": curves_picture(evidence),
    }
    page = {"claims.md": "\n".join(blocks).encode()}
    return page | {f"{FOLDER}/{file}": drawn for file, drawn in pictures.items()}
