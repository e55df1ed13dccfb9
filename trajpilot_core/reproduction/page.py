"""docs/reproduction.md, rendered from the data files, the configuration and, where there are any, our own runs."""

from collections.abc import Callable, Sequence
from pathlib import Path

from schemas.config import PipelineConfig
from trajpilot_core.reproduction import decisions
from trajpilot_core.reproduction.consistent import checks
from trajpilot_core.reproduction.contradictions import CONTRADICTIONS, recompute
from trajpilot_core.reproduction.decision_list import DECISIONS, UNDECIDED
from trajpilot_core.reproduction.finding import VERDICTS, Finding, Grid
from trajpilot_core.reproduction.published import Paper, TableInfo, published, table_infos
from trajpilot_core.reproduction.simulated import NOT_RUN, SPEAKS, WORLD, ClaimsData, Ours, read_claims

NAME = "reproduction.md"
CLAIMS = "claims"
"""Folder of the claims' tables beside the page."""
INTRO = """\
# Reproduction notes

The paper is arXiv 2605.20388. Its authors have released no code, so its tables are all there is to compare with. This
page recomputes what its text says from what its tables print, lists what it leaves open and how this project settles
it, and says where our runs speak to the same point.

- `trajpilot docs` renders this page (`trajpilot_core/reproduction/page.py`); a test renders it again and compares
  bytes. No figure is typed into it.
- Figures called *published* come from the paper's tables, kept as data in `trajpilot_core/reproduction/tables/`.
- Figures under *Simulated world* are ours, from a world that we simulate, and say nothing about real recordings. They
  stand in tables of their own: only the direction in which the two kinds point can be compared, never the numbers.
- A contradiction in print is no judgement of the method. Many are slips of wording around results that stand.
"""
OPEN = """\
## What the paper leaves open

Numbers and reasons: [decisions/paper-gaps.md](decisions/paper-gaps.md). The last column is read from the code when the
page is rendered: fields of `PipelineConfig` with their defaults, which are the paper's main experiment
(`schemas/config.py`; a recipe in `deployments/recipes.py` changes some), and places below `trajpilot_core/`.
"""
DATA = """\
## The published tables as data

One CSV each under `trajpilot_core/reproduction/tables/`, one number per line: label of the table, section, row,
benchmark, H, metric, value as printed, and whether it is bold.
"""


def write_reproduction(docs: Path) -> Path:
    """Write the page into the folder of the documentation; our runs are read from `claims` beside it, if it is there.

    Args:
        docs: folder, for example `docs`.
    """
    path = docs / NAME
    path.write_bytes(render(docs / CLAIMS))
    return path


def render(claims: Path | None) -> bytes:
    """Return the page; equal inputs give equal bytes.

    Args:
        claims: folder with scores.parquet, gate.parquet and headroom.parquet, each of which may be absent.

    Raises:
        InputError: a table of the claims lacks a column, or code that the decisions name is gone.
    """
    paper, data = published(), read_claims(claims)
    findings = recompute(paper)
    parts = [
        INTRO,
        _summary(findings),
        "## Statements against tables\n",
        *(_section(finding, data) for finding in findings if finding.number <= len(CONTRADICTIONS)),
        "## Found while recomputing\n",
        *(_section(finding, data) for finding in findings if finding.number > len(CONTRADICTIONS)),
        _consistent(paper),
        _decisions(),
        _tables(paper),
    ]
    return ("\n".join(part.rstrip("\n") + "\n" for part in parts)).encode()


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table in Markdown; a bar inside a cell is escaped."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join("| " + " | ".join(cell.replace("|", r"\|") for cell in line) + " |\n" for line in lines)


def _summary(findings: Sequence[Finding]) -> str:
    legend = "".join(f"- **{name}**: {meaning}.\n" for name, meaning in VERDICTS.items())
    rows = [(str(f.number), f"[{f.title}](#{_anchor(f)})", f.verdict) for f in findings]
    return f"## Summary\n\n{legend}\n{table(('no.', 'statement about', 'verdict'), rows)}"


def _anchor(finding: Finding) -> str:
    """The anchor that Markdown viewers give to the section's heading."""
    title = f"{finding.number}. {finding.title}".lower()
    return "".join(c for c in title if c.isalnum() or c in " -").replace(" ", "-")


def _section(finding: Finding, data: ClaimsData) -> str:
    places = ", ".join(f"`{place}`" for place in finding.places)
    text = f"### {finding.number}. {finding.title}\n\n*The paper says:* {finding.claim} ({places})\n\n"
    if finding.figures is not None and finding.figures.rows:
        text += f"Published, recomputed:\n\n{_grid(finding.figures)}\n"
    text += f"{finding.says} **Verdict: {finding.verdict}.**\n"
    return text + _simulated(finding.number, data)


def _simulated(number: int, data: ClaimsData) -> str:
    """Our side of one contradiction, under a heading of its own; empty where no run could speak to it."""
    if number in NOT_RUN:
        return f"\n#### Simulated world, no. {number}\n\nNot run. {NOT_RUN[number]}\n"
    speak: Callable[[ClaimsData], Ours | None] | None = SPEAKS.get(number)
    if speak is None:
        return ""
    ours = speak(data)
    if ours is None:
        return f"\n#### Simulated world, no. {number}\n\nNot run: no table of the claims here (`trajpilot claims`).\n"
    grids = "\n".join(_grid(grid) for grid in ours.figures)
    return (
        f"\n#### Simulated world, no. {number}\n\nOurs, world `{WORLD}`; not comparable with the published figures.\n\n"
        f"{grids}\n{ours.says}\n"
    )


def _grid(grid: Grid) -> str:
    return table(grid.head, grid.rows)


def _consistent(paper: Paper) -> str:
    found = checks(paper)
    rows = [(c.statement, c.computed, c.stated, "yes" if c.holds else "**no**") for c in found]
    agree = sum(c.holds for c in found)
    head = ("statement", "recomputed", "stated", "agrees")
    return f"## What agrees\n\n{agree} of {len(found)} checks agree within rounding.\n\n{table(head, rows)}"


def _decisions() -> str:
    config, words = PipelineConfig(), decisions.module_words()
    rows = [(str(d.number), d.question, d.rule, "; ".join(decisions.answer(d, config, words))) for d in DECISIONS]
    missing = [
        f"- {what}: not built.\n" for what, part in UNDECIDED if not decisions.is_built(part, words)
    ]  # fmt: skip
    head = ("D", "the paper leaves open", "our rule", "as it stands in the code")
    return f"{OPEN}\n{table(head, rows)}\nFurther parts of the paper:\n\n{''.join(missing)}"


def _tables(paper: Paper) -> str:
    rows = [_table_row(paper, info) for info in table_infos()]
    return f"{DATA}\n{table(('file', 'label in the source', 'what', 'numbers', 'unit'), rows)}"


def _table_row(paper: Paper, info: TableInfo) -> tuple[str, ...]:
    cells = paper.of_file(info.file)
    label = cells[0].table or "text"
    return f"`{info.file}.csv`", f"`{label}`", info.title, str(len(cells)), info.unit
