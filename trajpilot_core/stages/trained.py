"""Stages whose shards are trainings: one declaration, from which sources, run and conclusion of a stage follow."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeAlias

from pydantic import JsonValue

from schemas.arrow import table_of
from schemas.results import CurvePoint
from trajpilot_core.data.cross_fitting import Chain, Contributions, folds_of, horizons_of, model_key, part_of
from trajpilot_core.engine.stage import Config, Source, Stage, Work
from trajpilot_core.store.reading import Inputs

if TYPE_CHECKING:
    from trajpilot_core.training.jobs import Fit, Task, TrainingJob

Trainings: TypeAlias = Mapping[str, tuple[Chain, int, str]]
"""Name of a training -> its chain, seed and variant."""
Facts: TypeAlias = dict[str, JsonValue]
PLANNING = ("takes", "segments", "windows", "motions", "features", "text_bank", "folds")
"""Entries that every stage of planning reads that trains or answers on windows (`data.planning`)."""


class Fits(NamedTuple):
    """Trainings that are ready to run: their inputs are in scratch."""

    jobs: "Mapping[str, TrainingJob]"
    """By the name of the training, which is also the key of its model."""
    fit: "Fit[Any, Any]"
    about: "Callable[[TrainingJob], Mapping[str, str]]"
    """What the entry notes about the model of a job: its shape, the takes that it was fitted on."""
    floors: Mapping[str, list[CurvePoint]] = {}
    """Training -> scores of rows without a model that its table of curves begins with."""


@dataclass(frozen=True)
class TrainedStage(Generic[Config]):
    """What a stage of trainings states: which there are, what decides each, and how they are prepared."""

    entry: str
    """Entry of its models."""
    curves: str
    """Table of their curves."""
    trainings: Callable[[Inputs, Config], Trainings]
    facts: Callable[[Inputs, Config, Trainings], Mapping[str, Facts]]
    """Training -> what decides its result; must not import torch."""
    fits: Callable[[Work[Config], Trainings], Fits | None]
    """Write the inputs of pending trainings to scratch; None: they are committed already."""
    conclude: Callable[[Work[Config]], None] | None = None
    """None: the settings of the models are written, and rows are windows."""
    results: tuple[str, ...] = ()
    """Entries that the conclusion writes."""

    def stage(self, **declared: Any) -> Stage[Config]:
        """Return the stage of this declaration; `declared` are its further fields."""

        def sources(inputs: Inputs, cfg: Config, data_root: str) -> list[Source]:
            known = self.trainings(inputs, cfg)
            facts = self.facts(inputs, cfg, known) if known else {}
            return [Source(name, facts=facts[name]) for name in known]

        def conclude_windows(work: Work[Config]) -> None:
            work.sink.models(self.entry, {"config": work.config.model_dump_json()})
            n_windows = work.inputs.table("windows", ["horizon"]).num_rows
            work.sink.count(n_windows, n_windows)

        return Stage(
            writes=(self.entry, self.curves, *self.results),
            run=self.run,
            shard_by="training",
            sources=sources,
            uses_gpu=True,
            conclude=self.conclude or conclude_windows,
            **declared,
        )

    def run(self, work: Work[Config]) -> None:
        """Run the pending trainings; each is committed as soon as it has ended."""
        from trajpilot_core.training.jobs import run_jobs

        pending = {source.shard for source in work.pending}
        wanted = {name: of for name, of in self.trainings(work.inputs, work.config).items() if name in pending}
        fits = self.fits(work, wanted) if wanted else None
        if fits is None:
            return
        name_of = {job: name for name, job in fits.jobs.items()}

        def ended(job: "TrainingJob") -> None:
            name = name_of[job]
            _, weights, curve = fits.fit.result(job)
            with work.sink.training(name) as share:
                share.model(self.entry, name, {key: value.numpy() for key, value in weights.items()})
                share.table(self.curves, table_of(CurvePoint, [*fits.floors.get(name, []), *curve]))
                share.models(self.entry, fits.about(job))

        run_jobs(list(name_of), fits.fit, work.runtime, ended)


def named(trainings: Iterable[tuple[Chain, int, str]]) -> Trainings:
    """Return trainings, each a chain, seed and variant, by their names, the keys of their models."""
    return {model_key(*of): of for of in trainings}


def chain_facts(
    entries: Sequence[str], columns: Sequence[str] = (), more: Sequence[str] = ()
) -> Callable[[Inputs, Any, Trainings], dict[str, Facts]]:
    """Return the facts of a stage: what the takes contribute that the chain of a training is fitted and measured on.

    `entries` and `columns` of `takes` are read by take, the text bank and `more` as a whole.
    """

    def facts(inputs: Inputs, cfg: Any, known: Trainings) -> dict[str, Facts]:
        takes, fold_of = Contributions.read(inputs, entries, columns), folds_of(inputs)
        every: Facts = {name.replace("_", " "): part_of(inputs, name) for name in ("text_bank", *more)}
        every["horizons"] = horizons_of(inputs)
        by_chain = {chain: {**takes.facts(fold_of, chain), **every} for chain, *_ in known.values()}
        return {name: by_chain[chain] for name, (chain, *_) in known.items()}

    return facts


def prepared(
    work: Work[Any], wanted: Trainings, name: str, task_of: "Callable[[Chain, int], Task]"
) -> "dict[str, TrainingJob]":
    """Write the tensors of trainings to scratch, in a folder of this name; return training -> its job."""
    from trajpilot_core.training.jobs import chain_job, put_task

    scratch, jobs = work.runtime.scratch / name, dict[str, "TrainingJob"]()
    for (chain, seed), variants in variants_by_chain(wanted).items():
        task, folder = task_of(chain, seed), scratch / f"{chain.name}-s{seed}"
        put_task(scratch, folder, task, is_first=not jobs)
        jobs |= {model_key(chain, seed, v): chain_job(work, chain, seed, v, folder, scratch) for v in variants}
    return jobs


def variants_by_chain(wanted: Trainings) -> dict[tuple[Chain, int], tuple[str, ...]]:
    """Return (chain, seed) -> the variants to train, in the order of `wanted`."""
    variants: dict[tuple[Chain, int], tuple[str, ...]] = {}
    for chain, seed, variant in wanted.values():
        variants[chain, seed] = (*variants.get((chain, seed), ()), variant)
    return variants
