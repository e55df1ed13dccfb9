"""Committed pages with computed blocks: what stands between two marks is renewed, the prose around it is kept."""

import re
from collections.abc import Callable, Mapping

from trajpilot_core.errors import InputError

Block = str | Callable[[str], str]
"""What stands there, or how it follows from what stood there."""


def renewed(page: str, blocks: Mapping[str, Block], name: str, mark: str = "computed") -> str:
    """Return a page whose blocks are computed again.

    Args:
        page: Markdown with the marks `<!-- computed: NAME -->` and `<!-- end -->`.
        blocks: every block of the page that carries the mark.
        name: of the page, for errors.
        mark: first word of the mark.

    Raises:
        InputError: the page lacks a block, or has one that nothing computes.
    """
    pattern = block_pattern(mark)
    held = [found["name"] for found in pattern.finditer(page)]
    if sorted(held) != sorted(blocks):
        lacking, strange = sorted(set(blocks) - set(held)), sorted(set(held) - set(blocks))
        raise InputError(
            f"{name} lacks the blocks {lacking or 'none'} and has {strange or 'none'}, which nothing computes, or one "
            f"twice; a block stands between `<!-- {mark}: NAME -->` and `<!-- end -->`"
        )
    return pattern.sub(lambda found: found[1] + _text(blocks[found["name"]], found["text"]) + found[4], page)


def block_pattern(mark: str) -> re.Pattern[str]:
    """Return what finds the blocks of a mark: groups `name` and `text`."""
    return re.compile(rf"(<!-- {mark}: (?P<name>[^>]+?) -->\n)(?P<text>.*?)(<!-- end -->)", re.DOTALL)


def _text(block: Block, before: str) -> str:
    """Return the lines of a block, an empty one on either side."""
    text = block if isinstance(block, str) else block(before)
    return f"\n{text.strip()}\n\n"
