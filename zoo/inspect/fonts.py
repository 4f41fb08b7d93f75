"""Fonts of pictures: for labels in any script, fonts of this system that have the glyphs."""

import functools
import unicodedata
import warnings
from collections.abc import Collection
from typing import Any

# more names in a label are searched one after the other
_MOST_FONTS = 8


def set_fonts(figure: Any) -> set[str]:
    """Gives all texts of a figure fonts that have their characters, and returns the characters that no font has.

    Args:
        figure: A figure of matplotlib.

    Example:

    >>> set_fonts(figure)
    set()
    """
    from matplotlib import rcParams
    from matplotlib.text import Text

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph ")
        figure.draw_without_rendering()  # labels of ticks are made when they are drawn
    texts = figure.findobj(Text)
    usual = rcParams["font.family"]
    families, missing = families_with(_shown("".join(text.get_text() for text in texts)))
    if families:
        for text in texts:
            text.set_fontfamily([*usual, *families])
    return missing


def families_with(characters: Collection[str]) -> tuple[list[str], set[str]]:
    """Returns families of fonts for what the usual font lacks, and the characters that none has.

    Args:
        characters: The characters.
    """
    from matplotlib import font_manager

    usual = font_manager.findfont(font_manager.FontProperties())
    missing = {character for character in characters if ord(character) not in _glyphs(usual)}
    families: list[str] = []
    if not missing:
        return families, missing
    entries = font_manager.fontManager.ttflist
    upright = [entry for entry in entries if entry.style == "normal" and entry.variant == "normal"]
    # those of usual weight and without serifs first, and always in one order
    for entry in sorted(
        upright, key=lambda entry: (entry.weight not in (400, "normal"), "Serif" in entry.name, entry.name)
    ):
        # which has a sign for every script, not its characters
        if "lastresort" in entry.name.replace(" ", "").lower() or entry.name in families:
            continue
        found = {character for character in missing if ord(character) in _glyphs(entry.fname)}
        if found:
            families.append(entry.name)
            missing -= found
        if not missing or len(families) == _MOST_FONTS:
            break
    return families, missing


@functools.lru_cache(maxsize=4096)
def _glyphs(path: str) -> frozenset[int]:
    """The code points that a font has; none of one that cannot be read."""
    from matplotlib.ft2font import FT2Font

    try:
        return frozenset(FT2Font(path).get_charmap())
    except (OSError, RuntimeError):
        return frozenset()


def _shown(text: str) -> set[str]:
    # control and format characters, and line breaks, have no glyph
    return {character for character in text if not unicodedata.category(character).startswith(("C", "Z"))}
