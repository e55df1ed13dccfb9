"""docs/reproduction.md: a committed page; what the code and our own runs say in it is renewed.

What its text says of the published numbers never changes: a test recomputes it (tests/fixtures/paper_audit).
"""

from schemas.claims import ClaimsConfig
from schemas.config import PipelineConfig
from trajpilot_core.errors import InputError
from trajpilot_core.report.blocks import renewed
from trajpilot_core.studies.claims.evidence.tables import Evidence
from trajpilot_core.studies.paper_audit import decisions
from trajpilot_core.studies.paper_audit.ours import our_tables
from trajpilot_core.studies.paper_tables.commands import commands_table

NAME = "reproduction.md"
NOT_OURS = "Not run: no table of the claims here (`trajpilot claims`)."
DECISION_COLUMNS = 4


def renew_reproduction(page: str, evidence: Evidence, cfg: ClaimsConfig) -> str:
    """Return the page with our figures and the decisions as they stand now; equal inputs give equal bytes.

    Args:
        page: as it is committed.
        evidence: tables of our runs; what is absent is printed as not run.
        cfg: that the claims were fixed with.

    Raises:
        InputError: the page lacks a block, or code that the decisions name is gone.
    """
    tables = our_tables(evidence, cfg)
    ours = {f"ours {number}": table.markdown() if table.rows else NOT_OURS for number, table in tables.items()}
    labels = commands_table().markdown(is_titled=False)
    return renewed(page, {**ours, "decisions": decisions_block, "labels": labels}, NAME)


def decisions_block(before: str) -> str:
    """Return the table of decisions with the values that the code has now.

    Raises:
        InputError: a line has not four columns, or names what the code does not have.
    """
    config = PipelineConfig()
    lines = [line for line in before.strip().splitlines() if line.startswith("|")]
    for at, line in enumerate(lines[2:], start=2):
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) != DECISION_COLUMNS:
            raise InputError(f"{NAME}: a decision has {len(cells)} columns instead of {DECISION_COLUMNS}: {line}")
        cells[-1] = decisions.renewed(cells[-1], config)
        lines[at] = "| " + " | ".join(cells) + " |"
    return "\n".join(lines)
