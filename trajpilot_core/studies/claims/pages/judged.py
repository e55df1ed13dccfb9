"""Tables of the claims: the one of the short page, and every statement with what decides it."""

from schemas.claims import BASE, LIMITS, NO_INFORMATION, ClaimsConfig
from trajpilot_core.report.tables.table import NOTHING, Cell, Table, number
from trajpilot_core.studies.claims.evidence.readings import change, horizons, name, seeds, takes
from trajpilot_core.studies.claims.evidence.shares import reached_share, rows_behind
from trajpilot_core.studies.claims.evidence.statistics import Equivalence
from trajpilot_core.studies.claims.evidence.tables import Evidence
from trajpilot_core.studies.claims.verdicts.hypotheses import RULES, Claim, StatementKind, StatementRole
from trajpilot_core.studies.claims.verdicts.judge import Judged, JudgedStatement
from trajpilot_core.studies.claims.verdicts.words import ORDER

DIGITS = {"slope": 2, "equal": 2}
"""Places after the point of a statement's figures; others have one."""
BROKEN = f"the same in {BASE} [95 %]"
"""Heading of the difference that a control must break: within the margin there is nothing to break."""
SLOPE = " per step of H"
OVER_HORIZONS: tuple[StatementKind, ...] = ("each", "mean", "reported", "shrinks")
"""Kinds of statements whose figures at each H are printed."""


def claims_tables(judged: tuple[Judged, ...], evidence: Evidence, cfg: ClaimsConfig) -> tuple[Table, ...]:
    """Return every statement and what decides it."""
    return (
        statements_table(judged, evidence),
        parts_table(judged, cfg),
        equivalence_table(judged, cfg),
        Table("Rules: when a statement holds", ("kind", "holds where"), tuple(RULES.items())),
    )


def summary_table(judged: tuple[Judged, ...], evidence: Evidence, cfg: ClaimsConfig) -> Table:
    """Return the table of the short page: one line for every claim that can be judged here."""
    rows = tuple(
        (
            row.claim.text,
            "; ".join(f"{f.exact.word}{_exact_figure(f)}" for f in _of_role(row, "claim")),
            "; ".join(f"{_figure(f)}{SLOPE if f.statement.kind == 'slope' else ''}" for f in _of_role(row, "claim")),
            shares_text(row, evidence, cfg),
            verdict_text(row),
            "; ".join(map(control_text, _of_role(row, "control"))) or "none",
        )
        for row in judged
        if row.findings
    )
    header = ("claim", "the world", "the models, points", "share of the ceiling", "verdict", "control: without, with")
    return Table("Verdicts", header, rows)


def _of_role(row: Judged, role: StatementRole) -> list[JudgedStatement]:
    return [f for f in row.findings if f.statement.role == role and f.statement.kind != "reported"]


def verdict_text(row: Judged) -> str:
    """Return the verdict of a claim; where it is withheld with every reason, and what the intervals alone say."""
    findings = _of_role(row, "claim")
    verdict, shown = row.verdict("claim"), [finding.shown for finding in findings]
    doubts = {doubt for finding in findings for doubt in finding.doubts}
    if verdict not in doubts:
        return verdict or ""
    return f"{', '.join(word for word in ORDER if word in doubts)} (intervals: {'; '.join(shown)})"


def control_text(finding: JudgedStatement) -> str:
    """Return a control with its figure without the information and the same figure with it."""
    return f"{finding.verdict}: {_figure(finding)}, {change(finding.broken, _digits(finding))}"


def shares_text(row: Judged, evidence: Evidence, cfg: ClaimsConfig) -> str:
    """Return how much of their ceilings the rows have reached that a claim rests on."""
    compared = [name for f in _of_role(row, "claim") for name in (f.statement.row, f.statement.reference)]
    behind = dict.fromkeys(each for of in compared for each in rows_behind(of))
    found = [reached_share(evidence, BASE, each, cfg, LIMITS) for each in behind]
    return ", ".join(
        f"{name(share.row)} {NOTHING if share.figure is None else f'{share.figure.value:.2f}'}" for share in found
    )


def not_judged_text(judged: tuple[Judged, ...], evidence: Evidence) -> str:
    """Count the claims of the paper that no world of this page can judge, and name the pages that judge others.

    The page of everything says why.
    """
    others = [row.claim.elsewhere for row in judged if row.claim.elsewhere]
    n = sum(not row.findings for row in judged) - len(others) - (evidence.poses is not None)
    there = f"; {len(others)} in {', '.join(dict.fromkeys(others))}" if others else ""
    return f"{n} of the paper's {len(judged)} claims are not judged (they need pixels){there}."


def _exact_figure(finding: JudgedStatement) -> str:
    """Print the exact figure behind the word."""
    figure = finding.exact.figure
    return "" if figure is None else f" {change(figure, _digits(finding))}"


def _digits(finding: JudgedStatement) -> int:
    return DIGITS.get(finding.statement.kind, 1)


def _figure(finding: JudgedStatement) -> Cell:
    return change(finding.headline, _digits(finding))


def statements_table(judged: tuple[Judged, ...], evidence: Evidence) -> Table:
    """Return a line per statement; what is not judged has one at the end, too."""
    header = ("claim", "statement", "verdict", "figure", "unit", "each seed", BROKEN, "exact", "world", "takes", "note")
    rows = [(row.claim.text, *_statement_cells(finding)) for row in judged for finding in row.findings]
    rows += [line for row in judged if not row.findings for line in _without_statements(row.claim, evidence)]
    return Table("Every statement", header, tuple(rows))


def _without_statements(claim: Claim, evidence: Evidence) -> list[tuple[Cell, ...]]:
    """Return the lines of a claim without statements: what another run says of it, or why nothing does."""
    if not claim.wants or evidence.poses is None:
        word, note = _why_absent(claim)
        return [(claim.text, "", word, *[""] * 7, note)]
    where = evidence.poses.where
    return [(claim.text, one.check, one.verdict, *[""] * 5, where, "", one.detail) for one in evidence.poses.judgements]


def _why_absent(claim: Claim) -> tuple[str, str]:
    """Return the verdict and the note of a claim without statements."""
    if claim.wants:
        return NOTHING, f"wants {claim.wants}"
    return ("judged elsewhere", claim.elsewhere) if claim.elsewhere else ("not judged", claim.out_of_reach)


def _of_kinds(judged: tuple[Judged, ...], *kinds: StatementKind) -> list[JudgedStatement]:
    """Return the findings on statements of some kinds."""
    return [finding for row in judged for finding in row.findings if finding.statement.kind in kinds]


def _statement_cells(finding: JudgedStatement) -> tuple[Cell, ...]:
    """Return statement, verdict, figure, unit, seeds, the informative difference, exact answer, world, takes, note."""
    statement = finding.statement
    digits = _digits(finding)
    world = f"{statement.world} − {statement.against}" if statement.kind == "shrinks" else statement.world
    return (
        f"{statement.role}: {statement.text} ({statement.kind})",
        finding.verdict,
        _figure(finding),
        finding.unit,
        seeds(finding.headline, digits),
        change(finding.broken, digits) if statement.against else "",
        f"{finding.exact.word}{_exact_figure(finding)}",
        world,
        takes(finding.headline),
        finding.note,
    )


def parts_table(judged: tuple[Judged, ...], cfg: ClaimsConfig) -> Table:
    """Return the differences of every statement per horizon; horizons that are not tested are left empty."""
    rows = []
    for finding in _of_kinds(judged, *OVER_HORIZONS):
        if finding.parts:
            held = {part.name: change(part.figure) for part in finding.parts}
            world = f" ({finding.statement.world})" if finding.statement.world != BASE else ""
            rows.append((f"{finding.statement.text}{world}", *(held.get(h, "") for h in horizons(cfg))))
    return Table("Differences at each horizon, M@1 in points", ("statement", *horizons(cfg)), tuple(rows))


def equivalence_table(judged: tuple[Judged, ...], cfg: ClaimsConfig) -> Table:
    """Return the equivalence tests with what they could have found."""
    header = ("difference", "M@1, points [90 %]", "standard error", "between seeds", "power, %", "each seed", "takes")
    rows = tuple(
        (
            f"{name(finding.statement.row)} − {name(finding.statement.reference)}",
            *_equivalence_cells(finding),
            change(finding.broken),
            finding.verdict,
            finding.note,
        )
        for finding in _of_kinds(judged, "equal")
    )
    note = (
        f"World {NO_INFORMATION}: motion carries no information on label or intent. Equivalent: the 90 % interval, "
        f"variance between seeds included, lies within ±{cfg.margin:g} points; the standard error is at most "
        f"{cfg.target_se:g}."
    )
    return Table("Equivalence where motion carries no information", (*header, BROKEN, "verdict", "note"), rows, note)


def _equivalence_cells(finding: JudgedStatement) -> tuple[Cell, ...]:
    """Return figure, standard error, deviation between seeds, power, seeds, takes."""
    figure = finding.headline
    if not isinstance(figure, Equivalence):
        return (NOTHING, "", "", "", "", "")
    errors = (number(figure.standard_error, 2), number(figure.between, 2), number(figure.power, 0))
    return (change(figure, 2), *errors, seeds(figure, 2), takes(figure))
