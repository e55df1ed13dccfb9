"""What is real and what is cut down: the parts of a rehearsal, each a list of stages under one configuration.

Everything that memory or disk follows is real: takes, segments, windows, labels, features, the 64 candidates of a
query. Trainings last one epoch; models are narrow where only arithmetic follows their width. The stages up to the
scorer run twice: at the real width of the text space, and in a narrow one on the way to the evaluation, which ranks
every label at every step of every test window for every row.
"""

from typing import Literal, NamedTuple

from schemas.config import PipelineConfig
from schemas.latent import LatentConfig, SearchConfig
from schemas.training import TrainConfig
from trajpilot_core.stages import STAGES

TEXT_WIDTH = 768
"""Of EgoVLPv2."""
NARROW_TEXT = 64
WIDE_BATCH, NARROW_BATCH = 64, 256
"""Windows per step of the predictor: the pooled loss compares every token with the labels of its batch, half of a step
in the wide text space."""
NARROW = {"width": 16, "layers": 1, "heads": 2, "hidden": 32, "queries": 2}
"""Sizes of causal transformers whose width only arithmetic follows."""
QUERIES_PER_HORIZON = 1_024
MARGIN = 1.15
"""Queries are sampled over all horizons together: so many more, that each horizon has enough."""


Way = Literal["store", "wide", "narrow"]


class Part(NamedTuple):
    """Stages that run in one process under one configuration."""

    name: str
    stages: tuple[str, ...]
    config: PipelineConfig
    note: str
    """What is not as in the recipe."""
    way: Way = "wide"
    """Parts of the wide way follow one another, and so do those of the narrow one; the store comes before both."""


def parts_of(recipe: PipelineConfig) -> tuple[Part, ...]:
    """Return the parts of a rehearsal of `recipe`, in order; one for a machine without a GPU runs as it stands."""
    if recipe.features.source == "released":
        return as_it_stands(recipe)
    wide, narrow = wide_text(recipe), narrow_text(recipe)
    return (
        Part("store", ("ingest", "trajectories", "features"), wide, "sampled, not read: the size is real", "store"),
        Part("diagnostics", ("diagnostics",), wide, "as in the recipe"),
        Part("text_bank", ("text_bank",), wide, "the demo's encoder at the real width"),
        Part("alignment", ("alignment",), wide, "real widths; one chain, one seed, one epoch"),
        Part("predictor", ("predictor",), wide, "all windows; width 16, batch 64; one chain, one seed, one epoch"),
        Part(
            "scorer",
            ("scorer",),
            wide,
            "64 candidates, real text width; few queries, width 32, one epoch",
        ),
        Part(
            "narrow",
            ("text_bank", "alignment", "predictor", "scorer"),
            narrow,
            "the way to the evaluation",
            "narrow",
        ),
        Part("planners", ("planners", "probe"), narrow, "as in the recipe", "narrow"),
        *latents_of(narrow),
        Part("evaluation", ("evaluation",), narrow, "all test windows; narrow text, 8 candidates", "narrow"),
        Part("report", ("report",), narrow, "no frames", "narrow"),
    )


def latents_of(narrow: PipelineConfig) -> tuple[Part, ...]:
    """Return the part that plans in latents, where a recipe asks for it."""
    note = "real features, windows and labels; width 16, one layer, one seed, one epoch; 8 candidates, one iteration"
    stages = ("latent", "latent_plans")
    return (Part("latent", stages, narrow, note, "narrow"),) if narrow.latent.is_asked else ()


def as_it_stands(recipe: PipelineConfig) -> tuple[Part, ...]:
    """Return the parts of a recipe that two cores can train: nothing after the store is cut down but the frames."""
    whole = recipe.replace(report=recipe.report.replace(frames=False))
    made = ("ingest", "trajectories", "features")
    return (
        Part("store", made, whole, "sampled, not read: the size is real", "store"),
        Part("whole", tuple(name for name in STAGES if name not in made), whole, "as in the recipe; no frames"),
    )


def short(train: TrainConfig, batch: int | None = None) -> TrainConfig:
    """Return one epoch of a training."""
    return train.replace(epochs=1, patience=None, batch=batch or train.batch)


def wide_text(recipe: PipelineConfig) -> PipelineConfig:
    """Return one seed, the cheap mode's chain, one epoch, all real widths but those of predictor and scorer."""
    horizons = recipe.ingest.max_horizon - recipe.ingest.min_horizon + 1
    return recipe.replace(
        text_bank=recipe.text_bank.replace(encoder="bag_of_words", model=None, bag_width=TEXT_WIDTH),
        alignment=recipe.alignment.replace(
            folds=1, fold_share=None, seeds=recipe.alignment.seeds[:1], train=short(recipe.alignment.train)
        ),
        predictor=recipe.predictor.replace(**NARROW, train=short(recipe.predictor.train, WIDE_BATCH)),
        scorer=recipe.scorer.replace(
            width=32,
            max_queries=round(MARGIN * QUERIES_PER_HORIZON * horizons),
            temperatures=(0.1,),
            train=short(recipe.scorer.train, 128),
        ),
        evaluation=recipe.evaluation.replace(shuffles=2),
        report=recipe.report.replace(frames=False),
    )


def narrow_text(recipe: PipelineConfig) -> PipelineConfig:
    """Return settings under which the evaluation of all test windows is minutes."""
    wide = wide_text(recipe)
    aligned = wide.alignment.replace(width=16, layers=1, heads=2, hidden=32)
    pools = tuple(pool for pool in wide.evaluation.headroom_pools if pool <= 8)
    return wide.replace(
        text_bank=wide.text_bank.replace(bag_width=NARROW_TEXT),
        alignment=aligned,
        predictor=wide.predictor.replace(train=short(recipe.predictor.train, NARROW_BATCH)),
        scorer=wide.scorer.replace(candidates=8, prefetch=16),
        latent=few_latents(recipe.latent),
        evaluation=wide.evaluation.replace(headroom_pools=pools),
    )


def few_latents(latent: LatentConfig) -> LatentConfig:
    """Return settings under which planning in latents is minutes; unchanged where it is not asked."""
    if not latent.is_asked:
        return latent
    sizes = {name: size for name, size in NARROW.items() if name != "queries"}
    return latent.replace(
        **sizes,
        seeds=latent.seeds[:1],
        search=SearchConfig(samples=8, iterations=1, elites=2),
        candidates=8,
        key_width=16,
        train=short(latent.train, NARROW_BATCH),
        head=short(latent.head),
    )


def probe(recipe: PipelineConfig) -> Part:
    """Return every stage in one process, as small as it goes: for the growth of time and memory alone."""
    narrow = narrow_text(recipe)
    few = narrow.scorer.replace(max_queries=600, ablations=())
    sampled = narrow.evaluation.replace(bootstrap=1_000, shuffles=1)
    return Part("probe", tuple(STAGES), narrow.replace(scorer=few, evaluation=sampled), "as small as it goes")
