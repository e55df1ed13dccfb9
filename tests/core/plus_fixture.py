"""A handful of takes and queries for Scorer+, drawn at random, and the small planning corpus as it reads it."""

from dataclasses import replace

import torch
from planning_fixture import SCORER, World, model_files, planning_data
from torch import Tensor
from torch.nn import functional as F

from schemas.config import ScorerConfig, ScorerPlusConfig
from trajpilot_core.models.role_chain import context_likeness
from trajpilot_core.models.scorer_plus import Lore, PlusInputs, ScorerPlus
from trajpilot_core.retrieval.bank import build_bank, chain_view
from trajpilot_core.retrieval.candidates import Candidates, find_candidates
from trajpilot_core.training.chains import chains_of
from trajpilot_core.training.data import PlanningData
from trajpilot_core.training.scorer_plus import PlusQueries
from trajpilot_core.training.scorer_plus_lore import PlusSource, below_best, plus_source

PLUS = ScorerPlusConfig()
V, T, E = 6, 5, 8


def random_lore(seed: int = 0) -> Lore:
    """What T takes know of V labels."""
    g = torch.Generator().manual_seed(seed)
    counts, follows = (torch.randint(4, size, generator=g).float() for size in ((T, V), (V, V)))
    looks = 3 * torch.randn(V, 2, generator=g)
    look = torch.cdist(looks, looks).square()
    bank = F.normalize(torch.randn(V, E, generator=g), dim=1)
    context = context_likeness(follows, (-0.1 * look).softmax(1))
    return Lore(bank, counts, follows, look, context, 0.3 * torch.randn(V, T, generator=g))


def random_inputs(horizon: int = 4, experts: int = 3, b: int = 3, seed: int = 0) -> PlusInputs:
    """What Scorer+ reads of b queries."""
    g = torch.Generator().manual_seed(seed)
    plans = F.normalize(torch.randn(b, experts, horizon, E, generator=g), dim=-1)
    recognised, manner = 2 * torch.randn(b, 2, V, generator=g), torch.randn(b, T, generator=g)
    return PlusInputs(plans, below_best(recognised), below_best(manner))


def random_queries(n: int = 20, horizon: int = 4, experts: int = 3, seed: int = 0) -> PlusQueries:
    """Queries with some truth and some fallback."""
    g = torch.Generator().manual_seed(seed)
    labels, fallback = torch.randint(V, (2, n, horizon), generator=g)
    return PlusQueries(random_inputs(horizon, experts, n, seed), labels, fallback)


def network(config: ScorerPlusConfig = PLUS) -> ScorerPlus:
    """Scorer+ as learning begins."""
    return ScorerPlus(config).eval()


def moved(scorer: ScorerPlus, **logs: float) -> ScorerPlus:
    """Set parameters of one number to a logarithm."""
    with torch.no_grad():
        for name, value in logs.items():
            getattr(scorer, name).fill_(value)
    return scorer


def source_of(data: PlanningData, folds: int = 1, chain: int = 0, config: ScorerConfig = SCORER) -> PlusSource:
    """What Scorer+ takes from one chain of the small corpus."""
    return plus_source(chain_view(data, model_files(data, folds), chains_of(data)[chain], 0, "cpu"), config)


def candidates_of(source: PlusSource, rows: Tensor, horizon: int = 4, config: ScorerConfig = SCORER) -> Candidates:
    """Candidates of windows of the small corpus."""
    return find_candidates(source.view, build_bank(source.view, horizon, "action"), rows, config)


def corpus(folds: int = 1) -> PlanningData:
    """The small corpus."""
    return planning_data(World(folds=folds))


def without_dev(data: PlanningData) -> PlanningData:
    """The same takes; those of dev are test takes."""
    windows = {h: replace(w, split=torch.where(w.split == 1, 2, w.split)) for h, w in data.windows.items()}
    return replace(data, take_split=torch.where(data.take_split == 1, 2, data.take_split), windows=windows)
