"""What was fixed before any test figure was looked at: a change must be seen, and needs a new date and a reason."""

from collections.abc import Sequence
from pathlib import Path

from claims_fixture import CFG

from deployments.recipes import claims, claims_controls
from schemas.base import fingerprint
from schemas.claims import RUN_DIGEST, ClaimsConfig, ClaimsRun
from trajpilot_core.claims.collect import digest_of
from trajpilot_core.claims.page_run import digest_text, header
from trajpilot_core.claims.rules import CLAIMS, Claim
from trajpilot_core.claims.tables import RUN_FILE, read_evidence
from trajpilot_core.claims.worlds import Recipes

STATEMENTS = "3294cdcab5ceb2f9ee199433fb61e99a1ca27422cfa85b0971b1f8595a01291c"
"""Digest of `rules.CLAIMS`: what is claimed, with its worlds, rows, signs and kinds.

After the first run the reason why one claim is not built was reworded.
"""


def statements_digest(claims_of: Sequence[Claim]) -> str:
    """Return the digest of every claim with its statements."""
    return fingerprint([[c.key, c.text, [list(s) for s in c.statements], c.not_built] for c in claims_of])


def test_margins_levels_and_sizes_are_those_that_were_fixed() -> None:
    assert ClaimsConfig().digest().startswith("cd95f9f6375d")


def test_worlds_and_recipes_are_those_that_were_fixed() -> None:
    assert digest_of(ClaimsConfig(), Recipes(claims(), claims_controls())) == RUN_DIGEST


def test_claims_and_statements_are_those_that_were_fixed() -> None:
    assert statements_digest(CLAIMS) == STATEMENTS


def test_another_epoch_another_margin_and_another_sign_would_be_seen() -> None:
    """The planted faults of the three digests above."""
    longer = claims().replace(predictor=claims().predictor.replace(train=claims().predictor.train.replace(epochs=11)))
    assert digest_of(ClaimsConfig(), Recipes(longer, claims_controls())) != RUN_DIGEST
    assert digest_of(ClaimsConfig(margin=2.0), Recipes(claims(), claims_controls())) != RUN_DIGEST
    claim = next(claim for claim in CLAIMS if claim.statements)
    turned = claim._replace(statements=tuple(s._replace(sign=-s.sign) for s in claim.statements))
    assert statements_digest([turned if c is claim else c for c in CLAIMS]) != STATEMENTS


def test_the_page_says_whether_what_was_run_is_what_was_fixed(tmp_path: Path) -> None:
    run = ClaimsRun(date="2026-11-21", config_digest=RUN_DIGEST, machine="2 cores", device="cpu", jobs=())
    assert "as fixed" in digest_text(run)
    other = run.replace(config_digest="0" * 64)
    assert "**not what was fixed**" in digest_text(other)
    (tmp_path / RUN_FILE).write_text(other.model_dump_json())
    assert digest_text(other) in header(read_evidence(tmp_path, CFG.horizons), CFG)
