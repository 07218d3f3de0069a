"""Tests from the colours of the page, the curves and the report that every text can be read, in light and in dark."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

RUNNER = Path(__file__).resolve().parents[3] / "runner"
# What WCAG 2 asks of text of a normal size, at level AA.
LEAST = 4.5
TEXT = ("ink", "soft", "accent", "blue", "green", "red", "yellow", "violet")
# The texts of each ground, by the names that they have in the style sheet.
PAGE = {
    **dict.fromkeys(("ground", "card"), TEXT),
    "accent-soft": ("ink", "soft", "accent"),
    "red-soft": ("ink", "soft", "red"),
    "yellow-soft": ("ink", "soft", "yellow"),
    "band": ("plot-ink", "plot-soft"),
}
REPORT = dict.fromkeys(("paper", "fill"), ("ink", "soft", "bad", "good"))
PLOT = {
    **dict.fromkeys(("plot-paper", "plot-band"), ("plot-ink", "plot-soft")),
    # The numbers in the circles.
    "plot-fault": ("plot-on-mark",),
    "plot-rung": ("plot-on-mark",),
}
COLOUR = re.compile(r"--([a-z0-9-]+): *#([0-9a-f]{3}(?:[0-9a-f]{3})?)\b")


def schemes(*files: str) -> tuple[dict[str, str], dict[str, str]]:
    """Return the colours of style sheets in light and in dark; each sheet has the dark ones second."""
    light: dict[str, str] = {}
    dark: dict[str, str] = {}
    for file in files:
        for name, value in COLOUR.findall((RUNNER / file).read_text(encoding="utf-8")):
            (dark if name in light else light).setdefault(name, value)
    assert light.keys() == dark.keys(), "each colour has one for light and one for dark"
    return light, dark


def luminance(colour: str) -> float:
    whole = colour if len(colour) == 6 else "".join(digit * 2 for digit in colour)
    parts = [int(whole[at : at + 2], 16) / 255 for at in (0, 2, 4)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_the_contrast_is_computed_as_wcag_says() -> None:
    assert contrast("000", "ffffff") == pytest.approx(21.0)
    assert contrast("777777", "fff") == pytest.approx(4.48, abs=0.005)


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize(
    ("files", "grounds"),
    [
        (("web/static/rung.css", "plots/plot.css.j2"), PAGE),
        (("plots/plot.css.j2",), PLOT),
        (("report/page.html.j2",), REPORT),
    ],
    ids=["page", "plot", "report"],
)
def test_text_stands_out_from_its_ground(
    files: tuple[str, ...], grounds: dict[str, tuple[str, ...]], scheme: int
) -> None:
    colours = schemes(*files)[scheme]
    poor = {
        f"{text} on {ground}": round(found, 2)
        for ground, texts in grounds.items()
        for text in texts
        if (found := contrast(colours[text], colours[ground])) < LEAST
    }
    assert poor == {}
