"""An extension of griffe: the sections of this project's docstrings, in the form that its Google style knows.

Docstrings have the sections of Keras: "Call arguments" of a layer, "Example" with its code not indented, "Reference".
"""

import re

import griffe

EXAMPLE = re.compile(r"^Example:\n\n(>>>.*?)(?=\n\n(?!>>>)|\Z)", re.MULTILINE | re.DOTALL)
FENCED_EXAMPLE = re.compile(r"^Example:(?=\n\n```)", re.MULTILINE)
REFERENCE = re.compile(r"^Reference:\n((?: {4}.*(?:\n|\Z))+)", re.MULTILINE)
# several arguments that share a description, on more than one line
WRAPPED_NAMES = re.compile(r"^( {4}[\w*]+(?:, [\w*]+)*,)\n {8}(?=[\w*]+(?:, [\w*]+)*[,:])", re.MULTILINE)


def rewritten(text: str) -> str:
    """Returns a docstring with its sections in Google style.

    Args:
        text: The docstring, without indentation.
    """
    text = re.sub(r"^Call arguments:$", "Other Parameters: Call arguments", text, flags=re.MULTILINE)
    while WRAPPED_NAMES.search(text):
        text = WRAPPED_NAMES.sub(r"\1 ", text)
    text = EXAMPLE.sub(lambda found: f"**Example**\n\n```pycon\n{found[1].rstrip()}\n```", text)
    text = FENCED_EXAMPLE.sub("**Example**", text)
    return REFERENCE.sub(lambda found: f"**Reference:** {' '.join(found[1].split())}\n", text)


class DocstringSections(griffe.Extension):
    """Rewrites the docstring of each object that is loaded."""

    def on_object(self, *, obj: griffe.Object, **kwargs: object) -> None:
        if obj.docstring is not None:
            obj.docstring.value = rewritten(obj.docstring.value)
