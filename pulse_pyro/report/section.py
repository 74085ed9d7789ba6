"""What a page is made of: a section, and nothing about how it looks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame


@dataclass(frozen=True)
class Section:
    """A heading, paragraphs (apart by empty lines), a table, a figure with its reading, plain text.

    Attributes
    ----------
    figure : an Axes, whose whole figure is drawn, or the text of an SVG made earlier.
    reading : one sentence that says what the figure shows; a page refuses a figure without it.
    more : further tables behind the figure, each with a sentence before it.
    """

    title: str
    text: str = ""
    table: DataFrame | None = None
    figure: Axes | str | None = None
    reading: str = ""
    plain: str = ""
    more: tuple[tuple[str, DataFrame], ...] = ()
