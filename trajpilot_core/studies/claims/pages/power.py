"""Tables of what the verdicts can rest on: words, shares of the ceilings, rankings, the power of the ceiling check."""

from schemas.claims import BASE, FEATURE_SPACE, LIMITS, ClaimsConfig, VerdictConfig
from trajpilot_core.methods import in_order, method
from trajpilot_core.report.tables.table import NOTHING, Cell, Table, number
from trajpilot_core.studies.claims.evidence.ranking import judge_ranking
from trajpilot_core.studies.claims.evidence.readings import (
    METRIC_NAMES,
    SHOWN_METRICS,
    change,
    name,
    rate,
    seeds,
    takes,
)
from trajpilot_core.studies.claims.evidence.shares import RANKED, reached_share, rows_behind
from trajpilot_core.studies.claims.evidence.tables import Evidence
from trajpilot_core.studies.claims.pages.ceilings import needed_rows
from trajpilot_core.studies.claims.verdicts.aims import PLUS, RIVALS
from trajpilot_core.studies.claims.verdicts.hypotheses import CLAIMS
from trajpilot_core.studies.claims.verdicts.leak_power import smallest_leak
from trajpilot_core.studies.claims.verdicts.reference import against_reference
from trajpilot_core.studies.claims.verdicts.words import EXACT, MEANINGS

WORLDS = (BASE, FEATURE_SPACE)
"""In which shares and the power of the ceiling check are printed: that of the claims, and that of the controls."""


def words_table() -> Table:
    """Return what every word of a verdict means."""
    shown = tuple((f"verdict: {word}", meaning) for word, meaning in MEANINGS.items())
    support = tuple((f"the world: {word}", meaning) for word, meaning in EXACT.items())
    return Table("Words", ("word", "meaning"), (*shown, *support))


def asked_rows() -> list[str]:
    """Return the rows that are asked for a share of their ceiling: those that claims and aims rest on."""
    compared = {row for claim in CLAIMS for s in claim.statements for row in (s.row, s.reference) if row}
    return in_order({behind for row in {*compared, PLUS, *RIVALS} for behind in rows_behind(row)})


def shares_table(evidence: Evidence, cfg: ClaimsConfig, limits: VerdictConfig = LIMITS) -> Table:
    """Return how much of their ceilings the rows have reached, next to what is asked."""
    lines = []
    for row in asked_rows():
        found = [reached_share(evidence, world, row, cfg, limits) for world in WORLDS]
        shown = [rate(share.figure, 2) for share in found]
        at_base = found[0]
        word = NOTHING if at_base.figure is None else "reached" if at_base.is_reached else "not reached"
        lines.append((name(row), name(f"ceiling/{method(row).ceiling}"), *shown, f"{at_base.asked:g}", word))
    header = ("row", "of the", *(f"share in {world} [95 %]" for world in WORLDS), "asked", f"in {BASE}")
    note = "(row − Majority) / (ceiling − Majority), M@1, plain mean over H. Other rows rest on the models of these."
    return Table("Rows and their share of the ceiling", header, tuple(lines), note)


def ranking_table(evidence: Evidence, cfg: ClaimsConfig) -> Table:
    """Return whether the Scorer ranks above chance."""
    lines = tuple(
        (world, found.verdict, found.text)
        for world in WORLDS
        for found in (judge_ranking(evidence, world, RANKED, cfg),)
    )
    note = "Holds where both lower bounds, of Student's 95 % interval over the seeds, lie above chance."
    return Table("Does the Scorer rank above chance?", ("world", "verdict", "figures"), lines, note)


def leak_table(evidence: Evidence, cfg: ClaimsConfig, limits: VerdictConfig = LIMITS) -> Table:
    """Return the smallest leaks that the check against the ceilings would find."""
    lines = tuple(
        (world, name(row), *(_leak(evidence, world, row, metric, cfg, limits) for metric in SHOWN_METRICS))
        for world in WORLDS
        for row in needed_rows(evidence, world, cfg)
    )
    header = ("world", "row", *(f"{METRIC_NAMES[metric]}, % of the windows" for metric in SHOWN_METRICS))
    return Table("What the check against the ceilings could find", header, lines, leak_text(evidence, cfg, limits))


def _leak(evidence: Evidence, world: str, row: str, metric: str, cfg: ClaimsConfig, limits: VerdictConfig) -> str:
    """Print the smallest leak in percent of the windows."""
    found = smallest_leak(evidence, world, row, metric, cfg, limits)
    return "–" if found is None else number(100 * found, 0)


def leak_text(evidence: Evidence, cfg: ClaimsConfig, limits: VerdictConfig = LIMITS) -> str:
    """State the power of the check in the world of the claims in a sentence."""
    found = [
        (leak, row)
        for row in needed_rows(evidence, BASE, cfg)
        if (leak := smallest_leak(evidence, BASE, row, "m1", cfg, limits)) is not None
    ]
    if not found:
        return f"Power of the check against the ceilings: {NOTHING}"
    (least, first), (most, last) = min(found), max(found)
    ends = f"{number(100 * least, 0)} % ({name(first)}) to {number(100 * most, 0)} % ({name(last)})"
    what = "the smallest share of test windows whose answers, replaced by the truth, turn it red in M@1"
    return f"Power of the check against the ceilings in {BASE}: {what} is {ends}, by row"


def reference_table(evidence: Evidence, cfg: ClaimsConfig) -> Table:
    """Return every row minus No-Traj, with p-values of all of them together."""
    lines: list[tuple[Cell, ...]] = [
        (
            name(one.row),
            METRIC_NAMES[one.metric],
            change(one.figure),
            *(("", "") if one.figure is None else (f"{one.figure.p:.4f}", f"{one.adjusted_p:.4f}")),
            seeds(one.figure),
            takes(one.figure),
            one.side,
            one.gap,
        )
        for one in against_reference(evidence, BASE, cfg)
    ]
    header = ("row", "metric", "points [95 %]", "p", "p (Holm)", "each seed", "takes", "against No-Traj", "note")
    note = f"World {BASE}, plain mean over H. Holm over all rows and both metrics at {cfg.alpha:g}."
    return Table("Every row minus No-Traj", header, tuple(lines), note)
