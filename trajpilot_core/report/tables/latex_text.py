r"""Texts of the data as LaTeX: the output is ASCII, so that no font or encoding can lack a character.

A character with a LaTeX command becomes that command, a letter with accents its accent commands, a Greek letter its
name in mathematics, and any other character its code point, `[U+5207]`.
"""

import unicodedata

COMMANDS = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "#": r"\#",
    "%": r"\%",
    "_": r"\_",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "−": "$-$",
    "–": "--",
    "—": "---",
    "‘": "`",
    "’": "'",
    "“": "``",
    "”": "''",
    "…": r"\dots{}",
    "·": r"$\cdot$",
    "×": r"$\times$",
    "±": r"$\pm$",
    "≤": r"$\leq$",
    "≥": r"$\geq$",
    "≠": r"$\neq$",
    "≈": r"$\approx$",
    "∑": r"$\sum$",
    "∞": r"$\infty$",
    "ℓ": r"$\ell$",
    "→": r"$\rightarrow$",
    "←": r"$\leftarrow$",
    "↑": r"$\uparrow$",
    "↓": r"$\downarrow$",
    "°": r"$^{\circ}$",
    "✓": "ok",
    "✗": r"$\times$",
    "†": r"\dag{}",
    "‡": r"\ddag{}",
    "§": r"\S{}",
    "ß": r"\ss{}",
    "æ": r"\ae{}",
    "Æ": r"\AE{}",
    "œ": r"\oe{}",
    "Œ": r"\OE{}",
    "ø": r"\o{}",
    "Ø": r"\O{}",
    "ł": r"\l{}",
    "Ł": r"\L{}",
    "ı": r"\i{}",
}
"""Character -> its LaTeX."""
ACCENTS = {
    "\u0300": "`",
    "\u0301": "'",
    "\u0302": "^",
    "\u0303": "~",
    "\u0304": "=",
    "\u0306": "u ",
    "\u0307": ".",
    "\u0308": '"',
    "\u030a": "r ",
    "\u030b": "H ",
    "\u030c": "v ",
    "\u0327": "c ",
}
"""Combining accent -> the command that sets it over (or under) a letter."""
GREEK = {
    letter: rf"$\{name}$"
    for first, names in (
        ("α", "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi - pi rho - sigma tau upsilon"),
        ("φ", "phi chi psi omega"),
        ("Γ", "Gamma Delta - - - Theta - - Lambda - - Xi - Pi - - Sigma - Upsilon Phi - Psi Omega"),
    )
    for letter, name in ((chr(ord(first) + at), name) for at, name in enumerate(names.split()))
    if name != "-"
}
"""Greek letters that have a name in mathematics."""


def latex_text(text: str) -> str:
    """Return text in which no character has a meaning to LaTeX, in ASCII; control characters become spaces."""
    escaped = "".join(map(_character, text))
    return "{}" + escaped if escaped[:1] in ("[", "*") else escaped  # after a line end it would be its argument


def _character(character: str) -> str:
    if character in COMMANDS:
        return COMMANDS[character]
    if character.isascii():
        return character if character.isprintable() else " "
    if character in GREEK:
        return GREEK[character]
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
