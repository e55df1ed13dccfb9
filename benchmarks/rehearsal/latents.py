"""Planning in the space of the video encoder: how a rehearsal cuts it down, and what a GPU would take for the whole.

Axes: B batch, H horizon, T steps, M middle steps, S candidates, U numbers of a motion, D feature width, V labels, E
text width. All of it is derived, nothing is timed here.
"""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.rehearsal.accelerator import (
    ADAM,
    Need,
    Step,
    chains_of,
    fitted_share,
    horizons_of,
    traced,
    windows,
)
from benchmarks.rehearsal.settings import TEXT_WIDTH
from benchmarks.rehearsal.sizes import DEV_SHARE, TEST_SHARE, Sizes
from schemas.config import PipelineConfig
from schemas.latent import LATENT_VARIANTS
from schemas.observation import DOF, MOTIONS
from schemas.vjepa import VJEPA_SIZES
from trajpilot_core.methods.latent import ROWS
from trajpilot_core.models.latent import LatentHead, LatentPredictor, LatentShape, StepInputs, l1_between
from trajpilot_core.models.latent_candidates import LatentReader, Moves, StepsAsked, folded, values_of
from trajpilot_core.training.fit_latent import NEXT


def product(_: torch.Size, one: torch.Size, other: torch.Size, **__: object) -> int:
    """Return the operations of a product of (..., m, k) and (..., k, n) that is added in place."""
    return 2 * one.numel() * other[-1]


IN_PLACE = {torch.ops.aten.addmm_: product, torch.ops.aten.baddbmm_: product}
"""Products that torch does not count by itself."""


def operations(work: Callable[[], object]) -> float:
    """Return the operations of the matrix products in some work."""
    with FlopCounterMode(display=False, custom_mapping=IN_PLACE) as counter:
        work()
    return float(counter.get_total_flops())


def shape_of(config: PipelineConfig, sizes: Sizes) -> LatentShape:
    """Return the sizes that the data would decide."""
    tokens = config.features.n_frames // 2 if config.features.tokens == "temporal" else 1
    width = VJEPA_SIZES[config.features.model].width
    return LatentShape(width, tokens, MOTIONS * DOF, TEXT_WIDTH, config.ingest.max_horizon, sizes.labels)


def training_step(config: PipelineConfig, sizes: Sizes, horizon: int) -> Step:
    """Return a step of a predictor that is told motion and text, on windows of one horizon."""
    shape, batch = shape_of(config, sizes), config.latent.train.batch
    with torch.device("meta"):
        model = LatentPredictor(config.latent, shape)
        clip = torch.empty(batch, model.n_tokens, shape.feature_width)
        motion = torch.empty(batch, 1, horizon - 1, shape.motion)
        text = torch.empty(batch, 1, horizon - 1, TEXT_WIDTH)

        def loss() -> Tensor:
            context = model.encode(clip, None if horizon == NEXT else clip, horizon)
            total: Tensor = model(context, StepInputs(motion, None, text), horizon - 1, horizon).sum()
            return total

        return traced(model, loss)


@torch.no_grad()
def window_operations(config: PipelineConfig, sizes: Sizes, horizon: int) -> float:
    """Return the operations of all that is searched and answered of one test window; the search moves every number."""
    cfg, shape, mids = config.latent, shape_of(config, sizes), horizon - 2
    with torch.device("meta"):
        model, head = LatentPredictor(cfg, shape).eval(), LatentHead(shape).eval()
        arranged, goal = folded(model), torch.empty(1, model.n_tokens, shape.feature_width)
        context = model.encode(goal, goal, horizon)

    def asked(n: int, n_steps: int, read: LatentReader, *, last_alone: bool = True) -> float:
        points = torch.empty(1, n, mids, shape.motion, device="meta")
        return operations(
            lambda: values_of(arranged, context, Moves(points), StepsAsked(horizon, n_steps, last_alone), read)
        )

    def distance(latent_1NGD: Tensor, _: int) -> Tensor:
        return l1_between(latent_1NGD[0], goal[0])

    def labels(latent_MNGD: Tensor, _: int) -> Tensor:
        logits: Tensor = head(latent_MNGD)
        return logits.logsumexp(-1).mean(0)

    s = cfg.search
    last, own = asked(s.samples, mids, distance), asked(s.samples, mids + 1, distance)
    truth = asked(s.samples, mids, labels, last_alone=False)
    followed = asked(len(ROWS), mids, labels, last_alone=False)
    return s.iterations * (last + own + truth) + asked(cfg.candidates, mids, distance) + followed


def of_latents(config: PipelineConfig, sizes: Sizes) -> list[Need]:
    """Return the trainings of planning in latents, and the search with its rows; nothing where they are not asked."""
    cfg = config.latent
    if not cfg.is_asked:
        return []
    hs, share = horizons_of(config), fitted_share(config, chains_of(config)[0])
    counts = {h: windows(sizes, h, share) + 2 * windows(sizes, h, DEV_SHARE) for h in (NEXT, *hs)}
    steps = {h: training_step(config, sizes, h) for h in (NEXT, *hs)}
    each = {h: counts[h] / cfg.train.batch * step.operations for h, step in steps.items()}
    plans, pairs = sum(each[h] for h in hs), each[NEXT]
    n_plans, n_next = (sum(one.startswith(kind) for one in LATENT_VARIANTS) for kind in ("plan", "next"))
    shape = shape_of(config, sizes)
    head = 3 * 2 * sizes.segments * share * shape.feature_width * sizes.labels * cfg.head.epochs
    fitted = cfg.train.epochs * (n_plans * plans + n_next * pairs) + head
    with torch.device("meta"):
        parameters = sum(p.numel() for p in LatentPredictor(cfg, shape).parameters())
    data = sizes.segments * (2 * shape.tokens * shape.feature_width + 4 * shape.motion)
    tested = {h: windows(sizes, h, TEST_SHARE) for h in hs}
    searched = sum(n * window_operations(config, sizes, h) for h, n in tested.items())
    answered = cfg.search.samples * hs[-1] * max(sizes.labels, cfg.width + cfg.hidden) * 4 * 8
    return [
        Need(
            "latent",
            len(cfg.seeds) * fitted,
            max(step.kept for step in steps.values()) + ADAM * parameters + data,
            f"{len(cfg.seeds) * len(LATENT_VARIANTS)} trainings of {cfg.train.epochs} epochs; activations in fp32",
        ),
        Need(
            "latent_plans",
            len(cfg.seeds) * searched,
            answered + len(LATENT_VARIANTS) * 4 * parameters + data,
            f"{sum(tested.values()):,.0f} windows, 3 searches of {cfg.search.samples} x {cfg.search.iterations}, "
            f"{len(cfg.seeds)} seeds; searched in fp32",
            is_fp32=True,
        ),
    ]
