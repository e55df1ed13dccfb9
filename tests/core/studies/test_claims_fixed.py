"""What was fixed before any test figure was looked at: a change must be seen, and needs a new date and a reason."""

from collections.abc import Sequence
from pathlib import Path

from claims_fixture import CFG

from deployments.recipes import claims, claims_controls
from schemas.base import fingerprint
from schemas.claims import LIMITS, RUN_DIGEST, ClaimsConfig, ClaimsRun, VerdictConfig
from schemas.config import JointDecodingConfig
from trajpilot_core.studies.claims.evidence.tables import RUN_FILE, read_evidence
from trajpilot_core.studies.claims.pages.run import digest_text, facts
from trajpilot_core.studies.claims.verdicts.hypotheses import CLAIMS, Claim
from trajpilot_core.studies.claims.worlds.collect import LATER, digest_of
from trajpilot_core.studies.claims.worlds.plan import Recipes

STATEMENTS = "5aa7a6842c4b46a36a994d8b8cd91328175e16b281c201e161179f636a17fa9c"
"""Digest of `hypotheses.CLAIMS`: what is claimed, with its worlds, rows, signs and kinds.

After the first run the reason why one claim is not built was reworded, and the world `drawn` became `feature_space`. On
2026-11-22 the two controls that named no informative world got one, so that they can come out vacuous too.
"""


def statements_digest(claims_of: Sequence[Claim]) -> str:
    """Return the digest of every claim with its statements."""
    return fingerprint([[c.key, c.text, [list(s) for s in c.statements], c.not_built] for c in claims_of])


def test_margins_levels_and_sizes_are_those_that_were_fixed() -> None:
    assert ClaimsConfig().digest().startswith("d37e3b8f1dd3")


def test_what_withholds_a_verdict_is_what_was_fixed() -> None:
    assert VerdictConfig() == LIMITS
    assert LIMITS.digest().startswith("b3d1b1783c56")
    assert LIMITS.replace(oracle_share=0.2).digest() != LIMITS.digest(), "the planted fault: less is asked"


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
    assert "NOT what was fixed" in digest_text(other)
    (tmp_path / RUN_FILE).write_text(other.model_dump_json())
    assert digest_text(other) in " ".join(facts(read_evidence(tmp_path, CFG.horizons), CFG))


def test_settings_that_came_later_are_the_only_ones_that_the_digest_leaves_out() -> None:
    plain = digest_of(ClaimsConfig(), Recipes(claims(), claims_controls()))
    for group, names in LATER.items():
        for name, value in getattr(claims(), group):
            changed = {"fold_seed": 7, "plus_parts": (), "joint": JointDecodingConfig(shortlist=9)}.get(name, value)
            other = claims().replace(**{group: getattr(claims(), group).replace(**{name: changed})})
            assert digest_of(ClaimsConfig(), Recipes(other, claims_controls())) == plain
            assert (other == claims()) == (name not in names)
    mixed = claims().replace(predictor=claims().predictor.replace(mixed_horizons=True))
    assert digest_of(ClaimsConfig(), Recipes(mixed, claims_controls())) != plain
    drawn = claims().replace(evaluation=claims().evaluation.replace(bootstrap=300))
    assert digest_of(ClaimsConfig(), Recipes(drawn, claims_controls())) != plain
