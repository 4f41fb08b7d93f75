"""A hook of MkDocs: writes the formulas of pages as MathML, which browsers draw without a script.

`pymdownx.arithmatex` finds the formulas and `latex2mathml` converts them. Their font, STIX Two Math, is that of the
package `ziamath`: without one for mathematics, brackets and roots do not grow.
"""

import html
import re
from importlib import metadata
from pathlib import Path
from typing import Any

import latex2mathml.converter
from fontTools import subset

FONT = "assets/formulas.woff2"
# what `pymdownx.arithmatex` makes of $...$ and of $$...$$ with its option `generic`
_FOUND = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.DOTALL)
_WORD = re.compile(r"\\mathrm(?=\{[A-Za-z]{2,}\})")
_FUNCTION = r"\\(?:cos|exp|ln|log|max|min|sin|tanh)(?![A-Za-z])"
_BEFORE_FUNCTION = re.compile(rf"(?<=[\w)}}])\s*(?={_FUNCTION})")
_AFTER_FUNCTION = re.compile(rf"({_FUNCTION})\s+(?=\w|\\(?:alpha|beta|theta|sigma|sum)\b)")
# a sign and no difference: after an opening bracket, a comma, an operator, or at the beginning of a row
_SIGN = re.compile(
    r"(<m(?:row|td)(?: [^>]*)?>|<mo[^>]*>(?:\(|&#x000(?:28|2C|3D|B7);)</mo>)((?:<mspace[^>]*>)?)<mo>(?=&#x02212;)"
)
# names and symbols that the converter takes for operators, which have space around them
_SYMBOL = re.compile(r"<mo>(&#x0221E;|&#x022A4;|max|min)</mo>")
_NORM = "<mo>&#x02016;</mo>"
# the comma of 37{,}000
_THOUSANDS = "</mn><mrow><mo>&#x0002C;</mo></mrow><mn>"
# Latin, Greek, punctuation, arrows, operators, brackets, and letters of mathematics
_CHARACTERS = [(0x20, 0x7E), (0xA0, 0xFF), (0x370, 0x3FF), (0x2000, 0x23FF), (0x27C0, 0x2BFF), (0x1D400, 0x1D7FF)]


def mathml(formula: str, *, display: bool = False) -> str:
    r"""Returns the MathML of a formula.

    Args:
        formula: In LaTeX.
        display: Whether it stands on lines of its own.

    Raises:
        ValueError: A command that the converter does not know.
    """
    # the converter knows `align*` alone, and makes letters of words in `\mathrm`, which screen readers would spell
    source = _WORD.sub(r"\\text", formula.replace("{aligned}", "{align*}"))
    # the space around names of functions, which browsers leave out
    source = _AFTER_FUNCTION.sub(r"\1\\,", _BEFORE_FUNCTION.sub(r"\\,", source))
    converted = latex2mathml.converter.convert(source, display="block" if display else "inline")
    if "\\" in converted:  # it takes what it does not know for a name
        raise ValueError(f"latex2mathml does not know a command of the formula {formula!r}: {converted}")
    converted = _SYMBOL.sub(r"<mi>\1</mi>", converted).replace(_NORM, _NORM.replace("<mo", '<mo stretchy="false"'))
    converted = converted.replace(_THOUSANDS, ",")
    return _SIGN.sub(r'\1\2<mo form="prefix">', converted)


def on_page_content(text: str, page: Any, **_: Any) -> str:
    """Returns the HTML of a page, with MathML in place of its formulas."""

    def convert(found: re.Match[str]) -> str:
        try:
            return mathml(html.unescape(found[2]), display=found[1] == "div")
        except Exception as error:  # of classes of latex2mathml: the page is named
            raise ValueError(f"{page.file.src_uri}: {error}") from error

    return _FOUND.sub(convert, text)


def on_post_build(config: Any, **_: Any) -> None:
    """Writes the font of formulas to the site."""
    options = subset.Options(flavor="woff2", layout_features=["*"])
    file = metadata.distribution("ziamath").locate_file("ziamath/fonts/STIXTwoMath-Regular.ttf")
    font = subset.load_font(str(file), options)
    subsetter = subset.Subsetter(options)
    subsetter.populate(unicodes=[code for first, last in _CHARACTERS for code in range(first, last + 1)])
    subsetter.subset(font)
    subset.save_font(font, str(Path(config.site_dir) / FONT), options)
