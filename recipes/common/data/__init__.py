"""Data of recipes: files of one's own and named data sets, read into rows."""
