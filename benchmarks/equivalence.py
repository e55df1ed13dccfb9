"""How often the equivalence tests of the claims find three worlds equivalent: `python benchmarks/equivalence.py`.

Seeds and takes are drawn from normal distributions; the figures stand in docs/decisions/claims-statistics.md.
"""

import numpy as np

from schemas.claims import ClaimsConfig
from trajpilot_core.studies.claims.evidence.statistics import Profile, equivalence
from trajpilot_core.studies.claims.verdicts.judge import equivalence_verdict

CFG = ClaimsConfig()
TRIALS, N_TAKES = 2000, 240
QUANTILES = np.linspace(-3.0, 3.0, 101)
UNIT = QUANTILES / QUANTILES.std(ddof=1)
ONE = np.ones(1)


def share_equivalent(difference: float, error: float, spread: float, rng: np.random.Generator) -> float:
    """Percent of trials in which `difference` is found equivalent to zero.

    Args:
        difference: the true one, points.
        error: standard error over takes, all seeds together.
        spread: true standard deviation between seeds.
        rng: of the trials.
    """
    n_seeds = len(CFG.seeds)
    own = error * n_seeds**0.5
    found = 0
    for _ in range(TRIALS):
        points = rng.normal(difference, np.hypot(spread, own), n_seeds)
        draws = points[:, None, None] + own * UNIT[None, :, None]
        profile = Profile(CFG.seeds, points[:, None], draws, (N_TAKES,) * n_seeds, 1)
        found += equivalence_verdict(equivalence(profile, ONE, CFG), CFG) == "holds"
    return 100 * found / TRIALS


def main() -> None:
    rng = np.random.default_rng(0)
    for error in (0.2, 0.3, 0.4, 0.45):
        cells = [
            f"{share_equivalent(0.0, error, spread, rng):.0f}, {share_equivalent(CFG.margin, error, spread, rng):.1f}"
            for spread in (0.0, 0.5, 1.0, 1.5)
        ]
        print(f"| {error:.2f} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
