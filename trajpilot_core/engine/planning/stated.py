"""What every stage of a run says that it needs, for `plan`, doctor and the start of a run. Imports no torch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from schemas.artifacts import Manifest
from schemas.config import PipelineConfig, RunOptions
from trajpilot_core.engine.needs import Need, Needs, NeedsMachine, size_text
from trajpilot_core.engine.resolve import resolve_config, resolve_device
from trajpilot_core.engine.sizes import CorpusSizes, sizes_of
from trajpilot_core.engine.stage import AnyStage
from trajpilot_core.store.files import Folder
from trajpilot_core.store.manifest import current_manifest, unless_damaged


@dataclass(frozen=True)
class StatedNeeds:
    """What stages need, and at which sizes."""

    by_stage: Mapping[str, Needs]
    sizes: CorpusSizes

    def of(self, names: Sequence[str]) -> "StatedNeeds":
        """Return those of some stages."""
        return StatedNeeds({name: needs for name, needs in self.by_stage.items() if name in names}, self.sizes)

    def most(self, kind: str) -> tuple[str, Need]:
        """Return the stage that needs most of a kind, `host` or `device`, and how much; "" where none needs any."""
        found = {name: getattr(needs, kind) for name, needs in self.by_stage.items()}
        name = max(found, key=lambda name: found[name].bytes, default="")
        return (name, found[name]) if name and found[name].bytes else ("", Need())

    def disk(self) -> int:
        """Return the bytes of all outputs together and of the largest scratch, which is removed when its stage ends."""
        needs = self.by_stage.values()
        return sum(one.disk.bytes for one in needs) + max((one.scratch.bytes for one in needs), default=0)

    def at(self) -> str:
        """State in a word or two, after a figure, that the sizes are not this corpus's own."""
        return ", at the paper's sizes" if self.sizes.assumed else ""

    def basis(self) -> str:
        """State at which sizes that is."""
        sizes = self.sizes
        counts = f"{sizes.takes:,} takes, {sizes.segments:,} segments, {sizes.all_windows:,} windows"
        counts += f", {sizes.labels:,} labels"
        if not sizes.assumed:
            return counts
        what = "all of it" if "segments" in sizes.assumed else ", ".join(sizes.assumed)
        return f"{counts} ({what} as in the paper's corpus, until the stages that tell have run here)"


def stated_needs(
    stages: Mapping[str, AnyStage],
    config: PipelineConfig,
    run: RunOptions,
    found: Mapping[str, Manifest | None],
    folder: Folder,
    sizes: CorpusSizes | None = None,
) -> StatedNeeds:
    """Ask every stage what it needs.

    Args:
        stages: by name.
        config: of the run.
        run: device and workers.
        found: stage -> its output that counts.
        folder: the root.
        sizes: what is known otherwise of a corpus that nothing was computed of; None: the paper's.

    Raises:
        InputError: the device that the run asks for is not there.
    """
    manifests = [manifest for manifest in found.values() if manifest is not None]
    entries = {name: (one.stage, entry) for one in manifests for name, entry in one.entries.items()}
    known = sizes if sizes is not None and "segments" not in entries else sizes_of(folder, entries, config)
    needs = {}
    for stage in stages.values():
        own = resolve_config(stage, config, run)
        device = resolve_device(run.device) if stage.on_gpu(own) else "cpu"
        if stage.needs is not None:
            needs[stage.name] = stage.needs(known, own, NeedsMachine(device, run.workers))
    return StatedNeeds(needs, known)


def manifests_of(folder: Folder, stages: Mapping[str, AnyStage]) -> dict[str, Manifest | None]:
    """Return stage -> its output that counts; None where there is none, or it is damaged."""
    return {name: unless_damaged(current_manifest, folder, name) for name in stages}


def needs_cells(needs: Needs) -> tuple[str, str, str, str]:
    """Return what a table shows of a stage's needs: memory, GPU memory, disk, and what lowers them."""
    gpu = size_text(needs.device.bytes) if needs.device.bytes else "-"
    parts = (needs.host, needs.device, needs.scratch, needs.disk)
    lower = ", ".join(dict.fromkeys(name for part in parts for name in part.lower))
    return size_text(needs.host.bytes), gpu, size_text(needs.disk.bytes + needs.scratch.bytes), lower
