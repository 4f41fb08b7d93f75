"""Descriptions of how the next tokens are chosen: small immutable values that can be saved in a configuration."""

import dataclasses

import keras
from keras import ops

from zoo.generation.categorical import draw, nucleus, sorted_nucleus
from zoo.generation.checks import is_integer, is_number

PACKAGE = "keras_transformer_zoo"


@dataclasses.dataclass(frozen=True)
class Sampler:
    """What all samplers share: they compare by value, and `get_config` and `from_config` carry them through JSON."""

    def get_config(self) -> dict:
        """The fields as a dict of JSON values."""
        return dataclasses.asdict(self)

    @classmethod
    def from_config(cls, config: dict) -> "Sampler":
        """The sampler that `get_config` describes; an unknown name raises a TypeError."""
        return cls(**config)


@keras.saving.register_keras_serializable(PACKAGE)
@dataclasses.dataclass(frozen=True)
class Greedy(Sampler):
    """Always the most probable token (of equal ones the lowest id)."""

    def choose(self, logits, numbers):
        """Token ids `(batch,)` int32 from logits `(batch, vocabulary)`; `numbers` is None, chance plays no part."""
        return ops.cast(ops.argmax(logits, axis=-1), "int32")

    def weights(self, logits):
        """The distribution that `choose` draws from: all weight on the most probable token."""
        return ops.one_hot(ops.argmax(logits, axis=-1), logits.shape[-1], dtype="float32")


@keras.saving.register_keras_serializable(PACKAGE)
@dataclasses.dataclass(frozen=True)
class Sample(Sampler):
    """Draws tokens from the model's distribution, sharpened or flattened, and cut to its most probable part.

    The restrictions apply in the order of the arguments, each to what the one before has left: softmax of
    `logits / temperature`, the `top_k` most probable tokens, of these the smallest set with the mass `top_p`, of these
    the ones at least `min_p` times as probable as the most probable one.

    Args:
        temperature: Divisor of the logits, above 0; below 1 sharpens. (For the limit 0 use `Greedy`.)
        top_k: Number of tokens to keep, at least 1 (Fan et al. 2018, "Hierarchical neural story generation",
            section 5.1); None keeps all. Of tokens that tie for the last place the ones with the lowest ids are kept.
        top_p: Probability mass to keep, in (0, 1] (Holtzman et al. 2020, section 3.1); 1 keeps all. Without
            `top_k`, tokens that tie for the last place are all kept.
        min_p: Smallest probability to keep relative to the largest, in [0, 1] (Nguyen et al. 2024, "Turning up the
            heat: min-p sampling", section 3); 0 keeps all.

    Raises:
        ValueError: if an argument is outside of its range.

    Example:

    >>> Sample(temperature=0.8, top_k=50)
    Sample(temperature=0.8, top_k=50, top_p=1.0, min_p=0.0)
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float = 1.0
    min_p: float = 0.0

    def __post_init__(self):
        if not is_number(self.temperature) or self.temperature <= 0:
            raise ValueError(
                f"`temperature` must be a number above 0 (for the most probable token use Greedy()). "
                f"Received: {self.temperature!r}"
            )
        if self.top_k is not None and (not is_integer(self.top_k) or self.top_k < 1):
            raise ValueError(f"`top_k` must be an integer of at least 1, or None. Received: {self.top_k!r}")
        if not is_number(self.top_p) or not 0 < self.top_p <= 1:
            raise ValueError(f"`top_p` must be a number above 0 and at most 1. Received: {self.top_p!r}")
        if not is_number(self.min_p) or not 0 <= self.min_p <= 1:
            raise ValueError(f"`min_p` must be a number from 0 to 1. Received: {self.min_p!r}")

    def choose(self, logits, numbers):
        """Draw one token per row.

        Args:
            logits: float32 tensor `(batch, vocabulary)`.
            numbers: float32 tensor `(batch,)`, uniform in (0, 1): the only source of chance.

        Returns:
            int32 tensor `(batch,)`.
        """
        weights, token_ids = self._restricted(logits)
        choice = draw(weights, numbers)
        if token_ids is not None:
            choice = ops.take_along_axis(token_ids, ops.expand_dims(choice, -1), axis=-1)[:, 0]
        return ops.cast(choice, "int32")

    def weights(self, logits):
        """The distribution that `choose` draws from, not normalised.

        Args:
            logits: float32 tensor `(batch, vocabulary)`.

        Returns:
            float32 tensor `(batch, vocabulary)`, 0 for what is never drawn.
        """
        weights, token_ids = self._restricted(logits)
        if token_ids is None:
            return weights
        rows = ops.broadcast_to(ops.expand_dims(ops.arange(ops.shape(logits)[0], dtype="int32"), 1), ops.shape(weights))
        indices = ops.reshape(ops.stack([rows, ops.cast(token_ids, "int32")], axis=-1), (-1, 2))
        return ops.scatter(indices, ops.reshape(weights, (-1,)), ops.shape(logits))

    def _restricted(self, logits):
        """Weights of the tokens, and their ids where these are not 0, 1, 2, ..."""
        logits = logits / self.temperature
        token_ids = None
        if self.top_k is not None and self.top_k < logits.shape[-1]:
            logits, token_ids = ops.top_k(logits, self.top_k)  # in descending order
        weights = ops.exp(logits - ops.max(logits, axis=-1, keepdims=True))
        kept = weights >= self.min_p
        if self.top_p < 1:
            kept = ops.logical_and(kept, (nucleus if token_ids is None else sorted_nucleus)(weights, self.top_p))
        return ops.where(kept, weights, 0.0), token_ids


@keras.saving.register_keras_serializable(PACKAGE)
@dataclasses.dataclass(frozen=True)
class Beam(Sampler):
    """Beam search for the hypothesis with the highest length-normalised log-probability.

    A hypothesis Y scores log P(Y) / lp(Y) with lp(Y) = ((5 + |Y|) / 6) ** length_penalty, where |Y| counts all
    generated tokens with the end token (Wu et al. 2016, "Google's neural machine translation system", equation 14;
    the Transformer of Vaswani et al. 2017 was decoded with 4 beams and 0.6). See `beam_search` for the algorithm.

    Args:
        num_beams: Number of unfinished hypotheses that are pursued, at least 1. One beam is greedy search.
        length_penalty: Exponent of the length normalisation, not negative. 0 compares log-probabilities; larger values
            favour longer outputs.
        num_results: Number of finished hypotheses that are kept and returned, from 1 to `num_beams`; None: `num_beams`.
            The search of a row ends when none of the kept ones can be displaced any more: with fewer results it
            ends earlier, and the results are the same as the first ones of a longer list.

    Raises:
        ValueError: if an argument is outside of its range.

    Example:

    >>> Beam(num_beams=5, length_penalty=1.0).num_results is None
    True
    """

    num_beams: int = 4
    length_penalty: float = 0.6
    num_results: int | None = None

    def __post_init__(self):
        if not is_integer(self.num_beams) or self.num_beams < 1:
            raise ValueError(f"`num_beams` must be an integer of at least 1. Received: {self.num_beams!r}")
        if not is_number(self.length_penalty) or self.length_penalty < 0:
            raise ValueError(f"`length_penalty` must be a number of at least 0. Received: {self.length_penalty!r}")
        if self.num_results is not None and (
            not is_integer(self.num_results) or not 1 <= self.num_results <= self.num_beams
        ):
            raise ValueError(
                f"`num_results` must be None or an integer from 1 to `num_beams` ({self.num_beams}). "
                f"Received: {self.num_results!r}"
            )


@keras.saving.register_keras_serializable(PACKAGE)
@dataclasses.dataclass(frozen=True)
class Contrastive(Sampler):
    """Contrastive search: of the most probable tokens the one whose hidden state is least like those before it.

    The next token maximises `(1 - alpha) * p(v) - alpha * max_j cos(h_v, h_j)` over the `top_k` most probable tokens v,
    where h_v is the hidden state that the model has after reading v and h_j are those of all tokens before. Each step
    reads `top_k` candidates.

    Args:
        top_k: Number of candidates, at least 1.
        alpha: Weight of the penalty, in [0, 1]; 0 is greedy search.

    Raises:
        ValueError: if an argument is outside of its range.

    Source: Su et al. 2022, "A contrastive framework for neural text generation", equation 5.
    """

    top_k: int = 4
    alpha: float = 0.6

    def __post_init__(self):
        if not is_integer(self.top_k) or self.top_k < 1:
            raise ValueError(f"`top_k` must be an integer of at least 1. Received: {self.top_k!r}")
        if not is_number(self.alpha) or not 0 <= self.alpha <= 1:
            raise ValueError(f"`alpha` must be a number from 0 to 1. Received: {self.alpha!r}")


_BY_NAME = {"greedy": Greedy, "sample": Sample, "beam": Beam, "contrastive": Contrastive}


def get_sampler(identifier) -> Sampler:
    """The sampler that a name, a configuration or a sampler stands for.

    Args:
        identifier: A `Sampler` (returned as it is), one of the names "greedy", "sample", "beam" and
            "contrastive" (default arguments), or a dict with the key "name" and arguments, as it stands in a YAML file.

    Raises:
        ValueError: for a name that does not exist or an argument that the sampler does not have.
        TypeError: for any other object.

    Example:

    >>> get_sampler({"name": "beam", "num_beams": 5})
    Beam(num_beams=5, length_penalty=0.6, num_results=None)
    """
    if isinstance(identifier, Sampler):
        return identifier
    if isinstance(identifier, str):
        identifier = {"name": identifier}
    if not isinstance(identifier, dict):
        raise TypeError(
            f"A sampler must be a Sampler, one of the names {sorted(_BY_NAME)}, or a dict with the key 'name'. "
            f"Received: {identifier!r}"
        )
    arguments = dict(identifier)
    name = arguments.pop("name", None)
    if name not in _BY_NAME:
        raise ValueError(f"The name of a sampler must be one of {sorted(_BY_NAME)}. Received: {name!r}")
    fields = [field.name for field in dataclasses.fields(_BY_NAME[name])]
    unknown = sorted(set(arguments) - set(fields))
    if unknown:
        raise ValueError(f"Sampler {name!r} has the arguments {fields}. Received also: {unknown}")
    return _BY_NAME[name](**arguments)
