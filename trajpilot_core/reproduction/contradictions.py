"""The paper's statements against its own tables, in order; each is recomputed from the data files."""

from collections.abc import Callable

from trajpilot_core.reproduction import anticipation, closed_vocabulary, diagnostics, further, open_vocabulary
from trajpilot_core.reproduction.finding import Finding
from trajpilot_core.reproduction.published import Paper

Recompute = Callable[[Paper], Finding]
CONTRADICTIONS: tuple[Recompute, ...] = (
    open_vocabulary.gap_over_language_model,
    open_vocabulary.recovery,
    closed_vocabulary.oracle_as_bound,
    open_vocabulary.gate_arithmetic,
    closed_vocabulary.fallback_against_planners,
    open_vocabulary.language_models_beaten,
    anticipation.mixed_definitions,
    anticipation.two_checkpoints,
    open_vocabulary.two_no_traj_rows,
    diagnostics.language_ratio,
    diagnostics.monotone_by_chance,
    diagnostics.cosine_of_pools,
    closed_vocabulary.pose_source,
    diagnostics.feature_size,
    diagnostics.encoder_width,
    diagnostics.bank_entries,
    diagnostics.text_width,
    open_vocabulary.endpoints_predicted,
    closed_vocabulary.scored_windows,
    closed_vocabulary.hyperparameter_columns,
    open_vocabulary.smaller_bank,
    closed_vocabulary.unopened_gate,
)
"""Numbers 1 to 22."""
FURTHER: tuple[Recompute, ...] = (anticipation.anticipation_margin, further.bold_faces, further.shorter_runs)
"""Numbers from 23 on: found while recomputing."""


def recompute(paper: Paper) -> tuple[Finding, ...]:
    """Return all findings, by number."""
    return tuple(finding(paper) for finding in (*CONTRADICTIONS, *FURTHER))
