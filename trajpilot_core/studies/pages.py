"""The pages under docs/ that are rendered from committed tables: claims, scorer, reproduction, comparison, latent."""

from pathlib import Path

from schemas.claims import ClaimsConfig
from trajpilot_core.studies.claims.evidence.tables import read_evidence
from trajpilot_core.studies.claims.pages.page import FOLDER, render
from trajpilot_core.studies.latent_worlds import page as latent
from trajpilot_core.studies.paper_audit.page import NAME, renew_reproduction
from trajpilot_core.studies.planner_worlds import page as comparison


def write_pages(docs: Path, cfg: ClaimsConfig | None = None) -> list[Path]:
    """Render every page from the tables under `docs` and return what was written; equal tables, equal bytes.

    Args:
        docs: folder of the documentation. Pages of text with computed blocks are renewed where they are there.
        cfg: None: the one that the claims were fixed with.
    """
    cfg, made = cfg or ClaimsConfig(), render(docs, cfg)
    if (docs / NAME).is_file():
        evidence = read_evidence(docs / FOLDER, cfg.horizons)
        made[NAME] = renew_reproduction((docs / NAME).read_text(), evidence, cfg).encode()
    if (docs / comparison.NAME).is_file():
        made |= comparison.render_comparison(docs, cfg)
    if (docs / latent.NAME).is_file():
        made |= latent.render_latent(docs)
    for name, content in made.items():
        (docs / name).parent.mkdir(parents=True, exist_ok=True)
        (docs / name).write_bytes(content)
    return [docs / name for name in made]
