"""Tables of what the verdicts can rest on: words, shares of the ceilings, rankings, the power of the ceiling check."""

from collections.abc import Mapping, Sequence

from schemas.claims import BASE, LIMITS, MAIN, NO_INFORMATION, ClaimsConfig, VerdictConfig
from trajpilot_core.methods import in_order, method
from trajpilot_core.report.tables.table import NOTHING, Cell, Table, number
from trajpilot_core.studies.claims.evidence.ranking import judge_ranking
from trajpilot_core.studies.claims.evidence.readings import (
    METRIC_NAMES,
    SHOWN_METRICS,
    change,
    name,
    rate,
    reading,
    seeds,
    takes,
)
from trajpilot_core.studies.claims.evidence.shares import RANKED, reached_share, rows_behind
from trajpilot_core.studies.claims.evidence.tables import Evidence
from trajpilot_core.studies.claims.pages.ceilings import needed_rows
from trajpilot_core.studies.claims.verdicts.families import (
    PLUS,
    RIVALS,
    SQUARE,
    Compared,
    SquareAnswer,
    against_reference,
)
from trajpilot_core.studies.claims.verdicts.hypotheses import CLAIMS
from trajpilot_core.studies.claims.verdicts.judge import equivalence_verdict
from trajpilot_core.studies.claims.verdicts.leak_power import smallest_leak
from trajpilot_core.studies.claims.verdicts.words import EXACT, MEANINGS, Verdict

SIDES: dict[Verdict, str] = {"holds": "above", "fails": "below", "undecided": "not apart", "not run": "not run"}
"""A verdict on the sign in words, where no claim is judged."""


SQUARE_ROWS = {
    "both": "retrieval_attention",
    "query's motion alone": "retrieval_attention_query_motion",
    "retrieved motion alone": "retrieval_attention_retrieved_motion",
    "no motion": "retrieval_attention_no_motion",
    "no retrieval": "retrieval_attention_alone",
}
"""What is on -> the row."""


def words_table() -> Table:
    """Return what every word of a verdict means."""
    shown = tuple((f"verdict: {word}", meaning) for word, meaning in MEANINGS.items())
    support = tuple((f"the world: {word}", meaning) for word, meaning in EXACT.items())
    return Table("Words", ("word", "meaning"), (*shown, *support))


def asked_rows() -> list[str]:
    """Return the rows that are asked for a share of their ceiling: those that claims and aims rest on."""
    compared = {row for claim in CLAIMS for s in claim.statements for row in (s.row, s.reference) if row}
    return in_order(
        {
            behind
            for row in {*compared, PLUS, *RIVALS, *(row for pair in SQUARE.values() for row in pair)}
            for behind in rows_behind(row)
        }
    )


def shares_table(evidence: Evidence, cfg: ClaimsConfig, limits: VerdictConfig = LIMITS) -> Table:
    """Return how much of their ceilings the rows have reached, next to what is asked."""
    lines = []
    for row in asked_rows():
        found = [reached_share(evidence, world, row, cfg, limits) for world in MAIN]
        shown = [rate(share.figure, 2) for share in found]
        at_base = found[0]
        word = NOTHING if at_base.figure is None else "reached" if at_base.is_reached else "not reached"
        lines.append((name(row), name(f"ceiling/{method(row).ceiling}"), *shown, f"{at_base.asked:g}", word))
    header = ("row", "of the", *(f"share in {world} [95 %]" for world in MAIN), "asked", f"in {BASE}")
    note = "(row − Majority) / (ceiling − Majority), M@1, plain mean over H. Other rows rest on the models of these."
    return Table("Rows and their share of the ceiling", header, tuple(lines), note)


def ranking_table(evidence: Evidence, cfg: ClaimsConfig) -> Table:
    """Return whether the Scorer ranks above chance."""
    lines = tuple(
        (world, found.verdict, found.text) for world in MAIN for found in (judge_ranking(evidence, world, RANKED, cfg),)
    )
    note = "Holds where both lower bounds, of Student's 95 % interval over the seeds, lie above chance."
    return Table("Does the Scorer rank above chance?", ("world", "verdict", "figures"), lines, note)


def leak_table(evidence: Evidence, cfg: ClaimsConfig, limits: VerdictConfig = LIMITS) -> Table:
    """Return the smallest leaks that the check against the ceilings would find."""
    leaks = {row: smallest_leak(evidence, BASE, row, "m1", cfg, limits) for row in needed_rows(evidence, BASE, cfg)}
    lines = tuple((name(row), "–" if leak is None else number(100 * leak, 0)) for row, leak in leaks.items())
    header = ("row", "smallest leak, % of the windows")
    return Table("What the check against the ceilings could find", header, lines, leak_text(leaks))


def leak_text(leaks: Mapping[str, float | None]) -> str:
    """State the power of the check in the world of the claims in a sentence."""
    found = [(leak, row) for row, leak in leaks.items() if leak is not None]
    if not found:
        return f"Power of the check against the ceilings: {NOTHING}"
    (least, first), (most, last) = min(found), max(found)
    ends = f"{number(100 * least, 0)} % ({name(first)}) to {number(100 * most, 0)} % ({name(last)})"
    return f"Smallest leak of the truth into test windows of {BASE} that it would find: {ends}; a smaller one is missed"


def compared_cells(one: Compared) -> tuple[Cell, ...]:
    """Return metric, figure, both p-values, seeds and takes of a comparison."""
    p = ("", "") if one.figure is None else (f"{one.figure.p:.4f}", f"{one.adjusted_p:.4f}")
    return (METRIC_NAMES[one.metric], change(one.figure), *p, seeds(one.figure), takes(one.figure))


COMPARED_HEADER = ("metric", "points [95 %]", "p", "p (Holm)", "each seed", "takes")


def reference_table(evidence: Evidence, cfg: ClaimsConfig) -> Table:
    """Return every row minus No-Traj, with p-values of all of them together."""
    found = against_reference(evidence, cfg)
    lines = tuple((name(one.row), *compared_cells(one), SIDES[one.shown]) for one in found)
    note = f"World {BASE}, plain mean over H. Holm over all rows and both metrics at {cfg.alpha:g}."
    return Table("Every row minus No-Traj", ("row", *COMPARED_HEADER, "against No-Traj"), lines, note)


def plus_table(compared: Sequence[Compared], cfg: ClaimsConfig) -> Table:
    """Return what Scorer+ must be above to stay a main row."""
    lines = tuple((name(one.reference), *compared_cells(one), one.verdict, one.note) for one in compared)
    note = f"World {BASE}, plain mean over H. Holm over all lines at {cfg.alpha:g}."
    return Table("Scorer+ minus rows that decode jointly", ("minus", *COMPARED_HEADER, "verdict", "note"), lines, note)


def square_tables(answered: Sequence[SquareAnswer], evidence: Evidence, cfg: ClaimsConfig) -> tuple[Table, ...]:
    """Return the 2 x 2 of the retrieval attention: its levels, and its questions with all that decides them."""
    levels = tuple(
        (text, *(rate(reading(evidence, BASE, row, None, metric, cfg)) for metric in SHOWN_METRICS))
        for text, row in SQUARE_ROWS.items()
    )
    lines = tuple(
        (one.question, *compared_cells(one.compared), change(one.blind), one.compared.verdict, one.compared.note)
        for one in answered
    )
    header = ("question", *COMPARED_HEADER, f"the same in {NO_INFORMATION}", "verdict", "note")
    metrics = (f"{METRIC_NAMES[metric]}, %" for metric in SHOWN_METRICS)
    return (
        Table("Retrieval attention: motion of the query's ends, motion of what is retrieved", ("", *metrics), levels),
        Table("The questions of the 2 x 2", header, lines, f"Holm over all lines at {cfg.alpha:g}."),
    )


def square_table(answered: Sequence[SquareAnswer], cfg: ClaimsConfig) -> Table:
    """Return the questions of the 2 x 2 as the short page has them."""
    both = [answered[at : at + len(SHOWN_METRICS)] for at in range(0, len(answered), len(SHOWN_METRICS))]
    lines = tuple(
        (
            m1.question,
            *(change(one.compared.figure) for one in (m1, *rest)),
            seeds(m1.compared.figure),
            change(m1.blind),
            _word(m1, cfg),
        )
        for m1, *rest in both
    )
    metrics = (f"{METRIC_NAMES[m]}, points" for m in SHOWN_METRICS)
    header = ("question", *metrics, "M@1, each seed", "M@1 without information", "verdict in M@1")
    return Table("Does retrieved motion add anything?", header, lines)


def _word(one: SquareAnswer, cfg: ClaimsConfig) -> str:
    """Return the verdict in M@1, and whether the two rows are equivalent."""
    equal = one.equal is not None and equivalence_verdict(one.equal, cfg) == "holds"
    return f"{one.compared.verdict}{f', equivalent within {cfg.margin:g} points' if equal else ''}"
