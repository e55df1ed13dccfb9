"""Contradictions of the diagnostics and of the method's description: nos. 10, 11, 12, 14, 15, 16, 17."""

import math
from itertools import pairwise

from trajpilot_core.reproduction.finding import Finding, Grid, by_horizon, fixed, name_horizons, printed, signed, span
from trajpilot_core.reproduction.published import (
    ATOMIC_CORPUS,
    HORIZONS,
    POOLS,
    Paper,
    half_digit,
)
from trajpilot_core.reproduction.windows import stride_one

POOL_SIZES = (1, 5, 16, 64)
ROUGHLY = 0.25
"""How far off a number may be that is introduced by roughly."""
BYTES = 2
"""Of one number of a cached feature (float16)."""
PUBLIC_PROJECTION = 4096
"""Width of the projected text vector in the public EgoVLPv2 checkpoint (docs/decisions/text-encoders.md)."""
VIT_SMALL_G, VIT_BIG_G = "vit_giant", "vit_gigantic"


def language_ratio(paper: Paper) -> Finding:
    """No. 10: how many times more trajectory helps than language."""
    loss = {row: paper.printed("motivation", row, "val_l1", 1) for row in ("none", "text", "trajectory")}
    claimed = paper.text("trajectory_over_text", "gain_ratio", 1)
    text, trajectory = (float(loss["none"] - loss[row]) for row in ("text", "trajectory"))
    slack = 2 * half_digit(loss["none"])
    ratio = trajectory / text if text else math.inf
    least = (trajectory - slack) / (text + slack)
    most = (trajectory + slack) / (text - slack) if text > slack else math.inf
    rounded = paper.value("motivation", "trajectory", "gain_over_none", 1) / paper.value(
        "motivation", "text", "gain_over_none", 1
    )
    return Finding(
        10,
        "Trajectory against language",
        f"Trajectory cuts the validation loss roughly {fixed(claimed, 0)} times more than language does.",
        ("sec:intro", "tab:motivation"),
        Grid(
            ("condition", "loss", "gain"),
            tuple((row, f"{value}", fixed(float(loss["none"] - value), 4)) for row, value in loss.items()),
        ),
        f"The ratio of the losses' gains is {fixed(ratio, 1)}; rounding allows "
        f"{fixed(least, 1)} to {fixed(most, 1)}. The gains as the table rounds them give {fixed(rounded, 0)}. Best "
        "validation values, one seed, no interval.",
        "holds" if least <= claimed <= most else "strained" if abs(ratio / claimed - 1) <= ROUGHLY else "contradicted",
    )


def random_order(horizon: int) -> float:
    """Return the percentage of plans whose H − 2 middle distances fall by chance alone: 100 / (H − 2)!."""
    return 100 / math.factorial(horizon - 2)


def monotone_by_chance(paper: Paper) -> Finding:
    """No. 11: the monotone fraction against random order."""
    share = paper.by_horizon("monotonicity", "ground_truth", "monotonic_fraction")
    chance = {h: random_order(h) for h in HORIZONS}
    n = paper.text("ground_truth", "trajectories")
    spread = {h: math.sqrt(chance[h] * (100 - chance[h]) / n) for h in HORIZONS}
    ratio = {h: share[h] / chance[h] for h in HORIZONS}
    above = {h: (share[h] - chance[h]) / spread[h] for h in HORIZONS if spread[h] > 0}
    near = all(0.5 <= value <= 2 for value in ratio.values())
    beyond = name_horizons([h for h, value in above.items() if value > 2])
    return Finding(
        11,
        "Monotone progress",
        "Real plans seldom approach the goal at every step, so the assumption behind goal-distance scoring breaks down "
        "beyond H = 3.",
        ("app:monotonicity", "tab:monotonicity"),
        by_horizon(
            {
                "monotone, %": printed(share, 1),
                "random order, 100 / (H − 2)!": printed(chance),
                "standard errors above": {h: signed(value, 1) for h, value in above.items()},
            }
        ),
        (
            "Within a factor of two the fractions are those of middle steps in random order; they lie more than two "
            f"standard errors above it at {beyond}. At H = 3 there is nothing to order, so 100 % is no success, and "
            "what follows is no breakdown. Start is not in the chain."
            if near
            else "The fractions are not those of random order."
        ),
        "strained" if near else "holds",
    )


def cosine_of_pools(paper: Paper) -> Finding:
    """No. 12: a mean over the best K that rises with K."""
    sizes = {k: f"top_{k}" for k in POOL_SIZES}
    local, random = (
        {k: paper.value(POOLS, row, metric, 5) for k, row in sizes.items()}
        for metric in ("cosine_local", "cosine_random")
    )
    pairs = list(pairwise(POOL_SIZES))
    rising = [after for before, after in pairs if local[after] > local[before]]
    return Finding(
        12,
        "Cosine of the retrieved pool",
        "The column is the mean endpoint cosine within the retrieved pool, beside a random pool.",
        ("tab:retrieval_headroom",),
        Grid(
            ("", *(f"top {k}" for k in POOL_SIZES)),
            (
                ("retrieved", *(fixed(local[k], 3) for k in POOL_SIZES)),
                ("random", *(fixed(random[k], 3) for k in POOL_SIZES)),
            ),
        ),
        f"It rises at {len(rising)} of {len(pairs)} steps of the pool size. A mean over the nearest K cannot rise "
        f"with K, nor can that of a random pool depend on it (printed: {span(list(random.values()), 3)}). It behaves "
        "like the best of the pool."
        if rising
        else "It falls with the pool, as a mean over the nearest K must.",
        "contradicted" if rising else "holds",
    )


def feature_size(paper: Paper) -> Finding:
    """No. 14: a token sequence or one vector."""
    segments = sum(paper.text(split, "segments", dataset=ATOMIC_CORPUS) for split in ("train", "validation"))
    width = paper.text("pooled_feature", "width")
    tokens = paper.text("attentive_probe", "context_tokens", dataset="egoexo4d_basketball")
    minutes = paper.text("predictor", "minutes")
    full, pooled = segments * tokens * width * BYTES, segments * width * BYTES
    return Finding(
        14,
        "Tokens or one vector",
        "Learned queries cross-attend into the token sequence of a clip; the appendix caches one mean-pooled vector "
        "per segment.",
        ("sec:method:stage2", "app:preprocessing", "app:compute"),
        Grid(
            ("cache of", "numbers per segment", f"all {segments:,.0f} segments, 2 bytes each"),
            (
                ("all tokens", f"{tokens:,.0f} x {width:,.0f}", f"{full / 1e12:.2f} TB"),
                ("one vector", f"{width:,.0f}", f"{pooled / 1e6:.0f} MB"),
            ),
        ),
        f"One pass over all tokens within the stated {fixed(minutes, 0)} minutes of training would read "
        f"{full / (60 * minutes) / 1e9:.2f} GB/s, and every further pass as much again; so the vector was "
        "surely used. Over a single key the attention weight is 1: the queries then add constants to one linear map.",
        "textual",
    )


def encoder_width(paper: Paper) -> Finding:
    """No. 15: which encoder feeds the predictor on EPIC-KITCHENS-100, and what its accuracy is."""
    from trajpilot_core.encoders.vjepa import SIZES  # torch takes seconds to import

    wanted = int(paper.text("pooled_feature", "width"))
    widths = {name: SIZES[name].width for name in (VIT_SMALL_G, VIT_BIG_G)}
    accuracy, recall = (
        paper.value("ek100", "visual_only_probe", metric) for metric in ("action_accuracy", "action_R@5")
    )
    labels = paper.text("bank", "labels", dataset="epic_kitchens_100")
    return Finding(
        15,
        "Encoder and accuracy on EPIC-KITCHENS-100",
        "The predictor consumes mean-pooled features of V-JEPA 2.1 ViT-g (1B); action accuracy is an instance "
        "accuracy.",
        ("app:ek100", "tab:ek100", "app:preprocessing"),
        Grid(
            ("encoder", "width"),
            (
                ("V-JEPA 2.1 ViT-g", str(widths[VIT_SMALL_G])),
                ("V-JEPA 2.1 ViT-G", str(widths[VIT_BIG_G])),
                ("input of the predictor", str(wanted)),
            ),
        ),
        f"ViT-g is {'not ' if widths[VIT_SMALL_G] != wanted else ''}as wide as the predictor's input. "
        f"{fixed(accuracy)} % accuracy over {labels:,.0f} action pairs beside {fixed(recall)} % class-mean recall at "
        "5 is far too high for first answers; the public evaluation code counts the best five under that name.",
        "contradicted" if widths[VIT_SMALL_G] != wanted else "textual",
    )


def bank_entries(paper: Paper) -> Finding:
    """No. 16: a bank of segments indexed by something that a segment has not."""
    segments, takes = (paper.text("train", name, dataset=ATOMIC_CORPUS) for name in ("segments", "takes"))
    return Finding(
        16,
        "What the retrieval bank holds",
        "The bank has one entry per training segment, indexed by its Start and Goal.",
        ("app:scorer_mechanism",),
        by_horizon(
            {
                "training segments": {h: f"{segments:,.0f}" for h in HORIZONS},
                "training windows, at most": {h: f"{n:,.0f}" for h, n in stride_one(segments, takes).items()},
            }
        ),
        "A segment has no goal. An entry must be a window, and every horizon has a bank of its own.",
        "textual",
    )


def text_width(paper: Paper) -> Finding:
    """No. 17: the width of the text space."""
    head = paper.text("classifier_head", "input_width")
    return Finding(
        17,
        "Width of the text space",
        f"Targets are EgoVLPv2 text embeddings; the classifier heads read {fixed(head, 0)} numbers.",
        ("sec:method:stage1", "app:implementation:closed-vocab"),
        None,
        f"The public model projects text to {PUBLIC_PROJECTION:,} numbers. {fixed(head, 0)} is the width of its text "
        "backbone, before the projection. The reference given for EgoVLPv2 is that of its predecessor.",
        "textual" if head != PUBLIC_PROJECTION else "holds",
    )
