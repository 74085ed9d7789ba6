"""Sections as plain data, and back: a page is put together without refitting."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pulse_pyro._core.as_json import table_from_plain, table_to_plain
from pulse_pyro._core.errors import BundleError
from pulse_pyro.report import Section, figure_svg


def sections_to_plain(sections: Sequence[Section], stage: str) -> list[dict[str, Any]]:
    """Return sections as values JSON knows; figures become the text of an SVG."""
    out = []
    for i, section in enumerate(sections):
        figure = section.figure
        if figure is not None and not isinstance(figure, str):
            figure = figure_svg(figure, f"{stage}{i}", section.reading or section.title)
        out.append(
            {
                "title": section.title,
                "text": section.text,
                "table": None if section.table is None else table_to_plain(section.table),
                "figure": figure,
                "reading": section.reading,
                "plain": section.plain,
                "more": [[text, table_to_plain(table)] for text, table in section.more],
            }
        )
    return out


def sections_from_plain(values: Sequence[dict[str, Any]]) -> list[Section]:
    """Return the sections that :func:`sections_to_plain` described."""
    try:
        return [
            Section(
                v["title"],
                v["text"],
                None if v["table"] is None else table_from_plain(v["table"]),
                v["figure"],
                v["reading"],
                v["plain"],
                tuple((text, table_from_plain(table)) for text, table in v["more"]),
            )
            for v in values
        ]
    except (KeyError, TypeError, ValueError) as cause:
        raise BundleError(
            f"report: these are not stored sections ({type(cause).__name__}: {cause}); run the "
            "stage again."
        ) from cause
