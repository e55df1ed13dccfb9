"""A frozen predictor of latents under many candidate motions of each window: the answers of its `forward`, sooner.

Layer norms are folded into the weights that read them, and the residual stream is kept without its mean, so that
normalising is one scaling. Directions of the search are folded into the layer that reads motion. One window's
candidates go through at a time, as many as a cache holds, and none projects the context again. Own scores are summed
product by product, candidates side by side, one distance back in time after the other. Where the last step alone is
wanted, the last layer makes no keys and values: it looks up the tokens themselves with projected queries.

Shapes: B windows, S candidates of each, N of one window that go together, T steps, M of them that are told motion, P
numbers of a candidate's step, U of a motion, H heads of width K, W width, C tokens of context, G tokens of a step, D
feature width.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from trajpilot_core.models.blocks import KeysValues, TransformerBlock
from trajpilot_core.models.latent import LatentPredictor

CACHE_BYTES = 1 << 20
"""Of the tokens of a layer that go together on a CPU. Measured: half and twice as many take longer."""
EPSILON = 1e-5
"""Of torch's layer norms."""


class FoldedLayer(NamedTuple):
    """The weights of a block; what it reads is normalised, what it adds has mean 0 over W.

    Keys and values have no biases: those of keys shift all scores of a query alike, those of values come through to
    `out_bias`. So the context must have none, either (`without_biases`).
    """

    query_key_value: Tensor
    """(3 W, W); queries are scaled by the root of K."""
    query_bias: Tensor
    """(W,)."""
    key_bias: Tensor
    """(H, 1, K), what the block would add."""
    value_bias: Tensor
    """(H, 1, K)."""
    out: Tensor
    """(W, W)."""
    out_bias: Tensor
    up: Tensor
    """(hidden, W)."""
    up_bias: Tensor
    down: Tensor
    """(W, hidden)."""
    down_bias: Tensor


class FoldedPredictor(NamedTuple):
    """The weights of a predictor, arranged for candidates."""

    layers: tuple[FoldedLayer, ...]
    motion_first: Tensor
    """(W, U)."""
    motion_bias: Tensor
    motion_second: Tensor
    """(W, W)."""
    moved: Tensor
    """(W,), of every step whose motion is told: a bias, and that no text is."""
    unmoved: Tensor
    """(W,), of every step of which nothing is told."""
    step: Tensor
    """(positions, W)."""
    horizon: Tensor
    """(horizons, W)."""
    out: Tensor
    """(G D, W), with the scale of latents in it; no token has a mean over D."""
    out_bias: Tensor
    n_tokens: int
    """G."""


class Moves(NamedTuple):
    """Head motion of the middle steps of candidates: points times directions."""

    points: Tensor
    """(B, S, M, P)."""
    directions: Tensor | None = None
    """(P, U); None: the points are standardised motions, and P is U."""

    @property
    def motions(self) -> Tensor:
        """(B, S, M, U) standardised motions."""
        return self.points if self.directions is None else self.points @ self.directions


class StepsAsked(NamedTuple):
    """What is predicted."""

    horizon: int
    """The windows' length."""
    n_steps: int
    """T, from the second position on; those after the first M are told no motion."""
    last_alone: bool
    """Only the last step is wanted."""


LatentReader = Callable[[Tensor, int], Tensor]
"""(T, N, G, D) normalised latents of candidates of a window, and which window -> (N,) values; T is 1 where the last
step alone was asked for."""


@torch.no_grad()
def folded(model: LatentPredictor) -> FoldedPredictor:
    """Arrange the weights of a predictor in evaluation mode; later changes of its weights are not seen."""
    first, second = model.motion_in[0], model.motion_in[2]
    assert isinstance(first, nn.Linear)
    assert isinstance(second, nn.Linear)
    scale, mean = (one.repeat(model.n_tokens) for one in (model.latent_scale, model.latent_mean))
    out, bias = after_norm(model.out.weight, model.out.bias, model.norm)
    per_token = (model.n_tokens, -1, out.shape[1])
    return FoldedPredictor(
        layers=tuple(folded_layer(block) for block in model.blocks),
        motion_first=first.weight.detach(),
        motion_bias=first.bias.detach(),
        motion_second=centred(second.weight, 0),
        moved=centred(second.bias + model.no_text[0], 0),
        unmoved=centred(model.no_motion[0] + model.no_text[0], 0),
        step=centred(model.step, 1),
        horizon=centred(model.horizon, 1),
        out=centred((scale[:, None] * out).view(per_token), 1).flatten(0, 1),
        out_bias=centred((scale * bias + mean).view(model.n_tokens, -1), 1).flatten(),
        n_tokens=model.n_tokens,
    )


def folded_layer(block: nn.Module) -> FoldedLayer:
    """Arrange the weights of a block."""
    assert isinstance(block, TransformerBlock)
    attention, (up, _, down, _) = block.attention, block.hidden
    width, heads = attention.query.in_features, attention.heads
    assert isinstance(up, nn.Linear)
    assert isinstance(down, nn.Linear)
    root = (width // heads) ** -0.5
    query, query_bias = after_norm(attention.query.weight, attention.query.bias, block.attention_norm)
    both, both_bias = after_norm(attention.key_value.weight, attention.key_value.bias, block.attention_norm)
    hidden, hidden_bias = after_norm(up.weight, up.bias, block.hidden_norm)
    key_bias, value_bias = both_bias.view(2, heads, 1, -1)
    through = attention.out.bias + attention.out.weight @ value_bias.flatten()
    return FoldedLayer(
        query_key_value=torch.cat([root * query, both]),
        query_bias=root * query_bias,
        key_bias=key_bias,
        value_bias=value_bias,
        out=centred(attention.out.weight, 0),
        out_bias=centred(through, 0),
        up=hidden,
        up_bias=hidden_bias,
        down=centred(down.weight, 0),
        down_bias=centred(down.bias, 0),
    )


def after_norm(weight_VW: Tensor, bias_V: Tensor, norm: nn.LayerNorm) -> tuple[Tensor, Tensor]:
    """Return (V, W) and (V,) that do to a token of mean 0 and variance 1 what the weights do to `norm` of it."""
    return weight_VW * norm.weight, bias_V + weight_VW @ norm.bias


def centred(x: Tensor, dim: int) -> Tensor:
    """Return x less its mean over one axis."""
    return x.detach() - x.detach().mean(dim, keepdim=True)


def scaled(x_xW: Tensor) -> Tensor:
    """Return (..., W) tokens of mean 0 with variance 1, as a layer norm without weights would make them."""
    width = x_xW.shape[-1]
    length = torch.linalg.vector_norm(x_xW, dim=-1, keepdim=True)
    made: Tensor = x_xW * length.square_().add_(width * EPSILON).rsqrt_().mul_(width**0.5)
    return made


@torch.no_grad()
def values_of(
    model: FoldedPredictor, context: Sequence[KeysValues], moves: Moves, asked: StepsAsked, read: LatentReader
) -> Tensor:
    """Return (B, S), what is read from the latents that a predictor says of every candidate.

    Args:
        context: keys and values of the windows' ends, as `LatentPredictor.encode` gives them.
    """
    points = moves.points
    first = model.motion_first.T if moves.directions is None else moves.directions @ model.motion_first.T
    known_TW = model.step[1 : 1 + asked.n_steps] + model.horizon[asked.horizon] + model.unmoved
    known_TW[: points.shape[2]] += model.moved - model.unmoved
    found = points.new_empty(points.shape[:2])
    for window in range(len(points)):
        ends = [
            without_biases(layer, keys[window], values[window])
            for layer, (keys, values) in zip(model.layers, context, strict=True)
        ]
        for rows in parts(points.shape[1], known_TW):
            x_TNW = tokens_of(model, points[window, rows], first, known_TW)
            found[window, rows] = read(rolled(model, x_TNW, ends, last_alone=asked.last_alone), window)
    return found


def without_biases(layer: FoldedLayer, keys_HCK: Tensor, values_HCK: Tensor) -> KeysValues:
    """Return keys and values of a context as those of the candidates are."""
    return keys_HCK - layer.key_bias, values_HCK - layer.value_bias


def parts(n: int, tokens_TW: Tensor) -> list[slice]:
    """Return which of n candidates go together: all on a GPU."""
    is_cached = tokens_TW.device.type == "cpu"
    most = n if not is_cached else max(1, CACHE_BYTES // (tokens_TW.numel() * tokens_TW.element_size()))
    size = -(-n // -(-n // most))
    return [slice(at, min(n, at + size)) for at in range(0, n, size)]


def tokens_of(model: FoldedPredictor, points_NMP: Tensor, first_PW: Tensor, known_TW: Tensor) -> Tensor:
    """Return (T, N, W), what a predictor is told of the steps; mean 0 over W."""
    (n, n_moved, _), (n_steps, width) = points_NMP.shape, known_TW.shape
    hidden = torch.addmm(model.motion_bias, points_NMP.transpose(0, 1).flatten(0, 1), first_PW)
    x_TNW = known_TW.new_zeros(n_steps, n, width)
    torch.mm(F.gelu(hidden), model.motion_second.T, out=x_TNW[:n_moved].view(n_moved * n, width))
    return x_TNW.add_(known_TW[:, None])


def rolled(model: FoldedPredictor, x_TNW: Tensor, ends: Sequence[KeysValues], *, last_alone: bool) -> Tensor:
    """Return (T, N, G, D) normalised latents, or (1, N, G, D) of the last step; the tokens are overwritten."""
    for layer, context in zip(model.layers[:-1], ends[:-1], strict=True):
        x_TNW = fed_forward(layer, attended(layer, x_TNW, context))
    attend = end_attended if last_alone else attended
    x_TNW = fed_forward(model.layers[-1], attend(model.layers[-1], x_TNW, ends[-1]))
    token_TNW = scaled(x_TNW)
    out = torch.addmm(model.out_bias, token_TNW.flatten(0, 1), model.out.T)
    return scaled(out.view(*x_TNW.shape[:2], model.n_tokens, -1))


def attended(layer: FoldedLayer, x_TNW: Tensor, context: KeysValues) -> Tensor:
    """Return (T, N, W) after attention, in the same memory; step t sees the context and the steps 0..t."""
    keys_HCK, values_HCK = context
    (n_steps, n, width), (heads, seen, _) = x_TNW.shape, keys_HCK.shape
    token_TNW = scaled(x_TNW)
    made = layer.query_key_value @ token_TNW.view(n_steps * n, width).T
    made[:width].add_(layer.query_bias[:, None])
    query, key, value = made.view(3, heads, -1, n_steps, n)
    scores = made.new_full((heads, seen + n_steps, n_steps, n), -torch.inf)
    scores[:, :seen] = torch.bmm(keys_HCK, query.flatten(2)).view(heads, seen, n_steps, n)
    for back in range(n_steps):
        torch.sum(query[:, :, back:] * key[:, :, : n_steps - back], 1, out=scores[:, seen + back, back:])
    share = scores.softmax(1)
    mixed = torch.bmm(values_HCK.transpose(1, 2), share[:, :seen].flatten(2)).view(value.shape)
    for back in range(n_steps):
        mixed[:, :, back:].addcmul_(value[:, :, : n_steps - back], share[:, None, seen + back, back:])
    x_TNW.view(n_steps * n, width).addmm_(mixed.view(width, n_steps * n).T, layer.out.T)
    return x_TNW.add_(layer.out_bias)


def end_attended(layer: FoldedLayer, x_TNW: Tensor, context: KeysValues) -> Tensor:
    """Return (1, N, W), the last step after attention: it sees the context and all steps."""
    keys_HCK, values_HCK = context
    (_, n, width), (heads, seen, _) = x_TNW.shape, keys_HCK.shape
    query, key, value = layer.query_key_value.view(3, heads, -1, width)
    token_TNW = scaled(x_TNW)
    asks = torch.addmm(layer.query_bias, token_TNW[-1], query.flatten(0, 1).T).view(n, heads, -1).transpose(0, 1)
    token_NTW = token_TNW.transpose(0, 1)
    own_NTH = torch.bmm(token_NTW, torch.bmm(asks, key).permute(1, 2, 0))
    shown_NCH = torch.bmm(asks, keys_HCK.transpose(1, 2)).permute(1, 2, 0)
    share = torch.cat([shown_NCH, own_NTH], 1).softmax(1)
    mixed_HNK = torch.bmm(share[:, :seen].permute(2, 0, 1), values_HCK)
    looked_up_NHW = torch.bmm(share[:, seen:].transpose(1, 2), token_NTW)
    mixed_HNK.baddbmm_(looked_up_NHW.transpose(0, 1), value.transpose(1, 2))
    end = torch.addmm(x_TNW[-1], mixed_HNK.transpose(0, 1).reshape(n, width), layer.out.T)
    return end.add_(layer.out_bias)[None]


def fed_forward(layer: FoldedLayer, x_TNW: Tensor) -> Tensor:
    """Return (T, N, W) after the hidden layer, in the same memory."""
    token_TNW = scaled(x_TNW)
    hidden = torch.addmm(layer.up_bias, token_TNW.flatten(0, 1), layer.up.T)
    x_TNW.view(-1, x_TNW.shape[2]).addmm_(F.gelu(hidden), layer.down.T)
    return x_TNW.add_(layer.down_bias)
