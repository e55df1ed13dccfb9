"""The figures of a rehearsal as Markdown and JSON, each marked measured or derived."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from benchmarks.rehearsal.accelerator import Card, Need
from benchmarks.rehearsal.growth import exponent
from benchmarks.rehearsal.runner import Measured
from benchmarks.rehearsal.sizes import Sizes

GIB, GB = 2**30, 1e9
LEAST_S, LEAST_BYTES = 1.0, 32 * 2**20
"""What a stage must take at the smaller size for its growth to be shown: less is mostly what does not grow."""


def rows_of(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def measured_table(measured: Sequence[Measured], before: Sequence[Measured] = (), ratio: float = 1.0) -> str:
    """Return what every stage took; growth where a run of a smaller size is given.

    Args:
        measured: the figures.
        before: those of the smaller size.
        ratio: how many times larger this one is.
    """
    of_before = {(one.part, one.stage): one for one in before}
    header = ["part", "stage", "CPU s", "peak memory, GiB", "written, GB", "kept, GB", "scratch, GB", "rows", "growth"]
    rows = [
        [
            one.part,
            one.stage,
            f"{one.cpu_s:,.0f}" if one.cpu_s >= 10 else f"{one.cpu_s:.1f}",
            f"{one.peak_bytes / GIB:.2f}",
            *(f"{value / GB:.2f}" for value in (one.written, one.kept, one.scratch)),
            f"{one.rows:,}",
            growth_of(of_before.get((one.part, one.stage)), one, ratio),
        ]
        for one in measured
    ]
    return "Measured; CPU seconds and memory of all processes of the stage.\n\n" + rows_of(header, rows)


def growth_of(small: Measured | None, large: Measured, ratio: float) -> str:
    """Return the exponents of CPU seconds and memory between two sizes, each where the smaller took enough to tell."""
    if small is None or ratio <= 1:
        return "-"
    found = []
    if small.cpu_s >= LEAST_S:
        found.append(f"time ^{exponent(small.cpu_s, large.cpu_s, ratio):.1f}")
    if small.own_bytes >= LEAST_BYTES:
        found.append(f"memory ^{exponent(small.own_bytes, large.own_bytes, ratio):.1f}")
    return ", ".join(found) or "-"


def derived_table(needs: Sequence[Need], card: Card) -> str:
    """Return what the parts of a whole run would take on a GPU."""
    header = ["part", "operations", "hours", "memory, GiB", "fits", "what"]
    rows = [
        [
            need.part,
            f"{need.operations:.2g}",
            f"{card.hours(need):.2f}",
            f"{need.memory / GIB:.1f}",
            "yes" if need.memory < card.memory_gib * GIB else "**no**",
            need.how,
        ]
        for need in needs
    ]
    hours = sum(map(card.hours, needs))
    what = (
        f"Derived, for a whole run on a GPU of {card.tflops:g} TFLOP/s in bf16, {card.fp32_tflops:g} in fp32, "
        f"{card.utilisation:.0%} of either reached, {card.memory_gib:g} GiB: {hours:.1f} hours if none stops early."
    )
    return f"{what}\n\n{rows_of(header, rows)}"


def save(
    path: Path, recipe: str, sizes: Sizes, measured: Sequence[Measured], needs: Sequence[Need], card: Card
) -> None:
    """Write all figures as JSON."""
    found = {
        "recipe": recipe,
        "sizes": asdict(sizes),
        "measured": [asdict(one) for one in measured],
        "derived": [{**need._asdict(), "hours": card.hours(need)} for need in needs],
        "card": card._asdict(),
    }
    path.write_text(json.dumps(found, indent=1) + "\n")


def load(path: Path) -> tuple[Sizes, list[Measured]]:
    """Read the sizes and the measured figures back."""
    found = json.loads(path.read_text())
    return Sizes(**found["sizes"]), [Measured(**one) for one in found["measured"]]
