"""What Scorer+ is held to: five comparisons at once, and the share of the way to the exact ceiling of Endpoint-Traj.

Source of the rules: docs/decisions/claims-statistics.md.
"""

from dataclasses import dataclass

from schemas.claims import BASE, ClaimsConfig
from trajpilot_core.studies.claims import statistics
from trajpilot_core.studies.claims.contrasts import contrast, untrained
from trajpilot_core.studies.claims.hypotheses import Verdict, conjunction
from trajpilot_core.studies.claims.statistics import Estimate, estimate
from trajpilot_core.studies.claims.tables import Evidence

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
    """Holm's, over the five rows; 1 where it was not run."""
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


def judge_aims(evidence: Evidence, cfg: ClaimsConfig) -> Aims:
    """Judge both aims in the world `base`."""
    comparisons = tuple(c for metric in AIM_METRICS for c in _comparisons(evidence, metric, cfg))
    return Aims(comparisons, tuple(_share(evidence, metric, cfg) for metric in AIM_METRICS))


def _comparisons(evidence: Evidence, metric: str, cfg: ClaimsConfig) -> list[Comparison]:
    """Compare Scorer+ with the five rows in one metric; Holm counts all five, whatever was run."""
    n = len(cfg.horizons)
    read: list[tuple[Estimate | None, tuple[Estimate, ...], str]] = []
    for rival in RIVALS:
        profile, gap = contrast(evidence, BASE, PLUS, rival, metric, cfg)
        if profile is None:
            read.append((None, (), gap))
            continue
        per_horizon = tuple(estimate(profile, statistics.only(n, place), cfg.confidence) for place in range(n))
        read.append((estimate(profile, statistics.plain_mean(n), cfg.confidence), per_horizon, gap))
    adjusted = statistics.holm([1.0 if figure is None else figure.p for figure, _, _ in read])
    found = []
    for rival, (figure, per_horizon, gap), p in zip(RIVALS, read, adjusted, strict=True):
        verdict, note = _with_doubts(_holm_verdict(figure, p, cfg), gap, untrained(evidence, BASE, (PLUS, rival), cfg))
        found.append(Comparison(rival, metric, figure, per_horizon, p, verdict, note))
    return found


def _holm_verdict(figure: Estimate | None, adjusted_p: float, cfg: ClaimsConfig) -> Verdict:
    """Judge whether Scorer+ is above (holds), below (fails), or neither, at the family-wise level."""
    if figure is None:
        return "not run"
    if adjusted_p > cfg.alpha:
        return "undecided"
    return "holds" if figure.value > 0 else "fails"


def _with_doubts(verdict: Verdict, gap: str, weak: tuple[str, ...]) -> tuple[Verdict, str]:
    """Withhold a verdict where a planned seed is missing or a model is not trained."""
    if gap:
        return "not run", gap
    return ("undertrained", f"UNDERTRAINED: {', '.join(weak)}; by the p-value: {verdict}") if weak else (verdict, "")


def _share(evidence: Evidence, metric: str, cfg: ClaimsConfig) -> Share:
    """Return the share of the way in one metric.

    It holds where the interval lies at or above the aim, fails where it lies below, and is undecided in between, or
    where the way itself (ceiling less No-Traj) does not exclude zero.
    """
    top = contrast(evidence, BASE, PLUS, "no_traj", metric, cfg)
    way = contrast(evidence, BASE, TARGET, "no_traj", metric, cfg)
    gap, weak = top.gap or way.gap, untrained(evidence, BASE, (PLUS, "no_traj"), cfg)
    if top.profile is None or way.profile is None or top.profile.seeds != way.profile.seeds:
        return Share(metric, None, "not run", gap)
    mean = statistics.plain_mean(len(cfg.horizons))
    figure = statistics.ratio(top.profile, way.profile, mean, cfg.confidence)
    is_way = estimate(way.profile, mean, cfg.confidence).is_above_zero()
    verdict, note = _with_doubts(_share_verdict(figure, is_way, cfg), gap, weak)
    return Share(metric, figure, verdict, note or ("" if is_way else "the ceiling does not exclude No-Traj"))


def _share_verdict(figure: Estimate, is_way: bool, cfg: ClaimsConfig) -> Verdict:
    """Judge a share by its interval."""
    if is_way and figure.low >= cfg.aim_share:
        return "holds"
    return "fails" if is_way and figure.high < cfg.aim_share else "undecided"
