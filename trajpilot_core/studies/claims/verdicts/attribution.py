"""Where a gain over No-Traj comes from: three possible sources, each with the statements that would show it.

A retrieved trajectory is a function of the query's endpoints and of the training data: it says nothing of the middle
that the endpoints do not. A gain needs one of three sources: (i) inputs that No-Traj is denied, (ii) memory, where the
parametric models underfit, (iii) joint decoding of a plan. Statements are judged like those of the claims, in the same
words. Source: docs/decisions/claims-statistics.md.
"""

from typing import NamedTuple

from schemas.claims import BASE, ClaimsConfig
from trajpilot_core.studies.claims.evidence.readings import METRIC_NAMES, change, name
from trajpilot_core.studies.claims.evidence.tables import Evidence
from trajpilot_core.studies.claims.verdicts.hypotheses import Statement, conjunction
from trajpilot_core.studies.claims.verdicts.judge import JudgedStatement, judge
from trajpilot_core.studies.claims.verdicts.words import ORDER, Verdict


class GainSource(NamedTuple):
    """One possible source of a gain."""

    title: str
    findings: tuple[JudgedStatement, ...]

    @property
    def verdict(self) -> Verdict:
        """Return the verdict of its statements together."""
        return conjunction([finding.verdict for finding in self.findings])

    @property
    def text(self) -> str:
        """Return its figures in words."""
        return "; ".join(map(lead_text, self.findings))


def lead(evidence: Evidence, row: str, reference: str, metric: str, cfg: ClaimsConfig) -> JudgedStatement:
    """Judge that a row is above another in the world `base`."""
    return judge(Statement("claim", "", "mean", BASE, row, reference, metric=metric), evidence, cfg)


def lead_text(finding: JudgedStatement) -> str:
    """Return a judged difference in words and figures."""
    of = finding.statement
    return f"{name(of.row)} − {name(of.reference)}, {METRIC_NAMES[of.metric]}: {change(finding.headline)}"


def sources(evidence: Evidence, row: str, cfg: ClaimsConfig) -> tuple[GainSource, ...]:
    """Judge the sources of the gain of `row` (scorer or scorer_plus) over No-Traj.

    Args:
        evidence: the tables.
        row: whose gain is attributed; the Scorer has a twin that was trained without labels.
        cfg: planned seeds and resampling.
    """
    own = [(row, "scorer_no_labels", "m1")] if row == "scorer" else []
    asked: dict[str, list[tuple[str, str, str]]] = {
        "(i) inputs that No-Traj is denied: motion of the ends": [("endpoint_traj", "no_traj", "m1")],
        "(i) inputs that No-Traj is denied: labels of the candidates": [("knn_labels", "no_traj", "m1"), *own],
        "(ii) memory where the parametric models underfit": [(row, "endpoint_traj", "m1"), (row, "knn_labels", "m1")],
        "(iii) joint decoding of a plan": [("endpoint_traj_viterbi", "endpoint_traj", "mseq")],
    }
    return tuple(GainSource(title, tuple(lead(evidence, *one, cfg) for one in leads)) for title, leads in asked.items())


def attribution_text(gain: JudgedStatement, found: tuple[GainSource, ...]) -> str:
    """Put the attribution into words, by rule from the verdicts alone."""
    figure = f"{lead_text(gain)}, {gain.verdict}."
    if gain.verdict == "fails":
        return f"{figure} {name(gain.statement.row)} is below its own fallback; there is no gain to attribute."
    if gain.verdict == "undecided":
        return f"{figure} There is no gain to attribute."
    if gain.verdict != "holds":
        doubts = ", ".join(word for word in ORDER if word in gain.doubts)
        where = f"{doubts} (which models and shares: claims.html); by the intervals it {gain.shown}"
        return f"{figure} Nothing is attributed: {where if doubts else gain.note}."
    if withheld := [source for source in found if source.verdict not in ("holds", "fails", "undecided")]:
        return f"{figure} Nothing is attributed: {'; '.join(f'{s.title} is {s.verdict}' for s in withheld)}."
    shown = [source.title for source in found if source.verdict == "holds"]
    if not shown:
        return f"{figure} None of the sources is shown by itself; the gain stays unexplained."
    return f"{figure} Sources whose statements hold: {'; '.join(shown)}."
