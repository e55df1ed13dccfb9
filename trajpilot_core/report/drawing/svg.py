"""Elements of SVG and HTML as escaped text."""

from markupsafe import Markup


def element(name: str, *inside: str, **attributes: object) -> Markup:
    """Return an element; texts and attributes are escaped, and equal arguments give equal bytes.

    Args:
        inside: texts and elements; without any the element closes itself.
        attributes: in this order; `class_` stands for class, `text_anchor` for text-anchor.
    """
    pairs = ((key.rstrip("_").replace("_", "-"), value) for key, value in attributes.items())
    head = Markup(name) + Markup("").join(Markup(' {}="{}"').format(*pair) for pair in pairs)
    if not inside:
        return Markup("<{}/>").format(head)
    return Markup("<{}>{}</{}>").format(head, Markup("").join(inside), Markup(name))


def empty(title: str) -> Markup:
    """Return what stands in the place of a chart without points."""
    return element("p", f"{title}: nothing to draw.", class_="empty")


def shortened(text: str, longest: int) -> str:
    """Cut a text to at most `longest` characters, the last of which then says so."""
    return text if len(text) <= longest else text[: longest - 1] + "…"
