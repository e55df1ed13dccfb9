"""What training attentive probes needs; see `needs_of_trainings`. Imports no torch.

Shapes: S segments, F numbers of a feature, N tokens, D width.
"""

from schemas.probe import ProbeConfig
from trajpilot_core.engine.needs import MB, Need, Needs, NeedsMachine
from trajpilot_core.engine.sizes import CorpusSizes
from trajpilot_core.stages import needs_of_trainings as part

MLP = 4
"""As in models/attentive_probe.py."""
ANSWERED_AT_ONCE = 512
"""As in training/fit_probe.py."""


def probe_needs(sizes: CorpusSizes, cfg: ProbeConfig, machine: NeedsMachine) -> Needs:
    """State what fitting one grid after the other needs; each trial leaves its checkpoint until the stage has ended."""
    if cfg.tokens is None:
        return Needs(Need(part.TORCH_PROCESS), Need(part.GPU_PROCESS if machine.is_gpu else 0), disk=Need(MB))
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


def parameters_of(sizes: CorpusSizes, cfg: ProbeConfig) -> int:
    """Return the parameters of a probe; heads of verbs and nouns are smaller than that of actions."""
    width = sizes.feature_width
    block = (4 + 2 * MLP) * width * width + (9 + MLP) * width
    return (cfg.blocks + 1) * block + 3 * width + 3 * sizes.labels * (width + 1)
