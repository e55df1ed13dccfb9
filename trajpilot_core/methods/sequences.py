"""Shared by rows that decode their steps together: moves between labels, the hidden Markov model, shortlists.

Everything is counted or fitted in closed form on the takes of the final chain; no seed changes it.
Axes: B windows of one horizon H, V labels, P labels kept per step, R ranked answers.
Source: docs/decisions/methods.md.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import torch
from torch import Tensor

from schemas.training import JointDecodingConfig
from trajpilot_core.data.chains import fit_takes
from trajpilot_core.data.cross_fitting import Chain
from trajpilot_core.data.planning import PlanningData, rows_of_takes
from trajpilot_core.methods.base import RANKED, Answers
from trajpilot_core.methods.plans import joined
from trajpilot_core.models import label_chain
from trajpilot_core.models.blocks import ends_of
from trajpilot_core.models.ranking import best, rows_at_once


class FittedSequences(NamedTuple):
    """Statistics of the takes of a chain: order of labels, and their features and head motion."""

    moves: label_chain.LabelMoves
    looks: label_chain.Discriminant
    """Reads pooled features."""
    looks_and_motion: label_chain.Discriminant
    """Reads pooled features and head motion."""


class Knobs(NamedTuple):
    """Choices on dev for one row."""

    temperature: float
    weight: float
    """Factor of the log probabilities of moves."""


@dataclass(frozen=True)
class SequenceModels:
    """Models of rows that decode steps together, for windows of one seed and horizon."""

    fitted: FittedSequences
    config: JointDecodingConfig = field(default_factory=JointDecodingConfig)
    knobs: Mapping[str, Knobs] = field(default_factory=dict)
    """Row -> its choices on dev."""


class Shortlist(NamedTuple):
    """The most probable labels of a row, step by step."""

    labels: Tensor
    """(B, H, P) long, ascending."""
    scores: Tensor
    """(B, H, P), the row's own."""


@torch.inference_mode()
def fit_sequences(data: PlanningData, chain: Chain) -> FittedSequences:
    """Count moves and fit both discriminants on the takes of a chain."""
    takes = fit_takes(data, chain)
    rows = rows_of_takes(data.segment_take, takes)
    labels_S, n_labels = data.labels[rows], len(data.bank)
    moves = label_chain.label_moves(follow_counts(data, takes), torch.bincount(labels_S, minlength=n_labels).float())
    vectors_SC = endpoint_vectors(data, rows)
    looks = label_chain.fit_discriminant(vectors_SC[:, : data.features.shape[-1]], labels_S, n_labels)
    return FittedSequences(moves, looks, label_chain.fit_discriminant(vectors_SC, labels_S, n_labels))


def endpoint_vectors(data: PlanningData, rows: Tensor) -> Tensor:
    """Return float32 of shape (*rows, D + 96): pooled feature and motions of segments, `rows` long of any shape."""
    return torch.cat([data.features[rows].float().mean(-2), data.motions[rows].flatten(-2)], dim=-1)


def follow_counts(data: PlanningData, takes: Tensor) -> label_chain.Sparse:
    """Return (V, V) float32: how often the column's label follows the row's in windows of `takes`, each step once."""
    steps = []
    for windows in data.windows.values():
        segments_NH = windows.segments[torch.isin(windows.take, takes)]
        steps.append(torch.stack([segments_NH[:, :-1].flatten(), segments_NH[:, 1:].flatten()], dim=1))
    rows_P2 = torch.unique(torch.cat(steps), dim=0)
    pairs_2P = data.labels[rows_P2].T
    one_P = torch.ones(len(rows_P2), device=takes.device)
    size = len(data.bank), len(data.bank)
    return label_chain.sparse(torch.sparse_coo_tensor(pairs_2P, one_P, size, check_invariants=False).coalesce())


@torch.inference_mode()
def hmm_answers(data: PlanningData, segments_BH: Tensor, sequences: SequenceModels, *, moving: bool) -> Answers:
    """Answer with a hidden Markov model: rankings by its exact posterior, the sequence by Viterbi over a shortlist.

    Only pooled features and, where `moving`, motions of the ends are read.
    """
    fitted, horizon = sequences.fitted, segments_BH.shape[1]
    discriminant = fitted.looks_and_motion if moving else fitted.looks
    parts = []
    for segments in torch.split(segments_BH, windows_at_once(horizon, data.bank)):
        vectors_B2C = endpoint_vectors(data, ends_of(segments))
        log_B2V = discriminant.log_likelihood(vectors_B2C if moving else vectors_B2C[..., : data.features.shape[-1]])
        posterior_BHV = label_chain.chain_marginals(fitted.moves, log_B2V[:, 0], log_B2V[:, 1], horizon)
        ids, scores = best(posterior_BHV, RANKED)
        labels_BHP = label_chain.probable_labels(posterior_BHV, sequences.config.shortlist)
        own_BHP = torch.zeros(labels_BHP.shape, device=labels_BHP.device)
        for step, end in ((0, 0), (-1, 1)):
            own_BHP[:, step] = log_B2V[:, end].gather(1, labels_BHP[:, step])
        kept = label_chain.kept_chain(labels_BHP, own_BHP, label_chain.kept_moves(fitted.moves, labels_BHP))
        parts.append(answered(ids, scores, kept))
    return joined(parts)


def shortlisted(segments_BH: Tensor, bank_VE: Tensor, keep: int, scores_of: Callable[[slice], Tensor]) -> Shortlist:
    """Keep the best labels of every step; scores of all labels are in memory for a part of the windows at a time.

    `scores_of`: some of the windows -> the row's scores of all labels, (b, H, V).
    """
    labels, scores, n = [], [], windows_at_once(segments_BH.shape[1], bank_VE)
    for at in range(0, max(1, len(segments_BH)), n):  # one empty part for no windows
        score_BHV = scores_of(slice(at, at + n))
        labels.append(label_chain.probable_labels(score_BHV, keep))
        scores.append(score_BHV.gather(2, labels[-1]))
    return Shortlist(torch.cat(labels), torch.cat(scores))


@torch.inference_mode()
def joint_answers(fitted: FittedSequences, short: Shortlist, knobs: Knobs) -> Answers:
    """Answer with the posteriors among the shortlisted labels, and with the most probable whole sequence.

    A softmax over all labels would divide every score of a step by one number, which changes no sequence.
    """
    known = label_chain.kept_moves(fitted.moves, short.labels)
    kept = label_chain.kept_chain(short.labels, short.scores / knobs.temperature, known, knobs.weight)
    places_BHR, scores_BHR = best(label_chain.kept_marginals(kept), RANKED)
    return answered(short.labels.gather(2, places_BHR), scores_BHR, kept)


def answered(ids_BHR: Tensor, scores_BHR: Tensor, kept: label_chain.KeptChain) -> Answers:
    """Return rankings with the decoded sequence; a single middle step is decoded to its first ranked label."""
    decoded_BH = label_chain.decoded_sequence(kept)
    if decoded_BH.shape[1] == 3:
        decoded_BH[:, 1] = ids_BHR[:, 1, 0]
    return Answers(ids_BHR, scores_BHR, decoded=decoded_BH, kind="probability")


def instead(answers: Answers, plain: Answers, keep_B: Tensor) -> Answers:
    """Return the answers where `keep_B` (B,) is true, and those of a row that decodes step by step elsewhere."""
    assert answers.decoded is not None
    keep_B11 = keep_B[:, None, None]
    return replace(
        answers,
        ids=torch.where(keep_B11, answers.ids, plain.ids),
        scores=torch.where(keep_B11, answers.scores, plain.scores),
        decoded=torch.where(keep_B[:, None], answers.decoded, plain.ids[:, :, 0]),
    )


def windows_at_once(horizon: int, bank_VE: Tensor) -> int:
    """Return the number of windows that are read together, so that a table of all their labels stays small."""
    return max(1, rows_at_once(len(bank_VE), bank_VE.device) // horizon)
