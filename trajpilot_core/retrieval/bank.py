"""The retrieval bank: every training window of one horizon, with a key made of its two ends, or of its Start alone.

Keys of a chain's models serve the rows of the tables. Keys without learned models (both ends' features, in their
principal directions) serve latent planning: a key of a model would represent the bank's own windows, on which the model
was fitted, better than test windows.
Axes: N windows, Q queries, H positions, E text space, S segments, C tokens and D numbers of a feature, P kept
directions, K neighbours. Source: paper, 3.5; docs/decisions/paper-gaps.md (25 to 28).
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from schemas.training import ClosedDecodingConfig
from trajpilot_core.data.chains import (
    ChainModels,
    ModelFiles,
    fit_takes,
    load_chain_models,
    load_predictor,
    trajectory_latents,
    trajectory_states,
)
from trajpilot_core.data.cross_fitting import TWINNED, VARIANTS, Chain, model_key, twin_of
from trajpilot_core.data.planning import PlanningData
from trajpilot_core.data.transitions import fitted_bigrams
from trajpilot_core.errors import LeakError, StoreError
from trajpilot_core.models.blocks import ends_of
from trajpilot_core.models.planners.decoding import smoothed_prior
from trajpilot_core.models.predictor import CausalPredictor, feature_scales
from trajpilot_core.models.ranking import LabelBank
from trajpilot_core.models.readout import ClassReadout, CosineReadout, Readout
from trajpilot_core.retrieval.search import TopK, top_k

TRAIN = 0
FORWARD_BATCH, SEGMENTS_AT_ONCE, QUERIES_AT_ONCE = 512, 8192, 1024
OPEN = ClosedDecodingConfig()


@dataclass(frozen=True)
class ChainView:
    """The data as one chain of models sees them."""

    data: PlanningData
    chain: Chain
    models: ChainModels
    latents: Tensor
    """(S, E) trajectory latent of every segment under the chain's own E_tau."""
    readout: Readout
    """Turns the predictors' plans into labels."""
    sees_goal: bool = True
    """False: neither models nor the search read the last segment of a window."""

    def goal_features(self, segments_NH: Tensor) -> Tensor | None:
        """Return (N, C, D) raw features of the last segments of windows; None where no goal is given."""
        return self.data.features[segments_NH[:, -1]] if self.sees_goal else None

    def given_ends(self, segments_NH: Tensor) -> Tensor:
        """Return (N, 2) long, the segments that identify a window: Start and Goal; without a goal (N, 1), Start."""
        return ends_of(segments_NH) if self.sees_goal else segments_NH[:, :1]

    @cached_property
    def latent_table(self) -> Tensor:
        """Return (1 + S, E): a zero row for "none", then the latents."""
        return F.pad(self.latents, (0, 0, 1, 0))

    @cached_property
    def label_table(self) -> Tensor:
        """Return (1 + V, E): a zero row for "none", then the text embeddings of labels that models read."""
        return F.pad(self.data.read_bank, (0, 0, 1, 0))

    @cached_property
    def states(self) -> Tensor:
        """Return (S, W): the input of the head of E_tau for every segment's motion."""
        return trajectory_states(self.models.e_tau, self.data.motions)


class Bank(NamedTuple):
    """Entries of one horizon."""

    horizon: int
    key: Tensor
    """(N, 2 E) float32, unit norm; (N, E) of a view without a goal; (N, 2 P) of `end_keys`."""
    window: Tensor
    """(N,) long, row of the window in its WindowSet."""
    segments: Tensor
    take: Tensor
    """(N,) long."""


def chain_view(
    data: PlanningData, files: ModelFiles, chain: Chain, seed: int, device: str, decoding: ClosedDecodingConfig = OPEN
) -> ChainView:
    """Load the models of one chain and seed and encode the trajectory of every segment; `decoding`: of class heads."""
    models = load_chain_models(files, chain, seed, device)
    latents = trajectory_latents(models.e_tau, data.motions)
    return ChainView(data, chain, models, latents, readout_of(data, chain, models.traj, decoding))


def goal_dropout_view(view: ChainView, files: ModelFiles, seed: int, device: str) -> ChainView | None:
    """Return a chain with the goal-dropout twins in place of its models; None where it has none.

    Everything else is shared with `view`, including the decoding of class scores.
    """
    chain, predictors = view.chain, files.predictors
    known = [variant for variant in VARIANTS if model_key(chain, seed, twin_of(variant)) in predictors.keys]
    if not {*TWINNED} <= {*known}:
        return None
    twins = {variant: load_predictor(predictors, chain, seed, twin_of(variant), device) for variant in known}
    ends = twins.get("endpoint_traj")
    return replace(view, models=replace(view.models, traj=twins["traj"], no_traj=twins["no_traj"], endpoint_traj=ends))


def blind_chain_view(
    data: PlanningData, files: ModelFiles, chain: Chain, seed: int, device: str, decoding: ClosedDecodingConfig = OPEN
) -> ChainView:
    """Return a chain with its goal-dropout twins, no goal given; arguments as in `chain_view`.

    Raises StoreError: it has no twins.
    """
    view = goal_dropout_view(chain_view(data, files, chain, seed, device, decoding), files, seed, device)
    if view is None:
        raise StoreError(
            f"chain {chain.name}, seed {seed} has no goal-dropout twins, which answer without a goal; run the stage "
            "predictor with predictor.anticipates=true and predictor.twin_goal_dropout"
        )
    return without_goal(view)


def without_goal(view: ChainView) -> ChainView:
    """Return the same models and data, no goal given."""
    return replace(view, sees_goal=False)


def readout_of(data: PlanningData, chain: Chain, model: CausalPredictor, decoding: ClosedDecodingConfig) -> Readout:
    """Return the readout of plans: by cosine, or, with class heads, under the transitions of the chain's takes.

    Raises StoreError: there are class heads, and the tables for their decoding were not read.
    """
    if model.class_head is None:
        return CosineReadout(LabelBank(data.read_bank, data.class_of))
    if data.closed is None:
        raise StoreError("the predictors have class heads; read the tables for their decoding (with_closed_tables)")
    counts_VV = fitted_bigrams(data.closed.segments, data, chain, data.codes, len(data.label_ids))
    prior = smoothed_prior(counts_VV.to(data.bank.device), decoding.smoothing)
    return ClassReadout(
        prior, decoding.weight, decoding.temperature, data.closed.allowed if decoding.is_masked else None
    )


def build_bank(view: ChainView, horizon: int, key: Literal["action", "visual"]) -> Bank:
    """Collect all windows of the takes that the chain was fitted on.

    Raises LeakError: a take that the chain must not have seen is among them.
    """

    def keys_of(segments_NH: Tensor) -> Tensor:
        parts = [endpoint_keys(view, part, key) for part in batches(segments_NH)]
        return torch.cat(parts) if parts else view.latents.new_zeros(0, 1)

    return _bank_of(view.data, view.chain, horizon, keys_of)


def _bank_of(data: PlanningData, chain: Chain, horizon: int, keys_of: Callable[[Tensor], Tensor]) -> Bank:
    """Collect all windows of a horizon of the takes that the chain was fitted on; `keys_of`: (N, H) -> (N, K)."""
    windows = data.windows[horizon]
    rows = torch.isin(windows.take, fit_takes(data, chain)).nonzero()[:, 0]
    segments_NH, take = windows.segments[rows], windows.take[rows]
    check_takes(take, horizon, data, chain)
    return Bank(horizon, keys_of(segments_NH), rows, segments_NH, take)


def check_takes(take_N: Tensor, horizon: int, data: PlanningData, chain: Chain) -> None:
    """Raise LeakError where a take of the entries, (N,) long, is not a training take that the chain was fitted on."""
    foreign = (data.take_split[take_N] != TRAIN) | ~torch.isin(take_N, fit_takes(data, chain))
    if bool(foreign.any()):
        take = int(take_N[foreign.nonzero()[0, 0]])
        raise LeakError(
            f"the bank of chain {chain.name}, H={horizon}, contains take {data.take_ids[take]}, which is dev, test or "
            "held out of that chain; only takes that the chain was fitted on may enter: rebuild the folds"
        )


def endpoint_keys(
    view: ChainView, segments_NH: Tensor, key: Literal["action", "visual"], plan_NHE: Tensor | None = None
) -> Tensor:
    """Return the (N, 2 W) unit-norm keys of windows: both ends normalised, one after the other (D 25).

    In a view without a goal the key is Start alone, (N, W) (D 33).

    Args:
        key: `action`, the Start and Goal embeddings that no_traj predicts, or `visual`, the pooled features.
        plan_NHE: predictions of no_traj for the windows, where they are known already.
    """
    if key == "visual":
        ends = view.data.features[view.given_ends(segments_NH)].float().mean(2)
    else:
        plans = no_traj_plans(view, segments_NH) if plan_NHE is None else plan_NHE
        ends = (ends_of(plans) if view.sees_goal else plans[:, :1]).float()
    return F.normalize(F.normalize(ends, dim=-1).flatten(1), dim=-1)


@torch.inference_mode()
def no_traj_plans(view: ChainView, segments_NH: Tensor) -> Tensor:
    """Return (N, H, E): the fallback, predicted by no_traj under null trajectories."""
    size, horizon = segments_NH.shape
    nothing = view.latents.new_zeros(size, horizon, view.latents.shape[1])
    start = view.data.features[segments_NH[:, 0]]
    plans: Tensor = view.models.no_traj(start, view.goal_features(segments_NH), nothing, horizon)
    return plans


def batches(rows_N: Tensor, size: int = FORWARD_BATCH) -> Iterator[Tensor]:
    """Cut tensors with N rows, shape (N, ...), into parts of at most `size` rows; no part for no rows."""
    return iter(torch.split(rows_N, size) if len(rows_N) else ())


def retrieve(bank: Bank, key_QK: Tensor, take: Tensor, k: int) -> TopK:
    """Find the `k` nearest entries of each query with key (Q, K), never one of its own take (Q,), long.

    Raises LeakError: an entry of the query's own take was returned (a fault of the search).
    """
    nearest = top_k(key_QK, bank.key, k, take, bank.take)
    if len(bank.take):
        leaked = ((bank.take[nearest.index.clamp_min(0)] == take[:, None]) & (nearest.index >= 0)).nonzero()
        if len(leaked):
            query, place = leaked[0].tolist()
            raise LeakError(
                f"candidate {place} of query {query} comes from the query's own take ({int(take[query])}); the "
                "exclusion must be masked before the search selects"
            )
    return nearest


class EndKeys(NamedTuple):
    """Maps a feature to its key: standardise, then project."""

    mean: Tensor
    """(D,)."""
    directions: Tensor
    """(D, P): principal directions, each number divided by the scale of its feature."""


def fit_end_keys(features_SCD: Tensor, rows: Tensor, width: int) -> EndKeys:
    """Fit the map to keys of width P, at most D, on the features of segments `rows` (n,), long, of fitting takes."""
    mean, scale = feature_scales(features_SCD[rows].float().mean(1, keepdim=True))
    products = torch.zeros(len(mean), len(mean), dtype=torch.float64, device=mean.device)
    for part in torch.split(rows, SEGMENTS_AT_ONCE):
        standard = ((features_SCD[part].float().mean(1) - mean) / scale).double()
        products += standard.T @ standard
    directions = torch.linalg.eigh(products).eigenvectors[:, -width:].flip(1)
    return EndKeys(mean, directions.float() / scale[:, None])


def end_keys(keys: EndKeys, features_SCD: Tensor, segments_NH: Tensor) -> Tensor:
    """Return (N, 2 P): both ends of the windows, each of unit norm, one after the other, of unit norm together."""
    parts = []
    for segments in torch.split(segments_NH, QUERIES_AT_ONCE):
        ends_N2D = features_SCD[ends_of(segments)].float().mean(2)
        parts.append(F.normalize((ends_N2D - keys.mean) @ keys.directions, dim=-1).flatten(1))
    both = torch.cat(parts) if parts else keys.mean.new_zeros(0, 2 * keys.directions.shape[1])
    return F.normalize(both, dim=-1)


def neighbour_bank(data: PlanningData, chain: Chain, keys: EndKeys, horizon: int) -> Bank:
    """Collect all windows of a horizon of the takes that the chain was fitted on.

    Raises LeakError: a take that the chain must not have seen is among them.
    """
    return _bank_of(data, chain, horizon, lambda segments_NH: end_keys(keys, data.features, segments_NH))
