"""The router of a mixture of experts: the choice of experts, and the balance of their loads."""

from typing import Any

import keras
import numpy as np
from keras import ops

from layers.constructor_arguments import ConfigFromArguments
from layers.roles import WHOLE

SCORINGS = ("softmax", "sigmoid")


@keras.saving.register_keras_serializable("keras_transformer_zoo")
class Router(ConfigFromArguments, keras.layers.Layer):
    """Chooses the experts of each token, and their weights.

    * Scores: `p = softmax(W x)`, or `p = sigmoid(W x)` for each expert separately.
    * Choice: the set K of the `experts_per_token` experts with the highest `p_e`. With `bias_update_rate`, those with
      the highest `p_e + b_e`. At each training step the bias `b_e` falls by this rate if the expert has more than the
      mean load, and rises by it if the expert has less.
    * Weights: `p_e`, or `p_e / sum_{j in K} p_j` with `normalize_weights`. The bias does not enter them.
    * Groups: with `expert_groups`, consecutive experts form groups, and K is chosen from the `groups_per_token` best
      groups. The score of a group is its highest `p_e` with "softmax", and the sum of its two highest with "sigmoid".
      The biases are added first.

    Small differences of the scores decide the choice, so use a dtype of at least float32.

    Args:
        num_experts: Number of experts.
        experts_per_token: Number of experts of each token, from 1 to `num_experts`.
        scoring: "softmax" or "sigmoid".
        normalize_weights: Whether the weights of the chosen experts sum to one. With "softmax" they are then the
            softmax over the logits of the chosen experts (Mixtral, gpt-oss). Default: True for more than one expert per
            token. With one expert the weight would always be 1, and the router would not learn.
        weight_scale: Factor on the weights.
        expert_groups, groups_per_token: Number of groups of experts, and of groups of each token; None for no groups.
        bias_update_rate: Step of the bias; 0 for a constant bias; None for no bias.
        load_balance_weight: Factor of the loss `num_experts * sum_e f_e P_e`, where `f_e` is the fraction of
            assignments to expert e and `P_e` the mean of `p_e` (sigmoids are divided by their sum over all experts).
            The loss equals this factor at perfect balance. 0 for no loss.
        z_loss_weight: Factor of the loss `mean(logsumexp(W x)^2)`, which keeps the logits small. 0 for no loss.
        use_bias: Whether a learned bias is added to the logits `W x`.

    Call arguments:
        inputs: `(tokens, dim)`.
        padding_mask: True where a token is real, `(tokens, 1)`; None if all are.
        training: Whether losses are added and the bias is updated.

    Returns:
        The weights `(tokens, experts_per_token)` of each token's experts, best first. And the assignments, integers
        `(choice, token, expert)`: 1 if the expert is this choice of the token, else 0. Padding has no assignments.

    Raises:
        ValueError: If an argument is out of range.

    Example:

    >>> weights, assignments = Router(num_experts=4)(np.ones((10, 16), "float32"))
    >>> weights.shape, assignments.shape
    ((10, 2), (2, 10, 4))

    Reference:
        Shazeer et al. 2017, "Outrageously Large Neural Networks", section 2; load balance: Fedus et al. 2022, "Switch
        Transformers", section 2.2, equations 4 to 6; sigmoid and bias: DeepSeek-AI 2024, "DeepSeek-V3", section 2.1.2,
        equations 12 to 16; z-loss: Zoph et al. 2022, "ST-MoE", section 3.3, equation 5.
    """

    # small, and the same on all devices
    weight_role = WHOLE

    def __init__(
        self,
        num_experts: int,
        experts_per_token: int = 2,
        scoring: str = "softmax",
        normalize_weights: bool | None = None,
        weight_scale: float = 1.0,
        bias_update_rate: float | None = None,
        load_balance_weight: float = 0.01,
        z_loss_weight: float = 0.0,
        use_bias: bool = False,
        expert_groups: int | None = None,
        groups_per_token: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if num_experts < 1:
            raise ValueError(f"num_experts must be at least 1, got {num_experts}.")
        if not 1 <= experts_per_token <= num_experts:
            raise ValueError(f"experts_per_token must be from 1 to num_experts={num_experts}, got {experts_per_token}.")
        check_groups(num_experts, experts_per_token, expert_groups, groups_per_token)
        if scoring not in SCORINGS:
            raise ValueError(f"scoring must be one of {', '.join(map(repr, SCORINGS))}, got {scoring!r}.")
        for name, value in (
            ("load_balance_weight", load_balance_weight),
            ("bias_update_rate", bias_update_rate or 0),
            ("z_loss_weight", z_loss_weight),
        ):
            if value < 0:
                raise ValueError(f"{name} must be at least 0, got {value}.")
        if weight_scale <= 0:
            raise ValueError(f"weight_scale must be above 0, got {weight_scale}.")
        self.num_experts = num_experts
        self.experts_per_token = experts_per_token
        self.scoring = scoring
        self.normalize_weights = experts_per_token > 1 if normalize_weights is None else normalize_weights
        self.weight_scale = weight_scale
        self.bias_update_rate = bias_update_rate
        self.load_balance_weight = load_balance_weight
        self.z_loss_weight = z_loss_weight
        self.use_bias = use_bias
        self.expert_groups = expert_groups
        self.groups_per_token = groups_per_token

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        self.kernel = self.add_weight(
            name="kernel", shape=(input_shape[-1], self.num_experts), initializer="glorot_uniform"
        )
        self.bias = None
        if self.use_bias:
            self.bias = self.add_weight(name="bias", shape=(self.num_experts,), initializer="zeros")
        self.balance_bias = None
        if self.bias_update_rate is not None:
            self.balance_bias = self.add_weight(
                name="balance_bias",
                shape=(self.num_experts,),
                initializer="zeros",
                trainable=False,
                aggregation="mean",  # replicas see different rows
            )

    def call(self, inputs: Any, padding_mask: Any = None, training: bool | None = None) -> tuple[Any, Any]:
        logits = ops.matmul(inputs, self.kernel)  # (tokens, experts)
        logits = logits if self.bias is None else logits + self.bias
        scores = ops.softmax(logits, axis=-1) if self.scoring == "softmax" else ops.sigmoid(logits)
        weights, experts = self._choose(scores)  # (tokens, experts_per_token)
        assignments = ops.one_hot(ops.transpose(experts), self.num_experts, dtype="int32")  # (choice, token, expert)
        if padding_mask is not None:
            assignments = assignments * ops.cast(padding_mask, "int32")
        if training:
            self._add_losses(assignments, logits, scores, padding_mask)
            if self.bias_update_rate:
                self._update_bias(assignments)
        return weights, assignments

    def _choose(self, scores: Any) -> tuple[Any, Any]:
        """Weights and indices of each token's experts, `(tokens, experts_per_token)`, best first."""
        balanced = scores if self.balance_bias is None else scores + self.balance_bias
        if self.expert_groups is not None:
            balanced = self._in_best_groups(balanced)
        _, experts = ops.top_k(balanced, self.experts_per_token)
        weights = ops.take_along_axis(scores, experts, axis=-1)
        if self.normalize_weights:
            total = ops.sum(weights, axis=-1, keepdims=True)
            weights = weights / (total if self.scoring == "softmax" else total + 1e-20)
        return (weights if self.weight_scale == 1.0 else self.weight_scale * weights), experts

    def _in_best_groups(self, scores: Any) -> Any:
        """The scores, with minus infinity for experts outside of the best groups."""
        grouped = ops.reshape(scores, (-1, self.expert_groups, self.num_experts // self.expert_groups))
        best, _ = ops.top_k(grouped, 1 if self.scoring == "softmax" else min(2, grouped.shape[-1]))
        _, groups = ops.top_k(ops.sum(best, axis=-1), self.groups_per_token)
        is_best = ops.sum(ops.one_hot(groups, self.expert_groups, dtype="int32"), axis=1) > 0  # (tokens, groups)
        grouped = ops.where(ops.expand_dims(is_best, -1), grouped, -np.inf)
        return ops.reshape(grouped, (-1, self.num_experts))

    def _add_losses(self, assignments: Any, logits: Any, scores: Any, padding_mask: Any) -> None:
        dtype = scores.dtype
        counts = ops.cast(ops.sum(assignments, axis=(0, 1)), dtype)
        total = ops.maximum(ops.sum(counts), 1.0)  # experts_per_token for each real token
        token_mask = 1.0 if padding_mask is None else ops.cast(padding_mask, dtype)
        if self.load_balance_weight:
            if self.scoring == "sigmoid":
                scores = scores / (ops.sum(scores, axis=-1, keepdims=True) + 1e-20)
            summed = ops.sum(counts * ops.sum(scores * token_mask, axis=0)) * self.experts_per_token
            self.add_loss(self.load_balance_weight * self.num_experts * summed / ops.square(total))
        if self.z_loss_weight:
            squares = ops.square(ops.logsumexp(logits, axis=-1, keepdims=True)) * token_mask
            self.add_loss(self.z_loss_weight * self.experts_per_token * ops.sum(squares) / total)

    def _update_bias(self, assignments: Any) -> None:
        loads = ops.cast(ops.sum(assignments, axis=(0, 1)), self.balance_bias.dtype)
        self.balance_bias.assign(self.balance_bias + self.bias_update_rate * ops.sign(ops.mean(loads) - loads))


def check_groups(
    num_experts: int, experts_per_token: int, expert_groups: int | None, groups_per_token: int | None
) -> None:
    """Checks that groups of experts have equal sizes, and that the groups of a token have enough experts.

    Args:
        num_experts, experts_per_token, expert_groups, groups_per_token: As for `MixtureOfExperts`.

    Raises:
        ValueError: If one of these conditions does not hold.
    """
    if expert_groups is None:
        if groups_per_token is not None:
            raise ValueError(f"groups_per_token must be None without expert_groups, got {groups_per_token}.")
        return
    if expert_groups < 1 or num_experts % expert_groups:
        raise ValueError(f"expert_groups must be a divisor of num_experts={num_experts}, got {expert_groups}.")
    least = -(-experts_per_token * expert_groups // num_experts)
    if groups_per_token is None or not least <= groups_per_token <= expert_groups:
        raise ValueError(
            f"groups_per_token must be from {least}, for experts_per_token={experts_per_token}, to "
            f"expert_groups={expert_groups}, got {groups_per_token}."
        )
