"""What the planners of other papers need, by the shapes of their tensors; see `needs_of_trainings`. Imports no torch.

Shapes: A actions, B windows of a batch, H longest horizon, D feature width, E text width, W width of a planner.
"""

from schemas.planners import PlannersConfig
from trajpilot_core.engine.needs import MB, Need, Needs, NeedsMachine
from trajpilot_core.engine.sizes import CorpusSizes
from trajpilot_core.stages import needs_of_trainings as part

SENTENCES = 6
"""Of each label."""
AT_ONCE = 512
"""As in training/fit_planners.py."""


def planners_needs(sizes: CorpusSizes, cfg: PlannersConfig, machine: NeedsMachine) -> Needs:
    """State what fitting every planner needs: the largest of them decides."""
    n_jobs = len(cfg.seeds) * len(cfg.methods) * len(sizes.horizons)
    if not n_jobs:
        device = Need(part.GPU_PROCESS if machine.is_gpu else 0)
        return Needs(Need(part.TORCH_PROCESS), device, disk=Need(MB))
    tensors = task_bytes(sizes) + part.LONG * (sizes.positions + 2 * sizes.segments)
    numbers = max(parameters_of(sizes, cfg, method) for method in cfg.methods)
    work = max(step_bytes(sizes, cfg, method) for method in cfg.methods)
    training = tensors + part.STATES * part.FLOAT * numbers + max(work, decoded_bytes(sizes))
    return part.trainings(
        machine,
        n_jobs,
        Need(part.planning_bytes(sizes) + tensors, ("--workers",)),
        Need(training, ("planners.schema_net.train.batch",)),
        part.FLOAT * numbers,
        scratch=tensors,
    )


def task_bytes(sizes: CorpusSizes) -> int:
    """Return what planners read but windows: pooled features, sentences about labels, counts of moves."""
    described = part.FLOAT * SENTENCES * sizes.labels * sizes.text_width
    return part.HALF * sizes.segments * sizes.feature_width + described + part.FLOAT * sizes.labels**2


def decoded_bytes(sizes: CorpusSizes) -> int:
    """Return what decoding plans takes at its peak, the table of all moves among it."""
    return 8 * part.DOUBLE * AT_ONCE * sizes.longest * sizes.labels + part.DOUBLE * sizes.labels**2


def answering_bytes(sizes: CorpusSizes, cfg: PlannersConfig) -> int:
    """Return what the rows of the planners take in the evaluation: those of one horizon, and their decoding."""
    models = sum(part.FLOAT * parameters_of(sizes, cfg, method) for method in cfg.methods)
    return models + task_bytes(sizes) + decoded_bytes(sizes) if cfg.methods else 0


def parameters_of(sizes: CorpusSizes, cfg: PlannersConfig, method: str) -> int:
    """Return the most parameters of one planner; of tasks there are at most as many as labels."""
    width, read = cfg.schema_net.width, sizes.feature_width
    encoder = 2 * read * (read + width + 1) + sizes.text_width * width
    if method == "schema":
        layers = 2 * cfg.schema_net.layers * (8 + 2 * cfg.schema_net.mlp_ratio) * (width + 2) * width
        return encoder + layers + width * (3 * sizes.labels + 8 * width)
    if method == "viterbi_plan_net":
        return encoder + 16 * width * width + 2 * width * sizes.longest * sizes.labels + width * sizes.labels
    channels, base = read + 2 * sizes.labels, cfg.pdpp.width
    widest = base * max(cfg.pdpp.multiples)
    unet = 2 * (6 * channels * base + 40 * widest * widest)
    return unet + read * (read // 3) + 8 * read * (read // 3) + sizes.labels * (read // 3)


def step_bytes(sizes: CorpusSizes, cfg: PlannersConfig, method: str) -> int:
    """Return what a training step keeps of a batch."""
    longest, labels = sizes.longest, sizes.labels
    if method == "pdpp":
        rows = cfg.pdpp.train.batch * longest
        return part.FLOAT * rows * (8 * (sizes.feature_width + 2 * labels) + 60 * cfg.pdpp.width * 4)
    own = cfg.schema_net if method == "schema" else cfg.viterbi_plan_net
    batch = own.train.batch
    if method == "viterbi_plan_net":
        return part.FLOAT * batch * (12 * longest * labels + 8 * sizes.feature_width)
    tokens = batch * (2 * longest + 1)
    attention = 3 * part.FLOAT * tokens * own.heads * SENTENCES * labels * own.layers
    return (
        attention + part.FLOAT * tokens * (40 * own.width + 3 * labels) + part.FLOAT * batch * 8 * sizes.feature_width
    )
