"""Reads the rows of the store that the sampled windows need."""

import json
from collections.abc import Mapping
from typing import Any

from schemas.config import ReportConfig
from trajpilot_core.data.cross_fitting import FINAL, model_key, seeds_of
from trajpilot_core.engine.stage import Inputs
from trajpilot_core.methods import examined
from trajpilot_core.report.gallery.classes import GalleryWindows, draw
from trajpilot_core.report.gallery.windows import Facts, followed, keep

DRAW_COLUMNS = ("window_id", "variant", "mid_right")
CANDIDATE_COLUMNS = ("window_id", "take_id", "variant", "candidate")


def draw_gallery(inputs: Inputs, cfg: ReportConfig) -> GalleryWindows:
    """Sample the windows of the gallery from the outcomes table."""
    return draw(inputs.table("outcomes", DRAW_COLUMNS), cfg)


def video_files(drawn: GalleryWindows, inputs: Inputs) -> dict[str, str]:
    """Return take id -> video file, relative to the data root, of every take whose frames are in the gallery.

    Empty for a take that was ingested without a video.
    """
    shown = keep(inputs.table("outcomes", CANDIDATE_COLUMNS), "window_id", drawn.window_ids())
    rows: dict[str, dict[str, dict[str, Any]]] = {}
    for row in shown:
        rows.setdefault(row["window_id"], {})[row["variant"]] = row
    candidates = [found[0] for rows_of_window in rows.values() if (found := followed(rows_of_window))]
    retrieved = keep(inputs.table("windows", ("window_id", "take_id")), "window_id", candidates)
    wanted = [row["take_id"] for row in (*shown, *retrieved)]
    takes = keep(inputs.table("takes", ("take_id", "video")), "take_id", wanted)
    return {row["take_id"]: row["video"] for row in sorted(takes, key=lambda row: row["take_id"])}


def load_threshold(inputs: Inputs) -> float | None:
    """Return the threshold of the examined row's gate, first seed; None where it was not fitted.

    Reads the descriptions of the models only.
    """
    about = inputs.models("scorers").about
    seeds = seeds_of(key for key in about if key.startswith(f"{FINAL.name}/") and key.endswith(f"/{examined().id}"))
    return float(json.loads(about[model_key(FINAL, seeds[0], examined().id)])["threshold"]) if seeds else None


def load_facts(drawn: GalleryWindows, inputs: Inputs) -> Facts:
    """Read the rows that the sampled windows and their candidates need."""
    outcomes = keep(inputs.table("outcomes"), "window_id", drawn.window_ids())
    window_ids = [*drawn.window_ids(), *(row["candidate"] for row in outcomes if row["candidate"])]
    windows = _by(
        "window_id",
        keep(inputs.table("windows", ("window_id", "take_id", "horizon", "segment_ids")), "window_id", window_ids),
    )
    segment_ids = [s for window in windows.values() for s in window["segment_ids"]]
    names = ("segment_id", "take_id", "start_s", "end_s", "label_id")
    labels = inputs.table("labels", ("label_id", "label")).to_pylist()
    return Facts(
        outcomes={(row["window_id"], row["variant"]): row for row in outcomes},
        takes=_by(
            "take_id",
            keep(inputs.table("takes", ("take_id", "name")), "take_id", [w["take_id"] for w in windows.values()]),
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
