"""What is fixed before the claims are run, stated once and dated, and the tables that only the claims have.

Reasons: docs/decisions/claims.md, docs/decisions/claims-statistics.md. Nothing here may change once a figure of these
worlds has been read: the digest is printed on every page that rests on it.
"""

from typing import Literal

from pydantic import Field

from schemas.base import Record

FIXED_ON = "2026-11-23"
RUN_DIGEST: str | None = "133564348ead96acb476d9ec85c898b5e627378a2a3bfffc0be347206023abb3"
"""None: not fixed yet, and no world of the claims is computed. Digest of `ClaimsConfig`, of the recipe `claims` and of
every world (`collect.digest_of`). It is set, with `FIXED_ON`, after the search for recipes and before the first world
is computed; from then on other settings are refused (`collect.require_fixed`)."""
BASE, NO_STYLE, NO_INFORMATION = "base", "no_style", "no_information"
MAIN = (BASE, NO_STYLE, NO_INFORMATION)
"""Informative; style 0; kappa 0 and style 0. Each seed is a world of its own."""
BY_VIDEO, BY_FRAMES, BY_LATENTS = "by_video", "by_frames", "by_latents"
ENTRIES = (BY_VIDEO, BY_FRAMES, BY_LATENTS)
"""The same takes with the settings of `base`, entering in three ways."""
CURVE_ROWS = ("no_traj", "oracle")
"""Rows that are scored on the worlds of the learning curve."""


class ClaimsConfig(Record):
    """Sizes, margins and levels of the claims. No other file repeats these numbers."""

    fixed_on: str = Field(FIXED_ON, pattern=r"^\d{4}-\d{2}-\d{2}$")
    """Date on which these values were fixed, before any test figure of these worlds was read."""
    seeds: tuple[int, ...] = Field((3, 4, 5), min_length=1)
    """One world, with takes of its own, and one chain of models per seed. Test figures of the seeds 0 to 2 are known
    (docs/decisions/claims.md)."""
    single_seed: int = Field(3, ge=0)
    """The only seed of the sweep, of the entries and of the learning curve."""
    train_takes: int = Field(1400, ge=1)
    """Training takes of each main world, dev takes included."""
    test_takes: int = Field(400, ge=1)
    """Test takes of each world but those of the entries."""
    entry_train_takes: int = Field(300, ge=1)
    """Training takes of the worlds that enter in three ways."""
    entry_test_takes: int = Field(100, ge=1)
    """Test takes of these."""
    curve_takes: tuple[int, ...] = (500, 4000, 8000)
    """Training takes of further worlds with the settings of `base`, for the learning curve; its remaining point is
    `train_takes`."""
    sweep_kappa: tuple[float, ...] = Field((0.0, 1.5, 3.0), min_length=1)
    """Label information in motion, of the sweep."""
    sweep_style: tuple[float, ...] = Field((0.0, 2.0, 4.0), min_length=1)
    """Intent information in motion, of the sweep; of every pair with kappa the exact ceilings are published."""

    horizons: tuple[int, ...] = Field((3, 4, 5, 6, 7, 8), min_length=2)
    """H; every figure over H is the plain mean of these. Source: paper, 3.1."""
    deep_horizon: int = Field(5, ge=3)
    """Top-1 is compared with No-Traj from this H on: at H=3 its true endpoints alone can still make it win."""
    margin: float = Field(1.5, gt=0)
    """Equivalence margin, points of M@1, pooled over H."""
    target_se: float = Field(0.46, gt=0)
    """Largest standard error, points, at which an equivalence test gives a verdict: about 90 % power at the margin."""
    equivalence_level: float = Field(0.90, gt=0.5, lt=1)
    """Level of the interval of the two one-sided tests (each at 5 %)."""
    confidence: float = Field(0.95, gt=0.5, lt=1)
    """Level of every other interval."""
    alpha: float = Field(0.05, gt=0, lt=0.5)
    """Family-wise level of Holm's procedure over all comparisons of one family, M@1 and MSeq together."""
    bootstrap: int = Field(10_000, ge=100)
    """Resamples of takes, within each seed's world."""
    bootstrap_seed: int = Field(20261121, ge=0)
    """Of the resampling."""


class VerdictConfig(Record):
    """What withholds a verdict. Added after the figures of the seeds 0 to 2 had been read, before any other seed was.

    None of it can turn a verdict into `holds`. It stands apart from `ClaimsConfig`, whose digest names what was
    computed. Reasons: docs/decisions/claims-statistics.md.
    """

    fixed_on: str = Field("2026-11-22", pattern=r"^\d{4}-\d{2}-\d{2}$")
    """Date on which these values were fixed."""
    no_traj_share: float = Field(0.5, ge=0, le=1)
    """Share of the way from Majority to the exact ceiling of No-Traj that a row under this ceiling must have reached:
    a row that uses less than half of what its inputs say cannot show what they lack."""
    endpoint_traj_share: float = Field(0.5, ge=0, le=1)
    """The same under the ceiling of Endpoint-Traj, which reads the same segments and their motion."""
    oracle_share: float = Field(0.6, ge=0, le=1)
    """The same under the ceiling of Oracle: more, because its trajectory names the steps one by one, with no inference
    over what is unseen."""
    share_gap: float = Field(0.15, gt=0, le=1)
    """Two rows whose shares differ by more are confounded by training. The interval of a share is about 0.02 wide in
    the first tables, so that chance does not reach it, and it is less than a third of the smallest share asked."""
    leak_step: float = Field(0.01, gt=0, le=0.5)
    """Step in which the leaked share of the test windows grows, until the check against the ceiling turns red."""
    leak_seed: int = Field(20261122, ge=0)
    """Of the choice of leaked windows."""


LIMITS = VerdictConfig()
"""The values that were fixed."""


JobStatus = Literal["done", "not run", "failed"]
Entry = Literal["video", "frames", "latents"]


class ClaimsJob(Record):
    """One resumable piece of the run."""

    world: str
    seed: int
    job: str
    status: JobStatus
    seconds: float | None
    """Wall time; None where it did not run or was not timed."""
    note: str = ""
    """Why it was not run or what failed."""
    started: str = ""
    """Time (UTC, ISO 8601) at which the computation of its output began; empty where it is not known."""


class WorldMade(Record):
    """Stored next to the files of a world: when it was made, for worlds that one call made from beginning to end."""

    started: str
    """UTC, ISO 8601."""
    seconds: float


class WorldSize(Record):
    """How large one world of the run is; its seeds are equally large."""

    world: str
    entry: Entry
    train_takes: int
    """Dev takes included."""
    test_takes: int
    labels: int
    segments: int
    """Steps of a take, one more or less at random."""


class RecipeSize(Record):
    """How large the models of the recipe are, and what they learn on. Budgets are the most epochs of a training."""

    encoder: str
    """Of the clips, where there are any: size, frames per segment, side of the input in pixels."""
    text_encoder: str
    learned_on: str
    """Which training takes the scorers learn on."""
    alignment: tuple[int, int, int]
    """Width, layers and epochs of E_tau."""
    predictor: tuple[int, int, int]
    """Width, layers and epochs of each predictor."""
    scorer: tuple[int, int, int]
    """Width, layers and epochs of the Scorer."""
    candidates: int
    """K, retrieved per query."""


class ClaimsRun(Record):
    """run.json: when, with which settings and on which machine the claims were computed."""

    date: str
    """On which tables were gathered last."""
    config_digest: str
    """Of `ClaimsConfig` together with the pipeline's configuration and the worlds'."""
    machines: tuple[str, ...]
    """Processor, cores, memory, system of every machine that gathered tables; no host name."""
    device: Literal["cpu", "cuda"]
    """Used by the last call that gathered tables."""
    jobs: tuple[ClaimsJob, ...]
    first_started: str = ""
    """Earliest `started` of the jobs."""
    last_started: str = ""
    """Latest `started` of the jobs."""
    version: str = ""
    """Version of the code that did so, with the commit of the checkout where there is one."""
    worlds: tuple[WorldSize, ...] = ()
    recipe: RecipeSize | None = None


def sweep_worlds(cfg: ClaimsConfig) -> dict[str, tuple[float, float]]:
    """Return name -> (kappa, style) of every world of the sweep, in order of style, then kappa."""
    return {f"sweep_k{k:g}_s{style:g}": (k, style) for style in cfg.sweep_style for k in cfg.sweep_kappa}


def curve_worlds(cfg: ClaimsConfig) -> dict[str, int]:
    """Return name -> training takes of every further world of the learning curve."""
    return {f"takes_{takes}": takes for takes in cfg.curve_takes}


def world_names(cfg: ClaimsConfig) -> tuple[str, ...]:
    """Return every world."""
    return (*MAIN, *ENTRIES, *sweep_worlds(cfg), *curve_worlds(cfg))


def world_seeds(cfg: ClaimsConfig, world: str) -> tuple[int, ...]:
    """Return the seeds that `world` is planned with: all for a main world, else one."""
    return cfg.seeds if world in MAIN else (cfg.single_seed,)


def full_worlds() -> tuple[str, ...]:
    """Return the worlds that are scored on every row and go through every leak check."""
    return (*MAIN, *ENTRIES)


class ClaimScore(Record):
    """What one row got on all windows of one horizon of one take, as it is published: a column per metric.

    Sums over windows, in percent (`schemas.results.TakeScore`). Every metric, over all takes, stands in `ceilings`.
    """

    variant: str
    seed: int
    take_id: str
    horizon: int
    n_windows: int
    m1: float
    mseq: float
    f1: float
