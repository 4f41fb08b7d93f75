"""Labels of pictures in scripts that the usual font lacks, with fonts that the test makes."""

import logging

import numpy as np
import pytest

pytest.importorskip("matplotlib")

from matplotlib import font_manager  # noqa: E402

from zoo.inspect import plot_attention  # noqa: E402
from zoo.inspect.fonts import families_with  # noqa: E402

pytestmark = pytest.mark.filterwarnings("error")


@pytest.fixture
def add_font(tmp_path, monkeypatch):
    """Adds a font that has some characters, each a filled square, to those that matplotlib finds."""
    builders = pytest.importorskip("fontTools.fontBuilder")
    pens = pytest.importorskip("fontTools.pens.ttGlyphPen")
    entries = [entry for entry in font_manager.fontManager.ttflist if entry.name.startswith("DejaVu")]
    monkeypatch.setattr(font_manager.fontManager, "ttflist", entries)

    def add(family, characters):
        pen = pens.TTGlyphPen(None)
        pen.moveTo((0, 0))
        for point in ((0, 900), (900, 900), (900, 0)):
            pen.lineTo(point)
        pen.closePath()
        names = [".notdef", *(f"uni{ord(character):04X}" for character in characters)]
        builder = builders.FontBuilder(1000, isTTF=True)
        builder.setupGlyphOrder(names)
        builder.setupCharacterMap({ord(character): f"uni{ord(character):04X}" for character in characters})
        builder.setupGlyf({name: pens.TTGlyphPen(None).glyph() if name == ".notdef" else pen.glyph() for name in names})
        builder.setupHorizontalMetrics(dict.fromkeys(names, (1000, 0)))
        builder.setupHorizontalHeader(ascent=900, descent=-100)
        builder.setupNameTable({"familyName": family, "styleName": "Regular"})
        builder.setupOS2()
        builder.setupPost()
        path = tmp_path / f"{family}.ttf"
        builder.save(path)
        font_manager.fontManager.addfont(path)

    return add


def test_fonts_of_the_system_are_found(add_font, tmp_path, caplog):
    add_font("Test Han", "\u4f60\u597d")
    add_font("Test Thai", "\u0e01")
    assert families_with("a\u4f60\u597d\u0e01") == (["Test Han", "Test Thai"], set())
    assert families_with("abc \u0431\u03b1\u05d0") == ([], set())
    with caplog.at_level(logging.WARNING):
        plot_attention(np.eye(3), ["\u4f60", "\u0e01", "x"], ["\u597d", "b", "c"], tmp_path / "a.png", title="\u597d")
    assert not caplog.records and (tmp_path / "a.png").exists()


def test_a_font_of_signs_for_scripts_has_no_characters(add_font):
    """Matplotlib brings one under this name, whose signs are all boxes."""
    add_font("Last Resort High-Efficiency", "\u4f60")
    assert families_with("\u4f60") == ([], {"\u4f60"})


def test_a_character_that_no_font_has_is_said_in_one_line(add_font, tmp_path, caplog):
    add_font("Test Han", "\u4f60")
    with caplog.at_level(logging.WARNING):
        plot_attention(np.eye(2), ["\u4f60", "\u597d"], ["\u597d\u597d", "c"], tmp_path / "a.png")
    (record,) = caplog.records
    assert "a.png" in record.getMessage() and "\u597d" in record.getMessage() and "\u4f60" not in record.getMessage()
