"""Where a gain of the Scorer comes from: the three possible sources, each with the figures that would show it.

A retrieved trajectory is a function of the query's endpoints and of the training data: it says nothing of the middle
that the endpoints do not. A gain over No-Traj needs one of three sources: (i) inputs that No-Traj is denied, (ii)
memory, where the parametric models underfit, (iii) joint consistency of a plan.
Source: docs/decisions/claims-statistics.md.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from schemas.claims import BASE, ClaimsConfig
from trajpilot_core.studies.claims.evidence.contrasts import contrast, untrained
from trajpilot_core.studies.claims.evidence.readings import METRIC_NAMES, change, name
from trajpilot_core.studies.claims.evidence.statistics import Estimate, mean_of
from trajpilot_core.studies.claims.evidence.tables import Evidence
from trajpilot_core.studies.claims.verdicts.doubts import undertrained

AttributionVerdict = Literal["shown", "not shown", "the other way", "undertrained", "not run"]
SIGNS: dict[AttributionVerdict, str] = {
    "shown": "above zero",
    "not shown": "not apart from zero",
    "the other way": "below zero",
    "not run": "not run",
    "undertrained": "undertrained",
}


class Lead(NamedTuple):
    """A paired difference, plain mean over H, in the world `base`."""

    row: str
    reference: str
    metric: str
    figure: Estimate | None
    gap: str
    """What is missing of the planned seeds; then nothing counts as shown."""
    weak: tuple[str, ...] = ()
    """Models of either row that are not trained; then nothing counts as shown either."""

    @property
    def shown(self) -> AttributionVerdict:
        """Return on which side of zero the interval lies."""
        if self.figure is None or self.gap:
            return "not run"
        if self.weak:
            return "undertrained"
        if self.figure.is_above_zero():
            return "shown"
        return "the other way" if self.figure.is_below_zero() else "not shown"

    @property
    def doubt(self) -> str:
        """What is missing, or which models are not trained; empty where the interval speaks for itself."""
        return self.gap or undertrained(self.weak)

    @property
    def text(self) -> str:
        """The difference in words and figures."""
        return f"{name(self.row)} − {name(self.reference)}, {METRIC_NAMES[self.metric]}: {change(self.figure)}"


@dataclass(frozen=True)
class GainSource:
    """One possible source of a gain."""

    title: str
    needs: str
    """What must be seen for it."""
    leads: tuple[Lead, ...]
    shown: AttributionVerdict


def lead(evidence: Evidence, row: str, reference: str, metric: str, cfg: ClaimsConfig) -> Lead:
    """Return one difference in the world `base`."""
    profile, gap = contrast(evidence, BASE, row, reference, metric, cfg)
    weak = untrained(evidence, BASE, (row, reference), cfg)
    return Lead(row, reference, metric, mean_of(profile, cfg), gap, weak)


def sources(evidence: Evidence, row: str, cfg: ClaimsConfig) -> tuple[GainSource, ...]:
    """Judge the sources of the gain of `row` (scorer or scorer_plus) over No-Traj.

    Args:
        evidence: the tables.
        row: whose gain is attributed.
        cfg: planned seeds and resampling.
    """
    motion = lead(evidence, "endpoint_traj", "no_traj", "m1", cfg)
    beyond = lead(evidence, row, "endpoint_traj", "m1", cfg)
    beyond_labels = lead(evidence, row, "knn_labels", "m1", cfg)
    exact = lead(evidence, row, "endpoint_traj", "mseq", cfg)
    return (
        _source(
            "(i) inputs that No-Traj is denied: motion of the endpoints",
            "Endpoint-Traj above No-Traj",
            [(motion, True)],
        ),
        _labels(evidence, row, cfg),
        _source(
            "(ii) memory where the parametric models underfit",
            f"{name(row)} above Endpoint-Traj, which has the same motion and no memory, and above kNN-labels, "
            "which has the labels alone",
            [(beyond, True), (beyond_labels, True)],
        ),
        _source(
            "(iii) joint consistency of the plan",
            f"{name(row)} above Endpoint-Traj in exact plans (MSeq) and not in single steps (M@1)",
            [(exact, True), (beyond, False)],
        ),
    )


def _labels(evidence: Evidence, row: str, cfg: ClaimsConfig) -> GainSource:
    """Judge the candidates' labels as a source; the Scorer has a twin that was trained without them."""
    title = "(i) inputs that No-Traj is denied: labels of the candidates"
    vote = lead(evidence, "knn_labels", "no_traj", "m1", cfg)
    if row != "scorer":
        return _source(title, "kNN-labels above No-Traj", [(vote, True)])
    own = lead(evidence, row, "scorer_no_labels", "m1", cfg)
    needs = "kNN-labels above No-Traj, and the Scorer above itself without labels"
    return _source(title, needs, [(vote, True), (own, True)])


def _source(title: str, needs: str, wanted: Sequence[tuple[Lead, bool]]) -> GainSource:
    """Judge a source by its differences, each with whether it must be shown; what withholds one withholds all."""
    leads = tuple(each for each, _ in wanted)
    shown = leads[0].shown
    if len(leads) > 1:
        reasons: tuple[AttributionVerdict, ...] = ("not run", "undertrained")
        judged: AttributionVerdict = "shown" if all((e.shown == "shown") == must for e, must in wanted) else "not shown"
        shown = next((why for why in reasons if any(each.shown == why for each in leads)), judged)
    return GainSource(title, needs, leads, shown)


def attribution_text(gain: Lead, found: tuple[GainSource, ...]) -> str:
    """Put the attribution into words, by rule from the figures alone."""
    figure = f"{gain.text}, {SIGNS[gain.shown]}."
    if gain.shown == "not run":
        return f"{name(gain.row)} − {name(gain.reference)} was not run ({gain.gap}): nothing is attributed."
    weak = dict.fromkeys([*gain.weak, *(model for source in found for lead in source.leads for model in lead.weak)])
    if gain.shown == "undertrained":
        return f"{figure} Models that it rests on are not trained ({', '.join(gain.weak)}): nothing is attributed."
    if gain.shown == "not shown":
        return f"{figure} There is no gain to attribute."
    if gain.shown == "the other way":
        return f"{figure} {name(gain.row)} loses to its own fallback; there is no gain to attribute."
    shown = [source.title for source in found if source.shown == "shown"]
    if any(source.shown == "not run" for source in found):
        return f"{figure} Rows that the attribution needs were not run."
    if weak:
        return f"{figure} Models that the attribution needs are not trained ({', '.join(weak)}): nothing is attributed."
    if not shown:
        return f"{figure} None of the sources is shown by itself; the gain stays unexplained."
    return f"{figure} Sources whose comparisons are shown below: {'; '.join(shown)}."
