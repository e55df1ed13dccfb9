"""Every word that a verdict can be, and what it means: the pages print this table."""

from typing import Literal

Verdict = Literal[
    "holds",
    "fails",
    "undecided",
    "vacuous",
    "underpowered",
    "confounded by training",
    "undertrained",
    "not judged",
    "not run",
    "reported",
]
ExactWord = Literal["yes", "no", "undecided", "bound only", "not run"]

MEANINGS: dict[Verdict, str] = {
    "holds": "the intervals lie where the claim puts them and nothing below withholds the verdict; of a control: the "
    "effect is gone, and in the informative world it lies wholly outside the margin",
    "fails": "an interval lies on the other side; of a control: the effect is still there",
    "undecided": "neither",
    "vacuous": "of a control: in the informative world the same difference does not lie wholly outside the margin, so "
    "that there is nothing to take away",
    "underpowered": "a compared row has not reached the asked share of its exact ceiling: what the models show says "
    "little about the claim",
    "confounded by training": "the shares of two compared rows differ by more than is allowed",
    "undertrained": "a model behind a row is not trained to its dev optimum; of the Scorer also: its gate or its "
    "ranking is not shown to be above chance",
    "not judged": "what would decide it is not in the tables: the note says what",
    "not run": "a world, a seed or a row is missing",
    "reported": "a figure without a rule",
}
"""Word -> meaning. What a withheld verdict would be by the intervals alone stands next to it."""

EXACT: dict[ExactWord, str] = {
    "yes": "by the same rule, the exact ceilings of the compared rows differ as claimed (of a control: do not differ)",
    "no": "they do not",
    "undecided": "neither",
    "bound only": "one of the rows has no exact ceiling of its own, only a bound",
    "not run": "the ceilings are missing",
}
"""Does the world support it? Word -> meaning."""

ORDER: tuple[Verdict, ...] = (
    "fails",
    "not run",
    "undertrained",
    "not judged",
    "underpowered",
    "confounded by training",
    "vacuous",
    "undecided",
)
"""Of several statements that are claimed together the first of these speaks for all."""
