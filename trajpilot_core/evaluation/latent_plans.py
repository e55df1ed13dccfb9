"""Plans in the space of the video encoder: energies of head motion, the search, and the answers of each row.

Shapes: B windows of one horizon H, S candidates, M middle steps, G tokens, D feature width, P directions of the search,
U numbers of a motion, R ranked labels. Source: docs/decisions/latent-planning.md.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional as F

from schemas.latent import LATENT_VARIANTS, LatentConfig, LatentVariant
from trajpilot_core.data.chains import fit_takes, frozen
from trajpilot_core.data.cross_fitting import Chain, model_key
from trajpilot_core.data.planning import PlanningData, rows_of_takes
from trajpilot_core.memory import in_parts
from trajpilot_core.methods.base import RANKED, SEEN, Answers, Method
from trajpilot_core.methods.latent import CEM, CEM_BANK, CEM_GOAL, CEM_TRUTH, NO_TRAJ, ORACLE, RANDOM_BANK, ROWS
from trajpilot_core.methods.plans import joined
from trajpilot_core.methods.sight import exchanged, refuse_leaks, same, spread
from trajpilot_core.models.blocks import KeysValues
from trajpilot_core.models.latent import (
    Controls,
    LatentHead,
    LatentPredictor,
    LatentShape,
    StepInputs,
    cross_entropy_search,
    fit_controls,
    l1_between,
    noise_of,
    targets_of,
)
from trajpilot_core.models.ranking import best
from trajpilot_core.retrieval.bank import Bank, EndKeys, end_keys, retrieve
from trajpilot_core.store.tensors import Models

SEARCHED_STEPS = 1 << 16
"""Steps of all candidates of the windows that are searched together; windows are rolled out one by one."""
EVERY_WINDOW = slice(None)


@dataclass(frozen=True)
class LatentModels:
    """The frozen models of one seed, and the settings of the search."""

    cfg: LatentConfig
    seed: int
    of_variant: Mapping[LatentVariant, LatentPredictor]
    head: LatentHead
    controls: Controls


def load_latents(entry: Models, data: PlanningData, chain: Chain, seed: int, device: str) -> LatentModels:
    """Build the models of one seed, in evaluation mode; the fitted takes of `data` set the search's directions."""
    cfg, shape = LatentConfig.model_validate_json(entry.about["config"]), LatentShape.from_json(entry.about["shape"])
    models: dict[LatentVariant, LatentPredictor] = {
        variant: frozen(LatentPredictor(cfg, shape), entry, model_key(chain, seed, variant), device)
        for variant in LATENT_VARIANTS
        if variant != "latent_head"
    }
    head = frozen(LatentHead(shape), entry, model_key(chain, seed, "latent_head"), device)
    fitted = rows_of_takes(data.segment_take, fit_takes(data, chain))
    return LatentModels(cfg, seed, models, head, fit_controls(data.motions[fitted], cfg.search.variance))


@dataclass(frozen=True)
class LatentWindows:
    """B windows of one horizon, their ends encoded once for all candidates."""

    models: LatentModels
    data: PlanningData
    segments: Tensor
    """(B, H) long."""
    start: Tensor
    """(B, G, D)."""
    goal: Tensor
    """(B, G, D)."""
    seen: list[KeysValues]
    """Context with the goal."""
    blind: list[KeysValues]
    """Context without it."""

    @property
    def mids(self) -> int:
        """Return M."""
        return self.segments.shape[1] - 2

    def roll_out(
        self, motion_BSMU: Tensor, *, sees_goal: bool = True, with_goal: bool = False, rows: slice = EVERY_WINDOW
    ) -> Tensor:
        """Return (B, S, M, G, D) latents under standardised motions of the windows `rows`.

        `with_goal`: the goal's step is predicted, too, as the last one; the context has the goal where `sees_goal`.
        """
        n_steps = self.mids + with_goal
        steps, is_moved = motion_BSMU, torch.ones(n_steps, dtype=torch.bool, device=motion_BSMU.device)
        if with_goal:
            steps, is_moved[-1] = F.pad(motion_BSMU, (0, 0, 0, 1)), False
        planner = self.models.of_variant["plan_trajectory"]
        context = [(keys[rows], values[rows]) for keys, values in (self.seen if sees_goal else self.blind)]
        out: Tensor = planner(context, StepInputs(steps, is_moved), n_steps, self.mids + 2)
        return out

    def each(self, motion_BSMU: Tensor, *, sees_goal: bool = True, with_goal: bool = False) -> Iterator[Tensor]:
        """Yield the latents (S, M, G, D) of each window: its values do not depend on the windows next to it."""
        for window in range(len(motion_BSMU)):
            rows = slice(window, window + 1)
            yield self.roll_out(motion_BSMU[rows], sees_goal=sees_goal, with_goal=with_goal, rows=rows)[0]

    def energy(self, motion_BSMU: Tensor, name: str) -> Tensor:
        """Return (B, S): the l1 distance between the goal's latent and its prediction under candidate motions.

        `name`: of `schemas.latent.ENERGIES`, or `goal_step_seen`.
        """
        rolled = self.each(motion_BSMU, sees_goal=name != "goal_step", with_goal=name != "last_mid")
        pairs = zip(rolled, self.goal, strict=True)
        return torch.stack([l1_between(latents_SMGD[:, -1], goal_GD) for latents_SMGD, goal_GD in pairs])

    def surprise(self, motion_BSMU: Tensor) -> Tensor:
        """Return (B, S): minus the mean log probability of the true labels of the middle steps."""
        values = []
        truth_BM = self.data.labels[self.segments[:, 1:-1]]
        for latents_SMGD, truth_M in zip(self.each(motion_BSMU), truth_BM, strict=True):
            logits_SMV = self.models.head(latents_SMGD)
            true_SM = logits_SMV.gather(-1, truth_M[None, :, None].expand(len(logits_SMV), -1, 1))[..., 0]
            values.append((logits_SMV.logsumexp(-1) - true_SM).mean(1))
        return torch.stack(values)

    def motions_of(self, segments_xH: Tensor) -> Tensor:
        """Return (..., M, U) standardised motions of the middle steps of windows."""
        return self.models.controls.standardised(self.data.motions[segments_xH[..., 1:-1]])

    def answer(self, mids_BMGD: Tensor) -> Answers:
        """Rank the labels of predicted middles; those of Start and Goal are read from their true latents."""
        whole = torch.cat([self.start[:, None], mids_BMGD, self.goal[:, None]], 1)
        ids, scores = best(self.models.head(whole).softmax(-1), RANKED)
        return Answers(ids, scores.float(), kind="probability")

    def follow(self, motion_BMU: Tensor) -> Answers:
        """Answer with the plan under one motion a window."""
        return self.answer(self.roll_out(motion_BMU[:, None])[:, 0])

    def search(self, energy: Callable[[Tensor], Tensor]) -> Tensor:
        """Return (B, M, U): the motion of least energy found by the cross-entropy method."""
        cfg, controls = self.models.cfg, self.models.controls
        draw = 1_000_003 * cfg.seed + 1_009 * self.models.seed + self.mids
        noise = noise_of(cfg.search, self.mids, len(controls.directions), draw, self.start.device)
        found = cross_entropy_search(lambda x: energy(controls.motions(x)), len(self.segments), noise, cfg.search)
        return controls.motions(found)


def latent_windows(models: LatentModels, data: PlanningData, segments_BH: Tensor) -> LatentWindows:
    """Encode the ends of windows."""
    horizon, target = segments_BH.shape[1], models.cfg.target
    start, goal = (targets_of(data.features[segments_BH[:, at]], target) for at in (0, -1))
    planner = models.of_variant["plan_trajectory"]
    seen, blind = planner.encode(start, goal, horizon), planner.encode(start, None, horizon)
    return LatentWindows(models, data, segments_BH, start, goal, seen, blind)


def random_entries(bank: Bank, take_N: Tensor, seed: int) -> Tensor:
    """Return (N,) long: for each window, of take `take_N`, a random entry of another take; -1 where there is none."""
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(max(1, len(bank.take)), generator=generator)
    takes, own_takes = bank.take.cpu(), take_N.cpu()
    entries = torch.full((len(own_takes),), -1, dtype=torch.long)
    first = torch.randint(max(1, len(takes)), (len(own_takes),), generator=generator)
    for step in range(len(takes)):
        open_ = entries < 0
        if not bool(open_.any()):
            break
        entry = order[(first + step) % len(takes)]
        entries = torch.where(open_ & (takes[entry] != own_takes), entry, entries)
    return entries.to(take_N.device)


def answers_of(windows: LatentWindows, bank: Bank, keys: EndKeys, random_B: Tensor) -> dict[str, Answers]:
    """Return row of the tables -> its answers for the windows; `random_B`: (B,) long, a random entry for each."""
    models, data, horizon = windows.models, windows.data, windows.segments.shape[1]
    own = windows.motions_of(windows.segments)
    is_empty = len(bank.segments) == 0
    other = torch.zeros_like(own) if is_empty else windows.motions_of(bank.segments[random_B.clamp_min(0)])
    from_bank = torch.zeros_like(own)
    if not is_empty:  # the retrieved motion of least energy; the mean motion where nothing is retrieved
        take_B, key = data.segment_take[windows.segments[:, 0]], end_keys(keys, data.features, windows.segments)
        entry_BK = retrieve(bank, key, take_B, models.cfg.candidates).index
        motion_BKMU = windows.motions_of(bank.segments[entry_BK.clamp_min(0)])
        chosen = windows.energy(motion_BKMU, "last_mid").masked_fill(entry_BK < 0, torch.inf).argmin(1)
        retrieved = motion_BKMU[torch.arange(len(chosen), device=chosen.device), chosen]
        from_bank = retrieved * (entry_BK >= 0).any(1)[:, None, None]
    motions = {
        ORACLE.id: own,
        CEM.id: windows.search(partial(windows.energy, name="last_mid")),
        CEM_GOAL.id: windows.search(partial(windows.energy, name="goal_step")),
        CEM_BANK.id: from_bank,
        RANDOM_BANK.id: other * (random_B >= 0)[:, None, None],
        CEM_TRUTH.id: windows.search(windows.surprise),
    }
    planner = models.of_variant["plan_none"]  # trained without any trajectory
    blind = planner(planner.encode(windows.start, windows.goal, horizon), StepInputs(None), windows.mids, horizon)
    followed = {row: windows.follow(motion) for row, motion in motions.items()}
    return {NO_TRAJ.id: windows.answer(blind[:, 0])} | followed


@torch.inference_mode()
def answer_windows(
    models: LatentModels, data: PlanningData, segments_NH: Tensor, bank: Bank, keys: EndKeys, random_N: Tensor
) -> dict[str, Answers]:
    """Return `answers_of` for (N, H) windows, in parts that fit the memory."""
    most = max(1, SEARCHED_STEPS // (models.cfg.search.samples * segments_NH.shape[1]))

    def part(rows: slice) -> dict[str, Answers]:
        return answers_of(latent_windows(models, data, segments_NH[rows]), bank, keys, random_N[rows])

    parts = in_parts(len(segments_NH), most, part)
    return {row.id: joined([part[row.id] for part in parts]) for row in ROWS}


@torch.inference_mode()
def check_latent_sight(
    models: LatentModels, data: PlanningData, segments_PH: Tensor, bank: Bank, keys: EndKeys, fitted: Tensor
) -> None:
    """Check on (P, H) windows that every row sees no more than it declares.

    Args:
        data: its tensors are changed during the check.
        segments_PH: windows of as many takes.
        fitted: (n,) long, training segments that replace them.

    Raises:
        LeakError: a row sees more.
    """
    random_P = random_entries(bank, data.segment_take[segments_PH[:, 0]], 0)
    mids, every = torch.unique(segments_PH[:, 1:-1]), torch.unique(segments_PH)
    looks = mids[~torch.isin(mids, torch.unique(segments_PH[:, [0, -1]]))]

    def answers(rows: Sequence[Method], is_blind: bool) -> dict[str, Answers]:
        moves = every[:0] if "mids" in SEEN[rows[0].sees].motion else looks
        parts = [(data.labels, every), (data.features, looks), (data.motions, moves)]
        with exchanged(parts if is_blind else [], partial(spread, fitted)):
            return answer_windows(models, data, segments_PH, bank, keys, random_P)

    bounded = [row for row in ROWS if row.sees != "truth"]
    what = f"H={segments_PH.shape[1]}, {len(segments_PH)} windows checked"
    refuse_leaks(bounded, answers, same, what, "trajpilot_core/evaluation/latent_plans.py")
