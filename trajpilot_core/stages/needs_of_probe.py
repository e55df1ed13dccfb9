"""What training attentive probes needs; see `needs_of_trainings`. Imports no torch.

Shapes: S segments, F numbers of a feature, N tokens, D width.
"""

from dataclasses import replace

from schemas.action_token import TOKEN_ROWS, ActionTokenConfig
from schemas.config import FeatureConfig
from schemas.probe import ProbeConfig
from schemas.vjepa import PATCH_PX, TUBELET
from trajpilot_core.engine.needs import MB, Need, Needs, NeedsMachine
from trajpilot_core.engine.sizes import CorpusSizes
from trajpilot_core.stages import features
from trajpilot_core.stages import needs_of_trainings as part

MLP = 4
"""As in models/attentive_probe.py."""
EVENT = 3
"""As in models/outcome.py."""
ANSWERED_AT_ONCE = 512
"""As in training/fit_probe.py."""


def probe_needs(sizes: CorpusSizes, cfg: ProbeConfig, machine: NeedsMachine) -> Needs:
    """State what fitting one grid after the other needs; each trial leaves its checkpoint until the stage has ended."""
    if cfg.tokens is None:
        return nothing_asked(machine)
    if cfg.tokens == "full":
        return full_needs(sizes, cfg, cfg.encoder or sizes.config.features, machine)
    tokens, parameters = part.feature_bytes(sizes), part.FLOAT * parameters_of(sizes, cfg)
    trials = len(cfg.rates) * len(cfg.decays)
    step = part.kept_activations(
        cfg.batch * sizes.tokens, cfg.blocks + 1, sizes.feature_width, MLP * sizes.feature_width
    )
    answered = 4 * part.FLOAT * ANSWERED_AT_ONCE * sizes.tokens * (2 + MLP) * sizes.feature_width
    return part.trainings(
        machine,
        len(cfg.seeds),
        Need(3 * tokens + sizes.segments * 4_000, ("--workers",)),
        Need(tokens + part.STATES * parameters + max(step, answered), ("probe.batch",)),
        parameters,
        scratch=tokens + len(cfg.seeds) * trials * part.CHECKPOINT * parameters,
    )


def full_needs(sizes: CorpusSizes, cfg: ProbeConfig, encoder: FeatureConfig, machine: NeedsMachine) -> Needs:
    """State what fitting all trials of a grid side by side needs, with the encoder and the decoders that feed them.

    Nothing of a clip is kept; the tokens of one batch are, and the activations of few clips of one trial.
    """
    feeding = features.needs(sizes, encoder, machine)
    width, n_tokens = sizes.feature_width, tokens_of_a_clip(encoder)
    parameters = len(cfg.rates) * len(cfg.decays) * part.FLOAT * parameters_of(sizes, cfg)
    number = part.HALF if machine.is_gpu and encoder.precision != "fp32" else part.FLOAT
    batch = cfg.batch * n_tokens * width * number
    step = part.kept_activations(cfg.clips_at_once * n_tokens, cfg.blocks + 1, width, MLP * width)
    own = part.trainings(
        machine,
        1,
        Need(sizes.segments * 4_000, ("--workers",)),
        Need(part.STATES * parameters + batch + step, ("probe.rates", "probe.clips_at_once")),
        parameters,
        scratch=2 * part.CHECKPOINT * parameters,
    )
    clips = cfg.batch * 3 * encoder.n_frames * encoder.size_px**2
    host = Need(own.host.bytes + feeding.host.bytes + clips, own.host.lower or feeding.host.lower)
    device = Need(own.device.bytes + feeding.device.bytes, ("probe.rates", "probe.clips_at_once", "features.batch"))
    disk = Need(len(cfg.seeds) * parameters_of(sizes, cfg) * part.FLOAT)
    return Needs(host, device if machine.is_gpu else own.device, disk, own.scratch)


def tokens_of_a_clip(encoder: FeatureConfig) -> int:
    """Return how many tokens every patch of a clip makes, those of the tubelet that is predicted among them."""
    grid = (encoder.size_px // PATCH_PX) ** 2
    return grid * (encoder.n_frames // TUBELET + (encoder.ahead_tubelets is not None))


def nothing_asked(machine: NeedsMachine) -> Needs:
    """State what a stage needs of which nothing is asked."""
    return Needs(Need(part.TORCH_PROCESS), Need(part.GPU_PROCESS if machine.is_gpu else 0), disk=Need(MB))


def parameters_of(sizes: CorpusSizes, cfg: ProbeConfig) -> int:
    """Return the parameters of a probe; heads of verbs and nouns are smaller than that of actions."""
    width = sizes.feature_width
    block = (4 + 2 * MLP) * width * width + (9 + MLP) * width
    return (cfg.blocks + 1) * block + 3 * width + 3 * sizes.labels * (width + 1)


def token_needs(sizes: CorpusSizes, cfg: ActionTokenConfig, machine: NeedsMachine) -> Needs:
    """State what the stage `action_token` needs at the peak: fitting predictors, queries of the scorer, or probes.

    Predictors are those of planning with one vector a clip, whose windows are the clips, of three positions.
    """
    if not cfg.is_asked:
        return nothing_asked(machine)
    clips = replace(sizes, windows={"train": sizes.segments}, horizons=(EVENT,), tokens=1)
    planned = part.predictor_needs(clips, sizes.config.predictor.replace(train=cfg.train), machine)
    probe = cfg.replace(probe=sizes.config.probe.replace(tokens="temporal", seeds=(0,)))
    tuned = probe_needs(sizes, probe.tuned, machine)
    candidates = sizes.config.scorer.candidates
    queries = sizes.segments * (candidates + 1) * sizes.text_width * (part.HALF + part.FLOAT)
    rows = len(TOKEN_ROWS) * len(sizes.config.probe.seeds)
    host = max(planned.host.bytes, tuned.host.bytes) + queries
    return Needs(
        Need(host, planned.host.lower or tuned.host.lower),
        Need(max(planned.device.bytes, tuned.device.bytes), ("action_token.train.batch",)),
        disk=Need(planned.disk.bytes + rows * tuned.disk.bytes),
        scratch=Need(planned.scratch.bytes + rows * tuned.scratch.bytes),
    )
