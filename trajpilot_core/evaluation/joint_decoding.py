"""Choices on dev for rows whose steps are decoded together: T and the weight of the moves, row by row.

Test windows are not read here. Axes: B dev windows of one horizon H, P labels kept per step.
Source: docs/decisions/methods.md.
"""

import itertools
from collections.abc import Sequence

import torch
from torch import Tensor

from schemas.results import DecodingChoice
from schemas.training import JointDecodingConfig
from trajpilot_core.data.planning import SPLITS, WindowSet
from trajpilot_core.methods.batch import WindowBatch
from trajpilot_core.methods.sequences import Knobs, Shortlist
from trajpilot_core.methods.viterbi import PLAIN, shortlist
from trajpilot_core.models.label_chain import kept_chain, kept_marginals, kept_moves

LEAST = 1e-9
"""Probability of a true label that is not on the shortlist."""


def dev_rows(windows: WindowSet, most: int) -> Tensor:
    """Return long of shape (n,): at most `most` dev windows of a horizon, evenly spread over all takes."""
    rows = (windows.split == SPLITS.index("dev")).nonzero()[:, 0]
    n = min(most, len(rows))
    return rows[torch.arange(n, device=rows.device) * len(rows) // max(1, n)]


def grid_of(config: JointDecodingConfig, row: str) -> list[Knobs]:
    """Return the options of a row; the first is the default without dev windows."""
    is_vote = PLAIN[row].kind == "vote"
    temperatures = config.vote_temperatures if is_vote else config.cosine_temperatures
    middle = temperatures[len(temperatures) // 2]
    ordered = sorted(itertools.product(temperatures, config.weights), key=lambda pair: (pair[0] != middle, -pair[1]))
    return [Knobs(*pair) for pair in ordered]


def choose_knobs(
    batch: WindowBatch | None, config: JointDecodingConfig, seed: int, horizon: int
) -> list[DecodingChoice]:
    """Choose for every row by the likelihood of the true middle labels on dev.

    Args:
        batch: dev windows of the horizon; None where there are none: the default is the middle of the grid and the full
            weight.
    """
    chosen = []
    for row in PLAIN:
        grid = grid_of(config, row)
        likelihood = [0.0] if batch is None else likelihoods(batch, shortlist(batch, row), grid)
        best = max(range(len(likelihood)), key=likelihood.__getitem__)
        chosen.append(
            DecodingChoice(
                variant=row,
                seed=seed,
                horizon=horizon,
                n_windows=0 if batch is None else len(batch.segments),
                **grid[best]._asdict(),
                log_likelihood=round(likelihood[best], 6),
            )
        )
    return chosen


@torch.inference_mode()
def likelihoods(batch: WindowBatch, short: Shortlist, grid: Sequence[Knobs]) -> list[float]:
    """Return the mean log likelihood of the true middle labels under every pair of the grid."""
    truth_BM1 = batch.view.data.labels[batch.segments[:, 1:-1]][:, :, None]
    is_true_BMP = short.labels[:, 1:-1] == truth_BM1
    known, values = kept_moves(batch.joint().fitted.moves, short.labels), []
    for knobs in grid:
        kept = kept_chain(short.labels, short.scores / knobs.temperature, known, knobs.weight)
        posterior_BMP = kept_marginals(kept)[:, 1:-1]
        true_BM = torch.where(is_true_BMP, posterior_BMP, 0.0).sum(2)
        values.append(float(true_BM.clamp_min(LEAST).log().double().mean()))
    return values
