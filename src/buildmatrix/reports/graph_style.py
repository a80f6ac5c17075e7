"""Colours of boxes by kind: the same in every format of graphs. Dark text reads on all of them."""

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
#: What the kinds are called in a key.
NAMES = {
    "line": "requirement line",
    "distribution": "distribution",
    "file": "file",
    "python": "Python file",
    "library": "name without a file",
    "embedded": "copy inside of a file",
    "layer": "layer",
    "system": "of no distribution",
}
