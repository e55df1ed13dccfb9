"""The rows of the tables on one query: retrieval, roll-out and scorers are those of the evaluation.

The bank and everything that Scorer+ takes from training takes are made from the corpus alone, before the query is
there. Where the video is a take of the corpus, the query carries that take's number, so that the exclusion of a query's
own take, which retrieval and Scorer+ always make, holds for it.
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from trajpilot_core.errors import InputError
from trajpilot_core.evaluation.rollout import Answers, own_plan, plus_row, rank_plan, scorer_answers
from trajpilot_core.evaluation.rows import load_trained
from trajpilot_core.predict.trained import TrainedRoot
from trajpilot_core.predict.window import with_query
from trajpilot_core.retrieval.bank import ChainView, build_bank, chain_view, no_traj_plans
from trajpilot_core.retrieval.candidates import Candidates, find_candidates
from trajpilot_core.training.chains import ModelFile, chains_of, read_model_files
from trajpilot_core.training.data import load_planning_data
from trajpilot_core.training.loop import one_thread
from trajpilot_core.training.scorer import queries_of


class Clips(NamedTuple):
    """What was measured on the two clips."""

    features: NDArray[np.float16]
    """(2, C x D)."""
    controls: NDArray[np.float32] | None
    """(2, 16, 6), None without head motion."""


class Given(NamedTuple):
    """The answers to one query, each of B = 1 window."""

    seed: int
    view: ChainView
    """With the query's window as the last one of its horizon."""
    answers: tuple[Answers, ...]
    """The row that decides first."""
    thresholds: dict[str, float]
    """Row -> where its gate opens."""
    found: Candidates | None
    """What was retrieved; None without head motion."""


def answer(root: TrainedRoot, clips: Clips, horizon: int, take_id: str | None, seed: int | None, device: str) -> Given:
    """Answer one query.

    Args:
        root: tables and models.
        clips: what was measured.
        horizon: steps of the plan.
        take_id: the take of the corpus that the video is, or None.
        seed: of the models; None: the first.
        device: where they run.

    Raises:
        InputError: the models know no such horizon or seed.
    """
    files, scorers = read_model_files(root.inputs), ModelFile(*root.inputs.model("scorers"))
    chosen = files.seeds[0] if seed is None else seed
    if chosen not in files.seeds:
        raise InputError(f"--seed {seed}: there are models of the seeds {', '.join(map(str, files.seeds))}")
    with one_thread(device):
        data = load_planning_data(root.inputs, "predict").to(device)
        known = chain_view(data, files, chains_of(data)[0], chosen, device)
        view = with_query(known, clips.features, clips.controls, horizon, take_id)
        if clips.controls is None:
            return Given(chosen, view, (_no_traj(view, horizon),), {}, None)
        trained = load_trained(scorers, known, chosen, device)
        bank = build_bank(known, horizon, trained.config.key)
        row = torch.tensor([len(view.data.windows[horizon].window_ids) - 1], device=data.features.device)
        found = find_candidates(view, bank, row, trained.config)
        queries = queries_of(view, found, trained.config)
        answers = [scorer_answers("scorer", view, found, queries, trained.paper)]
        thresholds = {"scorer": trained.paper.decision.threshold}
        if trained.plus is not None:
            plus = trained.plus._replace(source=replace(trained.plus.source, view=view))
            answers.insert(0, plus_row(view, found, plus))
            thresholds["scorer_plus"] = plus.decision.threshold
        if view.models.endpoint_traj is not None:
            plan = own_plan(view, view.models.endpoint_traj, found.segments, with_mids=False)
            answers.append(rank_plan("endpoint_traj", plan, view))
        answers.append(rank_plan("no_traj", found.fallback, view))
    return Given(chosen, view, tuple(answers), thresholds, found)


def _no_traj(view: ChainView, horizon: int) -> Answers:
    """Answer without any head motion."""
    return rank_plan("no_traj", no_traj_plans(view, view.data.windows[horizon].segments[-1:]), view)
