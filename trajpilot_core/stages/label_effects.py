"""Label effects: what labels and takes add to looks and head motion, chain by chain, for Scorer+.

Its shards are chains: the seeds of the scorer share them (docs/decisions/scorer-plus.md).
"""

from pydantic import JsonValue

from schemas.config import PipelineConfig
from schemas.training import ScorerConfig, ScorerPlusConfig
from trajpilot_core.data.contributions import Contributions, folds_of, part_of
from trajpilot_core.data.cross_fitting import chains
from trajpilot_core.engine.stage import Inputs, Source, Stage, Work
from trajpilot_core.stages.needs_of_trainings import label_effects_needs
from trajpilot_core.store.tensors import Tensors

VERSION = 1  # raise when the numbers that this stage writes change
TAKES_GIVE = ("segments", "motions", "features")
"""Entries that the effects are fitted on."""
OWN = ("effects", "look_directions", "motion_directions", "recognition_directions")
"""Settings of Scorer+ that decide the effects."""


def completed(config: PipelineConfig) -> ScorerConfig:
    """Return the settings of Scorer+ that decide the effects, everything else at its default."""
    plus = config.scorer.plus
    own = None if plus is None else ScorerPlusConfig(**{name: getattr(plus, name) for name in OWN})
    return ScorerConfig(plus=own)


def sources(inputs: Inputs, cfg: ScorerConfig, data_root: str) -> list[Source]:
    """Return one source per chain: what the takes that it is fitted on contribute."""
    takes, fold_of = Contributions.read(inputs, TAKES_GIVE), folds_of(inputs)
    bank: JsonValue = part_of(inputs, "text_bank")
    return [
        Source(
            chain.name,
            facts={"training takes": takes.facts(fold_of, chain)["training takes"], "text bank": bank},
        )
        for chain in chains(1 + max(fold_of.values()))
    ]


def run(work: Work[ScorerConfig]) -> None:
    """Fit the effects of chains in closed form; without Scorer+ they are left empty."""
    from trajpilot_core.data.chains import chains_of, fit_takes
    from trajpilot_core.data.planning import load_planning_data
    from trajpilot_core.training.label_effects import ENTRY, fit_label_effects, stored_effects
    from trajpilot_core.training.loop import one_thread

    plus, device = work.config.plus, work.runtime.device
    asked = {source.shard for source in work.pending}
    data = None if plus is None else load_planning_data(work.inputs, "label_effects").to(device)
    known = {} if data is None else {chain.name: chain for chain in chains_of(data)}
    with one_thread(device):
        for done, name in enumerate(sorted(asked)):
            work.runtime.progress(done, len(asked), f"chains; fits {name}")
            tensors: Tensors = {}
            if plus is not None and data is not None:
                tensors = stored_effects(fit_label_effects(data, fit_takes(data, known[name]), plus))
            with work.sink.training(name) as share:
                share.model(ENTRY, name, tensors)
                share.models(ENTRY, {})


def conclude(work: Work[ScorerConfig]) -> None:
    """End the entry; a row is a segment."""
    work.sink.models("label_effects", {"config": work.config.model_dump_json()})
    n_segments = work.inputs.table("segments", ["segment_id"]).num_rows
    work.sink.count(n_segments, n_segments)


STAGE = Stage(
    name="label_effects",
    reads=("takes", "take_contents", "segments", "windows", "motions", "features", "text_bank", "folds"),
    writes=("label_effects",),
    config=ScorerConfig,
    run=run,
    version=VERSION,
    summary="Fits what labels and takes add to looks and head motion, chain by chain, for Scorer+",
    shard_by="chain",
    sources=sources,
    pure_sources=True,
    uses_gpu=True,
    conclude=conclude,
    outside_shards=tuple(name for name in ScorerConfig.model_fields if name != "plus"),
    completed=completed,
    needs=label_effects_needs,
)
