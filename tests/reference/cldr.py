"""Writes `recipes/common/cldr.json` with Babel: names and patterns of dates, and codes of languages.

    python tests/reference/cldr.py

Only what `recipes.common.data.dates` and `recipes.common.words` need is there, so that recipes need no Babel, and
generate the same dates with each of its versions.

Reference:
    The Unicode CLDR (https://cldr.unicode.org), by Babel.
"""

import json
from pathlib import Path

import babel
import babel.core

FILE = Path(__file__).parents[2] / "recipes" / "common" / "cldr.json"
LOCALES = ("en", "en_GB", "de", "fr")
FORMATS = ("full", "long", "medium", "short")
SKELETONS = ("yMd", "yMEd", "yMMMd", "yMMMEd")


def names_and_patterns(name):
    """What a locale calls its language, months and days (Monday first), and how it writes dates."""
    locale = babel.Locale.parse(name)
    patterns = [locale.date_formats[length].pattern for length in FORMATS]
    patterns += [locale.datetime_skeletons[skeleton].pattern for skeleton in SKELETONS]
    return {
        "language": locale.get_language_name("en"),
        "patterns": list(dict.fromkeys(patterns)),
        "MMMM": [locale.months["format"]["wide"][number] for number in range(1, 13)],
        "MMM": [locale.months["format"]["abbreviated"][number] for number in range(1, 13)],
        "EEEE": [locale.days["format"]["wide"][number] for number in range(7)],
        "E": [locale.days["format"]["abbreviated"][number] for number in range(7)],
    }


def main():
    """Writes the file."""
    aliases = babel.core.get_global("language_aliases")
    content = {
        "languages": {code: short for code, short in sorted(aliases.items()) if len(short) == 2},
        "locales": {name: names_and_patterns(name) for name in LOCALES},
    }
    FILE.write_text(json.dumps(content, ensure_ascii=False, indent=0) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
