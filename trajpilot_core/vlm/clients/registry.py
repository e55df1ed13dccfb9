"""Clients by the name of the setting: the only list."""

from schemas.vlm import VlmConfig
from trajpilot_core.vlm.answers import AnswerFolder
from trajpilot_core.vlm.clients.base import Client
from trajpilot_core.vlm.clients.batch_file import BatchFileClient
from trajpilot_core.vlm.clients.stub import StubClient
from trajpilot_core.vlm.material import PromptMaterial


def client_of(cfg: VlmConfig, material: PromptMaterial) -> Client:
    """Return who answers under these settings.

    Raises:
        InputError: the settings do not allow to send frames there.
    """
    if cfg.backend == "http":
        from trajpilot_core.vlm.clients.http import HttpClient

        return HttpClient(cfg.server, cfg.corpus, AnswerFolder(cfg.answers))
    return StubClient(material) if cfg.backend == "stub" else BatchFileClient()
