"""Clients by the name of the setting: the only list."""

from typing import TYPE_CHECKING

from schemas.vlm import VlmConfig
from trajpilot_core.vlm.answers import AnswerFolder
from trajpilot_core.vlm.clients.base import Client
from trajpilot_core.vlm.clients.batch_file import BatchFileClient
from trajpilot_core.vlm.clients.stub import StubClient
from trajpilot_core.vlm.material import PromptMaterial

if TYPE_CHECKING:
    from trajpilot_core.vlm.local.model import TunedWeights


def client_of(cfg: VlmConfig, material: PromptMaterial, device: str, tuned: "TunedWeights | None" = None) -> Client:
    """Return who answers under these settings.

    Args:
        cfg: of the stage.
        material: for made-up answers.
        device: the worker's, for models in this process.
        tuned: weights of this run's own tuning, likewise.

    Raises:
        InputError: the settings do not allow to send frames there.
    """
    if cfg.backend == "transformers":
        from trajpilot_core.vlm.clients.in_process import InProcessClient

        return InProcessClient(cfg, device, tuned)
    if cfg.backend == "http":
        from trajpilot_core.vlm.clients.http import HttpClient

        return HttpClient(cfg.server, cfg.corpus, AnswerFolder(cfg.answers))
    return StubClient(material) if cfg.backend == "stub" else BatchFileClient()
