"""Where the package and the weights of Pi3 come from. Imports nothing heavy."""

from pathlib import Path

from schemas.poses import Pi3Config

WEIGHTS_FILE = "model.safetensors"
HUBS = {"pi3": "yyfz233/Pi3", "pi3x": "yyfz233/Pi3X"}
"""Name -> where the authors publish the weights."""
INSTALL = 'pip install "trajpilot[pi3]" (in a checkout: pip install -e ".[pi3]")'


def local_weights(cfg: Pi3Config) -> Path | None:
    """Return the full path of the weights on this machine; None: those of the hub are used."""
    if cfg.weights is None:
        return None
    path = Path(cfg.weights).absolute()
    return path if path.suffix == ".safetensors" else path / WEIGHTS_FILE
