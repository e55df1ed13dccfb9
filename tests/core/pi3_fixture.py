"""A package called pi3 that answers as Pi3 does, and weights for it."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

FAKE = '''
"""Answers as {name} does: same keys and shapes; world and scale arbitrary."""
import torch
from torch import nn


class {name}(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))
        self.multimodal = True

    def disable_multimodal(self):
        self.multimodal = False

    def forward(self, imgs):
        B, N, C, H, W = imgs.shape
        assert B == 1 and C == 3 and H % 14 == 0 and W % 14 == 0 and imgs.dtype == torch.float32
        assert 0 <= float(imgs.min()) and float(imgs.max()) <= 1
        k = torch.linspace(0, 1, N)
        angle, poses = 0.4 * k, torch.eye(4).repeat(N, 1, 1)
        poses[:, 0, 0], poses[:, 0, 2] = torch.cos(angle), torch.sin(angle)
        poses[:, 2, 0], poses[:, 2, 2] = -torch.sin(angle), torch.cos(angle)
        poses[:, 0, 3] = self.scale * 7.0 * k
        world = torch.linalg.qr(torch.randn(3, 3, generator=torch.Generator().manual_seed(5)))[0]
        world = world * torch.sign(torch.linalg.det(world))
        placed = torch.eye(4)
        placed[:3, :3], placed[:3, 3] = world, torch.tensor([3.0, -2.0, 9.0])
        points = torch.zeros(B, N, H, W, 3)
        answer = dict(points=points, local_points=points, conf=torch.zeros(B, N, H, W, 1) + 2.0)
        answer["camera_poses"] = (placed @ poses)[None]
        if {x}:
            assert not self.multimodal
            answer |= dict(rays=points, metric=torch.ones(B))
        return answer
'''


def _loaded() -> list[str]:
    return [name for name in sys.modules if name == "pi3" or name.startswith("pi3.")]


@contextmanager
def pi3_package(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Put a package called pi3 on the path; gives a folder with weights for it."""
    models = folder / "package" / "pi3" / "models"
    models.mkdir(parents=True)
    for place in (models.parent, models):
        (place / "__init__.py").write_text("")
    for name in ("Pi3", "Pi3X"):
        (models / f"{name.lower()}.py").write_text(FAKE.format(name=name, x=name == "Pi3X"))
    monkeypatch.syspath_prepend(str(folder / "package"))
    for name in _loaded():
        monkeypatch.delitem(sys.modules, name)
    weights = folder / "weights"
    weights.mkdir()
    save_file({"scale": torch.tensor(2.0)}, weights / "model.safetensors")
    yield weights
    for name in _loaded():
        del sys.modules[name]
