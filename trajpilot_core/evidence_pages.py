"""The pages under docs/ that are rendered from committed tables: claims, scorer, reproduction."""

from pathlib import Path

from trajpilot_core.claims.page import write_claims_pages
from trajpilot_core.reproduction.page import write_reproduction


def write_pages(docs: Path) -> list[Path]:
    """Render every page from the tables under `docs`/claims and return what was written; equal tables, equal bytes."""
    return [*write_claims_pages(docs), write_reproduction(docs)]
