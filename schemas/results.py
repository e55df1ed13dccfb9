"""Rows of the result tables: predictions, metrics, training curves."""

from typing import Literal

from schemas.base import Record

Variant = str
"""Id of a row of the tables (trajpilot_core/methods)."""


class Prediction(Record):
    """One position of one window as one row of the table predicted it."""

    window_id: str
    take_id: str
    horizon: int
    variant: Variant
    seed: int
    position: int
    label_id: str
    """The truth."""
    decoded_id: str
    """The sequence that the row predicts (top-1 per step unless it decodes jointly)."""
    top_ids: tuple[str, ...]
    """Best five, descending score, ties by smaller id."""
    top_scores: tuple[float, ...]
    gate: float | None
    """Probability that a retrieved candidate beats the fallback; None where the row has no gate."""
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
    """None for a figure over all horizons; `pooling` says how."""
    pooling: Literal["none", "plain", "sample"]
    metric: str
    seed: int | None
    """None when averaged over seeds."""
    cluster: Literal["take", "capture"] = "take"
    """What the interval resamples; `capture` rows exist where a capture holds several takes."""
    value: float
    low: float
    """Infinite where too few clusters allow no interval."""
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
    """Over the opened windows; 0 where none opened."""
    gain_overall: float
    """Over all windows; equals open_rate x gain_opened, because a closed gate answers with the fallback."""
    harmed: float
    """Percent of the opened windows with fewer middle steps right than the fallback."""
    n_opened: int
    n_windows: int


class ScorerChoice(Record):
    """One dev window as the kept epoch of a gate-then-rank scorer decides it: what its verdict is read off."""

    model: str
    """`final/<variant>`."""
    seed: int
    take: int
    """Number of its take."""
    horizon: int
    gate: float
    """Probability that a retrieved candidate beats the fallback."""
    should_open: bool
    """Some candidate does."""
    is_best: bool | None
    """The candidate that is ranked first is a best one; None where there is no candidate."""
    chance: float | None
    """Share of the candidates that are a best one."""


class Outcome(Record):
    """One window as one row of the first seed answered it: what the gallery is sampled from."""

    window_id: str
    take_id: str
    horizon: int
    variant: Variant
    mid_right: int
    """Middle steps whose decoded label is the truth."""
    label_ids: tuple[str, ...]
    """The truth, one per position."""
    decoded_ids: tuple[str, ...]
    ranks: tuple[int, ...]
    """Rank of the truth among the best five, 0 to 4; 5 where it is not among them."""
    gate: float | None
    opened: bool | None
    candidate: str | None


class Headroom(Record):
    """The most that a retrieved pool of one size could achieve, over all test windows of one horizon.

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
    """Of the training."""
    sampling: int
    """0: that of the row itself."""
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
    """T of the row's own scores."""
    weight: float
    """Factor of the log probabilities of moves; 0: every step by itself."""
    log_likelihood: float
    """Of the true middle labels, mean over dev windows and steps; 0 where there are none."""
    n_windows: int
    """Dev windows; 0: nothing was chosen, the middle of the grid and the full weight stand."""


class MaskCoverage(Record):
    """Steps of the test windows of one horizon whose true label the mask of their scenario allows; no masked row can
    answer the others. Source: docs/decisions/closed-vocabulary.md."""

    horizon: int
    n_windows: int
    n_windows_unmasked: int
    """Of takes whose scenario no training take has: there every label is allowed."""
    n_steps: int
    n_allowed: int
    n_middle: int
    """Middle steps."""
    n_middle_allowed: int


class CurvePoint(Record):
    """One point of a training curve."""

    model: str
    seed: int
    epoch: int
    split: Literal["train", "dev"]
    quantity: str
    value: float


class TakeScore(Record):
    """What one row, or the ceiling of one row, got in one metric on all windows of one horizon of one take.

    A sum over windows (docs/decisions/metrics.md), so that any average, difference and interval over takes can be
    drawn from it.
    """

    variant: str
    """A row of the tables, or `ceiling/<row>`."""
    seed: int
    take_id: str
    horizon: int
    metric: str
    n_windows: int
    total: float
    """Sum over the windows, in the metric's unit."""


class Ceiling(Record):
    """One row of the tables against the best possible result with a superset of what the row sees.

    Exact inference on the simulated world's own generative model; source: docs/decisions/ceiling.md.
    """

    variant: str
    horizon: int | None
    """None: plain mean over horizons."""
    metric: str
    value: float
    """The row, averaged over seeds."""
    ceiling: float
    """The optimal decision of this metric, on the same windows."""
    difference: float
    """value - ceiling."""
    standard_error: float
    """Of the paired difference, clustered by take."""
    n_takes: int
    n_windows: int
    binding: bool
    """True where a row above its ceiling fails the evaluation (over all horizons M@1 and MSeq, without a goal A@1
    and ASeq, too); others warn."""
    above: bool
    """difference > 3 standard errors: proof of a leak."""


class Judgement(Record):
    """One check of the evaluation on itself."""

    check: str
    verdict: Literal["holds", "fails", "undecided", "underpowered", "confounded by training", "undertrained", "not run"]
    """A claim `fails` where an interval excludes zero on the other side; `undecided` where intervals contain zero.
    Underpowered and confounded: docs/decisions/anticipation.md."""
    detail: str


class PairDistance(Record):
    """Mean distance of the drawn pairs of one kind of segments. Source: docs/decisions/diagnostics.md."""

    split: Literal["train", "test"]
    pairs: str
    """Kind, as the paper's data call it (trajpilot_core/evaluation/feature_distances.py)."""
    quantity: Literal["mean_l1", "standardised_l1", "mean_cosine"]
    """l1: mean over the components."""
    value: float
    low: float
    """Of the interval over the takes of the first segments; infinite where takes are too few."""
    high: float
    n_pairs: int
    n_takes: int


class ProgressShare(Record):
    """Share of true plans of one horizon that come closer to the goal with every middle step, in feature space.

    Source: paper, appendix on goal progress; docs/decisions/diagnostics.md.
    """

    split: Literal["train", "test"]
    """test: all windows; train: a draw."""
    horizon: int
    space: Literal["raw", "standardised"]
    """Of the l1 distance."""
    share: float
    """Percent of the windows."""
    low: float
    """Infinite where takes are too few."""
    high: float
    chance: float
    """Percent that fall by chance: 100 / (H - 2)!."""
    n_windows: int
    n_takes: int
