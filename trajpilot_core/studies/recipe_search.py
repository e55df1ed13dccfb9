"""One seeded random search for the recipe of a learned row: trials are ordinary executions of its stage in the store.

Only the curves of that stage are read, which hold train and dev scores: test windows can decide nothing. A search that
was killed goes on, because what was computed is found by its key. Source: docs/decisions/training.md.
"""

import math
import random
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

from pydantic import JsonValue

from schemas.arrow import rows_of
from schemas.artifacts import Manifest
from schemas.config import PipelineConfig, RunOptions
from schemas.observation import MOTIONS
from schemas.results import CurvePoint
from schemas.search import SearchConfig, SearchedRow, SearchSpace, TrialRow
from schemas.training import (
    AlignmentConfig,
    AttentionConfig,
    AttentionVariant,
    CausalConfig,
    PredictorConfig,
    ScorerConfig,
)
from trajpilot_core.data.cross_fitting import attention_row
from trajpilot_core.engine.execution.execute import Outcome, execute
from trajpilot_core.engine.planning.stated import manifests_of
from trajpilot_core.engine.sizes import CorpusSizes, sizes_of
from trajpilot_core.engine.stage import AnyStage
from trajpilot_core.errors import InputError, StoreError
from trajpilot_core.markdown_escape import literal
from trajpilot_core.store.files import Folder, open_folder
from trajpilot_core.store.manifest import current_manifest, read_run_record, ref_of
from trajpilot_core.store.reading import StageInputs

IN_TRAIN = ("lr", "batch", "weight_decay", "warmup")
"""Fields of the space that are settings of the loop."""
CORNERS: tuple[AttentionVariant, ...] = ("both", "no_motion")
"""Variants of retrieval attention that a search trains: opposite corners of the 2 x 2, so that neither motion is
favoured."""
SCORED: Mapping[SearchedRow, tuple[str, tuple[str, ...]]] = {
    "alignment": ("R@5", ("e_tau",)),
    "predictor": ("M@1", ("traj", "no_traj", "endpoint_traj")),
    "scorer": ("selection", ("scorer",)),
    "attention": ("M@1", tuple(attention_row(variant) for variant in CORNERS)),
}
"""Stage -> the quantity by which its epochs are chosen, and the models whose mean decides."""
FLOPS = 6
"""Multiplications and additions of a training step for each multiplication on the way forward."""
Searched = AlignmentConfig | PredictorConfig | ScorerConfig | AttentionConfig
Settings = Mapping[str, JsonValue]
"""Path in the stage's configuration -> value."""


def search(
    row: SearchedRow,
    cfg: SearchConfig,
    base: PipelineConfig,
    run: RunOptions,
    stages: Mapping[str, AnyStage],
    said: Callable[[list[TrialRow], str], None],
    earlier: Sequence[TrialRow] = (),
) -> list[TrialRow]:
    """Run the trials of one stage, and leave the chosen one as its output that counts.

    Args:
        row: the stage; those before it must have run.
        cfg: space, number of trials and their time.
        base: the recipe that the trials differ from.
        run: where; `root` is that of the search.
        stages: all stages by name.
        said: called after every trial with the rows that there are and a line.
        earlier: trials of this search that were computed elsewhere; they are taken as they stand.

    Raises:
        InputError: the space has too few trials, or a width that the heads do not divide; or an earlier trial is none
            of this search.
        StoreError: the stages before it have not run, or another run changes the root.
    """
    folder = open_folder(run.root, run.protocols)
    trials = draw_trials(getattr(cfg, row), cfg.trials, cfg.seed)
    configs = [with_settings(getattr(base, row), settings) for settings in trials]
    sizes = sizes_below(folder, base, stages)
    kept = {one.number: one for one in earlier}
    rows: list[TrialRow] = []
    for number, (settings, config) in enumerate(zip(trials, configs, strict=True)):
        timed, modelled_s = with_epochs(config, sizes, cfg)
        if number in kept:
            rows.append(same_trial(kept[number], settings, timed.train.epochs))
            said(rows, f"trial {number + 1} of {len(trials)} kept: dev {percent(rows[-1].mean_dev)} %")
            continue
        outcome = execute(stages[row], base.replace(**{row: timed}), run, stages)
        rows.append(trial_row(row, number, settings, timed.train.epochs, modelled_s, committed(folder, outcome)))
        state = "found" if outcome.cached else "computed"
        said(
            rows, f"trial {number + 1} of {len(trials)} {state}: dev {percent(rows[-1].mean_dev)} %; {words(settings)}"
        )
    best = configs[chosen(rows).number]
    execute(stages[row], base.replace(**{row: with_epochs(best, sizes, cfg)[0]}), run, stages)
    return rows


def same_trial(earlier: TrialRow, settings: Settings, epochs: int) -> TrialRow:
    """Return a trial that was computed elsewhere.

    Raises:
        InputError: this search draws something else there, or gives it other epochs.
    """
    if earlier.settings != dict(settings) or earlier.epochs != epochs:
        raise InputError(
            f"trial {earlier.number + 1} of the earlier table drew {words(earlier.settings)} with {earlier.epochs} "
            f"epochs, but this search has {words(settings)} with {epochs}; leave --earlier out, or search as then"
        )
    return earlier


def draw_trials(space: SearchSpace, n: int, seed: int) -> list[dict[str, JsonValue]]:
    """Draw different trials, the first as the recipe stands; a longer search begins with the trials of a shorter one.

    Raises:
        InputError: the space does not hold so many.
    """
    values = {name: options for name, options in space if options}
    most = math.prod(len(set(options)) for options in values.values())
    if n - 1 > most:
        raise InputError(
            f"{n} trials were asked for, but the space holds {most} and the recipe; ask for fewer, or widen the space"
        )
    generator = random.Random(seed)
    found: list[dict[str, JsonValue]] = [{}]
    while len(found) < n:
        drawn = {path_of(name): options[int(generator.random() * len(options))] for name, options in values.items()}
        if drawn not in found:
            found.append(drawn)
    return found


def path_of(name: str) -> str:
    """Return where a field of the space lies in the stage's configuration."""
    return f"train.{name}" if name in IN_TRAIN else name


def with_settings(config: Searched, settings: Settings) -> Searched:
    """Return the configuration with what a trial drew; the hidden width keeps its proportion to the width.

    Raises:
        InputError: the stage has no such setting, or the heads do not divide the width.
    """
    if unknown := sorted({path.split(".")[0] for path in settings} - set(type(config).model_fields)):
        raise InputError(f"{type(config).__name__} has no setting {unknown[0]!r}; leave it empty in the space")
    own = {path: value for path, value in settings.items() if not path.startswith("train.")}
    train = {path.removeprefix("train."): value for path, value in settings.items() if path.startswith("train.")}
    width = own.get("width", config.width)
    assert isinstance(width, int)
    if width % config.heads:
        raise InputError(f"a trial has width {width}, which {config.heads} heads do not divide; correct the space")
    if not isinstance(config, ScorerConfig):
        own["hidden"] = round(config.hidden * width / config.width)
    return config.replace(**own, train=config.train.replace(**train))


def with_epochs(config: Searched, sizes: CorpusSizes, cfg: SearchConfig) -> tuple[Searched, float]:
    """Return the configuration with the epochs that the time allows, all of which run, and the modelled seconds.

    The time is modelled, not measured, so that a trial is the same one on every machine and after a kill.
    """
    epoch_s = epoch_seconds(config, sizes, cfg)
    epochs = max(1, min(cfg.most_epochs, int(60 * cfg.minutes / epoch_s)))
    return config.replace(train=config.train.replace(epochs=epochs, patience=None)), epochs * epoch_s


class EpochWork(NamedTuple):
    """What one epoch of a training computes."""

    samples: int
    weights: float
    """Multiplications of a sample on the way forward: each weight as often as it is applied."""


def epoch_seconds(config: Searched, sizes: CorpusSizes, cfg: SearchConfig) -> float:
    """Return the modelled seconds of one epoch on one thread: FLOPS for each multiplication, and the steps."""
    work = work_of(config, sizes)
    arithmetic = FLOPS * work.weights * work.samples / cfg.flops_per_s
    return arithmetic + math.ceil(work.samples / config.train.batch) * cfg.step_s


def work_of(config: Searched, sizes: CorpusSizes) -> EpochWork:
    """Return what one epoch of the chain `final` computes; of the scorer, on the held-out takes of all chains."""
    mids = sum(sizes.horizons) / max(1, len(sizes.horizons)) - 2
    align, windows, text = sizes.config.alignment, sizes.windows.get("train", 0), sizes.text_width * config.width
    fitted = 1.0 if align.folds > 1 else 1 - align.holdout_share
    if isinstance(config, CausalConfig):
        block, context = block_weights(config.width, config.hidden), 2 * config.queries
        inputs = 2 * sizes.feature_numbers * config.width + 2 * (mids + 2) * text
        planner = block * (config.layers * (context + mids) + context) + inputs
        read = read_weights(config, context + mids, mids + 2, sizes) if isinstance(config, AttentionConfig) else 0.0
        return EpochWork(round(fitted * windows), planner + read)
    if isinstance(config, AlignmentConfig):
        segments = fitted * sizes.segments * windows / max(1, sizes.all_windows)
        return EpochWork(round(segments), config.layers * MOTIONS * block_weights(config.width, config.hidden) + text)
    held = 1.0 if align.fold_share is None else align.folds * align.fold_share
    queries = round(windows * (held if align.folds > 1 else align.holdout_share))
    token = config.layers * block_weights(config.width, 4 * config.width) + (sizes.longest + 1) * text
    return EpochWork(min(config.max_queries, queries), (config.candidates + 2) * token)


def read_weights(cfg: AttentionConfig, tokens: float, positions: float, sizes: CorpusSizes) -> float:
    """Return the multiplications of a window with what it retrieves: motion in, keys and values, and what is read."""
    retrieved, width = cfg.neighbours * positions, cfg.width
    motion = retrieved * (sizes.text_width + sizes.config.alignment.width) * width
    return motion + cfg.reads * 2 * width * (width * (retrieved + tokens) + tokens * retrieved)


def block_weights(width: int, hidden: int) -> int:
    """Return the weights that a transformer block applies to a token."""
    return 4 * width * width + 2 * width * hidden


def sizes_below(folder: Folder, base: PipelineConfig, stages: Mapping[str, AnyStage]) -> CorpusSizes:
    """Return the counts that the cost model reads: windows by split and the like, no window itself."""
    manifests = [manifest for manifest in manifests_of(folder, stages).values() if manifest is not None]
    entries = {name: (one.stage, entry) for one in manifests for name, entry in one.entries.items()}
    return sizes_of(folder, entries, base)


class TrialOutput(NamedTuple):
    """The output of one trial."""

    manifest: Manifest
    inputs: StageInputs
    """Opens its curves and nothing else."""
    took_s: float


def committed(folder: Folder, outcome: Outcome) -> TrialOutput:
    """Open the curves that an execution left.

    Raises:
        StoreError: another run has put something else in its place.
    """
    stage = outcome.ref.stage
    manifest = current_manifest(folder, stage)
    if manifest is None or ref_of(folder, manifest) != outcome.ref:
        raise StoreError(
            f"another run changed {stage} below {folder.url} meanwhile; give the search a --root of its own"
        )
    name = f"{stage}_curves"
    inputs = StageInputs(folder, "recipe search", {name: (stage, manifest.entries[name])})
    record = read_run_record(folder, stage, manifest.key)
    return TrialOutput(manifest, inputs, record.seconds if record is not None else math.nan)


def trial_row(
    row: SearchedRow, number: int, settings: Settings, epochs: int, modelled_s: float, output: TrialOutput
) -> TrialRow:
    """Return the scores of a trial, of the epoch that each training kept, means over the seeds."""
    quantity, models = SCORED[row]
    curve = rows_of(CurvePoint, output.inputs.table(f"{row}_curves"))
    scores = {model: kept_scores(curve, f"final/{model}", quantity) for model in models}
    train = {model: of["train"] for model, of in scores.items() if "train" in of}
    return TrialRow(
        number=number,
        settings=dict(settings),
        epochs=epochs,
        key=output.manifest.key,
        modelled_s=round(modelled_s, 1),
        took_s=round(output.took_s, 1),
        dev={model: of["dev"] for model, of in scores.items()},
        train=train,
    )


def kept_scores(curve: Sequence[CurvePoint], model: str, quantity: str) -> dict[str, float]:
    """Return split -> score of the epoch with the highest dev score (ties: the earlier), mean over the seeds.

    Raises:
        InputError: the model has no dev score.
    """
    mine = sorted(
        (point for point in curve if (point.model, point.quantity) == (model, quantity)), key=lambda point: point.seed
    )
    found: dict[str, list[float]] = {}
    for _, points in groupby(mine, key=lambda point: point.seed):
        by_epoch = {(point.split, point.epoch): point.value for point in points}
        dev = {epoch: value for (split, epoch), value in by_epoch.items() if split == "dev"}
        best = min(dev, key=lambda epoch: (-dev[epoch], epoch))
        for split in ("dev", "train"):
            if (split, best) in by_epoch:
                found.setdefault(split, []).append(by_epoch[split, best])
    if "dev" not in found:
        raise InputError(f"{model} has no dev {quantity}, so that no trial can be chosen; the corpus needs dev takes")
    return {split: sum(values) / len(values) for split, values in found.items()}


def chosen(rows: Sequence[TrialRow]) -> TrialRow:
    """Return the trial with the highest mean over its models' dev scores; ties go to the earlier one."""
    return max(rows, key=lambda row: (row.mean_dev, -row.number))


def words(settings: Settings) -> str:
    """Return what a trial drew on one line."""
    return ", ".join(f"{path} {value}" for path, value in settings.items()) or "the recipe as it stands"


def trials_table(row: SearchedRow, rows: Sequence[TrialRow], cfg: SearchConfig, warning: str) -> str:
    """Return the trials as Markdown, train and dev scores in percent, the chosen one marked.

    Args:
        row: the stage.
        rows: its trials.
        cfg: of the search.
        warning: what stands above results of a simulated corpus; empty for a recorded one.
    """
    quantity, models = SCORED[row]
    head = [
        "trial",
        *(f"{model}: train / dev" for model in models),
        "mean dev",
        "epochs",
        "modelled s",
        "took s",
        "drew",
    ]
    best = chosen(rows).number
    body = [
        [
            f"**{one.number + 1}**" if one.number == best else f"{one.number + 1}",
            *(f"{percent(one.train.get(model))} / {percent(one.dev[model])}" for model in models),
            percent(one.mean_dev),
            str(one.epochs),
            f"{one.modelled_s:.0f}",
            f"{one.took_s:.0f}",
            literal(words(one.settings)),
        ]
        for one in rows
    ]
    lines = ["| " + " | ".join(cells) + " |" for cells in (head, ["---"] * len(head), *body)]
    said = f"{quantity}, %, of the epoch that dev chose; {len(rows)} trials, seed {cfg.seed}, space of {cfg.fixed_on}."
    rule = f"At most {cfg.minutes:g} minutes a training by the cost model. The highest mean over dev is in bold."
    return "\n\n".join(part for part in (warning, f"{said} {rule}", "\n".join(lines)) if part) + "\n"


def percent(value: float | None) -> str:
    """Print a share, a dash where there is none."""
    return "-" if value is None else f"{100 * value:.1f}"
