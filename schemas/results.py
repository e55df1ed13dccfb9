"""Rows of the result tables: predictions, metrics, training curves."""

from typing import Literal

from schemas.base import Record

Variant = str
"""Id of a row of the tables (trajpilot_core/methods)."""


class Prediction(Record):
    """Prediction of one row of the tables for one position of one window."""

    window_id: str
    take_id: str
    horizon: int
    variant: Variant
    seed: int
    position: int
    label_id: str
    """True label."""
    decoded_id: str
    """Label in the predicted sequence (top-1 per step unless the row decodes jointly)."""
    top_ids: tuple[str, ...]
    """Best five, descending score, ties by smaller id."""
    top_scores: tuple[float, ...]
    gate: float | None
    """Probability that a retrieved candidate beats the fallback; None if the row has no gate."""
    opened: bool | None
    candidate: str | None
    """Window of the bank whose trajectory was used; None for the fallback and for rows without retrieval."""


class Metric(Record):
    """One number of the tables with its interval over takes."""

    corpus: str
    variant: str
    reference: str | None
    """Set for a paired difference: value = variant - reference."""
    horizon: int | None
    """None for a value over all horizons, pooled as in `pooling`."""
    pooling: Literal["none", "plain", "sample"]
    metric: str
    seed: int | None
    """None when averaged over seeds."""
    value: float
    low: float
    """Lower end of the interval; infinite if there are too few takes."""
    high: float
    n_takes: int
    n_windows: int


class GateRow(Record):
    """Decisions of the scorer's gate; gains are M@1 of the scorer minus M@1 of no_traj, in points."""

    horizon: int | None
    """None: all windows of all horizons."""
    seed: int
    open_rate: float
    """Percent of the windows whose gate trusted a retrieved trajectory."""
    gain_opened: float
    """Mean over the opened windows; 0 if none opened."""
    gain_overall: float
    """Mean over all windows: open_rate x gain_opened, because a closed gate uses the fallback."""
    harmed: float
    """Percent of the opened windows with fewer correct middle steps than the fallback."""
    n_opened: int
    n_windows: int


class ScorerChoice(Record):
    """Decision of the kept epoch of a gate-then-rank scorer for one dev window, from which its verdict is computed."""

    model: str
    """`final/<variant>`."""
    seed: int
    take: int
    """Index of its take."""
    horizon: int
    gate: float
    """Probability that a retrieved candidate beats the fallback."""
    should_open: bool
    """Some candidate beats the fallback."""
    is_best: bool | None
    """The candidate ranked first is a best one; None if there is no candidate."""
    chance: float | None
    """Share of the candidates that are best ones."""


class Outcome(Record):
    """Answer of one row of the first seed for one window; the gallery is sampled from these."""

    window_id: str
    take_id: str
    horizon: int
    variant: Variant
    mid_right: int
    """Middle steps with a correct decoded label."""
    label_ids: tuple[str, ...]
    """True labels, one per position."""
    decoded_ids: tuple[str, ...]
    ranks: tuple[int, ...]
    """Rank of the true label among the best five, 0 to 4; 5 if it is not among them."""
    gate: float | None
    opened: bool | None
    candidate: str | None


class Headroom(Record):
    """Upper bound for a retrieved pool of one size, over all test windows of one horizon.

    Source: paper, appendix on retrieval headroom; docs/decisions/scorer.md.
    """

    seed: int
    horizon: int
    pool: int
    """Number of candidates, best endpoint cosine first."""
    same_step_recall: float
    """Percentage of middle steps whose true label is at the same position of some candidate."""
    any_step_recall: float
    """Percentage of middle steps whose true label is at any middle position of some candidate."""
    endpoint_cosine: float
    """Mean endpoint cosine of the pool."""
    endpoint_cosine_random: float
    """The same for a random pool of the same size."""
    best_mid_cosine: float
    """Mean over windows of the best candidate's cosine between its and the true middle trajectory latents."""
    best_mid_cosine_random: float
    oracle_m1: float
    """M@1 in percent of the candidate with the highest utility (uses the truth)."""
    oracle_mseq: float
    n_windows: int


class ShuffleScore(Record):
    """Accuracy of one derangement of the middle trajectories within one horizon, in percent."""

    seed: int
    shuffle: int
    horizon: int
    m1: float
    mseq: float
    n_windows: int


class SamplingScore(Record):
    """Accuracy of one sampling of the plans of a row that samples them, in percent, over the test windows."""

    variant: Variant
    seed: int
    """Seed of the training."""
    sampling: int
    """Index of the sampling; 0: the row's own."""
    horizon: int
    m1: float
    mseq: float
    n_windows: int


class DecodingChoice(Record):
    """What was chosen on dev for the joint decoding of one row within one horizon (docs/decisions/methods.md)."""

    variant: Variant
    seed: int
    horizon: int
    temperature: float
    """Temperature T of the row's scores."""
    weight: float
    """Factor of the log probabilities of transitions; 0: steps are independent."""
    log_likelihood: float
    """Log likelihood of the true middle labels, mean over dev windows and steps; 0 if there are none."""
    n_windows: int
    """Dev windows; 0: nothing was chosen, and the middle of the grid and the full weight are used."""


class CurvePoint(Record):
    """One point of a training curve."""

    model: str
    seed: int
    epoch: int
    split: Literal["train", "dev"]
    quantity: str
    value: float


class TakeScore(Record):
    """Value of one metric for one row on all windows of one horizon of one take.

    A sum over windows (docs/decisions/metrics.md), from which any average, difference and interval over takes follows.
    """

    variant: Variant
    seed: int
    take_id: str
    horizon: int
    metric: str
    n_windows: int
    total: float
    """Sum over the windows, in the metric's unit."""


class Ceiling(Record):
    """One row of the tables compared with the best possible result given at least what the row sees.

    Exact inference on the simulated world's own generative model; source: docs/decisions/ceiling.md.
    """

    variant: str
    horizon: int | None
    """None: plain mean over horizons."""
    metric: str
    value: float
    """Value of the row, averaged over seeds."""
    ceiling: float
    """Value of the optimal decision for this metric, on the same windows."""
    difference: float
    """value - ceiling."""
    standard_error: float
    """Standard error of the paired difference, clustered by take."""
    n_takes: int
    n_windows: int
    binding: bool
    """True if a row above this ceiling fails the evaluation (over all horizons M@1 and MSeq, without a goal also A@1
    and ASeq); others warn."""
    above: bool
    """The difference exceeds 3 standard errors, which proves a leak."""


class Judgement(Record):
    """One self-check of the evaluation."""

    check: str
    verdict: Literal["holds", "fails", "undecided", "undertrained", "not run"]
    """`undecided`: an interval contains zero, or a figure only warns."""
    detail: str


class PairDistance(Record):
    """Mean distance of the sampled pairs of segments of one kind. Source: docs/decisions/diagnostics.md."""

    split: Literal["train", "test"]
    pairs: str
    """Kind of pair, named as in the paper's data (trajpilot_core/evaluation/feature_distances.py)."""
    quantity: Literal["mean_l1", "mean_cosine"]
    """l1 is a mean over the components."""
    value: float
    low: float
    """Lower end of the interval over the takes of the first segments; infinite if there are too few takes."""
    high: float
    n_pairs: int
    n_takes: int


class ProgressShare(Record):
    """Share of true plans of one horizon that come closer to the goal with every middle step, in feature space.

    Source: paper, appendix on goal progress; docs/decisions/diagnostics.md.
    """

    split: Literal["train", "test"]
    """test: all windows; train: a sample."""
    horizon: int
    share: float
    """Percent of the windows."""
    low: float
    """Lower end of the interval; infinite if there are too few takes."""
    high: float
    chance: float
    """Percent by chance: 100 / (H - 2)!."""
    n_windows: int
    n_takes: int
