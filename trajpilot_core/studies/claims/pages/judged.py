"""Tables of the claims with their controls and exact answers, of equivalence tests, and of the aims of Scorer+."""

from schemas.claims import BASE, FEATURE_SPACE, NO_INFORMATION, ClaimsConfig
from trajpilot_core.report.tables.table import NOTHING, Cell, Table, number
from trajpilot_core.studies.claims.evidence.readings import METRIC_NAMES, change, horizons, name, rate, seeds, takes
from trajpilot_core.studies.claims.evidence.statistics import Equivalence
from trajpilot_core.studies.claims.verdicts.aims import Aims
from trajpilot_core.studies.claims.verdicts.hypotheses import RULES, StatementKind
from trajpilot_core.studies.claims.verdicts.judge import Judged, JudgedStatement

DIGITS = {"slope": 2, "equal": 2, "order": 3, "swap": 3}
"""Places after the point of a statement's figures; others have one."""
BROKEN = f"the same in {FEATURE_SPACE} [95 %]"
"""Heading of the difference that a control must break: within the margin there is nothing to break."""
OVER_HORIZONS: tuple[StatementKind, ...] = ("each", "mean", "reported", "shrinks")
"""Kinds of statements whose figures at each H are printed."""


def claims_tables(judged: tuple[Judged, ...], cfg: ClaimsConfig) -> tuple[Table, ...]:
    """Return the verdicts, the statements and what decides them, the summary first."""
    return (
        summary_table(judged),
        controls_table(judged),
        statements_table(judged),
        parts_table(judged, cfg),
        equivalence_table(judged, cfg),
        distances_table(judged),
        Table("Rules: when a statement holds", ("kind", "holds where"), tuple(RULES.items())),
    )


def summary_table(judged: tuple[Judged, ...]) -> Table:
    """Return for every claim whether the world supports it, whether the models show it, and its controls."""
    rows = tuple(
        (
            row.claim.text,
            "; ".join(f"{f.exact.word}{_exact_figure(f)}" for f in row.findings if f.statement.role == "claim") or "–",
            row.verdict("claim") or "not built",
            "; ".join(f"{_figure(f)} {f.unit.split(',')[0]}" for f in row.findings if f.statement.role == "claim"),
            row.verdict("control") or "–",
            "; ".join(f"{what}: {why}" for what, why in _reasons(row) if why),
        )
        for row in judged
    )
    header = ("claim", "does the world support it?", "do the models show it?", "figures of the models [95 %]")
    return Table("Verdicts", (*header, "controls", "note"), rows)


def _reasons(row: Judged) -> tuple[tuple[str, str], ...]:
    """Return what a withheld verdict would be by the intervals, what is not built, and why there is no control."""
    withheld = [row.shown(role) or "" if row.verdict(role) != row.shown(role) else "" for role in ("claim", "control")]
    return (
        ("by the intervals", withheld[0]),
        ("controls by the intervals", withheld[1]),
        ("not built", row.claim.not_built),
        ("no control", row.claim.no_control),
    )


def _exact_figure(finding: JudgedStatement) -> str:
    """Print the exact figure behind the word."""
    figure = finding.exact.figure
    return "" if figure is None else f" ({change(figure, DIGITS.get(finding.statement.kind, 1))})"


def controls_table(judged: tuple[Judged, ...]) -> Table:
    """Return every control with the same difference where information is present."""
    rows = tuple(
        (
            finding.statement.text,
            _figure(finding),
            change(finding.broken, DIGITS.get(finding.statement.kind, 1)),
            finding.verdict,
            finding.shown if finding.shown != finding.verdict else "",
        )
        for row in judged
        for finding in row.findings
        if finding.statement.role == "control"
    )
    header = ("control", "figure", BROKEN, "verdict", "by the intervals")
    return Table("Controls, and the same where information is present", header, rows)


def _figure(finding: JudgedStatement) -> Cell:
    return change(finding.headline, DIGITS.get(finding.statement.kind, 1))


def statements_table(judged: tuple[Judged, ...]) -> Table:
    """Return a line per statement; what is not built has one, too."""
    header = ("claim", "statement", "world", "figure", "unit", "each seed", BROKEN, "exact", "takes", "verdict", "note")
    rows: list[tuple[Cell, ...]] = []
    for row in judged:
        rows += [(row.claim.text, *_statement_cells(finding)) for finding in row.findings]
        rows += [] if row.findings else [(row.claim.text, *[""] * 8, "not built", row.claim.not_built)]
    return Table("Every statement", header, tuple(rows))


def _of_kinds(judged: tuple[Judged, ...], *kinds: StatementKind) -> list[JudgedStatement]:
    """Return the findings on statements of some kinds."""
    return [finding for row in judged for finding in row.findings if finding.statement.kind in kinds]


def _statement_cells(finding: JudgedStatement) -> tuple[Cell, ...]:
    """Return statement, world, figure, unit, seeds, the informative difference, exact answer, takes, verdict, note."""
    statement = finding.statement
    digits = DIGITS.get(statement.kind, 1)
    world = f"{statement.world} − {statement.against}" if statement.kind == "shrinks" else statement.world
    return (
        f"{statement.role}: {statement.text} ({statement.kind})",
        world,
        _figure(finding),
        finding.unit,
        seeds(finding.headline, digits),
        change(finding.broken, digits) if statement.against else "",
        f"{finding.exact.word}{_exact_figure(finding)}",
        takes(finding.headline),
        finding.verdict,
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


def distances_table(judged: tuple[Judged, ...]) -> Table:
    """Return the differences between neighbouring mean distances of the claim on the scene."""
    header = ("world", "difference of mean distances", "figure [95 %]", "each seed", "takes")
    rows = tuple(
        (finding.statement.world, part.name, change(part.figure, 3), seeds(part.figure, 3), takes(part.figure))
        for finding in _of_kinds(judged, "order")
        for part in finding.parts
    )
    return Table("Distances between segments", header, rows)


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


def aims_tables(aims: Aims, cfg: ClaimsConfig) -> tuple[Table, ...]:
    """Return what Scorer+ is held to, how far it gets, and its lead over each row per horizon."""
    compared = tuple(
        (
            METRIC_NAMES[c.metric],
            name(c.rival),
            change(c.figure),
            *(("", "") if c.figure is None else (f"{c.figure.p:.4f}", f"{c.adjusted_p:.4f}")),
            seeds(c.figure),
            takes(c.figure),
            c.verdict,
            c.note,
        )
        for c in aims.comparisons
    )
    shares = tuple(
        (
            METRIC_NAMES[share.metric],
            rate(share.figure, 2),
            seeds(share.figure, 2, False),
            takes(share.figure),
            share.verdict,
            share.note,
        )
        for share in aims.shares
    )
    per_horizon = tuple(
        (METRIC_NAMES[c.metric], name(c.rival), *map(change, c.per_horizon)) for c in aims.comparisons if c.per_horizon
    )
    tail = ("each seed", "takes", "verdict", "note")
    return (
        Table(
            "Scorer+ minus each of the five rows",
            ("metric", "minus", "points [95 %]", "p", "p (Holm)", *tail),
            compared,
            f"Plain mean over H; two-sided bootstrap p-values, Holm over all ten at {cfg.alpha:g}.",
        ),
        Table(
            "Share of the way from No-Traj to the exact Endpoint-Traj ceiling",
            ("metric", "share of the way [95 %]", *tail),
            shares,
            f"Scorer+ aims at {cfg.aim_share:g}.",
        ),
        Table("Scorer+ minus each row, per horizon, points", ("metric", "minus", *horizons(cfg)), per_horizon),
    )
