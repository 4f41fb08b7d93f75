"""Contrastive search against a plain Python loop that follows the paper."""

import numpy as np
import pytest
from keras import ops

from zoo.generation import Contrastive, Greedy, RepetitionPenalty, decode

END, PAD, WIDTH = 1, 0, 6


class HiddenModel:
    """Wraps the toy model: after each token it has a hidden state that depends on the whole prefix."""

    def __init__(self, model):
        self.model = model
        self.basis = np.random.default_rng(5).normal(0, 1, (model.vocabulary_size, WIDTH)).astype("float32")

    def step(self, token_ids, index, state, constants):
        logits, inner = self.model.step(token_ids, index, {"layers": state["layers"]}, constants)
        return logits, {**inner, "hidden": ops.matmul(logits, ops.convert_to_tensor(self.basis))}

    def hidden(self, row, prefix):
        """The state after the tokens 0, *prefix; the toy model's logits without the normalisation."""
        tokens = np.array([0, *prefix])
        summary = np.sum(self.model.position_weights[: len(tokens)] * (tokens + 1))
        return self.model.sharpness * np.sin(summary * self.model.frequencies + row) @ self.basis


def directions(hidden):
    return hidden / np.linalg.norm(hidden, axis=-1, keepdims=True)


def run(model, rows, sampler, prompt_hidden, prompt, processors=()):
    state, constants, first_tokens = model.model.inputs_of(rows)
    return decode(
        model.step,
        state,
        constants,
        first_tokens,
        0,
        8,
        sampler,
        END,
        PAD,
        processors=processors,
        prompt=prompt,
        prompt_hidden=prompt_hidden,
    )


@pytest.mark.sampled(3)
@pytest.mark.parametrize("top_k, alpha", [(1, 0.6), (3, 0.6), (4, 0.3), (7, 0.9), (40, 0.9), (3, 0.0)])
@pytest.mark.parametrize("penalty", [None, 1.5])
def test_against_a_python_loop(prefix_model, top_k, alpha, penalty):
    model = HiddenModel(prefix_model(7, capacity=10, seed=6, sharpness=1.0))
    generator = np.random.default_rng(0)
    context = generator.normal(0, 1, (5, 2, WIDTH)).astype("float32")
    prompt = np.array([[3, 3, 0], [-1, 4, 0], [-1, -1, 0], [5, 6, 0], [2, 2, 0]])
    processors = [] if penalty is None else [RepetitionPenalty(penalty)]
    result = run(model, range(5), Contrastive(top_k, alpha), context, prompt, processors)
    differing = 0
    for row in range(5):
        seen = [*context[row][prompt[row, :-1] >= 0], model.hidden(row, [])]
        text, total = [], 0.0
        while len(text) < 8 and END not in text:
            tokens = np.array([0, *text])
            summary = np.sum(model.model.position_weights[: len(tokens)] * (tokens + 1))
            logits = model.model.sharpness * np.sin(summary * model.model.frequencies + row)
            if penalty is not None:
                for token in {token for token in prompt[row] if token >= 0} | set(text):
                    logits[token] = logits[token] / penalty if logits[token] > 0 else logits[token] * penalty
            probabilities = np.exp(logits) / np.exp(logits).sum()
            candidates = np.argsort(-probabilities, kind="stable")[:top_k]
            new = [model.hidden(row, [*text, token]) for token in candidates]
            # equation 5 of the paper
            likeness = (directions(np.array(new)) @ directions(np.array(seen)).T).max(-1)
            best = np.argmax((1 - alpha) * probabilities[candidates] - alpha * likeness)
            total += model.model.log_probabilities(row, text)[candidates[best]]
            text.append(int(candidates[best]))
            seen.append(new[best])
            differing += best > 0
        assert ops.convert_to_numpy(result["token_ids"])[row].tolist() == text + [PAD] * (8 - len(text))
        np.testing.assert_allclose(result["log_probabilities"][row], total, atol=1e-3)
    assert bool(differing) == (top_k > 1 and alpha > 0)


def test_a_row_does_not_depend_on_its_neighbours(prefix_model, assert_same):
    model = HiddenModel(prefix_model(7, capacity=10, seed=6, sharpness=1.0))
    context, prompt = np.zeros((5, 0, WIDTH), "float32"), np.zeros((5, 1), "int32")
    together = run(model, range(5), Contrastive(3, 0.5), context, prompt)
    for row in range(5):
        alone = run(model, [row], Contrastive(3, 0.5), context[:1], prompt[:1])
        assert_same(alone, {name: tensor[row : row + 1] for name, tensor in together.items()})


def test_no_penalty_is_greedy(prefix_model, assert_same):
    model = HiddenModel(prefix_model(7, capacity=10, seed=6))
    context, prompt = np.zeros((3, 0, WIDTH), "float32"), np.zeros((3, 1), "int32")
    state, constants, first_tokens = model.model.inputs(3)
    greedy = decode(model.model.step, state, constants, first_tokens, 0, 8, Greedy(), END, PAD)
    assert_same(run(model, range(3), Contrastive(4, 0.0), context, prompt), greedy)


def test_wrong_arguments(prefix_model):
    with pytest.raises(ValueError, match="top_k must be an integer of at least 1, got 0"):
        Contrastive(top_k=0)
    with pytest.raises(ValueError, match="alpha must be a number from 0 to 1, got 1.5"):
        Contrastive(alpha=1.5)
    with pytest.raises(ValueError, match="prompt_hidden must be given with Contrastive.*got None"):
        run(HiddenModel(prefix_model(7, capacity=10)), range(2), Contrastive(), None, np.zeros((2, 2), "int32"))
