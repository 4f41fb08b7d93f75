"""What comes before a recipe: the command `zoo`, lists of recipes and configs, imports that wait, extras.

It needs the standard library alone, so that the command answers at once and where the extra `recipes` is missing.
"""
