"""The version of the library, which programs read without loading the rest of it."""

__version__ = "0.1.0"
