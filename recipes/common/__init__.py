"""What the recipes share: configs, run folders, data sets, batches of text, metrics of text."""
