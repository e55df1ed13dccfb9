"""The stage `features` with an encoder whose vectors come one batch late, as on a GPU."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from test_features import CONFIG, Shards, features, plain, root, sources, whole  # noqa: F401

from schemas.config import FeatureConfig
from trajpilot_core.encoders.video import embed
from trajpilot_core.engine.stage import Runtime, Work
from trajpilot_core.stages.features import STAGE


@dataclass
class MeanLater:
    """The mean colour of a clip, computed when somebody waits for it."""

    digest: str = "late"
    width: int = 3
    tokens: int = 1
    most: int = 0
    """Most batches that were on their way at once."""
    on_their_way: int = 0
    begun: int = 0

    def begin(self, frames: NDArray[np.uint8]) -> Callable[[], NDArray[np.float16]]:
        self.begun += 1
        self.on_their_way += 1
        self.most = max(self.most, self.on_their_way)
        found: list[NDArray[np.float16]] = []

        def wait() -> NDArray[np.float16]:
            if not found:
                self.on_their_way -= 1
                found.append(self.embed(frames))
            return found[0]

        return wait

    def embed(self, frames: NDArray[np.uint8]) -> NDArray[np.float16]:
        return (frames.mean(axis=(1, 2, 3)) / 255).astype(np.float16)


Encoder = Callable[[str, MeanLater], MeanLater]


@pytest.fixture
def use(monkeypatch: pytest.MonkeyPatch) -> Encoder:
    """Return what makes the stage use an encoder as it would on a device."""

    def use(device: str, encoder: MeanLater) -> MeanLater:
        def load(cfg: FeatureConfig, asked: str, scratch: Path) -> embed.Embedder:
            return embed.Embedder(encoder, cfg, device, cfg.batch)

        monkeypatch.setattr(embed, "load_embedder", load)
        return encoder

    return use


def test_vectors_may_come_one_batch_late(root: Path, tmp_path: Path, use: Encoder) -> None:  # noqa: F811
    """The last batch, of odd size, is waited for, and each vector lands at its own segment."""
    for batch in (4, 100):
        cfg = CONFIG.replace(batch=batch)
        here = use("cpu", MeanLater())
        reference = whole(features(root, plain(), tmp_path, cfg))
        there = use("cuda", MeanLater())
        assert whole(features(root, plain(), tmp_path, cfg)).equals(reference)
        assert (here.most, there.most) == (1, 2 if batch < 15 else 1)
        assert (here.on_their_way, there.on_their_way) == (0, 0)
        assert here.begun == there.begun == -(-15 // batch)


def test_an_interruption_commits_no_take_with_a_clip_on_its_way(root: Path, tmp_path: Path, use: Encoder) -> None:  # noqa: F811
    """Planted: the third batch is interrupted while the second, all of take b, is on its way."""

    class Interrupted(MeanLater):
        def begin(self, frames: NDArray[np.uint8]) -> Callable[[], NDArray[np.float16]]:
            if self.begun == 2:
                raise KeyboardInterrupt
            return super().begin(frames)

    use("cuda", Interrupted())
    sink, tables, cfg = Shards(), plain(), CONFIG.replace(batch=5)
    pending: Any = tuple(sources(tables, cfg, str(root)))  # type: ignore[arg-type]
    with pytest.raises(KeyboardInterrupt):
        STAGE.run(Work(tables, cfg, pending, sink, Runtime(str(root), "cpu", 1, tmp_path)))  # type: ignore[arg-type]
    assert {name: table.num_rows for name, table in sink.tables.items()} == {"t:a": 5}
