"""The rows of the tables on one query: retrieval, roll-out and scorers are those of the evaluation.

The query is one more planning window after those of the corpus, with three segments: Start, Goal, and one without
features or motion for every middle step. Rows of the corpus keep their numbers, so a bank built from the corpus alone
fits the query. Where the video is a take of the corpus, the query has that take's number, so that retrieval excludes it
as it excludes every query's own take.
"""

from collections.abc import Collection
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from schemas.annotation import DOF, MOTIONS
from trajpilot_core.data.chains import chains_of, open_model_files, trajectory_latents
from trajpilot_core.data.planning import NO_FOLD, SPLITS, load_planning_data
from trajpilot_core.data.transitions import with_closed_tables
from trajpilot_core.errors import InputError
from trajpilot_core.methods import METHODS
from trajpilot_core.methods.base import Answers
from trajpilot_core.methods.batch import Scorers, WindowBatch, load_scorers, retrieve
from trajpilot_core.methods.plans import derangement
from trajpilot_core.predict.trained import TrainedRoot
from trajpilot_core.retrieval.bank import ChainView, build_bank, chain_view
from trajpilot_core.retrieval.candidates import Candidates
from trajpilot_core.training.loop import one_thread
from trajpilot_core.training.scorer_fit import scorer_config

QUERY = "query"


class Clips(NamedTuple):
    """Features and head motion of the two clips."""

    features: NDArray[np.float16]
    """(2, C x D)."""
    motions: NDArray[np.float32] | None
    """(2, 16, 6), None without head motion."""


class Given(NamedTuple):
    """The answers to one query, each of B = 1 window."""

    seed: int
    view: ChainView
    """Its last window of the horizon is the query."""
    answers: dict[str, Answers]
    """Row -> its answer; the deciding row is first."""
    found: Candidates | None
    """What was retrieved; None without head motion."""


class LoadedChain(NamedTuple):
    """Models of one seed and the corpus that they retrieve from, for any number of queries."""

    seed: int
    view: ChainView
    scorers: Scorers
    device: str


def refuse_horizon(horizon: int, known: Collection[int]) -> None:
    """Refuse a horizon that the models were not trained for.

    Raises InputError: it is not one of the known ones.
    """
    if horizon not in known:
        raise InputError(
            f"--horizon {horizon}: the models were trained for {', '.join(map(str, sorted(known)))}; "
            "choose one of these (Start and Goal count)"
        )


def load_chain(root: TrainedRoot, seed: int | None, device: str) -> LoadedChain:
    """Load the models of a seed, of the first one for None.

    Raises InputError: there are no models of this seed.
    """
    files, scorers = open_model_files(root.inputs), root.inputs.models("scorers")
    chosen = files.seeds[0] if seed is None else seed
    if chosen not in files.seeds:
        raise InputError(f"--seed {seed}: there are models of the seeds {', '.join(map(str, files.seeds))}")
    with one_thread(device):
        read = with_closed_tables(load_planning_data(root.inputs, "predict"), root.inputs, files.predictors)
        data, decoding = read.to(device), scorer_config(scorers).decoding
        known = chain_view(data, files, chains_of(data)[0], chosen, device, decoding)
        return LoadedChain(chosen, known, load_scorers(scorers, chosen, device), device)


def answer_with(chain: LoadedChain, clips: Clips, horizon: int, take_id: str | None) -> Given:
    """Answer one query by the rows for a user's video; `take_id` is the take of the corpus that the video is, if any.

    Raises InputError: the models were not trained for this horizon.
    """
    refuse_horizon(horizon, chain.view.data.windows)
    with one_thread(chain.device):
        view = with_query(chain.view, clips, horizon, take_id)
        windows = view.data.windows[horizon]
        if clips.motions is None:
            batch, candidates = WindowBatch(view, windows.segments[-1:]), None
        else:
            bank = build_bank(chain.view, horizon, chain.scorers.config.key)
            row = torch.tensor([len(windows.window_ids) - 1], device=view.data.features.device)
            batch = retrieve(view, bank, row, chain.scorers, derangement(len(bank.take), horizon))
            candidates = batch.candidates().found
        answers = answers_of(batch, moving=clips.motions is not None)
        return Given(chain.seed, view, answers, candidates)


def answers_of(batch: WindowBatch, *, moving: bool) -> dict[str, Answers]:
    """Return row -> its answer, the deciding row first; without motion only the rows that need none."""
    able = [row for row in METHODS if row.plans is not None and (moving or row.sees == "ends")]
    ordered = sorted(able, key=lambda row: row.plans or 0)
    return {row.id: answer for row in ordered if row.answer and (answer := row.answer(batch)) is not None}


def with_query(view: ChainView, clips: Clips, horizon: int, take_id: str | None) -> ChainView:
    """Return a chain's view with the query's window as the last one of its horizon; it is a new take for None."""
    data = view.data
    looks = torch.from_numpy(clips.features).view(2, *data.features.shape[1:])
    moves = torch.zeros(2, MOTIONS, DOF) if clips.motions is None else torch.from_numpy(clips.motions)
    extra = torch.cat([moves, torch.zeros(1, MOTIONS, DOF)]).to(data.features.device)
    known = data
    if take_id is None:
        known = replace(
            data,
            take_ids=(*data.take_ids, QUERY),
            captures=(*data.captures, QUERY),
            take_split=_grown(data.take_split, torch.tensor([SPLITS.index("test")])),
            fold=_grown(data.fold, torch.tensor([NO_FOLD])),
        )
    take = torch.tensor([known.take_ids.index(QUERY if take_id is None else take_id)])
    windows, first = data.windows[horizon], len(data.segment_ids)
    window = replace(
        windows,
        window_ids=(*windows.window_ids, QUERY),
        take=_grown(windows.take, take),
        split=_grown(windows.split, torch.tensor([SPLITS.index("test")])),
        segments=_grown(windows.segments, torch.tensor([[first, *[first + 2] * (horizon - 2), first + 1]])),
    )
    added = replace(
        known,
        segment_ids=(*data.segment_ids, *(f"{QUERY}:{part}" for part in ("start", "goal", "middle"))),
        features=_grown(data.features, torch.cat([looks, torch.zeros_like(looks[:1])])),
        motions=_grown(data.motions, extra),
        labels=_grown(data.labels, torch.zeros(3)),  # read by no row, because the truth is unknown
        segment_take=_grown(data.segment_take, take.expand(3)),
        windows=data.windows | {horizon: window},
    )
    latents = torch.cat([view.latents, trajectory_latents(view.models.e_tau, extra)])
    return replace(view, data=added, latents=latents, readout=view.readout.with_takes(len(added.take_ids)))


def _grown(known: Tensor, more: Tensor) -> Tensor:
    """Append rows."""
    return torch.cat([known, more.to(known.device, known.dtype)])
