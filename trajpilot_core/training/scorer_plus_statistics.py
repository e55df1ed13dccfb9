"""What Scorer+ takes from the training takes of one chain, in closed form.

Shapes: V labels, T takes that the chain was fitted on, S segments, B queries, H steps, E text space.
Source: docs/decisions/scorer-plus.md.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from schemas.training import ScorerConfig, ScorerPlusConfig
from trajpilot_core.data.chains import fit_takes
from trajpilot_core.data.planning import PlanningData, rows_of_takes
from trajpilot_core.models.blocks import ends_of
from trajpilot_core.models.role_chain import Sparse, context_likeness, sparse
from trajpilot_core.models.scorer_plus import PlusInputs, TrainingStatistics
from trajpilot_core.retrieval.bank import ChainView, person_codes
from trajpilot_core.retrieval.candidates import Candidates, pool_mean
from trajpilot_core.retrieval.random_effects import RandomEffects, Sizes, label_ratios, placed, take_ratios
from trajpilot_core.store.tensors import Models
from trajpilot_core.training.label_effects import LabelEffects, endpoint_vectors, fit_label_effects, read_effects
from trajpilot_core.training.scorer_plus_memory import require_memory_for_answers

CANDIDATES = 1
"""Place of the mean of the candidates' plans among the experts of `plus_inputs`."""
IMPOSSIBLE = -1e3
"""Log likelihood ratios below the best one are cut here."""


class FittedStatistics(NamedTuple):
    """What the takes of a chain say by themselves: no seed and no model changes it."""

    statistics: TrainingStatistics
    takes: Tensor
    """(T,) long, the takes that the chain was fitted on."""
    motion: RandomEffects
    """Of labels and takes on head motion."""
    looks: RandomEffects
    """Of labels and takes on features."""
    recognition: RandomEffects
    """Of labels and takes on features and head motion."""


@dataclass
class StatisticsByChain:
    """Statistics by chain, kept while the data and the settings stay."""

    stored: Models | None = None
    """Effects of labels and takes by chain, as the stage `label_effects` left them; None: they are fitted."""
    built: dict[str, FittedStatistics] = field(default_factory=dict)


@dataclass(frozen=True)
class PlusSource:
    """The training statistics of one chain, and how its queries are read."""

    view: ChainView
    fitted: FittedStatistics
    strict: bool
    """Takes of the query's own participant are not seen either."""
    config: ScorerPlusConfig
    moving: bool = True
    """False: no head motion of a query is read, neither by itself nor through a plan (docs/decisions/methods.md)."""


def plus_source(view: ChainView, config: ScorerConfig, known: StatisticsByChain | None = None) -> PlusSource:
    """Return what Scorer+ takes from the training takes of a chain.

    Args:
        view: the chain.
        config: `plus` must be set.
        known: statistics of this data and these settings, or the effects that they are made of; what is made here is
            added.

    Raises:
        ValueError: Scorer+ is off.
        InputError: the tables of its labels do not fit the memory.
    """
    if config.plus is None:
        raise ValueError("Scorer+ is off: set scorer.plus")
    known, name = StatisticsByChain() if known is None else known, view.chain.name
    if name not in known.built:
        data, takes = view.data, fit_takes(view.data, view.chain)
        device = str(data.bank.device)
        require_memory_for_answers(data, len(takes), device)
        if known.stored is None:
            effects = fit_label_effects(data, takes, config.plus)
        else:
            effects = read_effects(known.stored, name, Sizes(len(data.bank), len(takes)), device)
        known.built[name] = statistics_of(data, takes, effects, config.plus)
    return PlusSource(view, known.built[name], config.strict, config.plus)


def fit_statistics(data: PlanningData, takes: Tensor, plus: ScorerPlusConfig) -> FittedStatistics:
    """Fit everything in closed form on `takes`, long of shape (T,)."""
    return statistics_of(data, takes, fit_label_effects(data, takes, plus), plus)


def statistics_of(data: PlanningData, takes: Tensor, effects: LabelEffects, plus: ScorerPlusConfig) -> FittedStatistics:
    """Count what the takes hold, long of shape (T,), and put it together with their effects."""
    rows = rows_of_takes(data.segment_take, takes)
    labels_S, take_S = data.labels[rows], torch.searchsorted(takes, data.segment_take[rows])
    motion, looks_VW = effects.motion, effects.looks.label
    look_VV = torch.cdist(looks_VW, looks_VW).square()
    follows = follow_counts(data, takes)
    counts_TV = torch.zeros(len(takes), len(data.bank), device=takes.device)
    counts_TV.index_put_((take_S, labels_S), torch.ones(len(rows), device=takes.device), accumulate=True)
    context_VV = context_likeness(follows, (-plus.look_smoothing * look_VV).softmax(1))
    statistics = TrainingStatistics(data.bank, counts_TV, follows, look_VV, context_VV, motion.label @ motion.take.T)
    return FittedStatistics(statistics, takes, motion, effects.looks, effects.recognition)


def follow_counts(data: PlanningData, takes: Tensor) -> Sparse:
    """Return (V, V) float32: how often the column's label follows the row's in windows of `takes`, each step once."""
    steps = []
    for windows in data.windows.values():
        segments_NH = windows.segments[torch.isin(windows.take, takes)]
        steps.append(torch.stack([segments_NH[:, :-1].flatten(), segments_NH[:, 1:].flatten()], dim=1))
    rows_P2 = torch.unique(torch.cat(steps), dim=0)
    pairs_2P = data.labels[rows_P2].T
    one_P = torch.ones(len(rows_P2), device=takes.device)
    size = len(data.bank), len(data.bank)
    return sparse(torch.sparse_coo_tensor(pairs_2P, one_P, size, check_invariants=False).coalesce())


@torch.inference_mode()
def plus_inputs(source: PlusSource, found: Candidates) -> PlusInputs:
    """Return what Scorer+ reads of B windows of one horizon."""
    data, segments_BH, fitted = source.view.data, found.segments, source.fitted
    ends_B2 = ends_of(segments_BH)
    if not source.moving:
        looks_B2W = placed(fitted.looks, data.features[ends_B2].float().mean(-2))
        seen_B2V = below_best(label_ratios(fitted.looks, looks_B2W, source.config.tempering))
        alike_BT = torch.zeros(len(ends_B2), len(fitted.takes), device=ends_B2.device)
        unseen_BT = ~seen_takes(source, found.take)
        return PlusInputs(found.fallback[:, None].half(), seen_B2V.half(), alike_BT.masked_fill(unseen_BT, -torch.inf))
    middles_BME = pool_mean(found, source.config.pool_temperature, source.view.readout)
    plans = [found.fallback, torch.cat([found.ends[:, :1], middles_BME, found.ends[:, 1:]], dim=1)]
    if source.view.models.endpoint_traj is not None:
        latents_BHE = torch.zeros_like(found.fallback)
        latents_BHE[:, 0], latents_BHE[:, -1] = source.view.latents[ends_B2].unbind(1)
        first, last = (data.features[rows] for rows in ends_B2.unbind(1))
        plans.append(source.view.models.endpoint_traj(first, last, latents_BHE, segments_BH.shape[1]))
    manner_BT = take_ratios(fitted.motion, placed(fitted.motion, data.motions[ends_B2].flatten(2)))
    ends_B2W = placed(fitted.recognition, endpoint_vectors(data, ends_B2))
    recognised_B2V = below_best(label_ratios(fitted.recognition, ends_B2W, source.config.tempering))
    manner_BT = below_best(manner_BT).masked_fill(~seen_takes(source, found.take), -torch.inf)
    return PlusInputs(torch.stack(plans, 1).half(), recognised_B2V.half(), manner_BT)


def seen_takes(source: PlusSource, take_B: Tensor) -> Tensor:
    """Return (B, T) bool: the source's takes that queries of takes (B,) may see: never their own (D 27)."""
    seen_BT = source.fitted.takes != take_B[:, None]
    if not source.strict:
        return seen_BT
    person = person_codes(source.view.data)
    return seen_BT & ((person[source.fitted.takes] != person[take_B][:, None]) | (person[take_B] < 0)[:, None])


def below_best(ratio_xG: Tensor) -> Tensor:
    """Return log likelihood ratios (..., G) less the best of each row, none below IMPOSSIBLE."""
    return (ratio_xG - ratio_xG.amax(-1, keepdim=True)).clamp_min(IMPOSSIBLE)
