"""What retrieval attention needs, by the shapes of its tensors; see `needs_of_trainings`. Imports no torch.

Shapes: K neighbours, H longest horizon, E text width, A width of E_tau's states, W width of the model, P key width.
"""

from schemas.training import AttentionConfig
from trajpilot_core.engine.needs import Need, Needs, NeedsMachine
from trajpilot_core.engine.sizes import CorpusSizes
from trajpilot_core.stages import needs_of_trainings as part

NEIGHBOUR = 4 + 2 * part.HALF
"""Bytes of one neighbour of a window: its number and two cosines."""
SEARCHED_AT_ONCE, COARSE_TABLES = 256, 3
"""Queries of a search, and tables of them by the bank that stand at its peak (retrieval/search.py)."""
WINDOWS_AT_ONCE = 128
"""As in training/fit_attention.py."""


def attention_needs(sizes: CorpusSizes, cfg: AttentionConfig, machine: NeedsMachine) -> Needs:
    """State what finding neighbours and fitting every variant needs; it follows the seeds of alignment."""
    seeds = len(sizes.config.alignment.seeds)
    n_jobs = seeds * len(cfg.variants)
    if not n_jobs:
        return Needs(Need(part.TORCH_PROCESS))
    near = NEIGHBOUR * cfg.neighbours * (sizes.windows.get("train", 0) + sizes.windows.get("dev", 0))
    own = part.latent_bytes(sizes) + state_bytes(sizes) + part.LONG * (sizes.positions + sizes.segments)
    tensors = part.feature_bytes(sizes) + part.LONG * sizes.segments + part.bank_bytes(sizes) + near + own
    parameters = part.FLOAT * attention_parameters(cfg, sizes)
    of_a_batch = sizes.windows.get("train", 0) if cfg.mixed_horizons else sizes.of_a_horizon("train")
    batch = min(cfg.train.batch, of_a_batch)
    narrow = part.FLOAT * batch * (2 * cfg.queries + sizes.longest - 2) * cfg.width
    step = part.autocast(part.predictor_step(sizes, cfg, batch), cfg.train, machine)
    step += part.pool_bytes(sizes, batch) + retrieved_step(sizes, cfg, batch, machine)
    scales = (part.HALF + part.FLOAT) * sizes.segments * sizes.feature_numbers
    answers = part.predictor_answers(sizes, cfg) + retrieved_answers(sizes, cfg)
    training = tensors + part.STATES * parameters + max(part.in_turn(step, answers, narrow), scales)
    searching = part.planning_tensors(sizes) + scales + search_bytes(sizes, cfg)
    parent = part.planning_bytes(sizes) + 2 * own + near + (0 if machine.is_gpu else searching)
    return part.trainings(
        machine,
        n_jobs,
        Need(parent, ("--workers",)),
        Need(max(training, searching) if machine.is_gpu else training, ("attention.train.batch",)),
        parameters,
        scratch=tensors + seeds * own,
    )


def state_bytes(sizes: CorpusSizes) -> int:
    """Return the bytes of the (S, A) states of E_tau of one chain."""
    return part.FLOAT * sizes.segments * sizes.config.alignment.width


def attention_parameters(cfg: AttentionConfig, sizes: CorpusSizes) -> int:
    """Return the number of parameters of one model."""
    width, state = cfg.width, sizes.config.alignment.width
    projections = width * (2 * sizes.text_width + 2 * state + 2 * sizes.longest + 5)
    return part.predictor_parameters(cfg, sizes) + projections + cfg.reads * (4 * width * width + 6 * width) + 4


def retrieved_step(sizes: CorpusSizes, cfg: AttentionConfig, batch: int, machine: NeedsMachine) -> int:
    """Return what the retrieved tokens of a training step take: what is kept of them, and what passes at the peak.

    What passes: the looked-up motion as float32 and a copy without what is dropped, or three tensors of keys and values
    on the way back.
    """
    tokens, state = batch * cfg.neighbours * sizes.longest, sizes.config.alignment.width
    number = part.HALF if machine.is_gpu and cfg.train.precision == "bf16" else part.FLOAT
    passing = max(2 * part.FLOAT * tokens * (sizes.text_width + state), 3 * number * tokens * 2 * cfg.width)
    return number * tokens * kept_numbers(sizes, cfg) + passing


def kept_numbers(sizes: CorpusSizes, cfg: AttentionConfig) -> int:
    """Return how many numbers of a retrieved token are kept for the gradients: motion, itself, keys and values."""
    return sizes.text_width + sizes.config.alignment.width + cfg.width * (1 + 2 * cfg.reads)


def retrieved_answers(sizes: CorpusSizes, cfg: AttentionConfig) -> int:
    """Return what the retrieved tokens of answered windows take, without gradients: motion, tokens, keys and values."""
    tokens, state = WINDOWS_AT_ONCE * cfg.neighbours * sizes.longest, sizes.config.alignment.width
    return part.FLOAT * tokens * (2 * (sizes.text_width + state) + 5 * cfg.width)


def search_bytes(sizes: CorpusSizes, cfg: AttentionConfig) -> int:
    """Return what a search among the windows of one horizon takes: keys, rounded too, and its tables of cosines."""
    bank = sizes.of_a_horizon("train")
    return part.FLOAT * bank * (3 * 2 * cfg.key_width + COARSE_TABLES * SEARCHED_AT_ONCE)


def answering_bytes(sizes: CorpusSizes, cfg: AttentionConfig) -> int:
    """Return what answering windows keeps: the models of one seed, states, and the bank of one horizon."""
    models = len(cfg.variants) * part.FLOAT * attention_parameters(cfg, sizes)
    return models + state_bytes(sizes) + search_bytes(sizes, cfg)
