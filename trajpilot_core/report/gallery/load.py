"""What the report reads from the store, as far as the drawn windows need it."""

from collections.abc import Mapping
from typing import Any

from schemas.config import ReportConfig
from trajpilot_core.engine.stage import Inputs
from trajpilot_core.report.gallery.windows import Facts, GalleryWindows, draw, keep

DRAW_COLUMNS = ("window_id", "horizon", "variant", "mid_right", "opened")


def draw_gallery(inputs: Inputs, cfg: ReportConfig) -> GalleryWindows:
    """Draw the windows of the gallery from the outcomes table."""
    return draw(inputs.table("outcomes", DRAW_COLUMNS), cfg)


def video_files(drawn: GalleryWindows, inputs: Inputs) -> dict[str, str]:
    """Return take id -> video file, relative to the data root, of every take in the gallery."""
    shown = keep(inputs.table("outcomes", ("window_id", "take_id")), "window_id", drawn.window_ids())
    takes = keep(inputs.table("takes", ("take_id", "video")), "take_id", [row["take_id"] for row in shown])
    return {row["take_id"]: row["video"] for row in sorted(takes, key=lambda row: row["take_id"])}


def load_facts(drawn: GalleryWindows, inputs: Inputs) -> Facts:
    """Read the rows that the drawn windows and their candidates need."""
    outcomes = keep(inputs.table("outcomes"), "window_id", drawn.window_ids())
    window_ids = [*drawn.window_ids(), *(row["candidate"] for row in outcomes if row["candidate"])]
    windows = _by(
        "window_id",
        keep(inputs.table("windows", ("window_id", "take_id", "horizon", "segment_ids")), "window_id", window_ids),
    )
    segment_ids = [s for window in windows.values() for s in window["segment_ids"]]
    names = ("segment_id", "take_id", "start_s", "end_s")
    labels = inputs.table("labels", ("label_id", "label")).to_pylist()
    return Facts(
        outcomes={(row["window_id"], row["variant"]): row for row in outcomes},
        takes=_by(
            "take_id", keep(inputs.table("takes", ("take_id", "name")), "take_id", [r["take_id"] for r in outcomes])
        ),
        segments=_by("segment_id", keep(inputs.table("segments", names), "segment_id", segment_ids)),
        windows=windows,
        motions=_by(
            "segment_id", keep(inputs.table("motions", ("segment_id", "scale", "motions")), "segment_id", segment_ids)
        ),
        labels={row["label_id"]: row["label"] for row in labels},
    )


def _by(key: str, rows: list[dict[str, Any]]) -> Mapping[str, dict[str, Any]]:
    """Index rows by one of their columns."""
    return {row[key]: row for row in rows}
