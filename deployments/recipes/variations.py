"""What recipes of shot outcomes, pose sources, a token in a probe, a laptop or anticipation change in another."""

from schemas.config import PipelineConfig
from schemas.training import GOAL_DROPOUT, TrainConfig


def of_shots(base: PipelineConfig) -> PipelineConfig:
    """Return shot outcome on basketball, with as many candidates as the paper has."""
    return base.replace(
        ingest=base.ingest.replace(corpus="egoexo4d_basketball"),
        scorer=base.scorer.replace(candidates=32, prefetch=48),
    )


def of_few_shots(base: PipelineConfig) -> PipelineConfig:
    """Return the same for a simulated court; `base` is the demo."""
    short = TrainConfig(epochs=20, patience=None, batch=32, lr=1e-3, weight_decay=1e-2)
    aligned = base.alignment.train.replace(epochs=10)
    return base.replace(
        ingest=base.ingest.replace(corpus="egoexo4d_basketball", paraphrase_table=None, dev_min=12),
        features=base.features.replace(n_frames=4, size_px=64),
        alignment=base.alignment.replace(width=128, hidden=256, folds=3, seeds=(0, 1, 2), train=aligned),
        predictor=base.predictor.replace(width=64, hidden=128, dropout=0.1),
        scorer=base.scorer.replace(candidates=16, prefetch=32, width=32),
        outcome=base.outcome.replace(train=short, probe_heads=4, probe_blocks=1),
    )


def of_pose_sources(base: PipelineConfig) -> PipelineConfig:
    """Return head motion from pose files, a second set from video, and the table of both."""
    return base.replace(
        ingest=base.ingest.replace(require_trajectory=True),
        trajectories=base.trajectories.replace(source="aria"),
        pose_sources=base.pose_sources.replace(is_asked=True),
    )


def of_odometry(base: PipelineConfig) -> PipelineConfig:
    """Return the same with odometry in the place of Pi3, and three seeds."""
    two = of_pose_sources(base)
    return two.replace(
        alignment=two.alignment.replace(seeds=(0, 1, 2)),
        video_motions=two.video_motions.replace(source="odometry"),
    )


def of_tokens(base: PipelineConfig) -> PipelineConfig:
    """Return the visual probe with TrajPilot's token: head motion of every action and of what is seen before it, and as
    many candidates as the paper has. Source: docs/decisions/epic-token.md."""
    return base.replace(
        trajectories=base.trajectories.replace(span="action"),
        video_motions=base.video_motions.replace(source=base.trajectories.source, scale=base.trajectories.scale),
        scorer=base.scorer.replace(candidates=5, prefetch=8),
        action_token=base.action_token.replace(is_asked=True),
    )


def of_few_tokens(base: PipelineConfig) -> PipelineConfig:
    """Return the same for a simulated kitchen; `base` is the demo, with a probe."""
    short = TrainConfig(epochs=30, patience=None, batch=32, lr=1e-3, weight_decay=1e-2)
    own = of_tokens(base.replace(trajectories=base.trajectories.replace(source="odometry")))
    return own.replace(
        alignment=own.alignment.replace(folds=2),
        action_token=own.action_token.replace(train=short, rates=(1e-3, 3e-4)),
    )


def on_a_laptop(base: PipelineConfig) -> PipelineConfig:
    """Return planning on released features whose trainings take less than two hours of two cores at the paper's size.

    No video need be on the disk, and none is looked for: lengths are those of takes.json.
    Epochs and widths were chosen by what a training takes alone (docs/scale.md), not by any score.
    """
    aligned = TrainConfig(epochs=15, patience=5, batch=512, lr=2e-3, weight_decay=1.0)
    predicted = TrainConfig(epochs=3, patience=None, batch=512, lr=1e-3)
    scored = TrainConfig(epochs=6, patience=None, batch=256, lr=1e-3)
    return base.replace(
        ingest=base.ingest.replace(video="none"),
        features=base.features.replace(source="released"),
        text_bank=base.text_bank.replace(encoder="bag_of_words", bag_width=256),
        alignment=base.alignment.replace(width=32, layers=2, hidden=64, folds=1, seeds=(0,), train=aligned),
        predictor=base.predictor.replace(width=96, layers=2, heads=4, hidden=192, queries=2, train=predicted),
        scorer=base.scorer.replace(
            candidates=16, prefetch=32, width=64, max_queries=16_384, ablations=(), train=scored
        ),
    )


def anticipating(base: PipelineConfig) -> PipelineConfig:
    """Return planning with rows that are given no goal next to its own."""
    return base.replace(
        predictor=base.predictor.replace(twin_goal_dropout=GOAL_DROPOUT, anticipates=True),
        scorer=base.scorer.replace(anticipates=True),
    )
