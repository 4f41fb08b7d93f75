"""Models that can be inspected: the parts of a call, and the predictions in its outputs."""

from collections.abc import Sequence
from typing import Any

from zoo.backbones.backbone import Backbone
from zoo.inspect import Inspection, inspect_task
from zoo.inspect.row import Decisions, Row, is_token_level, row_of_ids, row_of_text
from zoo.preprocessing.rows import require_count
from zoo.tasks.text_model import TextModel


class InspectableModel(TextModel):
    """A `TextModel` with a backbone and a head, whose calls can be inspected.

    A subclass sets `backbone`. A subclass that predicts something also defines `outputs_of`, which computes the result
    of a call from the hidden states of the backbone, and `decisions`.
    """

    backbone: Backbone

    def inspect(
        self, text: Any, target: Any = None, *, top_k: int = 5, lens: bool = True, gradients: bool = True
    ) -> Inspection:
        """Returns what the model does with one text: attention, predictions, and gradients.

        The model runs once. With `gradients`, it runs forward and backward once more for each row of its predictions,
        in batches.

        Args:
            text: One row of the task: a text, a pair of texts as a tuple, a list of words, a conversation for a
                `CausalLM`, or token-level inputs of one row.
            target: For a `Seq2SeqLM`, the target text; None for the text that the model generates.
            top_k: Number of most probable choices to return.
            lens: Whether to compute predictions from the hidden states of each layer (logit lens).
            gradients: Whether to compute gradients.

        Raises:
            TypeError, ValueError: If the task does not take such a row, or the text is longer than the model's maximum.

        Example:

        >>> found = model.inspect("Once upon a time")
        >>> found.attention.shape    # layers, heads, and each token to each
        (12, 12, 5, 5)
        >>> found.save_html("page.html")
        """
        row = self.row_of(text, target)
        return inspect_task(self, row, top_k=require_count(top_k, "top_k"), lens=lens, gradients=gradients)

    # What a subclass defines.

    def row_of(self, text: Any, target: Any = None) -> Row:
        """Returns the token row of one text, see `inspect`.

        Args:
            text, target: Arguments of `inspect`.

        Raises:
            TypeError, ValueError: If the task does not take such a row.
        """
        if target is not None:
            raise ValueError(f"target must be None for a {type(self).__name__}, got {target!r}.")
        if not is_token_level(text):
            return row_of_text(self.preprocessor, text)
        config = self.backbone.config
        return row_of_ids(text, self.input_names, config.vocabulary_size, config.max_length)

    def backbone_inputs(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """Returns the inputs of the backbone, from the inputs of a call.

        Args:
            inputs: As for a call.
        """
        return inputs

    def finish(self, hidden: Any) -> Any:
        """Returns the hidden states after a layer in the form in which the head reads those of the last layer.

        Args:
            hidden: `(batch, length, hidden_dim)`, without padding.
        """
        return self.backbone.finish(hidden)

    def outputs_of(self, hidden: Any, inputs: dict[str, Any], training: bool | None = None) -> Any:
        """Returns the outputs of the head for hidden states.

        Args:
            hidden: The inputs of the head, `(batch, length, width)`.
            inputs, training: As for a call.
        """
        raise NotImplementedError(f"{type(self).__name__} has no head of its own: define outputs_of().")

    def decisions(self, outputs: Any, tokens: Sequence[str]) -> Decisions | None:
        """Returns the predictions in the outputs, for `inspect`; None for a task without any, such as an embedder.

        Args:
            outputs: The result of a call, without padding.
            tokens: The tokens that the last stack read.
        """
        return None
