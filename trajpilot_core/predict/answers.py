"""The rows of the tables on one query: retrieval, roll-out and scorers are those of the evaluation.

The bank is made from the corpus alone, before the query is there. Where the video is a take of the corpus, the query
carries that take's number, so that the exclusion of a query's own take, which retrieval always makes, holds for it.
"""

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from trajpilot_core.data.chains import chains_of, open_model_files
from trajpilot_core.data.planning import load_planning_data
from trajpilot_core.data.transitions import with_closed_tables
from trajpilot_core.errors import InputError
from trajpilot_core.methods import METHODS
from trajpilot_core.methods.base import Answers
from trajpilot_core.methods.batch import Scorers, WindowBatch, load_scorers, retrieve, without_motion
from trajpilot_core.methods.plans import derangement
from trajpilot_core.predict.trained import TrainedRoot
from trajpilot_core.predict.window import with_query
from trajpilot_core.retrieval.bank import ChainView, build_bank, chain_view
from trajpilot_core.retrieval.candidates import Candidates
from trajpilot_core.training.loop import one_thread
from trajpilot_core.training.scorer_file import scorer_config


class Clips(NamedTuple):
    """What was measured on the two clips."""

    features: NDArray[np.float16]
    """(2, C x D)."""
    motions: NDArray[np.float32] | None
    """(2, 16, 6), None without head motion."""


class Given(NamedTuple):
    """The answers to one query, each of B = 1 window."""

    seed: int
    view: ChainView
    """With the query's window as the last one of its horizon."""
    answers: dict[str, Answers]
    """Row -> its answer; the row that decides first."""
    found: Candidates | None
    """What was retrieved; None without head motion."""


class LoadedChain(NamedTuple):
    """Models of one seed and the corpus that they retrieve from, ready to answer any number of queries."""

    seed: int
    view: ChainView
    scorers: Scorers
    device: str


def answer(root: TrainedRoot, clips: Clips, horizon: int, take_id: str | None, seed: int | None, device: str) -> Given:
    """Answer one query; arguments and errors as in `load_chain` and `answer_with`."""
    return answer_with(load_chain(root, seed, device), clips, horizon, take_id)


def load_chain(root: TrainedRoot, seed: int | None, device: str) -> LoadedChain:
    """Load what answers queries.

    Args:
        root: tables and models.
        seed: of the models; None: the first.
        device: where they run.

    Raises:
        InputError: there are no models of this seed.
    """
    files, scorers = open_model_files(root.inputs), root.inputs.models("scorers")
    chosen = files.seeds[0] if seed is None else seed
    if chosen not in files.seeds:
        raise InputError(f"--seed {seed}: there are models of the seeds {', '.join(map(str, files.seeds))}")
    with one_thread(device):
        read = with_closed_tables(load_planning_data(root.inputs, "predict"), root.inputs, files.predictors)
        data, decoding = read.to(device), scorer_config(scorers).decoding
        known = chain_view(data, files, chains_of(data)[0], chosen, device, decoding)
        ready = load_scorers(scorers, chosen, device)
        return LoadedChain(chosen, known, ready, device)


def answer_with(chain: LoadedChain, clips: Clips, horizon: int, take_id: str | None) -> Given:
    """Answer one query.

    Args:
        chain: the models.
        clips: what was measured.
        horizon: steps of the plan.
        take_id: the take of the corpus that the video is, or None.

    Raises:
        InputError: the models know no such horizon.
    """
    with one_thread(chain.device):
        view = with_query(chain.view, clips.features, clips.motions, horizon, take_id)
        segments = view.data.windows[horizon].segments[-1:]
        if clips.motions is None:
            return Given(chain.seed, view, answers_of(without_motion(view, segments), moving=False), None)
        bank = build_bank(chain.view, horizon, chain.scorers.config.key)
        row = torch.tensor([len(view.data.windows[horizon].window_ids) - 1], device=view.data.features.device)
        batch = retrieve(view, bank, row, chain.scorers, derangement(len(bank.take), horizon))
        return Given(chain.seed, view, answers_of(batch, moving=True), batch.candidates().found)


def answers_of(batch: WindowBatch, *, moving: bool) -> dict[str, Answers]:
    """Ask the rows that answer a video of one's own, the one that decides first.

    Args:
        batch: the query.
        moving: its head motion is known; else only rows that need none are asked.
    """
    asked = sorted((one for one in METHODS if one.plans is not None), key=lambda one: one.plans or 0)
    given = {one.id: one.answer(batch) for one in asked if one.answer and (moving or one.sees == "ends")}
    return {id_: answers for id_, answers in given.items() if answers is not None}
