"""Losses of pairs of replies of which one is preferred, from their log-likelihoods."""

from typing import Any, ClassVar

import keras
from keras import ops

from zoo.counts import CountedLoss


class PreferenceLoss(CountedLoss):
    """Base class of losses of a chosen and a rejected reply.

    Args:
        beta: Factor on rewards, above 0.
        reduction, name: See `zoo.counts.CountedLoss`.

    Call arguments:
        y_true: Log-likelihoods of the chosen and the rejected reply under the reference model, `(batch, 2)`.
            Ignored if `needs_reference` is false.
        y_pred: Log-likelihoods of both replies under the model in training, and their numbers of tokens,
            `(batch, 2, 2)`, see `ReplyLikelihoods`.

    Raises:
        ValueError: If `beta` is not above 0, or `y_pred` has another shape.
    """

    # whether the log-likelihoods of a reference model are compared with
    needs_reference: ClassVar[bool] = True

    def __init__(
        self,
        beta: float = 0.1,
        reduction: str | None = "sum_over_batch_size",
        name: str | None = None,
        dtype: str = "float32",
    ) -> None:
        if not beta > 0:
            raise ValueError(f"beta must be above 0, got {beta!r}.")
        super().__init__(name=name, reduction=reduction, dtype=dtype)
        self.beta: float = float(beta)

    def rewards(self, y_true: Any, y_pred: Any) -> Any:
        """Returns the implicit rewards of the chosen and the rejected reply, float32 `(batch, 2)`.

        They are `beta * log(p(reply) / p_reference(reply))` (Rafailov et al. 2023, section 5).

        Args:
            y_true, y_pred: As for the call.
        """
        likelihoods, _ = _split(y_pred)
        return self.beta * (likelihoods - ops.cast(y_true, "float32"))

    def margins(self, y_true: Any, y_pred: Any) -> Any:
        """Returns how much higher the reward of the chosen reply is, `(batch,)`. Like `accuracies`, it can be a metric.

        Example:

        >>> metrics = [keras.metrics.MeanMetricWrapper(loss.margins, name="reward_margin")]
        """
        rewards = self.rewards(y_true, y_pred)
        return rewards[:, 0] - rewards[:, 1]

    def accuracies(self, y_true: Any, y_pred: Any) -> Any:
        """Returns 1 where the chosen reply has the higher reward, 1/2 where they are equal, else 0, `(batch,)`."""
        margins = self.margins(y_true, y_pred)
        return (ops.sign(margins) + 1.0) / 2.0


@keras.saving.register_keras_serializable("keras_transformer_zoo")
class DirectPreference(PreferenceLoss):
    """The loss of DPO: `-log sigmoid(margin)`, where the margin is the chosen reply's reward minus the rejected one's.

    With `label_smoothing` e it is `-(1 - e) log sigmoid(margin) - e log sigmoid(-margin)`.

    Args:
        beta: Strength of the penalty on the distance from the reference, above 0.
        label_smoothing: Assumed fraction of swapped labels, in [0, 1/2).
        reduction, name: See `zoo.counts.CountedLoss`.

    Call arguments:
        y_true, y_pred: See `PreferenceLoss`.

    Raises:
        ValueError: If an argument is out of range.

    Example:

    >>> model = ReplyLikelihoods(language_model)
    >>> model.compile("adam", DirectPreference(beta=0.1))

    Reference:
        Rafailov et al. 2023, "Direct Preference Optimization", equation 7; label smoothing: Mitchell 2023, "A note on
        DPO with noisy preferences and relationship to IPO", equation 3.
    """

    def __init__(
        self,
        beta: float = 0.1,
        label_smoothing: float = 0.0,
        reduction: str | None = "sum_over_batch_size",
        name: str = "direct_preference",
        dtype: str = "float32",
    ) -> None:
        if not 0.0 <= label_smoothing < 0.5:
            raise ValueError(f"label_smoothing must be at least 0 and below 1/2, got {label_smoothing!r}.")
        super().__init__(beta, reduction, name, dtype)
        self.label_smoothing = float(label_smoothing)

    def call(self, y_true: Any, y_pred: Any) -> Any:
        margins = self.margins(y_true, y_pred)
        # -log sigmoid(x) = softplus(-x)
        losses = (1.0 - self.label_smoothing) * ops.softplus(-margins)
        return losses + self.label_smoothing * ops.softplus(margins) if self.label_smoothing else losses


@keras.saving.register_keras_serializable("keras_transformer_zoo")
class IdentityPreference(PreferenceLoss):
    """The loss of IPO: `(h - 1 / (2 beta))^2`, where h is the difference of the log-likelihood ratios to the reference.

    Args:
        beta: The tau of the paper, above 0. The loss is zero when the ratios differ by `1 / (2 beta)`.
        reduction, name: See `zoo.counts.CountedLoss`.

    Call arguments:
        y_true, y_pred: See `PreferenceLoss`.

    Raises:
        ValueError: If `beta` is not above 0.

    Example:

    >>> ReplyLikelihoods(language_model).compile("adam", IdentityPreference(beta=0.1))

    Reference:
        Azar et al. 2023, "A General Theoretical Paradigm to Understand Learning from Human Preferences", equation 17.
    """

    def __init__(
        self,
        beta: float = 0.1,
        reduction: str | None = "sum_over_batch_size",
        name: str = "identity_preference",
        dtype: str = "float32",
    ) -> None:
        super().__init__(beta, reduction, name, dtype)

    def call(self, y_true: Any, y_pred: Any) -> Any:
        return ops.square(self.margins(y_true, y_pred) / self.beta - 0.5 / self.beta)


@keras.saving.register_keras_serializable("keras_transformer_zoo")
class OddsRatioPreference(PreferenceLoss):
    """The loss of ORPO: cross-entropy of the chosen reply minus `beta log sigmoid` of the log odds ratio.

    The first term is the mean cross-entropy per token. The odds of a reply are `P / (1 - P)`, where P is the
    exponential of its mean log-likelihood per token. There is no reference model.

    Args:
        beta: The lambda of the paper, above 0, the weight of the second term.
        reduction, name: See `zoo.counts.CountedLoss`.

    Call arguments:
        y_true, y_pred: See `PreferenceLoss`.

    Raises:
        ValueError: If `beta` is not above 0.

    Example:

    >>> ReplyLikelihoods(language_model).compile("adam", OddsRatioPreference(beta=0.1))

    Reference:
        Hong et al. 2024, "ORPO: Monolithic Preference Optimization without Reference Model", equations 4 to 7.
    """

    needs_reference = False

    def __init__(
        self,
        beta: float = 0.1,
        reduction: str | None = "sum_over_batch_size",
        name: str = "odds_ratio_preference",
        dtype: str = "float32",
    ) -> None:
        super().__init__(beta, reduction, name, dtype)

    def rewards(self, y_true: Any, y_pred: Any) -> Any:
        """Returns `beta` times the mean log-likelihood per token, `(batch, 2)`; there is no reference model."""
        likelihoods, counts = _split(y_pred)
        return self.beta * likelihoods / counts

    def call(self, y_true: Any, y_pred: Any) -> Any:
        likelihoods, counts = _split(y_pred)
        means = likelihoods / counts
        # log odds: log p - log(1 - p); a p that rounds to 1 would make it infinite
        odds = means - ops.log1p(-ops.exp(ops.minimum(means, -1e-6)))
        return -means[:, 0] + self.beta * ops.softplus(odds[:, 1] - odds[:, 0])


def _split(y_pred: Any) -> tuple[Any, Any]:
    """Log-likelihoods and numbers of tokens, at least 1, float32 `(batch, 2)`."""
    if len(y_pred.shape) != 3 or tuple(y_pred.shape[1:]) != (2, 2):
        raise ValueError(
            "y_pred must hold log-likelihood and number of tokens of the chosen and the rejected reply, with the shape "
            f"(batch, 2, 2), got {tuple(y_pred.shape)}."
        )
    y_pred = ops.cast(y_pred, "float32")
    return y_pred[:, :, 0], ops.maximum(y_pred[:, :, 1], 1.0)
