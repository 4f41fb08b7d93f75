"""What the recipes share: configs, run folders, data sets, batches of text, metrics of text."""

from recipes.command.extras import require_extra

require_extra("recipes", "A recipe")
