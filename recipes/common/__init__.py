"""What the recipes share: configs, run folders, data sets, batches of text, metrics of text."""

import sys

from zoo.extras import MissingExtraError, require_extra

try:
    require_extra("recipes", "A recipe")
except MissingExtraError as error:
    # `python -m recipes.NAME` says it in one line, as `zoo NAME` does
    started = getattr(getattr(sys.modules["__main__"], "__spec__", None), "name", "")
    if not started.startswith("recipes.") or started == "recipes.__main__":
        raise
    print(f"{started.removesuffix('.__main__')}: error: {error}", file=sys.stderr)
    raise SystemExit(2) from None
