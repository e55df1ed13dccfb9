"""What is computed in the large simulated worlds of the claims, fixed before a test figure was seen."""

from deployments.recipes.simulated import as_the_original, demo
from schemas.comparison import WorldPart
from schemas.config import PipelineConfig
from schemas.latent_worlds import LatentWorldsConfig
from schemas.planners import PLANNERS, PlannerTraining
from schemas.training import ATTENTION_VARIANTS, PLUS_PARTS, TrainConfig


def claims() -> PipelineConfig:
    """The simulated worlds of the claims: cross-fitted, the same budget for every row, whatever the entry.

    It may change until `schemas.claims.RUN_DIGEST` is set, and not any more after that (docs/decisions/claims.md).
    "searched": chosen on dev takes of the development world (docs/decisions/training.md). All in fp32, so that every
    machine computes the same worlds.
    """
    base, same = demo(), TrainConfig(patience=None, precision="fp32")
    aligned = same.replace(epochs=18, batch=256, lr=2e-3, weight_decay=1.0, warmup=0.05)  # searched
    predicted = same.replace(epochs=4, batch=128, lr=4e-3, weight_decay=0.3, warmup=0.05)  # searched
    attended = same.replace(epochs=4, batch=128, lr=4e-3, weight_decay=0.3, warmup=0.05)  # searched
    scored = same.replace(epochs=5, batch=128, lr=4e-3, weight_decay=0.05, warmup=0.0)  # searched
    return base.replace(
        ingest=base.ingest.replace(central_share=0.6),
        features=base.features.replace(n_frames=4, batch=32),
        alignment=base.alignment.replace(
            width=128, hidden=256, dropout=0.1, temperature=0.1, folds=2, fold_share=0.125, train=aligned
        ),
        predictor=base.predictor.replace(
            width=128, hidden=256, dropout=0.1, temperature=0.05, infonce_weight=1.0, train=predicted
        ),
        scorer=base.scorer.replace(candidates=32, prefetch=48, width=64, dropout=0.0, train=scored),
        attention=base.attention.replace(
            dropout=0.1, temperature=0.05, infonce_weight=1.0, variants=ATTENTION_VARIANTS, train=attended
        ),
        evaluation=base.evaluation.replace(shuffles=5, headroom_pools=(1, 5, 16, 32), plus_parts=PLUS_PARTS),
    )


def planners_in_worlds(part: WorldPart) -> PipelineConfig:
    """The recipe of the claims, and the planners of other papers next to it (benchmarks/planner_worlds.py).

    Their epochs take about equal seconds of one thread, below the cap of the part. Seconds were measured, and rates and
    dropouts chosen on dev, in the pilot (docs/decisions/planners.md).
    """
    base = claims()
    nets = base.planners
    is_small = part in ("pilot", "deterministic")
    schema, pdpp, viterbi = (20, 6, 90) if is_small else (9, 4, 66)
    net, flow, soft = nets.schema_net, nets.pdpp, nets.viterbi_plan_net
    paced = as_the_original if is_small else _in_thirds
    return base.replace(
        text_bank=base.text_bank.replace(descriptions="template"),
        planners=nets.replace(
            methods=PLANNERS,
            rates=(1.0,),
            schema_net=net.replace(
                width=64,
                heads=4,
                input_dropout=0.1,
                dropout=0.1,
                train=paced(net.train.replace(lr=2e-3 if is_small else 5e-4), schema),
            ),
            pdpp=flow.replace(width=32, times=50, train=paced(flow.train.replace(lr=1.5e-3), pdpp)),
            viterbi_plan_net=soft.replace(width=64, input_dropout=0.1, train=paced(soft.train, viterbi)),
        ),
    )


def _in_thirds(train: PlannerTraining, epochs: int) -> PlannerTraining:
    """Return a training of other length whose rate falls twice: the original's shares leave a short one no time."""
    return train.replace(epochs=epochs, step_epochs=None if train.step_epochs is None else max(1, epochs // 3))


def latents_in_worlds() -> PipelineConfig:
    """Planning in latents in simulated worlds (benchmarks/latent_worlds.py): no row of ours is trained.

    E_tau is, for one epoch, because its stage decides which takes are fitted; nothing here reads it. Chosen on the
    development world (docs/decisions/latent-planning.md).
    """
    base = claims()
    brief = base.alignment.train.replace(epochs=1)
    own = base.latent
    return base.replace(
        ingest=base.ingest.replace(max_horizon=max(LatentWorldsConfig().horizons)),
        alignment=base.alignment.replace(width=16, layers=1, heads=2, hidden=16, train=brief),
        latent=own.replace(
            is_asked=True,
            width=96,
            layers=2,
            heads=4,
            hidden=192,
            dropout=0.1,
            candidates=16,
            key_width=16,
            correlation_windows=1_000,
            train=TrainConfig(epochs=18, patience=None, batch=64, lr=1e-3, precision="fp32"),
            head=own.head.replace(epochs=20, patience=None, batch=64),
            search=own.search.replace(samples=48, iterations=4, elites=6),
        ),
    )
