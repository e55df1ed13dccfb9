"""What Scorer+ reads and learns from: a chain's closed-form parts, its queries by horizon, and its scores on dev.

Shapes: B queries of one horizon H, X experts, E text space, V labels, T training takes, S segments.
Source: docs/decisions/scorer-plus.md.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from schemas.config import ScorerPlusConfig
from trajpilot_core.models.predictor import CausalPredictor
from trajpilot_core.models.scorer_plus import PlusInputs, ScorerPlus
from trajpilot_core.models.step_graph import StepGraph, step_graph
from trajpilot_core.retrieval.bank import ChainView
from trajpilot_core.retrieval.candidates import Candidates, pool_mean
from trajpilot_core.retrieval.groups import GroupSpace, fit_groups, group_fit, group_sums
from trajpilot_core.training.chains import fit_takes
from trajpilot_core.training.data import SPLITS, PlanningData, rows_of_takes
from trajpilot_core.training.scorer import best_threshold, plain_mean

BATCH = 512
IMPOSSIBLE = -1e3
"""Log likelihood ratios below the best one are cut here."""


@dataclass(frozen=True)
class PlusSource:
    """What Scorer+ takes from the training takes of one chain, in closed form."""

    view: ChainView
    graph: StepGraph
    """Transitions of all training takes; which of them a query sees is decided by `allowed`."""
    takes: Tensor
    """(T,) long, the training takes."""
    allowed: Tensor
    """(T,) bool, takes that the chain was fitted on."""
    manner: GroupSpace
    """Takes in the space of head motion without the mean motion of labels."""
    recognition: GroupSpace
    """Labels in the space of features and head motion."""
    endpoint_model: CausalPredictor | None
    """Read where every chain of queries has it."""
    config: ScorerPlusConfig


@dataclass(frozen=True)
class PlusQueries:
    """Queries of one horizon; first axis N."""

    inputs: PlusInputs
    labels: Tensor
    """(N, H) long, the truth."""
    fallback: Tensor
    """(N, H) long, the labels that no_traj answers."""

    def __len__(self) -> int:
        return len(self.labels)


def plus_source(view: ChainView, config: ScorerPlusConfig, with_endpoint: bool) -> PlusSource:
    """Collect transitions, takes and labels of a chain's training takes.

    Args:
        view: the chain; only takes that it was fitted on are fitted here.
        config: sizes of the spaces.
        with_endpoint: whether endpoint_traj is an expert.
    """
    data = view.data
    takes = (data.take_split == SPLITS.index("train")).nonzero()[:, 0]
    of_take = torch.full((len(data.take_ids),), -1, device=takes.device)
    of_take[takes] = torch.arange(len(takes), device=takes.device)
    steps_N2 = transitions(data, takes)
    graph = step_graph(data.labels[steps_N2], of_take[data.segment_take[steps_N2[:, 0]]], len(takes), len(data.bank))
    fitted = fit_takes(data, view.chain)
    rows = rows_of_takes(data.segment_take, fitted)
    labels_S, n_labels = data.labels[rows], len(data.bank)
    motion_SC = without_labels(data.controls[rows].flatten(1), labels_S, n_labels, config.label_shrinkage)
    place_S = of_take[data.segment_take[rows]]
    manner = fit_groups(motion_SC, place_S, len(takes), config.manner_directions, config.floor)
    seen_SC = endpoint_vectors(data, rows)
    recognition = fit_groups(seen_SC, labels_S, n_labels, config.label_directions, config.floor)
    endpoint = view.models.endpoint_traj if with_endpoint else None
    return PlusSource(view, graph, takes, torch.isin(takes, fitted), manner, recognition, endpoint, config)


def transitions(data: PlanningData, takes: Tensor) -> Tensor:
    """Return (N, 2) long: rows of segments that follow each other in some window of `takes`, each pair once."""
    pairs = [
        torch.stack([w.segments[:, :-1].flatten(), w.segments[:, 1:].flatten()], 1)[
            torch.isin(w.take, takes).repeat_interleave(w.segments.shape[1] - 1)
        ]
        for w in data.windows.values()
    ]
    found: Tensor = torch.unique(torch.cat(pairs), dim=0)
    return found


def without_labels(motion_SC: Tensor, labels_S: Tensor, n_labels: int, shrinkage: float) -> Tensor:
    """Return (S, C): motions less the usual motion of their labels, means drawn to zero by `shrinkage` segments."""
    centred_SC = motion_SC - motion_SC.mean(0)
    count_V = torch.bincount(labels_S, minlength=n_labels)
    usual_VC = group_sums(centred_SC, labels_S, n_labels) / (count_V + shrinkage)[:, None]
    return motion_SC - usual_VC[labels_S]


def endpoint_vectors(data: PlanningData, rows: Tensor) -> Tensor:
    """Return float32 of shape (*rows, D + 96): pooled feature and controls of segments, `rows` long of any shape."""
    return torch.cat([data.features[rows].float().mean(-2), data.controls[rows].flatten(-2)], dim=-1)


@torch.inference_mode()
def plus_queries(source: PlusSource, found: Candidates) -> PlusQueries:
    """Return the queries of B windows of one horizon."""
    data, segments_BH = source.view.data, found.segments
    middles_BME = pool_mean(found, source.config.pool_temperature)
    plans = [found.fallback, torch.cat([found.ends[:, :1], middles_BME, found.ends[:, 1:]], dim=1)]
    ends_B2 = segments_BH[:, [0, -1]]
    if source.endpoint_model is not None:
        latents = source.view.latents[segments_BH].clone()
        latents[:, 1:-1] = 0
        features = data.features
        plans.append(
            source.endpoint_model(features[ends_B2[:, 0]], features[ends_B2[:, 1]], latents, segments_BH.shape[1])
        )
    manner_BT = group_fit(source.manner, data.controls.flatten(1)[ends_B2])
    own_BT = source.takes == found.take[:, None]
    manner_BT = below_best(manner_BT).masked_fill(~source.allowed | own_BT, -torch.inf)
    seen_B2C = endpoint_vectors(data, ends_B2)
    recognised_B2V = torch.stack([group_fit(source.recognition, seen_B2C[:, [end]]) for end in (0, 1)], dim=1)
    inputs = PlusInputs(torch.stack(plans, 1).half(), below_best(recognised_B2V).half(), manner_BT)
    return PlusQueries(inputs, data.labels[segments_BH], (found.fallback @ data.bank.T).argmax(-1))


def below_best(ratio_xG: Tensor) -> Tensor:
    """Return log likelihood ratios (..., G) less the best of each row, none below IMPOSSIBLE."""
    return (ratio_xG - ratio_xG.amax(-1, keepdim=True)).clamp_min(IMPOSSIBLE)


def gather(parts: Iterable[tuple[int, PlusQueries]]) -> dict[int, PlusQueries]:
    """Put the parts of each horizon one after the other; each is (H, its queries)."""
    of_horizon: dict[int, list[PlusQueries]] = {}
    for horizon, part in parts:
        of_horizon.setdefault(horizon, []).append(part)
    return {horizon: _joined(found) for horizon, found in sorted(of_horizon.items())}


def _joined(parts: list[PlusQueries]) -> PlusQueries:
    """Put queries of one horizon one after the other, N_i rows each."""
    inputs = PlusInputs(*(torch.cat(values) for values in zip(*(part.inputs for part in parts), strict=True)))
    return PlusQueries(inputs, torch.cat([p.labels for p in parts]), torch.cat([p.fallback for p in parts]))


def inputs_at(queries: PlusQueries, rows: Tensor) -> PlusInputs:
    """Return the inputs of some queries, `rows` long of shape (B,), as float32."""
    return PlusInputs(*(value[rows].float() for value in queries.inputs))


def plus_loss(scorer: ScorerPlus, queries: PlusQueries, rows: Tensor, graph: StepGraph, bank_VE: Tensor) -> Tensor:
    """Return the mean over queries and middle steps of -log p(true label), a scalar; `rows` long of shape (B,)."""
    probability_BHV: Tensor = scorer(inputs_at(queries, rows), graph, bank_VE)
    own_BM = probability_BHV.gather(2, queries.labels[rows, :, None])[:, 1:-1, 0]
    return -own_BM.clamp_min(1e-9).log().mean()


@dataclass(frozen=True)
class PlusAnswers:
    """What Scorer+ says about N queries of one horizon before its gate."""

    probability: Tensor
    """(N, H, V)."""
    decoded: Tensor
    """(N, H) long."""
    gain: Tensor
    """(N,) expected M@1 of the ranking's first answers minus that of the fallback, by the probabilities."""


@torch.inference_mode()
def plus_answers(scorer: ScorerPlus, queries: PlusQueries, graph: StepGraph, bank_VE: Tensor) -> Iterator[PlusAnswers]:
    """Yield the answers to N queries in parts of at most BATCH."""
    for rows in torch.split(torch.arange(len(queries), device=queries.labels.device), BATCH):
        probability_BHV, decoded_BH = scorer.answer(inputs_at(queries, rows), graph, bank_VE)
        best_BM = probability_BHV[:, 1:-1].amax(-1)
        of_fallback_BM = probability_BHV.gather(2, queries.fallback[rows, :, None])[:, 1:-1, 0]
        yield PlusAnswers(probability_BHV, decoded_BH, (best_BM - of_fallback_BM).mean(1))


def plus_dev_scores(
    scorer: ScorerPlus, queries: Mapping[int, PlusQueries], graph: StepGraph, bank_VE: Tensor
) -> dict[str, float]:
    """Return shares of Scorer+ on dev: its row at the best threshold, fallback, always open, and log likelihood."""
    columns: dict[str, list[Tensor]] = {}
    for horizon, held in queries.items():
        at = 0
        for part in plus_answers(scorer, held, graph, bank_VE):
            rows = slice(at, at + len(part.gain))
            at += len(part.gain)
            for name, column in _dev_columns(part, held.labels[rows], held.fallback[rows], horizon).items():
                columns.setdefault(name, []).append(column)
    value = {name: torch.cat(parts) for name, parts in columns.items()}
    horizon_N = value["horizon"]
    threshold = best_threshold(value["gain"], value["m1"] - value["fallback m1"], horizon_N)
    opened = value["gain"] >= threshold

    def row(chosen: str) -> float:
        return plain_mean(torch.where(opened, value[chosen], value[f"fallback {chosen}"]), horizon_N)

    return {
        "M@1": row("m1"),
        "MSeq": row("mseq"),
        "fallback M@1": plain_mean(value["fallback m1"], horizon_N),
        "always open M@1": plain_mean(value["m1"], horizon_N),
        "always open MSeq": plain_mean(value["mseq"], horizon_N),
        "open rate": plain_mean(opened.float(), horizon_N),
        "threshold": threshold,
        "log likelihood": plain_mean(value["log likelihood"], horizon_N),
    }


def _dev_columns(answers: PlusAnswers, labels_BH: Tensor, fallback_BH: Tensor, horizon: int) -> dict[str, Tensor]:
    """Return the (B,) columns of dev_scores for one part."""
    truth_BM = labels_BH[:, 1:-1]
    first_BM, decoded_BM = answers.probability[:, 1:-1].argmax(-1), answers.decoded[:, 1:-1]
    own_BM = answers.probability.gather(2, labels_BH[:, :, None])[:, 1:-1, 0]
    fallback_right_BM = fallback_BH[:, 1:-1] == truth_BM
    return {
        "gain": answers.gain,
        "m1": (first_BM == truth_BM).float().mean(1),
        "mseq": (decoded_BM == truth_BM).all(1).float(),
        "fallback m1": fallback_right_BM.float().mean(1),
        "fallback mseq": fallback_right_BM.all(1).float(),
        "log likelihood": own_BM.clamp_min(1e-9).log().mean(1),
        "horizon": torch.full_like(truth_BM[:, 0], horizon),
    }
