"""What a model did with one text: arrays, and a page that shows them."""

import dataclasses
import html
import os
from pathlib import Path

import numpy as np

from zoo.inspect.html_page import page_of
from zoo.storage import write_text_atomically

# Height of the page in a notebook, in pixels.
_HEIGHT = 760


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Inspection:
    """What a model did with one text, as `Task.inspect` returns it.

    `tokens` are those of the last stack: of an encoder, of a language model, or those that the decoder of an
    encoder-decoder is given; `source_tokens` are those of its encoder. `layers + 1` counts the embeddings first. What a
    model does not have is None.

    Attributes:
        task: The class of the task.
        last_stack: "encoder" or "decoder": which stack `tokens` are of.
        tokens, source_tokens: Texts of the tokens.
        token_ids, source_token_ids: Their ids, `(length,)`.
        attention, source_attention: Attention weights, `(layers, heads, length, length)`: rows attend to columns.
        cross_attention: `(layers, heads, length, source_length)`; of a recurrent model `(1, 1, length, source_length)`.
        norms, source_norms: Euclidean norms of the hidden states, `(layers + 1, length)`, before the final norm.
        rows: What is decided: the tokens at which something is predicted, or the names of several decisions.
        places: Positions of these tokens in `tokens`, `(rows,)`, -1 for a decision about the whole text.
        targets: The right choice of each row: the next token of the text; None where it is not known.
        target_probabilities: Probability of the target read from each layer, the outputs last, `(layers + 1, rows)`,
            NaN without a target. Without the lens, and of a recurrent model, the outputs alone, `(1, rows)`.
        choices: The choices with the highest probability, the first one the highest, `(layers + 1, rows, top_k)`.
        choice_probabilities: Their probabilities, likewise; of a regression the values.
        are_values: Whether these are values and no probabilities.
        gradient_of: The choice of each row whose gradient was computed: the target, or the first choice.
        gradients, source_gradients: Gradient times input, `(rows, length)`: how much the log-probability of that choice
            (of a regression the value) grows with the embedding of each token, to first order.

    Example:

    >>> found = model.inspect("Once upon a time")
    >>> found.attention.shape
    (12, 12, 5, 5)
    >>> found.top(-1)
    [(' there', 0.61), (' a', 0.12), ...]
    >>> found.save_html("page.html")

    Reference:
        nostalgebraist 2020, "interpreting GPT: the logit lens"; Shrikumar et al. 2017, "Learning Important Features
        Through Propagating Activation Differences", section 2 (gradient times input).
    """

    task: str
    last_stack: str
    tokens: tuple[str, ...]
    token_ids: np.ndarray
    norms: np.ndarray
    attention: np.ndarray | None = None
    cross_attention: np.ndarray | None = None
    source_tokens: tuple[str, ...] | None = None
    source_token_ids: np.ndarray | None = None
    source_attention: np.ndarray | None = None
    source_norms: np.ndarray | None = None
    rows: tuple[str, ...] | None = None
    places: np.ndarray | None = None
    targets: tuple[str | None, ...] | None = None
    target_probabilities: np.ndarray | None = None
    choices: np.ndarray | None = None
    choice_probabilities: np.ndarray | None = None
    are_values: bool = False
    gradient_of: tuple[str, ...] | None = None
    gradients: np.ndarray | None = None
    source_gradients: np.ndarray | None = None

    @property
    def alignment(self) -> np.ndarray | None:
        """What each token of the decoder attends to in the source, `(length, source_length)`.

        The mean over the heads of the last layer; of a recurrent model its attention weights as they are.
        """
        return None if self.cross_attention is None else self.cross_attention[-1].mean(axis=0)

    @property
    def probabilities(self) -> np.ndarray | None:
        """The probability that the model gives to the target of each row, `(rows,)`; NaN without one."""
        return None if self.target_probabilities is None else self.target_probabilities[-1]

    def top(self, row: int, layer: int = -1) -> list[tuple[str, float]]:
        """Returns the choices of a row with their probabilities, the highest first.

        Args:
            row: Number of the row.
            layer: 0 for the embeddings, then the layers; the outputs by default.

        Raises:
            ValueError: If the task decides nothing, such as one that makes vectors.
        """
        if self.choices is None:
            raise ValueError(f"top() needs a task that decides something, got a {self.task}.")
        return list(zip(self.choices[layer, row].tolist(), self.choice_probabilities[layer, row].tolist(), strict=True))

    def to_html(self) -> str:
        """Returns one page that shows all of it and needs nothing else, see `save_html`."""
        return page_of(self)

    def save_html(self, path: str | os.PathLike[str]) -> Path:
        """Writes one page that shows all of it, for any browser of the last years, without a network.

        Attention weights are stored in 16 bits, or in 8 bits where there are more than half a million: then a weight
        below 1 is off by at most a 510th, and by at most a 62nd of the largest of its row.

        Args:
            path: The file.

        Returns:
            The path.
        """
        write_text_atomically(Path(path), self.to_html())
        return Path(path)

    def _repr_html_(self) -> str:
        """Shows the page in a notebook, in a frame of its own."""
        page = html.escape(self.to_html())
        frame = f'title="What a {self.task} does with a text" width="100%" height="{_HEIGHT}" sandbox="allow-scripts"'
        return f'<iframe srcdoc="{page}" {frame} style="border: 0"></iframe>'

    def __repr__(self) -> str:
        shapes = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        arrays = [f"{name}={value.shape}" for name, value in shapes.items() if isinstance(value, np.ndarray)]
        return f"<Inspection of a {self.task}: {len(self.tokens)} tokens, {', '.join(arrays)}>"
