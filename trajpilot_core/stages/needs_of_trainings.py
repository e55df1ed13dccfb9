"""What the stages need in which models are trained, and the parts that other stages need as well: host, GPU, disk.

Every formula counts the tensors of the true shapes and multiplies them by how many times they are there at the peak;
docs/operations.md says how close they are. Imports no torch.

Shapes: S segments, F numbers of a feature, E text width, V labels, B batch, H longest horizon, W width of a model.
"""

from schemas.observation import DOF, MOTIONS
from schemas.training import AlignmentConfig, PredictorConfig, ScorerConfig, TrainConfig
from trajpilot_core.data.cross_fitting import FINAL, Chain, twins_of
from trajpilot_core.engine.needs import MB, Need, Needs, NeedsMachine
from trajpilot_core.engine.sizes import CorpusSizes

FLOAT, HALF, LONG, DOUBLE = 4, 2, 8, 8
"""Bytes of a number."""
TORCH_PROCESS = 320 * MB
"""A process that has imported torch and the stages, with what its allocators keep. Measured: 270 to 290 MB."""
GPU_PROCESS = 1_000 * MB
"""What CUDA adds to it on the host, and a context takes on the GPU. Not measured: no GPU has run this project."""
LARGE_BLOCK = 32 * MB
"""Larger blocks go back to the system when they are freed; smaller ones lie in heaps with holes between them."""
HOLES = 1.6
"""Heap over what is in use, for smaller blocks. Measured: 1.5."""
SEGMENTS_PER_CALL, ROWS_PER_CALL, WINDOWS_AT_ONCE, ANSWERED_AT_ONCE = 8192, 2048, 1024, 768
"""As in data/chains.py, training/dev_scores.py, training/scorer_queries.py and evaluation/predictions.py."""
ROLL_OUT_PLANS, LOGIT_CHUNK, DECODED_AT_ONCE = 2048, 1 << 25, 1 << 22
"""As in retrieval/candidates.py, models/ranking.py and models/readout.py."""
COLLECTED, ANSWERED = 4.5, 9.0
"""Tables of candidate plans at the peak of collecting queries, and of answering every row of the tables. Measured:
3.5, and 5.3 before the rows answer."""
CHECKPOINT = 4
"""Copies of the parameters in a checkpoint, which goes with its training: weights, two moments, the best epoch."""
STATES = 4
"""Copies of the parameters where a training computes: weights, gradients, two moments."""
BF16_SHARE = 0.6
"""Activations under autocast over those of fp32, by counting what a block keeps: 22 W + 4 hidden bytes of 40 W + 8."""
FINAL_VARIANTS, FOLD_VARIANTS = 3, 2
"""Predictors of the final chain, goal-dropout twins aside, and of the chain of a fold."""


def n_chains(cfg: AlignmentConfig) -> int:
    """Return how many chains of models the folds call for (data/chains.py)."""
    return 1 if cfg.folds == 1 else 1 + cfg.folds


def parallel(machine: NeedsMachine, n_jobs: int) -> int:
    """Return how many trainings run at a time; those on a GPU take turns."""
    return 1 if machine.is_gpu else min(machine.workers, n_jobs)


def motion_bytes(sizes: CorpusSizes) -> int:
    """Return what reading head motion and segments takes on the host at its peak, and the tensors of both."""
    return sizes.segments * (4_200 + 3 * FLOAT * MOTIONS * DOF) + bank_bytes(sizes) * 3


def plan_width(sizes: CorpusSizes) -> int:
    """Return the width of a step of a plan: an embedding, or with a class head the probabilities of the labels."""
    return sizes.labels if sizes.config.predictor.head == "classes" else sizes.text_width


def decoding_bytes(sizes: CorpusSizes) -> int:
    """Return what decoding the scores of class heads takes at its peak: eight tables of them in double precision."""
    return 8 * DOUBLE * DECODED_AT_ONCE if sizes.config.predictor.head == "classes" else 0


def bank_bytes(sizes: CorpusSizes) -> int:
    """Return the bytes of the (V, E) text bank."""
    return FLOAT * sizes.labels * sizes.text_width


def feature_bytes(sizes: CorpusSizes) -> int:
    """Return the bytes of the (S, F) float16 features."""
    return HALF * sizes.segments * sizes.feature_numbers


def latent_bytes(sizes: CorpusSizes) -> int:
    """Return the bytes of the (S, E) trajectory latents of one chain."""
    return FLOAT * sizes.segments * sizes.text_width


def planning_bytes(sizes: CorpusSizes) -> int:
    """Return what `load_planning_data` takes on the host at its peak: features several times, rows as objects."""
    return motion_bytes(sizes) + 3 * feature_bytes(sizes) + sizes.all_windows * 1_100 + sizes.positions * 200


def after_loading(sizes: CorpusSizes, work: int) -> int:
    """Return what a process takes that loads the planning data and then works: half of what loading took stays.

    Args:
        sizes: of the corpus.
        work: bytes on the host after it has loaded.
    """
    loaded = planning_bytes(sizes)
    return TORCH_PROCESS + max(loaded, loaded // 2 + work)


def planning_tensors(sizes: CorpusSizes) -> int:
    """Return the bytes of the tensors that it leaves, on whatever device they lie."""
    small = FLOAT * MOTIONS * DOF + 3 * LONG
    return (
        feature_bytes(sizes)
        + sizes.segments * small
        + bank_bytes(sizes)
        + LONG * (sizes.positions + 2 * sizes.all_windows)
    )


def predictor_parameters(cfg: PredictorConfig, sizes: CorpusSizes) -> int:
    """Return the number of parameters of one predictor."""
    width, text = cfg.width, sizes.text_width
    block = 4 * width * width + 2 * width * cfg.hidden + 9 * width + cfg.hidden
    tables = width * (sizes.tokens + cfg.queries + 2 * sizes.longest + 12) + 2 * sizes.feature_width
    head = sizes.labels * (text + 1) if cfg.head == "classes" else 0
    return (cfg.layers + 1) * block + width * (sizes.feature_width + 3 * text + 2) + tables + text + head


def alignment_parameters(cfg: AlignmentConfig, sizes: CorpusSizes) -> int:
    """Return the number of parameters of one E_tau."""
    width = cfg.width
    block = 4 * width * width + 2 * width * cfg.hidden + 9 * width + cfg.hidden
    return cfg.layers * block + width * (MOTIONS + DOF + 3 + sizes.text_width) + sizes.text_width


def kept_activations(tokens: int, layers: float, width: int, hidden: int) -> int:
    """Return the bytes that the blocks of a training step keep for the gradients, in fp32, holes of the heap included.

    Counted with torch's hooks for saved tensors: 10 W + 2 hidden numbers a token and block, exact to 1 %.

    Args:
        tokens: of the whole batch.
        layers: blocks; the compressor is one for its own tokens.
        width: W.
        hidden: of the feed-forward.
    """
    narrow, wide = FLOAT * tokens * width, FLOAT * tokens * hidden
    return round(layers * (10 * narrow * holes(narrow) + 2 * wide * holes(wide)))


def holes(block: int) -> float:
    """Return heap over use for blocks of so many bytes."""
    return HOLES if block < LARGE_BLOCK else 1.0


def in_turn(step: int, measure: int, block: int) -> int:
    """Return what a training step and the measure of an epoch take at the peak.

    Args:
        step: bytes that the step keeps.
        measure: bytes of the measure.
        block: bytes of one tensor of the step: small ones leave a heap that the measure does not fit into.
    """
    return step + measure if block < LARGE_BLOCK else max(step, measure)


def autocast(n_bytes: int, train: TrainConfig, machine: NeedsMachine) -> int:
    """Return activations in the arithmetic of a training; on a CPU, and where `auto` is open, fp32 is counted."""
    return round(BF16_SHARE * n_bytes) if machine.is_gpu and train.precision == "bf16" else n_bytes


def alignment_needs(sizes: CorpusSizes, cfg: AlignmentConfig, machine: NeedsMachine) -> Needs:
    """State what fitting every E_tau needs: one training at a time, or one per worker of a CPU.

    E_tau of another run are copied one by one.
    """
    n_jobs = n_chains(cfg) * len(cfg.seeds)
    if cfg.pretrained is not None:
        size = FLOAT * alignment_parameters(cfg, sizes)
        return Needs(Need(TORCH_PROCESS + 2 * size + 3 * bank_bytes(sizes)), disk=Need(n_jobs * size))
    tensors = sizes.segments * (FLOAT * MOTIONS * DOF + 2 * LONG) + bank_bytes(sizes)
    parameters = FLOAT * alignment_parameters(cfg, sizes)
    batch = min(cfg.train.batch, sizes.segments)
    step = autocast(kept_activations(batch * MOTIONS, cfg.layers + 1, cfg.width, cfg.hidden), cfg.train, machine)
    step += 6 * FLOAT * batch * (min(batch, sizes.labels) + sizes.text_width)
    at_once = min(SEGMENTS_PER_CALL, sizes.segments)
    measure = FLOAT * at_once * MOTIONS * (2 * cfg.hidden + 5 * cfg.width) + round(2.5 * latent_bytes(sizes))
    measure += sizes.segments * FLOAT * MOTIONS * DOF + 3 * FLOAT * ROWS_PER_CALL * sizes.labels
    training = tensors + STATES * parameters + in_turn(step, measure, FLOAT * batch * MOTIONS * cfg.width)
    return trainings(
        machine,
        n_jobs,
        Need(motion_bytes(sizes), ("--workers",)),
        Need(training, ("alignment.train.batch",) if step > measure else ()),
        parameters,
        scratch=tensors,
    )


def trainings(machine: NeedsMachine, n_jobs: int, parent: Need, training: Need, parameters: int, scratch: int) -> Needs:
    """Put together what a stage of trainings needs.

    Args:
        machine: where they run.
        n_jobs: how many there are.
        parent: what the process that starts them holds of the host.
        training: what one of them holds where it computes, on the GPU or on the host.
        parameters: bytes of one model; its checkpoint is made in the memory of the host.
        scratch: bytes of what the trainings read.
    """
    at_once, checkpoint = parallel(machine, n_jobs), CHECKPOINT * parameters
    one = TORCH_PROCESS + parent.bytes
    disks = {
        "disk": Need(n_jobs * parameters),
        "scratch": Need(scratch + at_once * 2 * checkpoint),
    }
    if machine.is_gpu:
        host, device = Need(one + GPU_PROCESS + checkpoint), Need(GPU_PROCESS + training.bytes, training.lower)
        return Needs(host, device, **disks)
    more = at_once * (checkpoint + (TORCH_PROCESS if at_once > 1 else 0))
    lower = training.lower + (parent.lower if at_once > 1 else ())
    return Needs(Need(one + more + at_once * training.bytes, lower), **disks)


def predictor_needs(sizes: CorpusSizes, cfg: PredictorConfig, machine: NeedsMachine) -> Needs:
    """State what fitting every predictor needs; it follows the chains and seeds of alignment."""
    folds, seeds = n_chains(sizes.config.alignment) - 1, len(sizes.config.alignment.seeds)
    of_fold = FOLD_VARIANTS + len(twins_of(Chain("fold0", 0), cfg))
    n_jobs = seeds * (FINAL_VARIANTS + len(twins_of(FINAL, cfg)) + folds * of_fold)
    own = latent_bytes(sizes) + LONG * (sizes.positions + sizes.segments)
    tensors = feature_bytes(sizes) + LONG * sizes.segments + bank_bytes(sizes) + own
    parameters = FLOAT * predictor_parameters(cfg, sizes)
    of_a_batch = sizes.windows.get("train", 0) if cfg.mixed_horizons else sizes.of_a_horizon("train")
    batch = min(cfg.train.batch, of_a_batch)
    narrow = FLOAT * batch * (2 * cfg.queries + sizes.longest - 2) * cfg.width
    step = autocast(predictor_step(sizes, cfg, batch), cfg.train, machine) + pool_bytes(sizes, batch)
    scales = (HALF + FLOAT) * sizes.segments * sizes.feature_numbers
    training = tensors + STATES * parameters + max(in_turn(step, predictor_answers(sizes, cfg), narrow), scales)
    return trainings(
        machine,
        n_jobs,
        Need(planning_bytes(sizes) + 2 * own, ("--workers",)),
        Need(training, ("predictor.train.batch",)),
        parameters,
        scratch=tensors + n_chains(sizes.config.alignment) * seeds * own,
    )


def predictor_step(sizes: CorpusSizes, cfg: PredictorConfig, batch: int) -> int:
    """Return what a training step of the predictor keeps, the pooled loss left out."""
    context = 2 * cfg.queries
    tokens = context + sizes.longest - 2
    layers = cfg.layers + 1 + context / tokens
    clips = 6 * FLOAT * batch * (sizes.feature_numbers + sizes.tokens * cfg.width)
    ends = 8 * FLOAT * batch * sizes.longest * sizes.text_width
    return kept_activations(batch * tokens, layers, cfg.width, cfg.hidden) + clips + ends


def pool_bytes(sizes: CorpusSizes, batch: int) -> int:
    """Return what InfoNCE over all tokens of a batch takes: seven times the table of tokens and distinct labels."""
    pooled = batch * sizes.longest
    return 7 * FLOAT * pooled * min(pooled, sizes.labels, sizes.segments)


def predictor_answers(sizes: CorpusSizes, cfg: PredictorConfig) -> int:
    """Return what labelling dev windows takes at its peak: activations without gradients, and their cosines."""
    tokens = 2 * cfg.queries + sizes.longest - 2
    cosines = 2 * (sizes.longest - 2) * sizes.labels
    windows = min(ROWS_PER_CALL, sizes.of_a_horizon("dev"))
    return FLOAT * windows * (tokens * (2 * cfg.hidden + 5 * cfg.width) + cosines)


def scorer_needs(sizes: CorpusSizes, cfg: ScorerConfig, machine: NeedsMachine) -> Needs:
    """State what retrieving, rolling out and fitting the scorers of one seed needs; seeds follow one another.

    Queries lie in mapped files, which count for no memory; where a GPU has room for them, they go there.
    """
    train, dev = query_counts(sizes, cfg)
    windows = min(WINDOWS_AT_ONCE, -(-max(train, dev) // max(1, len(sizes.horizons))))
    tensors = planning_tensors(sizes) + view_bytes(sizes) + query_latents(sizes, train)
    phases = {
        "scorer.candidates": candidate_bytes(sizes, cfg, windows, COLLECTED) + retrieval_bytes(sizes),
        "scorer.train.batch": autocast(scorer_step(sizes, cfg, min(train, cfg.train.batch)), cfg.train, machine),
    }
    lower = max(phases, key=lambda name: phases[name])
    models = (
        (1 + len(cfg.ablations) + cfg.anticipates)
        * len(sizes.config.alignment.seeds)
        * FLOAT
        * scorer_parameters(sizes, cfg)
    )
    peak = tensors + phases[lower]
    disks = {
        "disk": Need(models),
        "scratch": Need(query_disk(sizes, cfg) + CHECKPOINT * models, ("scorer.max_queries",)),
    }
    if machine.is_gpu:
        return Needs(Need(after_loading(sizes, GPU_PROCESS)), Need(GPU_PROCESS + peak, (lower,)), **disks)
    return Needs(Need(after_loading(sizes, peak), (lower,)), **disks)


def query_counts(sizes: CorpusSizes, cfg: ScorerConfig) -> tuple[int, int]:
    """Return the most training queries and dev queries of one seed."""
    alignment = sizes.config.alignment
    share = alignment.holdout_share if alignment.folds == 1 else min(1.0, (alignment.fold_share or 1) * alignment.folds)
    train = round(1.1 * share * sizes.windows.get("train", 0)) + sizes.longest
    dev = sizes.windows.get("dev", 0)
    return min(cfg.max_queries, train), -(-dev // max(1, -(-dev // cfg.max_queries)))


def view_bytes(sizes: CorpusSizes) -> int:
    """Return the frozen models of a chain, and its latents with the copies that tables of them are."""
    parameters = predictor_parameters(sizes.config.predictor, sizes)
    return FINAL_VARIANTS * FLOAT * parameters + 3 * latent_bytes(sizes)


def twin_bytes(sizes: CorpusSizes) -> int:
    """Return the goal-dropout twins of a chain, which answer rows next to its models; 0 without any."""
    cfg = sizes.config.predictor
    return len(twins_of(FINAL, cfg)) * FLOAT * predictor_parameters(cfg, sizes)


def query_latents(sizes: CorpusSizes, train: int) -> int:
    """Return the latents of all the chains that queries point into."""
    chains = n_chains(sizes.config.alignment) if train else 1
    return chains * latent_bytes(sizes) + bank_bytes(sizes)


def retrieval_bytes(sizes: CorpusSizes) -> int:
    """Return the bank of one horizon: keys of both ends, twice while they are joined."""
    return 2 * FLOAT * sizes.of_a_horizon("train") * 2 * sizes.text_width


def candidate_bytes(sizes: CorpusSizes, cfg: ScorerConfig, windows: int, times: float) -> int:
    """Return what finding, rolling out and judging the candidates of so many windows takes at its peak.

    Args:
        sizes: of the corpus.
        cfg: of the scorer.
        windows: at a time.
        times: how many tables of the plans (windows, K, M, E) there are at the peak.
    """
    mids = sizes.longest - 2
    plans = FLOAT * windows * cfg.candidates * mids * plan_width(sizes)
    rolled = min(ROLL_OUT_PLANS, windows * cfg.candidates)
    model = sizes.config.predictor
    tokens = mids * (2 * model.hidden + 5 * model.width) + 3 * (2 * model.queries + mids) * model.width
    logits = 3 * FLOAT * min(LOGIT_CHUNK, windows * cfg.candidates * mids * sizes.labels)
    return round(times * plans * holes(plans)) + FLOAT * rolled * tokens + logits + decoding_bytes(sizes)


def scorer_step(sizes: CorpusSizes, cfg: ScorerConfig, batch: int) -> int:
    """Return what a training step of the scorer keeps: five times its batch of plans, and the activations."""
    plans = 5 * FLOAT * batch * cfg.candidates * (sizes.longest - 2) * plan_width(sizes)
    tokens = batch * (cfg.candidates + 2)
    attention = 3 * FLOAT * tokens * (cfg.candidates + 2) * cfg.heads * cfg.layers
    return plans + attention + kept_activations(tokens, cfg.layers + 2, cfg.width, 4 * cfg.width)


def scorer_parameters(sizes: CorpusSizes, cfg: ScorerConfig) -> int:
    """Return the number of parameters of the paper's scorer."""
    text, width = sizes.text_width, cfg.width
    read = 2 * sizes.feature_width + 4 * text + (sizes.longest - 1) * plan_width(sizes)
    return width * read + cfg.layers * (12 * width * width + 13 * width) + 2 * (2 * sizes.feature_width + 2 * text)


def query_disk(sizes: CorpusSizes, cfg: ScorerConfig) -> int:
    """Return the bytes of the queries of one seed (training/scorer_queries.py has the same count)."""
    train, dev = query_counts(sizes, cfg)
    text, steps = sizes.text_width, sizes.longest - 2
    candidate = HALF * steps * plan_width(sizes) + 2 * LONG * steps + 1 + 2 * FLOAT
    query = cfg.candidates * candidate + FLOAT * 2 * (sizes.feature_width + text) + HALF * steps * plan_width(sizes)
    each = query + 2 * LONG + 2 * FLOAT
    return (train + dev) * each + dev * 2 * FLOAT * len(cfg.temperatures)
