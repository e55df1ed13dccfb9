"""Sections of the claims page: the claims with their controls, and the aims of Scorer+."""

from collections import Counter

from schemas.claims import BASE, DRAWN, NO_INFORMATION, ClaimsConfig
from trajpilot_core.claims.aims import AIM_METRICS, PLUS, RIVALS, Aims, Comparison
from trajpilot_core.claims.judge import Finding, Judged
from trajpilot_core.claims.markdown import (
    METRIC_NAMES,
    change,
    horizons,
    interval,
    name,
    number,
    picture,
    section,
    seeds,
    table,
    verdict,
)
from trajpilot_core.claims.plots import MARKS, Key, Panel, keys_of, sheet, whisker
from trajpilot_core.claims.rules import RULES
from trajpilot_core.claims.statistics import Equivalence, Estimate
from trajpilot_core.report.charts import Axes, Series, whisker_chart

DIGITS = {"slope": 2, "equal": 2, "order": 3, "swap": 3}
"""Places after the point of a statement's figures; others have one."""
BROKEN = f"the same in `{DRAWN}` [95 %]"
"""Heading of the difference that a control must break; without it there is nothing to break."""
RULES_TEXT = """\
Intervals are 95 % over takes (resampled within each seed's world, seeds averaged); those of equivalence tests are
90 %, with the variance between seeds. A sign is therefore shown for takes of these worlds; whether it holds in
other worlds is what the single seeds tell. What neither holds nor fails is *undecided*; without every planned seed
it is *not run*; where a model that a row rests on is not trained to its dev optimum, or was not judged, it is
*undertrained*, with what the intervals say beside it. The rules were fixed before any test figure of a row was looked
at; those on controls were tightened the same day, likewise unseen (`trajpilot_core/claims/rules.py`; reasons:
`docs/decisions/claims-statistics.md`).
"""
EQUIVALENCE_TEXT = """\
In the world `{world}` (kappa 0, style 0) no motion tells a label or an intent. Two rows count as equivalent where
the 90 % interval of their difference, variance between seeds included, lies within ±{margin:g} points; above a
standard error of {target:g} points the test is undecided. Power: the chance that the test would find equivalence at
this standard error if the true difference were zero. `between seeds` is the standard deviation beyond what takes
explain. Over all that three seeds can happen to show, 90 % power needs a standard error over takes of 0.30
(`docs/decisions/claims-statistics.md`).
"""
AIMS_TEXT = """\
Scorer+ is this project's method on the Scorer's inputs. Aim one: above the five rows below in M@1 and in MSeq,
plain mean over H; two-sided bootstrap p-values, Holm over the five at {alpha:g}. Aim two: at least {share:g} of the
way from the learned No-Traj to the exact Endpoint-Traj ceiling.
"""


def claims_section(judged: tuple[Judged, ...], cfg: ClaimsConfig) -> str:
    """Return the claims: a summary, every statement with its figure, and the rules."""
    counted = Counter(row.verdict("claim") or "not built" for row in judged)
    lead = "Verdicts of the claims: " + ", ".join(f"{what} {n}" for what, n in sorted(counted.items())) + "."
    summary = [
        [row.claim.text, verdict(row.verdict("claim") or "not built"), verdict(row.verdict("control") or "–"),
         _summary_note(row)]
        for row in judged
    ]  # fmt: skip
    details = [line for row in judged for line in _statement_rows(row)]
    per_horizon = [line for row in judged for finding in row.findings for line in _part_rows(finding, cfg)]
    header = ["claim", "statement", "world", "figure", "unit", "each seed", BROKEN, "takes", "verdict", "note"]
    rules = "\n".join(f"- **{kind}**: {text}." for kind, text in RULES.items()) + "\n"
    return section(
        "Claims and the controls that must break them",
        lead,
        table(["claim", "claim's verdict", "control's verdict", "note"], summary),
        "### Every statement\n",
        table(header, details),
        "### Differences at each horizon, M@1 in points\n",
        table(["statement", *horizons(cfg)], per_horizon),
        picture("differences.svg", "Differences to No-Traj over the horizon"),
        "### Rules\n",
        RULES_TEXT,
        rules,
    )


def _summary_note(row: Judged) -> str:
    """Say what of a claim is not built, and why no world must break it."""
    said = (("not built", row.claim.not_built), ("no control", row.claim.no_control))
    return "; ".join(f"{what}: {why}" for what, why in said if why)


def _statement_rows(row: Judged) -> list[list[str]]:
    """Return a line per statement."""
    if not row.findings:
        return [[row.claim.text, "", "", "", "", "", "", "", "not built", row.claim.not_built]]
    return [
        [row.claim.text if place == 0 else "", *_statement_cells(finding)] for place, finding in enumerate(row.findings)
    ]


def _statement_cells(finding: Finding) -> list[str]:
    """Return statement, world, figure, unit, seeds, the difference that a control must break, takes, verdict, note."""
    statement, figure = finding.statement, finding.headline
    digits = DIGITS.get(statement.kind, 1)
    is_shrinking = statement.kind == "shrinks"
    world = f"{statement.world} − {statement.against}" if is_shrinking else statement.world
    broken = change(finding.broken, digits) if statement.against else ""
    takes = str(figure.n_takes) if figure else ""
    return [
        f"{statement.role}: {statement.text} ({statement.kind})", world, change(figure, digits),
        finding.unit, seeds(figure, digits), broken, takes, verdict(finding.verdict), finding.note,
    ]  # fmt: skip


def _part_rows(finding: Finding, cfg: ClaimsConfig) -> list[list[str]]:
    """Return the differences of one statement per horizon; horizons that are not tested are left empty."""
    if finding.statement.kind not in ("each", "mean", "reported", "shrinks"):
        return []
    held = {part.name: change(part.figure) for part in finding.parts}
    world = f" ({finding.statement.world})" if finding.statement.world != BASE else ""
    return [[f"{finding.statement.text}{world}", *(held.get(heading, "") for heading in horizons(cfg))]] if held else []


def geometry_rows(judged: tuple[Judged, ...]) -> list[list[str]]:
    """Return the differences between neighbouring mean distances of the claim on the scene."""
    return [
        [finding.statement.world, part.name, change(part.figure, 3), seeds(part.figure, 3), str(part.figure.n_takes)]
        for row in judged
        for finding in row.findings
        if finding.statement.kind == "order"
        for part in finding.parts
    ]


def equivalence_section(judged: tuple[Judged, ...], cfg: ClaimsConfig) -> str:
    """Return the equivalence tests with what they could have found."""
    rows = [
        [
            name(f.statement.row) + " − " + name(f.statement.reference),
            *_equivalence_cells(f.headline),
            change(f.broken),
            verdict(f.verdict),
            f.note,
        ]
        for row in judged
        for f in row.findings
        if f.statement.kind == "equal"
    ]
    header = ["difference", "M@1, points [90 %]", "standard error", "between seeds", "power, %", "each seed", "takes"]
    lead = EQUIVALENCE_TEXT.format(world=NO_INFORMATION, margin=cfg.margin, target=cfg.target_se)
    return section(
        "Equivalence where motion tells nothing", lead, table([*header, BROKEN, "verdict", "note"], rows), level=3
    )


def _equivalence_cells(figure: Equivalence | Estimate | None) -> list[str]:
    """Return figure, standard error, deviation between seeds, power, seeds, takes."""
    if not isinstance(figure, Equivalence):
        return ["not run", "", "", "", "", ""]
    return [
        change(figure, 2), number(figure.standard_error, 2), number(figure.between, 2), number(figure.power, 0),
        seeds(figure, 2), str(figure.n_takes),
    ]  # fmt: skip


def aims_section(aims: Aims, cfg: ClaimsConfig) -> str:
    """Return what Scorer+ is held to, and how far it gets."""
    lead = AIMS_TEXT.format(alpha=cfg.alpha, share=cfg.aim_share)
    told = "; ".join(f"{METRIC_NAMES[m]}: {verdict(aims.verdict(m))}" for m in AIM_METRICS)
    header = ["metric", "Scorer+ minus", "points [95 %]", "p", "p (Holm)", "each seed", "takes", "verdict", "note"]
    per_horizon = [
        [METRIC_NAMES[c.metric], name(c.rival), *(change(figure) for figure in c.per_horizon)]
        for c in aims.comparisons
        if c.per_horizon
    ]
    return section(
        "Scorer+ against its aims",
        lead,
        f"All five together: {told}.",
        table(header, [_comparison_cells(c) for c in aims.comparisons]),
        table(["metric", "share of the way [95 %]", "each seed", "takes", "verdict", "note"], _share_rows(aims)),
        "### Scorer+ minus each row, per horizon, points\n",
        table(["metric", "minus", *horizons(cfg)], per_horizon),
        picture("scorer_plus.svg", "Scorer+ minus each of the five rows over the horizon"),
    )


def _share_rows(aims: Aims) -> list[list[str]]:
    """Return the share of the way in each metric."""
    return [
        [
            METRIC_NAMES[share.metric],
            _share_text(share.figure),
            seeds(share.figure, 2, False),
            str(share.figure.n_takes) if share.figure else "",
            verdict(share.verdict),
            share.note,
        ]
        for share in aims.shares
    ]


def _share_text(figure: Estimate | None) -> str:
    if figure is None:
        return "not run"
    return f"{number(figure.value, 2)} {interval(figure.low, figure.high, 2)}"


def _comparison_cells(c: Comparison) -> list[str]:
    """Return one line of the five comparisons."""
    p = ("", "") if c.figure is None else (f"{c.figure.p:.4f}", f"{c.adjusted_p:.4f}")
    takes = str(c.figure.n_takes) if c.figure else ""
    return [
        METRIC_NAMES[c.metric],
        name(c.rival),
        change(c.figure),
        *p,
        seeds(c.figure),
        takes,
        verdict(c.verdict),
        c.note,
    ]


def differences_picture(judged: tuple[Judged, ...], cfg: ClaimsConfig) -> bytes:
    """Draw the differences to No-Traj of the claims in the world `base`, per horizon."""
    series = [
        _whiskers(finding.statement.row, {part.name: part.figure for part in finding.parts}, cfg)
        for row in judged
        for finding in row.findings
        if finding.statement.role == "claim" and finding.statement.reference == "no_traj" and finding.parts
        and finding.statement.kind != "slope"
    ]  # fmt: skip
    axes = Axes("Differences to No-Traj in M@1", "horizon H (steps)", "points of M@1", _ticks(cfg))
    return sheet([Panel("minus No-Traj, M@1 (simulated world)", whisker_chart(axes, series))], keys_of(series))


def plus_picture(aims: Aims, cfg: ClaimsConfig) -> bytes:
    """Draw Scorer+ minus each of the five rows, per horizon, in both metrics."""
    panels: list[Panel] = []
    keys: list[Key] = []
    for metric in AIM_METRICS:
        series = [
            _whiskers(c.rival, dict(zip(horizons(cfg), c.per_horizon, strict=True)), cfg)
            for c in aims.comparisons
            if c.metric == metric and c.per_horizon
        ]
        keys = keys_of(series) or keys
        axes = Axes(f"{name(PLUS)} minus {len(RIVALS)} rows", "horizon H (steps)", "points", _ticks(cfg))
        panels.append(Panel(f"{name(PLUS)} minus row, {METRIC_NAMES[metric]}", whisker_chart(axes, series)))
    return sheet(panels, keys)


def _whiskers(row: str, figures: dict[str, Estimate], cfg: ClaimsConfig) -> Series:
    """Return one row's differences as points with whiskers."""
    points = tuple(
        whisker(float(h), f)
        for h, heading in zip(cfg.horizons, horizons(cfg), strict=True)
        if (f := figures.get(heading)) is not None
    )
    return Series(name(row), row, points, MARKS.get(row, "circle"))


def _ticks(cfg: ClaimsConfig) -> tuple[float, ...]:
    return tuple(float(h) for h in cfg.horizons)
