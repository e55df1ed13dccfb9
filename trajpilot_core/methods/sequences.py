"""The hidden Markov model over labels, counted and fitted in closed form on the takes of the final chain.

Axes: B windows of one horizon H, V labels, P labels kept per step, R ranked answers.
Source: docs/decisions/methods.md.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from trajpilot_core.data.chains import fit_takes
from trajpilot_core.data.cross_fitting import Chain
from trajpilot_core.data.planning import PlanningData, rows_of_takes
from trajpilot_core.methods.base import RANKED, Answers
from trajpilot_core.methods.plans import joined
from trajpilot_core.models import label_chain
from trajpilot_core.models.blocks import ends_of
from trajpilot_core.models.ranking import best, rows_at_once

SHORTLIST = 50
"""Labels per step among which sequences are compared."""


class FittedSequences(NamedTuple):
    """Statistics of the takes of a chain: order of labels, and their features and head motion."""

    moves: label_chain.LabelMoves
    looks: label_chain.Discriminant
    """Reads pooled features."""
    looks_and_motion: label_chain.Discriminant
    """Reads pooled features and head motion."""


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
def hmm_answers(data: PlanningData, segments_BH: Tensor, fitted: FittedSequences, *, moving: bool) -> Answers:
    """Answer with a hidden Markov model: rankings by its exact posterior, the sequence by Viterbi over a shortlist.

    Args:
        data: only pooled features and, where `moving`, motions of the ends are read.
    """
    horizon = segments_BH.shape[1]
    discriminant = fitted.looks_and_motion if moving else fitted.looks
    parts = []
    for segments in torch.split(segments_BH, windows_at_once(horizon, data.bank)):
        vectors_B2C = endpoint_vectors(data, ends_of(segments))
        log_B2V = discriminant.log_likelihood(vectors_B2C if moving else vectors_B2C[..., : data.features.shape[-1]])
        posterior_BHV = label_chain.chain_marginals(fitted.moves, log_B2V[:, 0], log_B2V[:, 1], horizon)
        ids, scores = best(posterior_BHV, RANKED)
        labels_BHP = label_chain.probable_labels(posterior_BHV, SHORTLIST)
        own_BHP = torch.zeros(labels_BHP.shape, device=labels_BHP.device)
        for step, end in ((0, 0), (-1, 1)):
            own_BHP[:, step] = log_B2V[:, end].gather(1, labels_BHP[:, step])
        decoded = label_chain.decoded_sequence(label_chain.kept_chain(fitted.moves, labels_BHP, own_BHP))
        if horizon == 3:  # a single middle step is decoded to its first ranked label
            decoded[:, 1] = ids[:, 1, 0]
        parts.append(Answers(ids, scores, decoded=decoded, opened_scores="probability"))
    return joined(parts)


def windows_at_once(horizon: int, bank_VE: Tensor) -> int:
    """Return the number of windows that are read together, so that a table of all their labels stays small."""
    return max(1, rows_at_once(len(bank_VE), bank_VE.device) // horizon)
