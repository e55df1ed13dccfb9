"""What planning in latents needs, by the shapes of its tensors; see `needs_of_trainings`. Imports no torch.

Shapes: B windows of a batch, T steps of a window, G predicted tokens, D feature width, W width of a predictor.
"""

from schemas.latent import LATENT_VARIANTS, LatentConfig
from schemas.observation import DOF, MOTIONS
from trajpilot_core.engine.needs import MB, Need, Needs, NeedsMachine
from trajpilot_core.engine.sizes import CorpusSizes
from trajpilot_core.stages import needs_of_trainings as part

SEARCHED_STEPS = 1 << 16
"""As in evaluation/latent_plans.py."""
PAIRS, FOLLOWED = 1024, 64
"""Pairs, and windows that follow one motion each, at a time, as in evaluation/latent_scores.py."""
ROW_BYTES = 250
"""Of a predicted position, as in stages/evaluation.py."""
ROWS = 7
"""Rows of the tables."""
HELD = 8
"""Tensors of the width of a token, or of a feature, that answering holds at once. Counted in the code, not measured."""


def target_tokens(sizes: CorpusSizes, cfg: LatentConfig) -> int:
    """Return G."""
    return sizes.tokens if cfg.target == "temporal" else 1


def parameters_of(sizes: CorpusSizes, cfg: LatentConfig) -> int:
    """Return the parameters of a predictor."""
    width, features = cfg.width, sizes.feature_width
    block = 4 * width * width + 2 * width * cfg.hidden + 9 * width + cfg.hidden
    given = width * (features + MOTIONS * DOF + width + sizes.text_width + 2 * sizes.longest + 12)
    return cfg.layers * block + given + target_tokens(sizes, cfg) * features * (width + 2)


def step_bytes(sizes: CorpusSizes, cfg: LatentConfig) -> int:
    """Return what a training step of a predictor keeps of a batch."""
    batch, tokens = min(cfg.train.batch, sizes.of_a_horizon("train") or 1), target_tokens(sizes, cfg)
    read = batch * (2 * tokens + sizes.longest)
    kept = part.kept_activations(read, cfg.layers, cfg.width, cfg.hidden)
    return kept + 6 * part.FLOAT * batch * sizes.longest * tokens * sizes.feature_width


def latent_needs(sizes: CorpusSizes, cfg: LatentConfig, machine: NeedsMachine) -> Needs:
    """State what fitting every model needs: a predictor decides."""
    if not cfg.is_asked:
        return nothing_asked(machine)
    parameters = part.FLOAT * parameters_of(sizes, cfg)
    training = part.planning_tensors(sizes) + part.STATES * parameters + step_bytes(sizes, cfg)
    return part.trainings(
        machine,
        len(cfg.seeds) * len(LATENT_VARIANTS),
        Need(2 * part.planning_bytes(sizes), ("--workers",)),
        Need(training, ("latent.train.batch",)),
        parameters,
        scratch=part.planning_tensors(sizes),
    )


def latent_plans_needs(sizes: CorpusSizes, cfg: LatentConfig, machine: NeedsMachine) -> Needs:
    """State what the search and the other rows need: the models of a seed, and the candidates that are rolled out."""
    if not cfg.is_asked:
        return nothing_asked(machine)
    test = sizes.positions * sizes.windows.get("test", 0) // max(1, sizes.all_windows)
    rows = ROWS * test * len(cfg.seeds) * ROW_BYTES
    widest = max(cfg.width + cfg.hidden, target_tokens(sizes, cfg) * sizes.feature_width, sizes.labels)
    searched = max(SEARCHED_STEPS, cfg.search.samples * sizes.longest) * MOTIONS * DOF
    of_a_window = max(cfg.search.samples, cfg.candidates, FOLLOWED) * sizes.longest
    rolled = max(of_a_window, SEARCHED_STEPS // cfg.search.samples, PAIRS)
    work = HELD * part.FLOAT * (searched + rolled * widest)
    models = (1 + len(LATENT_VARIANTS)) * part.FLOAT * parameters_of(sizes, cfg)
    held = part.planning_tensors(sizes) + models + work
    lower = ("latent.search.samples",)
    if machine.is_gpu:
        host = Need(part.after_loading(sizes, part.GPU_PROCESS + rows))
        return Needs(host, Need(part.GPU_PROCESS + held, lower), disk=Need(rows))
    return Needs(Need(part.after_loading(sizes, held + rows), lower), disk=Need(rows))


def nothing_asked(machine: NeedsMachine) -> Needs:
    """State what a stage needs of which nothing is asked."""
    return Needs(Need(part.TORCH_PROCESS), Need(part.GPU_PROCESS if machine.is_gpu else 0), disk=Need(MB))
