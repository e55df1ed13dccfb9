"""The quantities that the paper leaves open, our rule in words, and where the rule and its values stand.

Numbers and reasons: docs/decisions/paper-gaps.md. No value of a setting is written here: `decisions` reads it.
"""

from dataclasses import dataclass
from typing import Literal

Part = Literal[
    "anticipation", "closed vocabulary", "prior planners", "language models", "CEM", "EPIC-KITCHENS-100", "basketball",
    "conditioning study",
]  # fmt: skip
PARTS: dict[Part, tuple[str, ...]] = {
    "anticipation": ("anticipation",),
    "closed vocabulary": ("heads",),
    "prior planners": ("baselines", "pdpp", "viterbi"),
    "language models": ("vlm", "qwen"),
    "CEM": ("cem",),
    "EPIC-KITCHENS-100": ("attentive",),
    "basketball": ("binary",),
    "conditioning study": ("conditioning",),
}
"""Part of the paper -> words of which one would stand in the name of a module that builds it (a reader does not)."""


@dataclass(frozen=True)
class Decision:
    """One open quantity and where its answer stands."""

    number: int
    question: str
    rule: str
    settings: tuple[str, ...] = ()
    """Fields of PipelineConfig, `stage.field`."""
    code: tuple[str, ...] = ()
    """`module:name` inside this project; of a constant the value is printed."""
    needs: tuple[Part, ...] = ()
    """Parts without which the decision, or the rest of it, has no effect yet."""


def fields(record: str, *names: str) -> tuple[str, ...]:
    """Return the paths of some fields of one record."""
    return tuple(f"{record}.{name}" for name in names)


MODEL = "trajpilot_core.models.predictor"
LOSSES = "trajpilot_core.training.losses"
FIT = "trajpilot_core.training.fit_predictor"
ROWS = "trajpilot_core.evaluation.rollout"
BANK = "trajpilot_core.retrieval.bank"
JUDGE = "trajpilot_core.training.judge"
SEEN = "schemas.observation"
DECISIONS = (
    Decision(1, "size of the predictor", "wide as the text space, deep as the paper's latent predictor",
             fields("predictor", "width", "layers", "heads", "hidden", "dropout")),
    Decision(2, "optimiser, schedule, seeds", "AdamW, warm-up, cosine, early stop on dev",
             (*fields("predictor.train", "lr", "min_lr", "betas", "weight_decay", "warmup", "clip", "batch", "epochs",
                      "patience", "precision"), "alignment.seeds")),
    Decision(3, "a model per horizon or one for all", "one, windows drawn uniformly over all horizons",
             fields("ingest", "min_horizon", "max_horizon"), (f"{FIT}:window_batches",)),
    Decision(4, "what the context tokens are made of", "one vector per clip, or one per tubelet", ("features.tokens",)),
    Decision(5, "the learnable queries", "shared by both endpoints, with a role embedding", ("predictor.queries",),
             (f"{MODEL}:Compressor",)),
    Decision(6, "where endpoint trajectories enter", "projected and added to all tokens of their role", (),
             (f"{MODEL}:CausalPredictor.context_tokens",)),
    Decision(7, "the inputs of a middle token", "sum of trajectory, query, step, horizon and type", (),
             (f"{MODEL}:CausalPredictor.mid_tokens",)),
    Decision(8, "the attention mask", "context sees context only; a middle sees the context and earlier middles", (),
             (f"{MODEL}:structured_mask",)),
    Decision(9, "outputs at Start and Goal", "mean of the role's outputs through the shared head", (),
             (f"{MODEL}:CausalPredictor",)),
    Decision(10, "weights in the cosine term", "mean over the middles, so that each role weighs one", (),
             (f"{LOSSES}:cosine_loss",)),
    Decision(11, "pool and temperature of the InfoNCE term", "all predicted tokens of the batch, factor clamped",
             fields("predictor", "temperature", "infonce_weight"),
             (f"{LOSSES}:prediction_loss", f"{LOSSES}:MAX_TEMPERATURE")),
    Decision(12, "form of the multi-positive loss", "sum over positives inside the logarithm", (),
             (f"{LOSSES}:alignment_loss",)),
    Decision(13, "what trajectory dropout drops", "per sample, all trajectory inputs at once",
             ("predictor.trajectory_dropout",), (f"{FIT}:window_loss",)),
    Decision(14, "what stands for no trajectory", "the zero vector", (), (f"{FIT}:variant_latents",)),
    Decision(15, "what No-Traj is", "a checkpoint of its own; beside it one with endpoint trajectories only", (),
             ("trajpilot_core.training.chains:VARIANTS",)),
    Decision(16, "what goal dropout masks", "the goal's tokens and trajectory, and its target in the loss",
             ("predictor.goal_dropout",), (f"{MODEL}:CausalPredictor.context_tokens",), ("anticipation",)),
    Decision(17, "poses and motions of a segment", "equal times, each motion in the earlier body frame", (),
             (f"{SEEN}:KNOTS", f"{SEEN}:MOTIONS", "trajpilot_core.trajectory.controls:relative_motions")),
    Decision(18, "duration as a channel", "not in the tensor", (), (f"{SEEN}:DOF",)),
    Decision(19, "normalisation of the motions", "one scale per channel, no mean removed", (),
             ("trajpilot_core.models.alignment:channel_scale",)),
    Decision(20, "body frame, and the scale of estimated poses", "raw RGB camera through the calibration",
             fields("trajectories", "frame", "source", "scale"),
             ("trajpilot_core.trajectory.pi3_source:Pi3Source",)),
    Decision(21, "size and training of E_tau", "mean pool, unit norm, stop on dev R@5",
             (*fields("alignment", "width", "layers", "heads", "dropout"),
              *fields("alignment.train", "lr", "batch", "epochs", "patience"))),
    Decision(22, "which text vector", "sentence vector before the projection", fields("text_bank", "encoder",
             "embedding")),
    Decision(23, "when two labels are one", "equal normalised text, or a table of paraphrases",
             ("ingest.paraphrase_table",), ("trajpilot_core.readers.labels:normalise",)),
    Decision(24, "how open labels collapse",
             "verb and head noun, frequent classes kept, others to the nearest",
             fields("ingest.atomic", "vocabulary", "classes"), ("trajpilot_core.readers.collapse:choose_classes",)),
    Decision(25, "key of the retrieval", "No-Traj's predicted endpoints, or the pooled features", ("scorer.key",),
             (f"{BANK}:endpoint_keys",)),
    Decision(26, "entry of the bank", "every training window of the same horizon", (), (f"{BANK}:build_bank",)),
    Decision(27, "what a query must not see", "windows of its own take; strict: of its participant", ("scorer.strict",),
             (f"{BANK}:check_pool",)),
    Decision(28, "data that the scorer learns on", "takes that no model of their chain was fitted on",
             (*fields("alignment", "folds", "fold_share", "holdout_share"), "scorer.max_queries")),
    Decision(29, "the scorer's net and inputs", "no order among candidates; gate from the query, ranks from candidates",
             fields("scorer", "width", "layers", "heads", "dropout", "temperatures"),
             ("trajpilot_core.models.scorer:GateThenRankScorer",)),
    Decision(30, "the teacher's part in the utility", "a mean cosine, so that it only breaks ties",
             ("scorer.utility",)),
    Decision(31, "margin of the gate's target", "less than one step at the longest horizon", ("scorer.margin",)),
    Decision(32, "loss and threshold of the scorer",
             "balanced gate, best candidate, rank distribution; one threshold, on dev",
             fields("scorer", "loss_weights", "utility_temperature"),
             ("trajpilot_core.training.scorer:best_threshold",)),
    Decision(33, "scorer without a goal", "planned: keys of Start alone", (), (), ("anticipation",)),
    Decision(34, "heads and loss on closed labels", "planned: cross-entropy plus the weighted predictor loss", (), (),
             ("closed vocabulary",)),
    Decision(35, "decoding with transitions", "planned: Viterbi over smoothed transitions and tempered scores", (), (),
             ("closed vocabulary",)),
    Decision(36, "scenario masks for prior planners", "planned: with and without, two rows", (), (),
             ("prior planners",)),
    Decision(37, "what the pool's oracle picks", "the highest utility; a diagnostic", ("evaluation.headroom_pools",),
             ("trajpilot_core.evaluation.headroom:pool_sums",)),
    Decision(38, "reading the language models' answers", "planned: exact, else nearest label; unreadable is wrong",
             (), (),
             ("language models",)),
    Decision(39, "head and training of the shot outcome", "planned: mean of outputs, fixed threshold, AUC beside it",
             (), (),
             ("basketball",)),
    Decision(40, "what shuffled means", "a derangement among the windows of one horizon", ("evaluation.shuffles",),
             (f"{ROWS}:derangement",)),
    Decision(41, "the conditions of the first table", "planned: next latent from current latent and one condition",
             (), (),
             ("conditioning study",)),
    Decision(42, "which checkpoint stands where", "planning without goal dropout; anticipation with (planned)",
             ("predictor.goal_dropout",), (f"{ROWS}:all_answers",), ("anticipation",)),
    Decision(43, "scorer on other corpora", "planned: the same net, trained anew", (), (), ("EPIC-KITCHENS-100",
             "basketball")),
    Decision(44, "intervals that touch their neighbours", "whole; a central share is a setting",
             ("ingest.central_share",)),
    Decision(45, "which descriptions count", "one annotator per take, the wearer's own, seen and sure",
             fields("ingest", "interval_cap_s", "subjects", "drop_unsure", "require_ego_visible"),
             ("trajpilot_core.readers.descriptions:choose_annotation",)),
    Decision(46, "times of the frames", "equal steps up to one frame before the end", ("features.n_frames",),
             ("trajpilot_core.video.clips:frame_times_s",)),
    Decision(47, "trajectories at test time", "the query's own endpoints with foreign middles; Oracle: its own", (),
             (f"{ROWS}:own_plan", f"{ROWS}:scorer_rows")),
    Decision(48, "steps of an anticipation", "planned: all positions after Start, for every method", (), (),
             ("anticipation",)),
    Decision(49, "holes in the pose stream", "a limit around each pose and one inside the segment",
             fields("trajectories", "max_bracket_gap_s", "max_inner_gap_s")),
    Decision(50, "feed-forward width of E_tau", "a setting of its own", ("alignment.hidden",)),
    Decision(51, "when a row counts as trained", "above both floors on dev, and dev no longer rising", (),
             (f"{JUDGE}:FLOORS", f"{JUDGE}:RISE")),
    Decision(52, "the sequence of a row", "first answers, unless the row decodes jointly", (),
             ("schemas.results:Prediction",)),
)  # fmt: skip
UNDECIDED: tuple[tuple[str, Part], ...] = (("search over trajectories by distance to the goal", "CEM"),)
"""Further parts of the paper that need no numbered decision."""
