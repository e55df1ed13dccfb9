"""What Scorer+ is held to: five rows in two metrics, and its share of the way to the exact Endpoint-Traj ceiling.

Source of the rules: docs/decisions/claims-statistics.md.
"""

from dataclasses import dataclass

from schemas.claims import BASE, LIMITS, ClaimsConfig, VerdictConfig
from trajpilot_core.studies.claims.evidence import statistics
from trajpilot_core.studies.claims.evidence.contrasts import contrast
from trajpilot_core.studies.claims.evidence.statistics import Estimate, at_each, estimate, mean_of
from trajpilot_core.studies.claims.evidence.tables import Evidence
from trajpilot_core.studies.claims.verdicts.doubts import Doubt, power_doubts, training_doubts, withheld
from trajpilot_core.studies.claims.verdicts.hypotheses import conjunction
from trajpilot_core.studies.claims.verdicts.words import Verdict

PLUS = "scorer_plus"
RIVALS = ("pool_mean", "knn_labels", "endpoint_traj", "scorer", "no_traj")
"""The five rows that Scorer+ must beat, in the order of the page. Fixed with the claims, before anything was run: a new
row changes neither what was asked nor Holm's count."""
AIM_METRICS = ("m1", "mseq")
TARGET = "ceiling/endpoint_traj"


@dataclass(frozen=True)
class Comparison:
    """Scorer+ against one row in one metric."""

    rival: str
    metric: str
    figure: Estimate | None
    per_horizon: tuple[Estimate, ...]
    adjusted_p: float
    """Holm's, over the five rows in both metrics; 1 where it was not run."""
    verdict: Verdict
    note: str


@dataclass(frozen=True)
class Share:
    """How far Scorer+ gets from the learned No-Traj to the exact Endpoint-Traj ceiling."""

    metric: str
    figure: Estimate | None
    """A share of the way, 1 is the ceiling."""
    verdict: Verdict
    note: str


@dataclass(frozen=True)
class Aims:
    """The aims of Scorer+, judged."""

    comparisons: tuple[Comparison, ...]
    shares: tuple[Share, ...]

    def verdict(self, metric: str) -> Verdict:
        """Return the verdict of the five comparisons of one metric together."""
        return conjunction([comparison.verdict for comparison in self.comparisons if comparison.metric == metric])


def judge_aims(evidence: Evidence, cfg: ClaimsConfig, limits: VerdictConfig = LIMITS) -> Aims:
    """Judge both aims in the world `base`."""
    shares = tuple(_share(evidence, metric, cfg, limits) for metric in AIM_METRICS)
    return Aims(_comparisons(evidence, cfg, limits), shares)


def _comparisons(evidence: Evidence, cfg: ClaimsConfig, limits: VerdictConfig) -> tuple[Comparison, ...]:
    """Compare Scorer+ with the five rows in both metrics; Holm counts all ten, whatever was run."""
    pairs = [(metric, rival) for metric in AIM_METRICS for rival in RIVALS]
    found = [contrast(evidence, BASE, PLUS, rival, metric, cfg) for metric, rival in pairs]
    read = [mean_of(of, cfg) for of, _ in found]
    adjusted = statistics.holm([1.0 if figure is None else figure.p for figure in read])
    doubts = {rival: _doubts(evidence, rival, cfg, limits) for rival in RIVALS}
    comparisons = []
    for (metric, rival), (of, gap), figure, p in zip(pairs, found, read, adjusted, strict=True):
        verdict, note = withheld(holm_verdict(figure, p, cfg), gap, doubts[rival], "p-value")
        comparisons.append(Comparison(rival, metric, figure, at_each(of, cfg), p, verdict, note))
    return tuple(comparisons)


def _doubts(evidence: Evidence, rival: str, cfg: ClaimsConfig, limits: VerdictConfig) -> list[Doubt]:
    """Return what withholds a verdict on Scorer+ against a row."""
    rows = (PLUS, rival)
    return [*training_doubts(evidence, (BASE,), rows, cfg), *power_doubts(evidence, BASE, rows, cfg, limits)]


def holm_verdict(figure: Estimate | None, adjusted_p: float, cfg: ClaimsConfig) -> Verdict:
    """Judge whether a row is above another (holds), below (fails), or neither, at the family-wise level."""
    if figure is None:
        return "not run"
    if adjusted_p > cfg.alpha:
        return "undecided"
    return "holds" if figure.value > 0 else "fails"


def _share(evidence: Evidence, metric: str, cfg: ClaimsConfig, limits: VerdictConfig) -> Share:
    """Return the share of the way in one metric.

    It holds where the interval lies at or above the aim, fails where it lies below, and is undecided in between, or
    where the way itself (ceiling less No-Traj) does not exclude zero.
    """
    top = contrast(evidence, BASE, PLUS, "no_traj", metric, cfg)
    way = contrast(evidence, BASE, TARGET, "no_traj", metric, cfg)
    gap, doubts = top.gap or way.gap, _doubts(evidence, "no_traj", cfg, limits)
    if top.profile is None or way.profile is None or top.profile.seeds != way.profile.seeds:
        return Share(metric, None, "not run", gap)
    mean = statistics.plain_mean(len(cfg.horizons))
    figure = statistics.ratio(top.profile, way.profile, mean, cfg.confidence)
    is_way = estimate(way.profile, mean, cfg.confidence).is_above_zero()
    verdict, note = withheld(_share_verdict(figure, is_way, cfg), gap, doubts, "interval")
    return Share(metric, figure, verdict, note or ("" if is_way else "the ceiling does not exclude No-Traj"))


def _share_verdict(figure: Estimate, is_way: bool, cfg: ClaimsConfig) -> Verdict:
    """Judge a share by its interval."""
    if is_way and figure.low >= cfg.aim_share:
        return "holds"
    return "fails" if is_way and figure.high < cfg.aim_share else "undecided"
