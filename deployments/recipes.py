"""Named experiments: each states only what differs from the defaults, which are the paper's main experiment."""

from collections.abc import Callable

from deployments.variations import (
    anticipating,
    of_few_shots,
    of_few_tokens,
    of_odometry,
    of_pose_sources,
    of_shots,
    of_tokens,
    on_a_laptop,
)
from schemas.closed import EGOPER_DECODING, GOALSTEP_DECODING, KEYSTEP_DECODING, ClosedDecodingConfig
from schemas.comparison import WorldPart
from schemas.config import CorpusName, PipelineConfig, RecipeName
from schemas.planners import PLANNERS, PlannerTraining
from schemas.training import ATTENTION_VARIANTS, GOAL_DROPOUT, PLUS_PARTS, TrainConfig
from trajpilot_core.corpora.registry import spec_of
from trajpilot_core.errors import InputError


def atomic() -> PipelineConfig:
    """Open-vocabulary planning on Ego-Exo4D atomic descriptions, as in the paper's section 4.2: the defaults."""
    return PipelineConfig()


def atomic_closed() -> PipelineConfig:
    """The same models on the 1,165 classes of atomic descriptions, read at evaluation alone, next to planners of other
    papers that are trained on them. Source: paper, 4.2."""
    base = atomic()
    return base.replace(
        text_bank=base.text_bank.replace(descriptions="template"),
        planners=base.planners.replace(methods=PLANNERS, vocabulary="classes"),
        evaluation=base.evaluation.replace(vocabulary="classes"),
    )


def demo() -> PipelineConfig:
    """The simulated world on two CPU cores in minutes: a small encoder, small models, cheap scorer mode.

    Simulated frames are squashed by the faster filter. The values of the trainings were chosen on dev takes
    (docs/decisions/training.md).
    """
    base = PipelineConfig()
    aligned = TrainConfig(epochs=60, patience=15, batch=64, lr=2e-3, weight_decay=1.0)
    predicted = TrainConfig(epochs=25, patience=10, batch=64, lr=1e-3)
    scored = TrainConfig(epochs=12, patience=4, batch=256, lr=1e-3)
    attended = TrainConfig(epochs=10, patience=4, batch=64, lr=1e-3)
    return base.replace(
        ingest=base.ingest.replace(video="full", paraphrase_table="annotations/paraphrases.csv"),
        features=base.features.replace(model="tiny", size_px=128, batch=16, resize="swscale"),
        text_bank=base.text_bank.replace(encoder="bag_of_words", bag_width=128),
        alignment=base.alignment.replace(
            width=32, layers=2, heads=4, hidden=64, dropout=0.2, folds=1, seeds=(0,), train=aligned
        ),
        predictor=base.predictor.replace(
            width=96, layers=2, heads=4, hidden=192, queries=2, dropout=0.3, train=predicted
        ),
        scorer=base.scorer.replace(candidates=16, prefetch=32, width=64, train=scored),
        attention=base.attention.replace(
            width=96, layers=2, heads=4, hidden=192, queries=2, dropout=0.3, neighbours=16, train=attended
        ),
        evaluation=base.evaluation.replace(shuffles=5, headroom_pools=(1, 5, 16)),
    )


def demo_planners() -> PipelineConfig:
    """The demo, and the planners of other papers on its labels: small ones, of few steps, next to a finished demo.

    Rates and dropouts are those of `planners_in_worlds`.
    """
    base = demo()
    nets = base.planners
    net, flow, soft = nets.schema_net, nets.pdpp, nets.viterbi_plan_net
    return base.replace(
        text_bank=base.text_bank.replace(descriptions="template"),
        planners=nets.replace(
            methods=PLANNERS,
            seeds=(0,),
            rates=(1.0,),
            has_ddpm_row=False,
            samplings=2,
            schema_net=net.replace(
                width=64,
                heads=4,
                input_dropout=0.1,
                dropout=0.1,
                train=_as_the_original(net.train.replace(lr=2e-3), 20),
            ),
            pdpp=flow.replace(
                width=32,
                times=50,
                epoch_steps=50,
                average_start=100,
                train=_as_the_original(flow.train.replace(lr=1.5e-3), 8),
            ),
            viterbi_plan_net=soft.replace(width=64, input_dropout=0.1, train=_as_the_original(soft.train, 40)),
        ),
    )


def demo_closed() -> PipelineConfig:
    """The demo's models on 24 classes of its 72 labels, next to planners that are trained on these; as
    `atomic_closed`, after a finished demo."""
    base = demo_planners()
    return base.replace(
        ingest=base.ingest.replace(atomic=base.ingest.atomic.replace(classes=24)),
        planners=base.planners.replace(vocabulary="classes"),
        evaluation=base.evaluation.replace(vocabulary="classes"),
    )


def demo_anticipation() -> PipelineConfig:
    """The demo's models, next to twins that are given no goal; as `atomic_anticipation`, after a finished demo."""
    return anticipating(demo())


def demo_keystep() -> PipelineConfig:
    """Closed-vocabulary planning on a simulated world in the layout of Ego-Exo4D Keystep, in the demo's sizes."""
    return _small_closed(keystep())


def demo_goalstep() -> PipelineConfig:
    """The same in the layout of Ego4D GoalStep."""
    return _small_closed(goalstep())


def demo_egoper() -> PipelineConfig:
    """The same in the layout of EgoPER."""
    return _small_closed(egoper())


def demo_epic_kitchens() -> PipelineConfig:
    """The attentive probe and TrajPilot's token on a simulated world in the layout of EPIC-KITCHENS-100, small and with
    a grid of four."""
    small, own = demo(), epic_kitchens()
    return of_few_tokens(
        small.replace(
            ingest=own.ingest.replace(video="full"),
            features=small.features.replace(tokens=own.features.tokens, ahead_tubelets=2),  # 1 s of 16 frames in 3.2 s
            probe=own.probe.replace(heads=8, blocks=1, rates=(3e-3, 1e-3), decays=(1e-3, 1e-1), batch=32, epochs=20),
        )
    )


def demo_basketball() -> PipelineConfig:
    """Shot outcome on a simulated world of basketball, in the demo's sizes."""
    return of_few_shots(demo())


def _small_closed(closed: PipelineConfig) -> PipelineConfig:
    """Return the demo with the corpus, heads, decoding and rows of a closed benchmark; poses need no weights."""
    small = demo_planners()
    released = spec_of(closed.ingest.corpus).download.pose_file is not None
    return small.replace(
        ingest=closed.ingest.replace(video="full", dev_min=5),  # windows of every horizon in dev
        trajectories=small.trajectories.replace(source="aria" if released else "odometry"),
        predictor=small.predictor.replace(
            head="classes",
            bridge_weight=closed.predictor.bridge_weight,
            twin_goal_dropout=closed.predictor.twin_goal_dropout,
        ),
        scorer=small.scorer.replace(candidates=closed.scorer.candidates, plus=None, decoding=closed.scorer.decoding),
        attention=closed.attention,
        planners=small.planners.replace(most_steps=100, has_ddpm_row=True),
    )


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
    schema, pdpp, viterbi = (20, 6, 90) if is_small else (17, 8, 120)
    net, flow, soft = nets.schema_net, nets.pdpp, nets.viterbi_plan_net
    paced = _as_the_original if is_small else _in_thirds
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


def _as_the_original(train: PlannerTraining, epochs: int) -> PlannerTraining:
    """Return a training of other length in small batches: its rate falls after the original's shares of the epochs."""
    steps = train.step_epochs
    kept = None if steps is None else max(1, round(steps * epochs / train.epochs))
    return train.replace(batch=64, epochs=epochs, step_epochs=kept)


def _in_thirds(train: PlannerTraining, epochs: int) -> PlannerTraining:
    """Return a training of other length whose rate falls twice: the original's shares leave a short one no time."""
    return train.replace(epochs=epochs, step_epochs=None if train.step_epochs is None else max(1, epochs // 3))


def soak() -> PipelineConfig:
    """The world `soak` in seconds: every stage does real work, and no figure means anything."""
    base = demo()
    short = TrainConfig(epochs=2, patience=None, batch=64)
    return base.replace(
        ingest=base.ingest.replace(dev_min=2),
        features=base.features.replace(size_px=64, n_frames=4),
        alignment=base.alignment.replace(width=16, heads=2, hidden=32, train=short),
        predictor=base.predictor.replace(width=32, heads=2, layers=1, hidden=64, queries=2, train=short),
        scorer=base.scorer.replace(candidates=4, prefetch=8, width=16, ablations=(), train=short),
        attention=base.attention.replace(
            width=32, heads=2, layers=1, hidden=64, reads=1, neighbours=4, key_width=8, train=short
        ),
        evaluation=base.evaluation.replace(bootstrap=200, shuffles=2, headroom_pools=(1, 4)),
        report=base.report.replace(examples=2),
    )


def keystep() -> PipelineConfig:
    """Closed-vocabulary planning on Ego-Exo4D Keystep. Source: paper, 4.3 and its appendices on data and adaptation."""
    return _closed("egoexo4d_keystep", bridge_weight=0.15, decoding=KEYSTEP_DECODING)


def keystep_poses() -> PipelineConfig:
    """Pose files against Pi3 on Keystep: predictors trained on one and asked with the other. Source: paper, robustness
    to RGB-only camera poses. Its E_tau is that of `atomic`: start from such a run with --pretrained."""
    return of_pose_sources(keystep())


def demo_poses() -> PipelineConfig:
    """The same on a simulated world in the layout of Keystep, with odometry in the place of Pi3."""
    return of_odometry(demo_keystep())


def goalstep() -> PipelineConfig:
    """Closed-vocabulary planning on Ego4D GoalStep. Source: as `keystep`."""
    return _closed("goalstep", bridge_weight=0.0, decoding=GOALSTEP_DECODING)


def egoper() -> PipelineConfig:
    """Closed-vocabulary planning on EgoPER. Source: as `keystep`."""
    return _closed("egoper", bridge_weight=0.0, decoding=EGOPER_DECODING)


def epic_kitchens() -> PipelineConfig:
    """Anticipation on EPIC-KITCHENS-100 by the attentive probe of V-JEPA 2, and by TrajPilot's token in it. Source:
    docs/decisions/epic-probe.md and epic-token.md.

    The paper's E_tau is that of `atomic`: start from such a run with --pretrained. Without poses:
    `--set action_token.is_asked=false`.
    """
    base = _from_video("epic_kitchens")
    seen = base.ingest.epic_kitchens.replace(context="vjepa2_frames")
    return of_tokens(
        base.replace(
            ingest=base.ingest.replace(epic_kitchens=seen, interval_cap_s=None),
            features=base.features.replace(model="vit_giant", n_frames=32, tokens="temporal", ahead_tubelets=4),
            probe=base.probe.replace(tokens="temporal"),
        )
    )


def basketball() -> PipelineConfig:
    """Shot outcome on Ego-Exo4D basketball, mined from atomic descriptions. Source: paper, appendix on basketball.

    The paper's E_tau and predictor are those of `atomic`: start from such a run with --pretrained.
    """
    return of_shots(atomic())


def laptop() -> PipelineConfig:
    """Planning on atomic descriptions with released features and small models: no GPU, and no weights of any encoder.

    Nothing of it may stand next to the paper's numbers (docs/decisions/released-features.md).
    """
    return on_a_laptop(atomic())


def atomic_anticipation() -> PipelineConfig:
    """Anticipation on atomic descriptions: no goal is given to twins that learn with half of their goals masked (D 16,
    42). In a root with a finished `atomic` only the twins and their scorer are trained."""
    return anticipating(atomic())


def _closed(corpus: CorpusName, bridge_weight: float, decoding: ClosedDecodingConfig) -> PipelineConfig:
    """Return planning with class heads on a corpus of annotated steps, each seen from its start to its end (D 45).

    Scorer+ and retrieval attention, which are not the paper's, read embeddings; here plans are probabilities. Rows
    without goal dropout are the main ones; twins with it are trained for a second set (D 42).
    """
    base = _from_video(corpus)
    return base.replace(
        ingest=base.ingest.replace(interval_cap_s=None),
        text_bank=base.text_bank.replace(descriptions="template"),
        predictor=base.predictor.replace(head="classes", bridge_weight=bridge_weight, twin_goal_dropout=GOAL_DROPOUT),
        scorer=base.scorer.replace(candidates=5, prefetch=8, plus=None, decoding=decoding),
        attention=base.attention.replace(variants=()),
        planners=base.planners.replace(methods=PLANNERS),
    )


def _from_video(corpus: CorpusName) -> PipelineConfig:
    """Return the main experiment on a corpus whose poses the paper takes from the video with Pi3, Keystep's included.

    Without a GPU, `trajectories.source=odometry` needs no weights.
    """
    base = atomic()
    return base.replace(
        ingest=base.ingest.replace(corpus=corpus, require_trajectory=False),
        trajectories=base.trajectories.replace(source="pi3"),
    )


RECIPES: dict[RecipeName, Callable[[], PipelineConfig]] = {
    "atomic": atomic,
    "atomic_closed": atomic_closed,
    "demo": demo,
    "demo_planners": demo_planners,
    "demo_closed": demo_closed,
    "demo_anticipation": demo_anticipation,
    "demo_keystep": demo_keystep,
    "demo_goalstep": demo_goalstep,
    "demo_egoper": demo_egoper,
    "demo_epic_kitchens": demo_epic_kitchens,
    "soak": soak,
    "claims": claims,
    "keystep": keystep,
    "goalstep": goalstep,
    "egoper": egoper,
    "atomic_anticipation": atomic_anticipation,
    "epic_kitchens": epic_kitchens,
    "basketball": basketball,
    "demo_basketball": demo_basketball,
    "keystep_poses": keystep_poses,
    "demo_poses": demo_poses,
    "laptop": laptop,
}


def recipe(name: str) -> PipelineConfig:
    """Return the configuration of a named experiment; `check_built` reports which of its stages can run.

    Raises:
        InputError: there is no such recipe.
    """
    named = {str(known): build for known, build in RECIPES.items()}
    if name not in named:
        raise InputError(f"no recipe is called {name!r}; the recipes are {', '.join(sorted(named))}")
    return named[name]()


def recipes_of(corpus: str) -> list[str]:
    """Return the recipes that read a corpus, in order of the list."""
    return [name for name, build in RECIPES.items() if build().ingest.corpus == corpus]
