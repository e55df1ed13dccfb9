"""The paper's experiments on recorded corpora: each states only what differs from the defaults, its main experiment."""

from schemas.config import CorpusName, PipelineConfig
from schemas.planners import PLANNERS
from schemas.training import (
    EGOPER_DECODING,
    GOAL_DROPOUT,
    GOALSTEP_DECODING,
    KEYSTEP_DECODING,
    ClosedDecodingConfig,
    TrainConfig,
)
from schemas.vlm import VLM_ROWS


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


def atomic_anticipation() -> PipelineConfig:
    """Anticipation on atomic descriptions: no goal is given to twins that learn with half of their goals masked (D 16,
    42). In a root with a finished `atomic` only the twins and their scorer are trained."""
    return anticipating(atomic())


def atomic_latent() -> PipelineConfig:
    """Planning in the space of the video encoder on atomic descriptions, and the first table's conditions. Source:
    paper, 3.1 and 3.2. In a root with a finished `atomic` only its own models are trained."""
    base = atomic()
    return base.replace(latent=base.latent.replace(is_asked=True))


def keystep() -> PipelineConfig:
    """Closed-vocabulary planning on Ego-Exo4D Keystep. Source: paper, 4.3 and its appendices on data and adaptation."""
    return _closed("egoexo4d_keystep", bridge_weight=0.15, decoding=KEYSTEP_DECODING)


def keystep_poses() -> PipelineConfig:
    """Pose files against Pi3 on Keystep: predictors trained on one and asked with the other. Source: paper, robustness
    to RGB-only camera poses. Its E_tau is that of `atomic`: start from such a run with --pretrained."""
    return of_pose_sources(keystep())


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
            ingest=base.ingest.replace(epic_kitchens=seen),
            features=base.features.replace(model="vit_giant", n_frames=32, tokens="temporal", ahead_tubelets=4),
            probe=base.probe.replace(tokens="temporal"),
        )
    )


def epic_kitchens_patches() -> PipelineConfig:
    """The same with the paper's two encoders: the probe reads every patch of V-JEPA 2 in each epoch, the predictor
    V-JEPA 2.1. Source: paper, appendix; docs/decisions/epic-token.md, docs/scale.md."""
    base = epic_kitchens()
    features = base.features.replace(model="vit_gigantic", ahead_tubelets=None)
    read = base.features.replace(resize="centre_crop")
    return base.replace(features=features, probe=base.probe.replace(tokens="full", encoder=read))


def basketball() -> PipelineConfig:
    """Shot outcome on Ego-Exo4D basketball, mined from atomic descriptions. Source: paper, appendix on basketball.

    The paper's E_tau and predictor are those of `atomic`: start from such a run with --pretrained.
    """
    base = atomic()
    return base.replace(
        ingest=base.ingest.replace(corpus="egoexo4d_basketball"),
        features=base.features.replace(tokens="temporal"),  # for the probe; the predictors read their mean
        scorer=base.scorer.replace(candidates=32),
    )


def vlm_zero_shot() -> PipelineConfig:
    """`atomic_anticipation` with the rows of a vision-language model that was trained on nothing of ours, with and
    without a goal. In a root with a finished `atomic_anticipation` only its requests, the evaluation and the report are
    computed. Source: paper, 4.1; docs/vlm.md."""
    base = atomic_anticipation()
    return base.replace(vlm=base.vlm.replace(rows=("qwen_zs",)))


def vlm_sft() -> PipelineConfig:
    """The same with the tuned recogniser of endpoints and the text model that fills the middles. Source: as above.

    `vlm.adapter` names the tuned weights in the answering program by their digest; without it the untuned model
    recognises segments, and the row is called UNTUNED.
    """
    base = atomic_anticipation()
    return base.replace(vlm=base.vlm.replace(rows=VLM_ROWS))


def laptop() -> PipelineConfig:
    """Planning on atomic descriptions with released features and small models: no GPU, and no weights of any encoder.

    It takes two to four hours of two cores at the paper's size (docs/scale.md). No video need be on the disk, and none
    is looked for: lengths are those of takes.json. Epochs and widths were chosen by the time of a training alone. Its
    numbers are never printed next to the paper's (docs/decisions/released-features.md).
    """
    base = atomic()
    aligned = TrainConfig(epochs=15, patience=5, batch=512, lr=2e-3, weight_decay=1.0)
    predicted = TrainConfig(epochs=3, patience=None, batch=512, lr=1e-3)
    scored = TrainConfig(epochs=6, patience=None, batch=256, lr=1e-3)
    return base.replace(
        ingest=base.ingest.replace(video="none"),
        features=base.features.replace(source="released"),
        text_bank=base.text_bank.replace(encoder="bag_of_words", bag_width=256),
        alignment=base.alignment.replace(width=32, layers=2, hidden=64, folds=1, seeds=(0,), train=aligned),
        predictor=base.predictor.replace(width=96, layers=2, heads=4, hidden=192, queries=2, train=predicted),
        scorer=base.scorer.replace(candidates=16, width=64, max_queries=16_384, ablations=(), train=scored),
    )


def of_pose_sources(base: PipelineConfig) -> PipelineConfig:
    """Return head motion from pose files, a second set from video, and the table of both."""
    return base.replace(
        ingest=base.ingest.replace(require_trajectory=True),
        trajectories=base.trajectories.replace(source="aria"),
        pose_sources=base.pose_sources.replace(is_asked=True),
    )


def of_tokens(base: PipelineConfig) -> PipelineConfig:
    """Return the visual probe with TrajPilot's token: head motion of every action and of what is seen before it, and as
    many candidates as the paper has. Source: docs/decisions/epic-token.md."""
    return base.replace(
        trajectories=base.trajectories.replace(span="action"),
        video_motions=base.video_motions.replace(source=base.trajectories.source, scale=base.trajectories.scale),
        scorer=base.scorer.replace(candidates=5),
        action_token=base.action_token.replace(is_asked=True),
    )


def anticipating(base: PipelineConfig) -> PipelineConfig:
    """Return planning with rows that are given no goal next to its own."""
    return base.replace(
        predictor=base.predictor.replace(twin_goal_dropout=GOAL_DROPOUT, anticipates=True),
        scorer=base.scorer.replace(anticipates=True),
    )


def _closed(corpus: CorpusName, bridge_weight: float, decoding: ClosedDecodingConfig) -> PipelineConfig:
    """Return planning with class heads on a corpus of annotated steps, each seen from its start to its end (D 45).

    Rows without goal dropout are the main ones; twins with it are trained for a second set (D 42).
    """
    base = _from_video(corpus)
    return base.replace(
        text_bank=base.text_bank.replace(descriptions="template"),
        predictor=base.predictor.replace(head="classes", bridge_weight=bridge_weight, twin_goal_dropout=GOAL_DROPOUT),
        scorer=base.scorer.replace(candidates=5, decoding=decoding),
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
