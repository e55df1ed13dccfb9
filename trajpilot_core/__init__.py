"""Plain functions over typed records, which do the work. Imports no Prefect.

`open` is the entry point from Python: `import trajpilot_core as tp; run = tp.open("runs/demo")` (docs/python.md).
"""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trajpilot_core.opened import OpenRun

__all__ = ["open"]


def open(root: str | Path) -> "OpenRun":
    """Open a finished run, read-only.

    Raises:
        InputError: nothing was computed below `root`.
    """
    from trajpilot_core.opened import open_run

    return open_run(str(root))
