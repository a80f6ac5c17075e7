"""Colors of boxes by kind: the same in every format of graphs. Dark text reads on all of them."""

FILLS = {
    "line": "#fff3bf",
    "distribution": "#d0ebff",
    "file": "#e9ecef",
    "python": "#d3f9d8",
    "library": "#ffe3e3",
    "embedded": "#ffd8a8",
    "layer": "#e5dbff",
    "system": "#f1f3f5",
}
OTHER = "#ffffff"

#: Characters of one line of a label, in the languages whose reader draws it.
LONGEST = 120


def short(text: str, most: int = LONGEST) -> str:
    """The beginning and the end of a long text; both carry information."""
    if len(text) <= most:
        return text
    half = (most - 1) // 2
    return f"{text[:half]}…{text[-half:]}"
