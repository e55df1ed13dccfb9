r"""Texts of the data as LaTeX: the output is ASCII, so that no font or encoding can lack a character.

A character with a LaTeX command becomes that command, a letter with accents its accent commands, and any other
character its code point, `[U+5207]`.
"""

import unicodedata

ESCAPED = {letter: "\\" + letter for letter in "{}$&#%_"}
TYPED = {"−": "$-$", "–": "--", "—": "---", "‘": "`", "’": "'", "“": "``", "”": "''", "°": r"$^{\circ}$", "✓": "ok"}
NAMED = {
    letter: rf"\{name}{{}}"
    for letters, names in (
        ("\\^~<>|", "textbackslash textasciicircum textasciitilde textless textgreater textbar"),
        ("…†‡§ßæÆœŒøØłŁı", "dots dag ddag S ss ae AE oe OE o O l L i"),
    )
    for letter, name in zip(letters, names.split(), strict=True)
}
MATHEMATICS = {
    letter: rf"$\{name}$"
    for letters, names in (
        ("·×±≤≥≠≈∑∞ℓ✗", "cdot times pm leq geq neq approx sum infty ell times"),
        ("→←↑↓", "rightarrow leftarrow uparrow downarrow"),
        ("αβγδεζηθικλμνξ", "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi"),
        ("πρστυφχψω", "pi rho sigma tau upsilon phi chi psi omega"),
        ("ΓΔΘΛΞΠΣΥΦΨΩ", "Gamma Delta Theta Lambda Xi Pi Sigma Upsilon Phi Psi Omega"),
    )
    for letter, name in zip(letters, names.split(), strict=True)
}
COMMANDS = ESCAPED | TYPED | NAMED | MATHEMATICS
"""Character -> its LaTeX."""
ACCENTS = dict(
    zip(
        "\u0300\u0301\u0302\u0303\u0304\u0306\u0307\u0308\u030a\u030b\u030c\u0327",
        ("`", "'", "^", "~", "=", "u ", ".", '"', "r ", "H ", "v ", "c "),
        strict=True,
    )
)
"""Combining accent -> the command that sets it over (or under) a letter."""


def latex_text(text: str) -> str:
    """Return text in which no character has a meaning to LaTeX, in ASCII; control characters become spaces."""
    escaped = "".join(map(_character, text))
    return "{}" + escaped if escaped[:1] in ("[", "*") else escaped  # after a line end it would be its argument


def _character(character: str) -> str:
    if character in COMMANDS:
        return COMMANDS[character]
    if character.isascii():
        return character if character.isprintable() else " "
    letter, *accents = list(unicodedata.normalize("NFD", character))
    if letter.isascii() and letter.isalpha() and accents and all(accent in ACCENTS for accent in accents):
        for accent in accents:  # the first one is nearest to the letter
            letter = rf"\{ACCENTS[accent]}{{{letter}}}"
        return letter
    if character.isspace() or unicodedata.category(character) in ("Cc", "Cf"):
        return " "
    return f"[U+{ord(character):04X}]"


def fitted(tabular: str) -> list[str]:
    r"""Return the lines that set a table at its own size, or scaled down to the line where it is wider; needs graphicx.

    Args:
        tabular: the environment, without a blank line.
    """
    return [
        r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%",
        *tabular.strip().splitlines()[:-1],
        tabular.strip().splitlines()[-1] + "}",
    ]
