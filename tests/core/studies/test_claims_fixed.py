"""What is fixed before any test figure is looked at: a change must be seen, and needs a new date and a reason."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from claims_fixture import CFG, Planted, run_of

from deployments.recipes.worlds import claims
from schemas import claims as fixed
from schemas.base import fingerprint
from schemas.claims import LIMITS, ClaimsConfig, VerdictConfig
from schemas.config import PipelineConfig
from trajpilot_core.errors import InputError
from trajpilot_core.studies.claims.evidence.tables import RUN_FILE, read_evidence
from trajpilot_core.studies.claims.pages.run import digest_text, facts
from trajpilot_core.studies.claims.verdicts.hypotheses import CLAIMS, Claim
from trajpilot_core.studies.claims.worlds import collect
from trajpilot_core.studies.claims.worlds.collect import digest_of, require_fixed

STATEMENTS = "22ab6a5d9d70181a23be19dd2145781f4b374103282a67171c294f1082dcde83"
"""Digest of `hypotheses.CLAIMS`: what is claimed, with its worlds, rows, signs and kinds."""


def statements_digest(claims_of: Sequence[Claim]) -> str:
    """Return the digest of every claim with its statements."""
    return fingerprint(
        [[c.key, c.text, [list(s) for s in c.statements], c.out_of_reach, c.elsewhere] for c in claims_of]
    )


def longer() -> PipelineConfig:
    """The recipe with one more epoch."""
    base = claims()
    return base.replace(predictor=base.predictor.replace(train=base.predictor.train.replace(epochs=99)))


def test_margins_levels_and_sizes_are_those_that_were_fixed() -> None:
    assert ClaimsConfig().digest().startswith("f03c2e326c7d")


def test_what_withholds_a_verdict_is_what_was_fixed() -> None:
    assert VerdictConfig() == LIMITS
    assert LIMITS.digest().startswith("b3d1b1783c56")
    assert LIMITS.replace(oracle_share=0.2).digest() != LIMITS.digest(), "the planted fault: less is asked"


def test_worlds_and_recipe_are_those_that_were_fixed_once_they_are() -> None:
    assert fixed.RUN_DIGEST in (None, digest_of(ClaimsConfig(), claims()))


def test_claims_and_statements_are_those_that_were_fixed() -> None:
    assert statements_digest(CLAIMS) == STATEMENTS
    claim = next(claim for claim in CLAIMS if claim.statements)
    turned = claim._replace(statements=tuple(s._replace(sign=-s.sign) for s in claim.statements))
    assert statements_digest([turned if c is claim else c for c in CLAIMS]) != STATEMENTS


def test_nothing_is_computed_before_it_is_fixed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fixed, "RUN_DIGEST", None)
    with pytest.raises(InputError, match=r"not fixed yet: RUN_DIGEST in schemas/claims\.py is None") as refused:
        require_fixed(ClaimsConfig(), claims())
    assert digest_of(ClaimsConfig(), claims()) in str(refused.value)


def test_a_setting_that_is_changed_after_it_was_fixed_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted faults: another epoch, another margin, another world, another rule."""
    monkeypatch.setattr(fixed, "RUN_DIGEST", digest_of(ClaimsConfig(), claims()))
    require_fixed(ClaimsConfig(), claims())
    for cfg, recipe in (
        (ClaimsConfig(), longer()),
        (ClaimsConfig(margin=2.0), claims()),
        (ClaimsConfig(test_takes=399), claims()),
    ):
        with pytest.raises(InputError, match="not those that were fixed on 20"):
            require_fixed(cfg, recipe)
    monkeypatch.setattr(collect, "RULES", (LIMITS.replace(oracle_share=0.2), *collect.RULES[1:]))
    with pytest.raises(InputError, match="not those that were fixed on 20"):
        require_fixed(ClaimsConfig(), claims())


def test_a_setting_that_came_later_is_left_out_of_the_digest_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    assert collect.LATER == {}
    before = digest_of(ClaimsConfig(), claims())
    other = claims().replace(predictor=claims().predictor.replace(mixed_horizons=True))
    assert digest_of(ClaimsConfig(), other) != before
    monkeypatch.setattr(collect, "LATER", {"predictor": ("mixed_horizons",)})
    assert digest_of(ClaimsConfig(), other) == digest_of(ClaimsConfig(), claims()) != before
    assert digest_of(ClaimsConfig(), longer()) != digest_of(ClaimsConfig(), claims())


def test_the_page_says_whether_what_was_run_is_what_was_fixed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = run_of(Planted())
    assert "NOT what was fixed" in digest_text(run)
    monkeypatch.setattr(fixed, "RUN_DIGEST", None)
    assert "NOT fixed" in digest_text(run)
    monkeypatch.setattr(fixed, "RUN_DIGEST", run.config_digest)
    assert "as fixed" in digest_text(run)
    other = run.replace(config_digest="1" * 64)
    assert "NOT what was fixed" in digest_text(other)
    (tmp_path / RUN_FILE).write_text(other.model_dump_json())
    assert digest_text(other) in " ".join(facts(read_evidence(tmp_path, CFG.horizons), CFG))
