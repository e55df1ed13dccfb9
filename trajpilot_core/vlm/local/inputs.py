"""A request -> what a model of the kind Qwen3-VL or Qwen3 is given: token ids, and patches of its frames.

Built with torch alone: the hub's own processors of images need torchvision or Pillow, which are required by nothing
here. Source: configuration and image processor of Qwen2-VL and Qwen3-VL in transformers 5.23, compared in a test.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from schemas.vlm import VlmPart, VlmRequest
from trajpilot_core.arrays import Image
from trajpilot_core.errors import InputError
from trajpilot_core.vlm.local.rules import ImageRules, fitted

WHITE = 255.0
TEMPLATE = "chat_template.json"
"""File of older repositories that has the template of conversations for a tokenizer without one."""


def patches(frame: Image, rules: ImageRules) -> tuple[Tensor, tuple[int, int, int]]:
    """Cut one frame into patches, those of a token next to each other.

    Args:
        frame: (H, W, 3) RGB.
        rules: of the model.

    Returns:
        (N, 3 * repeats * patch_px ** 2) float32 patches, and the grid: 1, rows and columns of patches.
    """
    image_CHW = torch.from_numpy(np.ascontiguousarray(frame)).permute(2, 0, 1).contiguous()
    height, width = frame.shape[:2]
    size = fitted(height, width, rules)
    if size != (height, width):
        image_CHW = F.interpolate(image_CHW[None], size=size, mode="bicubic", antialias=True)[0]
    mean, std = (torch.tensor(values).view(3, 1, 1) for values in (rules.mean, rules.std))
    image_CHW = (image_CHW.float() / WHITE - mean) / std
    rows, columns = (side // rules.patch_px for side in size)
    merge, px = rules.merge, rules.patch_px
    cut = image_CHW.reshape(3, rows // merge, merge, px, columns // merge, merge, px).permute(1, 4, 2, 5, 0, 3, 6)
    cut = cut.reshape(rows * columns, 3, 1, px * px).expand(-1, -1, rules.repeats, -1)
    return cut.reshape(rows * columns, -1), (1, rows, columns)


def chat_template(tokenizer: Any, folder: Path) -> str:
    """Return the template of conversations: the tokenizer's, or that of the file next to it.

    Raises:
        InputError: there is none.
    """
    if isinstance(tokenizer.chat_template, str):
        return tokenizer.chat_template
    path = folder / TEMPLATE
    held = json.loads(path.read_bytes()).get("chat_template") if path.is_file() else None
    if not isinstance(held, str):
        raise InputError(f"{folder} has no template of conversations: neither its tokenizer's files nor {TEMPLATE}")
    return held


def conversation(request: VlmRequest, *, sees: bool) -> list[dict[str, Any]]:
    """Return the messages as templates take them.

    A model that sees gets a list of texts and places of images, in the order of the payload for servers; templates of
    the others take one text a message.
    """
    if not sees:
        return [{"role": one.role, "content": "".join(part.text for part in one.parts)} for one in request.messages]
    return [
        {"role": one.role, "content": [item for part in one.parts for item in _items(part)]} for one in request.messages
    ]


def _items(part: VlmPart) -> list[dict[str, str]]:
    text = [{"type": "text", "text": part.text}] if part.text else []
    return text + [{"type": "image"}] * len(part.frames)


def written(request: VlmRequest, tokenizer: Any, template: str, *, sees: bool) -> str:
    """Return the conversation as the template of a model writes it, each image one mark."""
    text = tokenizer.apply_chat_template(
        conversation(request, sees=sees),
        chat_template=template,
        tokenize=False,
        add_generation_prompt=True,
        enable_thinking=False,
    )
    return str(text)


def model_inputs(
    request: VlmRequest,
    frames: Mapping[str, Image],
    tokenizer: Any,
    template: str,
    rules: ImageRules | None,
    image_id: int | None,
) -> dict[str, Tensor]:
    """Return what the model is called with, a batch of one.

    Args:
        request: the question.
        frames: digest -> (S, S, 3) RGB of every frame that it shows.
        tokenizer: of the model.
        template: of conversations.
        rules: of images; None: the model reads text alone.
        image_id: the token that stands for a part of an image.

    Returns:
        input_ids and attention_mask (1, T); with frames also mm_token_type_ids (1, T), 1 where a token is of an image,
        pixel_values (N, P) of all patches, image_grid_thw (frames, 3).

    Raises:
        InputError: a text model would be shown frames, or the places of images are not as many as the frames.
    """
    shown = [one for message in request.messages for part in message.parts for one in part.frames]
    if shown and rules is None:
        raise InputError(f"the question {request.question} shows {len(shown)} frames to a model that reads text alone")
    text = written(request, tokenizer, template, sees=rules is not None)
    cut = [patches(frames[one], rules) for one in shown] if rules is not None else []
    if rules is not None and image_id is not None:
        text = _expanded(text, tokenizer.convert_ids_to_tokens(image_id), [rules.tokens(grid) for _, grid in cut])
    tokens = tokenizer(text, add_special_tokens=False, return_tensors="pt")
    found = {"input_ids": tokens["input_ids"], "attention_mask": tokens["attention_mask"]}
    if cut:
        found["mm_token_type_ids"] = (found["input_ids"] == image_id).int()
        found["pixel_values"] = torch.cat([one for one, _ in cut])
        found["image_grid_thw"] = torch.tensor([grid for _, grid in cut])
    return found


def _expanded(text: str, mark: str, sizes: list[int]) -> str:
    """Repeat the mark of each image as often as it has tokens.

    Raises:
        InputError: there are more or fewer marks than images.
    """
    between = text.split(mark)
    if len(between) != len(sizes) + 1:
        raise InputError(
            f"the template of conversations leaves {len(between) - 1} places {mark} for {len(sizes)} frames; it is no "
            "template for images, or a label contains that mark"
        )
    return "".join(one + mark * size for one, size in zip(between, [*sizes, 0], strict=True))
