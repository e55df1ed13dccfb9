"""How many questions a run asks, of which kind and length: counted from its windows, or assumed. Imports no torch."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from schemas.vlm import Question, VlmConfig, VlmRequest
from trajpilot_core.engine.sizes import CorpusSizes
from trajpilot_core.engine.stage import Inputs
from trajpilot_core.vlm.cost.tokens import CHARACTERS, OF_A_MESSAGE, TokenCount
from trajpilot_core.vlm.material import AskedWindow, load_material, sampled, windows_to_ask
from trajpilot_core.vlm.prompts import load_prompts
from trajpilot_core.vlm.requests import Asking, fill_request, segment_request, window_request
from trajpilot_core.vlm.take import endpoints

LOOKED_AT = 32
"""Questions of a kind and length whose texts are counted; the others are taken to be as long."""
OF_A_LABEL, OF_A_PROMPT = 8, 250
"""Tokens of a label, and of the instructions, where nothing is there to be counted: 68,000 for 8,472 labels."""
PNG_SHARE, BASE64 = 0.5, 4 / 3
"""Bytes of a frame as PNG against its raw ones (assumed), and what writing them as letters makes of them."""


@dataclass(frozen=True)
class AskedKind:
    """Questions of one kind."""

    question: Question
    n: int
    tokens: float
    """Of a prompt, on average."""
    longest: int
    """Tokens of the longest prompt that was looked at."""
    bank: int
    """Tokens of it that are the bank."""
    frames: int
    """Shown by each."""
    most_new: int
    """Tokens of an answer at most."""
    characters: float
    """Of the text of a prompt, on average."""

    @property
    def fills(self) -> bool:
        """Whether the text model is asked."""
        return self.question in ("fill", "continue")

    def sent_bytes(self, size_px: int) -> float:
        """Return the bytes of all of them as requests."""
        return self.n * (self.characters + self.frames * 3 * size_px**2 * PNG_SHARE * BASE64)


def counted_kinds(inputs: Inputs, cfg: VlmConfig) -> list[AskedKind]:
    """Return the questions about the windows of a run; no frame is decoded.

    Args:
        inputs: takes, segments, labels, windows, features, motions.
        cfg: of the stage; models named by their folders are counted with their tokenizers.
    """
    asking = Asking(cfg, load_prompts(cfg.prompts), load_material(inputs))
    by_take = windows_to_ask(inputs, cfg.windows_per_horizon, cfg.seed)
    windows = [(take, one) for take, held in sorted(by_take.items()) for one in held]
    found: list[AskedKind] = []
    if "qwen_zs" in cfg.rows:
        found += _of_windows(asking, windows)
    if "qwen_sft_llm" in cfg.rows:
        ends = [(take, segment) for take, held in sorted(by_take.items()) for segment in endpoints(held)]
        found += [*_of_segments(asking, ends), *_of_fills(asking, windows)]
    return joined(found)


def _of_windows(asking: Asking, windows: Sequence[tuple[str, AskedWindow]]) -> list[AskedKind]:
    """Return the questions about whole windows: those of one length have one text."""
    cfg, count = asking.config, TokenCount(asking.config.model, asking.config)
    shown, found = ("",) * cfg.n_frames, []
    for horizon, n in sorted(Counter(one.horizon for _, one in windows).items()):
        for goal in (shown, None) if cfg.anticipates else (shown,):
            found.append(_kind([window_request(asking, horizon, shown, goal)], n, count))
    return found


def _of_segments(asking: Asking, ends: Sequence[tuple[str, str]]) -> list[AskedKind]:
    cfg, count = asking.config, TokenCount(asking.config.model, asking.config)
    at = sampled(f"{cfg.seed}:segments", len(ends), LOOKED_AT)
    scenario = asking.material.scenario_of
    held = [segment_request(asking, ends[n][1], scenario[ends[n][0]], ("",) * cfg.n_frames) for n in at]
    return [_kind(held, len(ends), count)] if held else []


def _of_fills(asking: Asking, windows: Sequence[tuple[str, AskedWindow]]) -> list[AskedKind]:
    """Return the fills, as if the longest label had been recognised at both ends."""
    cfg, count = asking.config, TokenCount(asking.config.filler, asking.config)
    label, found = max(asking.material.bank, key=len, default=""), []
    for horizon in sorted({one.horizon for _, one in windows}):
        same = [(take, one) for take, one in windows if one.horizon == horizon]
        at = sampled(f"{cfg.seed}:fills:{horizon}", len(same), LOOKED_AT)
        for has_goal in (True, False) if cfg.anticipates else (True,):
            held = [
                fill_request(asking, one, asking.material.scenario_of[take], label, label, has_goal=has_goal)
                for take, one in (same[n] for n in at)
            ]
            found.append(_kind(held, len(same), count))
    return found


def _kind(held: Sequence[VlmRequest], n: int, count: TokenCount) -> AskedKind:
    lengths = [count.of(one) for one in held]
    parts = [[part for message in one.messages for part in message.parts] for one in held]
    return AskedKind(
        question=held[0].question,
        n=n,
        tokens=sum(lengths) / len(held),
        longest=max(lengths),
        bank=count.of_bank(held[0]),
        frames=sum(len(part.frames) for part in parts[0]),
        most_new=held[0].max_tokens,
        characters=sum(len(part.text) for own in parts for part in own) / len(held),
    )


def joined(kinds: Sequence[AskedKind]) -> list[AskedKind]:
    """Return one kind for each question: windows of all lengths together."""
    found = []
    for question in dict.fromkeys(one.question for one in kinds):
        same = [one for one in kinds if one.question == question]
        n = sum(one.n for one in same)
        found.append(
            AskedKind(
                question=question,
                n=n,
                tokens=sum(one.n * one.tokens for one in same) / max(1, n),
                longest=max(one.longest for one in same),
                bank=same[0].bank,
                frames=same[0].frames,
                most_new=same[0].most_new,
                characters=sum(one.n * one.characters for one in same) / max(1, n),
            )
        )
    return found


def assumed_kinds(sizes: CorpusSizes, cfg: VlmConfig) -> list[AskedKind]:
    """Return the questions at sizes at hand: before there are windows, and wherever nothing may be read."""
    test = sizes.windows.get("test", 0)
    windows = test if cfg.windows_per_horizon is None else min(test, cfg.windows_per_horizon * len(sizes.horizons))
    ends = min(2 * windows, round(sizes.segments * test / max(1, sizes.all_windows)))
    frame = TokenCount(cfg.model, cfg).a_frame
    bank, sequences = OF_A_LABEL * sizes.labels, cfg.sequences * sizes.longest * OF_A_LABEL
    seen: tuple[tuple[Question, int], ...] = (("plan", 2), ("anticipate", 1)) if cfg.anticipates else (("plan", 2),)
    read: tuple[Question, ...] = ("fill", "continue") if cfg.anticipates else ("fill",)
    found = []
    if "qwen_zs" in cfg.rows:
        for question, n in seen:
            found.append(_assumed(question, windows, bank, n * cfg.n_frames * frame, n * cfg.n_frames, cfg.new_tokens))
    if "qwen_sft_llm" in cfg.rows:
        own = cfg.exemplars * OF_A_LABEL + cfg.n_frames * frame
        found.append(_assumed("segment", ends, 0, own, cfg.n_frames, cfg.segment_tokens))
        found += [_assumed(one, windows, bank, sequences, 0, cfg.new_tokens) for one in read]
    return found


def _assumed(question: Question, n: int, bank: int, own: int, frames: int, most_new: int) -> AskedKind:
    tokens = bank + own + OF_A_PROMPT + OF_A_MESSAGE
    return AskedKind(question, n, tokens, tokens, bank, frames, most_new, CHARACTERS * (bank + OF_A_PROMPT))
