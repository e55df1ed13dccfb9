"""Clients by the name of the setting: the only list."""

from schemas.vlm import VlmConfig
from trajpilot_core.vlm.clients.base import Client
from trajpilot_core.vlm.clients.batch_file import BatchFileClient
from trajpilot_core.vlm.clients.stub import StubClient
from trajpilot_core.vlm.material import PromptMaterial


def client_of(cfg: VlmConfig, material: PromptMaterial, device: str) -> Client:
    """Return who answers under these settings; `device` is the worker's, for models in this process."""
    if cfg.backend == "transformers":
        from trajpilot_core.vlm.clients.in_process import InProcessClient

        return InProcessClient(cfg, device)
    return StubClient(material) if cfg.backend == "stub" else BatchFileClient()
