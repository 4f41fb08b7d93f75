"""Beam search that keeps its finished hypotheses."""

import dataclasses
from typing import Any, ClassVar

from keras import ops

from zoo.generation.checks import require_count, require_number
from zoo.generation.loop import Loop, end_lengths, repeat_rows, take_rows
from zoo.generation.samplers import Sampler, register_sampler


@register_sampler("beam")
@dataclasses.dataclass(frozen=True)
class Beam(Sampler):
    """Beam search for the hypothesis with the highest length-normalised log-probability.

    The score of a hypothesis Y is `log P(Y) / lp(Y)` with `lp(Y) = ((5 + |Y|) / 6) ** length_penalty`. Its length |Y|
    counts all generated tokens, the end token included. See `BeamSearch` for the algorithm.

    Args:
        num_beams: Number of unfinished hypotheses, at least 1. One beam is greedy search.
        length_penalty: Exponent of the length normalisation. 0 compares log-probabilities; larger values favour longer
            outputs.
        num_results: Number of finished hypotheses to keep and return, from 1 to `num_beams`; None for `num_beams`. The
            search of a row ends when no other hypothesis can displace a kept one. With fewer results it ends earlier,
            with the same best results. `generate` returns one text for None, and a list of `num_results` otherwise.
        length_offset: The offset of the formula, 5 above, at least 0:
            `lp(Y) = ((offset + |Y|) / (offset + 1)) ** length_penalty`. With 0 it is `|Y| ** length_penalty`, as in the
            Transformers library.
        early_stopping: When the search of a row ends, as in the Transformers library. "never": when no result can be
            displaced. False: when `num_beams` hypotheses are finished and the best unfinished one would not be among
            them if it ended now. True: when `num_beams` hypotheses are finished.

    Raises:
        ValueError: If an argument is out of range.

    Example:

    >>> Beam(num_beams=5, length_penalty=1.0).num_results is None
    True

    Reference:
        Wu et al. 2016, "Google's Neural Machine Translation System", equation 14. Vaswani et al. 2017, section 6.1,
        decode with 4 beams and a length penalty of 0.6.
    """

    num_beams: int = 4
    length_penalty: float = 0.6
    num_results: int | None = None
    length_offset: float = 5
    early_stopping: bool | str = "never"

    needs_numbers: ClassVar[bool] = False
    incremental: ClassVar[bool] = False

    def __post_init__(self) -> None:
        require_count("num_beams", self.num_beams)
        require_number("length_penalty", self.length_penalty)
        require_number("length_offset", self.length_offset, least=0)
        if self.early_stopping != "never" and not isinstance(self.early_stopping, bool):
            raise ValueError(f"early_stopping must be True, False or 'never', got {self.early_stopping!r}.")
        if self.num_results is not None:
            require_count("num_results", self.num_results, 1, self.num_beams)

    def make_loop(self, step: Any, settings: Any) -> Loop:
        return BeamSearch(step, settings)

    def with_results(self, count: int) -> tuple["Beam", int]:
        return dataclasses.replace(self, num_results=count), 1

    @property
    def num_texts(self) -> int | None:
        return self.num_results

    def normalisation(self, lengths: Any) -> Any:
        """Returns lp(Y), float32 (Wu et al. 2016, equation 14).

        Args:
            lengths: Integer tensor of any shape: numbers of generated tokens, with the end token.
        """
        offset = float(self.length_offset)
        return ops.power((offset + ops.cast(lengths, "float32")) / (offset + 1.0), self.length_penalty)


class BeamSearch(Loop):
    """Search for the hypotheses with the highest length-normalised log-probability; the loop of `Beam`.

    In each step the `num_beams` unfinished hypotheses of a row are extended by every token, and the
    `(1 + number of tokens that can end a text) * num_beams` best extensions are looked at (2 per beam with one end
    token: enough that `num_beams` unfinished ones are among them):

    * Of the best `num_beams` of them, those that end with an end token or a stop sequence are finished. They compete by
      score with the finished ones that are kept, and the best `num_results` of both stay. A finished hypothesis is lost
      to better finished ones only, never to unfinished ones. (An end token further down the list is passed over: with
      one beam the search is greedy.)
    * The best `num_beams` extensions that go on are pursued, whatever is finished: finished hypotheses
      take no places away from unfinished ones.
    * In the last step that `length_limit` allows, the best `num_beams` extensions are all finished as they are, with or
      without an end, and compete on equal terms: same score, with |Y| = length_limit.
    * A row is done when no unfinished hypothesis can enter the kept ones any more: log-probabilities only fall, so
      log P / lp(length_limit) bounds the score of everything that can still come of a hypothesis (with a negative
      exponent log P / lp of its present length). This is exact: the results are those of a search that always goes to
      the limit, as a search with processors that are `unbounded` does. With another `early_stopping` it is not: the
      search ends earlier, and `num_beams` finished hypotheses are kept, whatever `num_results` is.

    Logit processors act on the log-probabilities of the next token, which are not normalised again: a search with
    forbidden tokens looks for the most probable text, under the model, that obeys.

    The result holds in addition `beams`: a dict with `token_ids` `(batch, num_results, max_new_tokens)`, `lengths`,
    `end_lengths`, `finished`, `log_probabilities` (sums of processed log-probabilities), `running_log_probabilities`
    `(batch, num_results, max_new_tokens)` (those of the first tokens) and `scores` `(batch, num_results)`, the best
    first. Where fewer hypotheses exist (a vocabulary or limit too small), the
    remaining places have the score -inf and length 0. A row with limit 0 has one empty hypothesis of score 0.

    Reference:
        Wu et al. 2016, section 7 (scores); the exact end of the search is of our own making.
    """

    def __init__(self, step: Any, settings: Any) -> None:
        super().__init__(step, settings)
        sampler = settings.sampler
        self.width: int = sampler.num_beams
        self.num_results: int = sampler.num_beams
        if sampler.early_stopping == "never" and sampler.num_results is not None:
            self.num_results = sampler.num_results
        self.has_bound: bool = not any(getattr(processor, "unbounded", True) for processor in settings.processors)

    def start(self, inputs: dict[str, Any]) -> dict[str, Any]:
        num_beams, num_results, settings = self.width, self.num_results, self.settings
        first_tokens, length_limit = inputs["first_tokens"], inputs["length_limit"]
        batch = ops.shape(first_tokens)[0]
        state, constants, prompt = repeat_rows((inputs["state"], inputs["constants"], inputs["prompt"]), num_beams)
        # All beams start from the same token, so only the first one may have descendants.
        only_first = ops.convert_to_tensor([[0.0] + [float("-inf")] * (num_beams - 1)], dtype="float32")
        # A row that may not generate anything has the empty hypothesis as its first result.
        empty = ops.logical_and(
            ops.expand_dims(length_limit <= 0, -1), ops.expand_dims(ops.arange(num_results) == 0, 0)
        )
        empty_scores = ops.where(empty, 0.0, ops.convert_to_tensor(float("-inf"), dtype="float32"))
        length = settings.max_new_tokens
        return {
            "fixed": {
                "constants": constants,
                "prompt": prompt,
                "first_index": inputs["first_index"],
                "length_limit": length_limit,
            },
            "moving": {
                "position": ops.convert_to_tensor(0, dtype="int32"),
                "done": length_limit <= 0,
                "tokens": ops.repeat(ops.expand_dims(first_tokens, -1), num_beams, axis=1),
                "log_probabilities": ops.repeat(only_first, batch, axis=0),
                "history": ops.full((batch, num_beams, length), settings.pad_id, dtype="int32"),
                "running": ops.zeros((batch, num_beams, length), dtype="float32"),
                "results": {
                    "token_ids": ops.full((batch, num_results, length), settings.pad_id, dtype="int32"),
                    "running_log_probabilities": ops.zeros((batch, num_results, length), dtype="float32"),
                    "lengths": ops.zeros((batch, num_results), dtype="int32"),
                    "end_lengths": ops.zeros((batch, num_results), dtype="int32"),
                    "finished": ops.zeros((batch, num_results), dtype="bool"),
                    "log_probabilities": empty_scores,
                    "scores": empty_scores,
                },
                "state": state,
            },
        }

    def advance_once(self, fixed: dict[str, Any], moving: dict[str, Any]) -> dict[str, Any]:
        num_beams, settings, sampler = self.width, self.settings, self.settings.sampler
        position, done, history, running = (moving[name] for name in ("position", "done", "history", "running"))
        length_limit = fixed["length_limit"]
        logits, state = self.step(
            ops.reshape(moving["tokens"], (-1,)), fixed["first_index"] + position, moving["state"], fixed["constants"]
        )
        logits = ops.cast(logits, "float32")
        if settings.processors:
            rows = ops.reshape(history, (-1, ops.shape(history)[2]))
            logits = self.process(ops.log_softmax(logits, axis=-1), fixed, rows, position)
        enders = {*settings.end_ids, *(sequence[-1] for sequence in settings.stop_sequences)}
        parents, tokens, log_probabilities = _best_extensions(
            logits, moving["log_probabilities"], num_beams * (1 + len(enders)), normalise=not settings.processors
        )
        ends = end_lengths(tokens, _pick(history, parents), position, settings.end_ids, settings.stop_sequences)
        position = position + 1
        # The candidates are sorted: the first `num_beams` may be finished.
        candidates = {
            "token_ids": tokens[:, :num_beams],
            "log_probabilities": log_probabilities[:, :num_beams],
            "end_lengths": ends[:, :num_beams],
            "finished": ends[:, :num_beams] > 0,
        }
        complete = ops.logical_or(candidates["finished"], ops.expand_dims(position >= length_limit, -1))
        complete = ops.logical_and(complete, ops.logical_not(ops.expand_dims(done, -1)))
        scores = candidates["log_probabilities"] / sampler.normalisation(position)
        candidates["scores"] = ops.where(complete, scores, float("-inf"))
        results = _merge(moving["results"], candidates, parents[:, :num_beams], history, running, position)

        # The best that go on.
        log_probabilities, places = ops.top_k(ops.where(ends > 0, float("-inf"), log_probabilities), num_beams)
        tokens = _pick(tokens, places)
        if num_beams > 1:
            parents = _pick(parents, places)
            history, running = _pick(history, parents), _pick(running, parents)
            rows = ops.arange(ops.shape(tokens)[0], dtype="int32")
            state = take_rows(state, ops.reshape(ops.expand_dims(rows * num_beams, -1) + parents, (-1,)))
        history = _write(history, position - 1, tokens)
        running = _write(running, position - 1, log_probabilities)

        done = ops.logical_or(done, position >= length_limit)
        settled = self._is_settled(results["scores"][:, -1], log_probabilities[:, 0], length_limit, position)
        done = ops.logical_or(done, settled)
        return {
            "position": position,
            "done": done,
            "tokens": ops.where(ops.expand_dims(done, -1), settings.pad_id, tokens),
            "log_probabilities": log_probabilities,
            "history": history,
            "running": running,
            "results": results,
            "state": state,
        }

    def _is_settled(self, worst: Any, best: Any, length_limit: Any, position: Any) -> Any:
        """Whether the search of rows ends, bools `(batch,)`.

        Args:
            worst: Scores of the worst hypotheses that are kept, -inf where there are fewer.
            best: Log-probabilities of the best unfinished ones.
            length_limit: As for the loop.
            position: Number of tokens that these have.
        """
        sampler = self.settings.sampler
        now = sampler.normalisation(position)
        if sampler.early_stopping is True:
            return worst > float("-inf")
        if sampler.early_stopping is False:
            return ops.logical_and(worst > float("-inf"), worst >= best / now)
        most = ops.maximum(now, sampler.normalisation(length_limit))
        return ops.logical_and(self.has_bound, worst >= best / most)

    def result(self, carry: dict[str, Any]) -> dict[str, Any]:
        results = dict(carry["moving"]["results"])
        running, last = results["running_log_probabilities"], ops.expand_dims(results["log_probabilities"], -1)
        is_text = ops.arange(ops.shape(running)[-1], dtype="int32") < ops.expand_dims(results["lengths"], -1)
        results["running_log_probabilities"] = ops.where(is_text, running, last)
        count = self.settings.sampler.num_results
        results = {name: tensor if count is None else tensor[:, :count] for name, tensor in results.items()}
        best = {name: tensor[:, 0] for name, tensor in results.items() if name != "scores"}
        return {**best, "beams": results}


def _best_extensions(logits: Any, log_probabilities: Any, count: int, normalise: bool) -> tuple[Any, Any, Any]:
    """Returns the best extensions of the hypotheses of each row by one token, sorted.

    Args:
        logits: float32 tensor `(batch * beams, vocabulary)`.
        log_probabilities: float32 tensor `(batch, beams)` of the hypotheses.
        count: How many are wanted; fewer exist with a tiny vocabulary.
        normalise: Whether the logits are still to be made log-probabilities.

    Returns:
        Parent beams, tokens and log-probabilities, each `(batch, count)`.
    """
    beams = log_probabilities.shape[1]
    # First within each hypothesis, so that no normalised copy of the logits is made, then among those few.
    per_beam = min(count, logits.shape[-1])
    best, tokens = ops.top_k(logits, per_beam)
    if normalise:
        best = best - ops.logsumexp(logits, axis=-1, keepdims=True)
    best = ops.reshape(best, (-1, beams, per_beam)) + ops.expand_dims(log_probabilities, -1)
    tokens = ops.reshape(ops.cast(tokens, "int32"), (-1, beams * per_beam))
    values, places = ops.top_k(ops.reshape(best, (-1, beams * per_beam)), min(count, beams * per_beam))
    places = ops.cast(places, "int32")
    return places // per_beam, _pick(tokens, places), values


def _merge(
    results: dict[str, Any], candidates: dict[str, Any], parents: Any, history: Any, running: Any, position: Any
) -> dict[str, Any]:
    """The best of the kept hypotheses and of the candidates that are complete (their score is not -inf)."""
    kept = results["scores"].shape[1]
    lengths = ops.zeros_like(candidates["token_ids"]) + position
    scores, places = ops.top_k(ops.concatenate([results["scores"], candidates["scores"]], axis=1), kept)
    # Among -inf any place may come first (PyTorch); where one is left, the last of the results is an empty one.
    places = ops.where(scores > float("-inf"), ops.cast(places, "int32"), kept - 1)
    merged = {"scores": scores}
    for name, values in (
        ("lengths", lengths),
        ("end_lengths", candidates["end_lengths"]),
        ("finished", candidates["finished"]),
        ("log_probabilities", candidates["log_probabilities"]),
    ):
        merged[name] = _pick(ops.concatenate([results[name], values], axis=1), places)
    # The texts are gathered once, straight from the hypotheses that the candidates extend.
    new = places >= kept
    candidate = ops.maximum(places - kept, 0)
    sources = ops.where(new, kept + _pick(parents, candidate), places)
    for name, before, last in (
        ("token_ids", history, "token_ids"),
        ("running_log_probabilities", running, "log_probabilities"),
    ):
        values = _pick(ops.concatenate([results[name], before], axis=1), sources)
        merged[name] = ops.where(
            ops.expand_dims(new, -1), _write(values, position - 1, _pick(candidates[last], candidate)), values
        )
    return merged


def _pick(values: Any, indices: Any) -> Any:
    """Returns `values[b, indices[b, j]]`, values `(batch, size, ...)`, indices `(batch, count)`: one gather of rows."""
    batch, size = ops.shape(values)[0], values.shape[1]
    offsets = ops.expand_dims(ops.arange(batch, dtype="int32") * size, -1)
    flat = ops.reshape(values, (-1, *ops.shape(values)[2:]))
    return ops.take(flat, offsets + ops.cast(indices, "int32"), axis=0)


def _write(texts: Any, position: Any, tokens: Any) -> Any:
    """Returns `texts` `(batch, count, length)` with `tokens` `(batch, count)` at the given position."""
    here = ops.arange(ops.shape(texts)[-1], dtype="int32") == position
    return ops.where(here, ops.expand_dims(tokens, -1), texts)
