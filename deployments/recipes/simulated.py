"""The same experiments on simulated worlds, in minutes of two cores: what `trajpilot demo` runs."""

from deployments.recipes.paper import anticipating, egoper, epic_kitchens, goalstep, keystep, of_pose_sources, of_tokens
from schemas.config import PipelineConfig
from schemas.planners import PLANNERS, PlannerTraining
from schemas.training import TrainConfig
from trajpilot_core.corpora.registry import spec_of


def demo() -> PipelineConfig:
    """The simulated world on two CPU cores in minutes: a small encoder, small models, cheap scorer mode.

    The values were chosen on dev takes of other seeds (docs/decisions/demo.md). Every training has a fixed
    schedule; the scorer's is long, since its loss lies on a plateau for the first hundreds of steps.
    """
    base = small()
    aligned = TrainConfig(epochs=12, patience=None, batch=64, lr=2e-3, weight_decay=1.0)
    predicted = TrainConfig(epochs=14, patience=None, batch=256, lr=3e-3)
    scored = TrainConfig(epochs=24, patience=None, batch=64, lr=3e-3, weight_decay=0.5)
    return base.replace(
        ingest=base.ingest.replace(dev_share=0.15),
        features=base.features.replace(size_px=64, n_frames=4, batch=64),
        alignment=base.alignment.replace(holdout_share=0.3, train=aligned),
        predictor=base.predictor.replace(dropout=0.2, train=predicted),
        scorer=base.scorer.replace(dropout=0.05, ablations=(), train=scored),
    )


def small() -> PipelineConfig:
    """Sizes of the simulated worlds: those of the paper would take days on two cores.

    Simulated frames are squashed by the faster filter.
    """
    base = PipelineConfig()
    aligned = TrainConfig(epochs=60, patience=15, batch=64, lr=2e-3, weight_decay=1.0)
    predicted = TrainConfig(epochs=25, patience=10, batch=64, lr=1e-3)
    scored = TrainConfig(epochs=12, patience=4, batch=256, lr=1e-3)
    return base.replace(
        ingest=base.ingest.replace(video="full", paraphrase_table="annotations/paraphrases.csv", interval_cap_s=2.0),
        features=base.features.replace(model="tiny", size_px=128, batch=16, resize="swscale"),
        text_bank=base.text_bank.replace(encoder="bag_of_words", bag_width=128),
        alignment=base.alignment.replace(
            width=32, layers=2, heads=4, hidden=64, dropout=0.2, folds=1, seeds=(0,), train=aligned
        ),
        predictor=base.predictor.replace(
            width=96, layers=2, heads=4, hidden=192, queries=2, dropout=0.3, train=predicted
        ),
        scorer=base.scorer.replace(candidates=16, width=64, train=scored),
        evaluation=base.evaluation.replace(shuffles=5, headroom_pools=(1, 5, 16)),
    )


def demo_planners() -> PipelineConfig:
    """The demo, and small planners of other papers on its labels, next to a finished demo."""
    return with_small_planners(demo())


def with_small_planners(base: PipelineConfig, epochs: tuple[int, int, int] = (20, 6, 25)) -> PipelineConfig:
    """Return a small experiment with small planners of other papers; `epochs`: SCHEMA, PDPP, ViterbiPlanNet."""
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
                width=64, heads=4, input_dropout=0.1, dropout=0.1, train=as_the_original(net.train, 2e-3, epochs[0])
            ),
            pdpp=flow.replace(
                width=32,
                multiples=(1, 2),
                times=50,
                epoch_steps=50,
                average_decay=0.7,  # its memory is a tenth of the training, as the original's
                average_start=50,
                train=as_the_original(flow.train, 1e-3, epochs[1]),
            ),
            viterbi_plan_net=soft.replace(
                width=64, input_dropout=0.1, train=as_the_original(soft.train, 2e-3, epochs[2])
            ),
        ),
    )


def demo_closed() -> PipelineConfig:
    """The demo's models on 8 classes of its 16 labels, and planners trained on these; as `atomic_closed`.

    These classes merge the alternatives of a step, which head motion tells apart: Oracle need not lie above No-Traj at
    every H (docs/decisions/classes.md).
    """
    base = with_small_planners(demo(), (14, 6, 12))  # half the actions are learned sooner
    return base.replace(
        ingest=base.ingest.replace(atomic=base.ingest.atomic.replace(classes=8)),
        planners=base.planners.replace(vocabulary="classes"),
        evaluation=base.evaluation.replace(vocabulary="classes"),
    )


def demo_anticipation() -> PipelineConfig:
    """The demo's models, next to twins that are given no goal; as `atomic_anticipation`, after a finished demo."""
    return anticipating(demo())


def demo_latent() -> PipelineConfig:
    """The demo's models, next to planning in the space of its video encoder; as `atomic_latent`, after a finished
    demo."""
    base = demo()
    return base.replace(
        latent=base.latent.replace(
            is_asked=True,
            seeds=(0,),
            width=96,
            layers=2,
            heads=4,
            hidden=192,
            candidates=16,
            key_width=16,
            correlation_windows=500,
            train=base.predictor.train.replace(epochs=20),
            head=base.latent.head.replace(batch=64),
            search=base.latent.search.replace(samples=64, iterations=5, elites=7),
        )
    )


def demo_keystep() -> PipelineConfig:
    """Closed-vocabulary planning on a simulated world in the layout of Ego-Exo4D Keystep, in the demo's sizes."""
    return _small_closed(keystep())


def demo_poses() -> PipelineConfig:
    """The same on a simulated world in the layout of Keystep, with odometry in the place of Pi3, and three seeds."""
    base = of_pose_sources(demo_keystep())
    return base.replace(
        alignment=base.alignment.replace(seeds=(0, 1, 2)), video_motions=base.video_motions.replace(source="odometry")
    )


def demo_goalstep() -> PipelineConfig:
    """The same in the layout of Ego4D GoalStep."""
    return _small_closed(goalstep())


def demo_egoper() -> PipelineConfig:
    """The same in the layout of EgoPER."""
    return _small_closed(egoper())


def demo_epic_kitchens() -> PipelineConfig:
    """The attentive probe and TrajPilot's token on a simulated world in the layout of EPIC-KITCHENS-100, small and with
    a grid of four."""
    base, paper = small(), epic_kitchens()
    short = TrainConfig(epochs=30, patience=None, batch=32, lr=1e-3, weight_decay=1e-2)
    base = of_tokens(base.replace(trajectories=base.trajectories.replace(source="odometry")))
    return base.replace(
        ingest=paper.ingest.replace(video="full"),
        features=base.features.replace(tokens=paper.features.tokens, ahead_tubelets=2),  # 1 s of 16 frames in 3.2 s
        alignment=base.alignment.replace(folds=2),
        probe=paper.probe.replace(heads=8, blocks=1, rates=(3e-3, 1e-3), decays=(1e-3, 1e-1), batch=32, epochs=20),
        action_token=base.action_token.replace(train=short, rates=(1e-3, 3e-4)),
    )


def demo_basketball() -> PipelineConfig:
    """Shot outcome on a simulated world of basketball, in the demo's sizes."""
    base = small()
    short = TrainConfig(epochs=20, patience=None, batch=32, lr=1e-3, weight_decay=1e-2)
    aligned = base.alignment.train.replace(epochs=10)
    return base.replace(
        ingest=base.ingest.replace(corpus="egoexo4d_basketball", paraphrase_table=None, dev_min=12),
        features=base.features.replace(n_frames=4, size_px=64, tokens="temporal"),
        alignment=base.alignment.replace(width=128, hidden=256, folds=3, seeds=(0, 1, 2), train=aligned),
        predictor=base.predictor.replace(width=64, hidden=128, dropout=0.1),
        scorer=base.scorer.replace(candidates=16, width=32),
        outcome=base.outcome.replace(train=short, probe_heads=4, probe_blocks=1),
    )


def _small_closed(closed: PipelineConfig) -> PipelineConfig:
    """Return the demo with the corpus, heads, decoding and rows of a closed benchmark; poses need no weights."""
    base = with_small_planners(small())
    released = spec_of(closed.ingest.corpus).download.pose_file is not None
    return base.replace(
        ingest=closed.ingest.replace(video="full", dev_min=5),  # windows of every horizon in dev
        trajectories=base.trajectories.replace(source="aria" if released else "odometry"),
        predictor=base.predictor.replace(
            head="classes",
            bridge_weight=closed.predictor.bridge_weight,
            twin_goal_dropout=closed.predictor.twin_goal_dropout,
        ),
        scorer=base.scorer.replace(candidates=closed.scorer.candidates, decoding=closed.scorer.decoding),
        planners=base.planners.replace(most_steps=100, has_ddpm_row=True),
    )


def soak() -> PipelineConfig:
    """The world `soak` in seconds: every stage does real work, and no figure means anything."""
    base = small()
    short = TrainConfig(epochs=2, patience=None, batch=64)
    return base.replace(
        ingest=base.ingest.replace(dev_min=2),
        features=base.features.replace(size_px=64, n_frames=4),
        alignment=base.alignment.replace(width=16, heads=2, hidden=32, train=short),
        predictor=base.predictor.replace(width=32, heads=2, layers=1, hidden=64, queries=2, train=short),
        scorer=base.scorer.replace(candidates=4, width=16, ablations=(), train=short),
        evaluation=base.evaluation.replace(bootstrap=200, shuffles=2, headroom_pools=(1, 4)),
        report=base.report.replace(examples=2),
    )


def as_the_original(train: PlannerTraining, lr: float, epochs: int) -> PlannerTraining:
    """Return a training of other length in small batches: its rate falls after the original's shares of the epochs."""
    steps = train.step_epochs
    kept = None if steps is None else max(1, round(steps * epochs / train.epochs))
    return train.replace(lr=lr, batch=64, epochs=epochs, step_epochs=kept)
