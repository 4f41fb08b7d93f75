"""What tasks that write texts share: the decoding engine, likelihoods of texts, endpoints."""

import functools
from collections.abc import Callable, Iterator
from typing import Any

from keras import ops

from zoo.backbones.backbone import Backbone
from zoo.export import Endpoint, Field
from zoo.generation import GenerationDefaults, GraphGenerator, TextGenerator, TextScorer, get_sampler
from zoo.generation.checks import as_seed
from zoo.preprocessing.rows import as_sequence
from zoo.tasks.row_endpoints import row_endpoints
from zoo.tasks.task import Task
from zoo.tasks.token_head import TokenHead

TEXTS = Field("texts", ("batch",), "string", "prompts, or sources of an encoder-decoder")
SEED = Field("seed", (), "int64", "seed of the sampler, from 0 to 2**32 - 1")
ROLES = Field(
    "roles", ("batch", "messages"), "string", "who says each message; empty behind the last of a conversation"
)
CONTENTS = Field("contents", ("batch", "messages"), "string", "what each message says")
MAX_NEW_TOKENS = Field("max_new_tokens", (), "int32", "most tokens of a result, up to those of the export; 0: these")


class GenerativeTask(Task):
    """A task that writes texts with a decoding engine.

    A subclass defines `score_endpoint`; its preprocessor makes prompts.

    Args:
        backbone, preprocessor: As for `Task`.
        generation: What `generate`, `stream`, `predict` and exports do where an argument is not given, as JSON values,
            see `zoo.generation.GenerationDefaults`.
        **options: As for `Task`.
    """

    def __init__(
        self,
        backbone: Backbone,
        preprocessor: Any = None,
        *,
        generation: dict[str, Any] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(backbone, preprocessor, **options)
        self.generation_defaults = GenerationDefaults.of(generation, backbone.config.vocabulary_size)
        self.token_head = TokenHead(backbone.score, backbone.output_map)
        self.generator = TextGenerator(self)
        self.scorer = TextScorer(self)
        self.built = True

    @property
    def generation(self) -> dict[str, Any]:
        """What `generate` does where an argument is not given, see `zoo.generation.GenerationDefaults`."""
        return self.generation_defaults.to_dict()

    def own_options(self) -> dict[str, Any]:
        return {"generation": self.generation} if self.generation else {}

    @functools.wraps(TextGenerator.generate)
    def generate(self, *arguments: Any, **options: Any) -> Any:
        return self.generator.generate(*arguments, **options)

    @functools.wraps(TextGenerator.stream)
    def stream(self, *arguments: Any, **options: Any) -> Iterator[Any]:
        return self.generator.stream(*arguments, **options)

    @functools.wraps(TextGenerator.generate_tokens)
    def generate_tokens(self, *arguments: Any, **options: Any) -> dict[str, Any]:
        return self.generator.generate_tokens(*arguments, **options)

    def predict_texts(self, x: Any, batch_size: int) -> list[Any]:
        """Returns the output of `generate` for the texts."""
        return self.generate(as_sequence(x, "x"), batch_size=batch_size)

    def score_endpoint(self) -> Endpoint:
        """Returns the endpoint `score`: two string tensors `(batch,)` to log-likelihoods `(batch,)`."""
        raise NotImplementedError

    def endpoints(
        self,
        *,
        seed: int = 0,
        sampler: Any = None,
        processors: Any = None,
        stop: Any = None,
        max_length: int | None = None,
        max_new_tokens: int | None = None,
        strip_prompt: bool = False,
        truncate: bool | None = None,
        num_results: int | None = None,
        return_scores: bool = False,
        draft: str | None = None,
        lookahead: int = 4,
        jit_compile: bool | None = None,
    ) -> dict[str, Endpoint]:
        """Returns the endpoints of an export, for any batch size.

        * `serve(texts)`: string tensor `(batch,)` to "texts" `(batch,)`, the same as `generate` of the task gives with
          the same arguments; with `num_results` `(batch, num_results)`, and with `return_scores` also "scores" of the
          same shape, float32;
        * `generate(texts, seed, max_new_tokens)`: the same with a seed from 0 to 2**32 - 1, int64, and a number of
          tokens, int32, up to that of the export; 0 is that of the export;
        * `chat(roles, contents)`, where the tokenizer has a chat format: string tensors `(batch, messages)`, padded
          with empty roles, to the answers, "texts" `(batch,)`, as `generate` of the task gives for conversations;
        * `score`: prompts and texts, or sources and targets, string tensors `(batch,)`, to "log_likelihoods"
          `(batch,)`, float32;
        * `forward`: token-level inputs to "logits" `(batch, length, vocabulary)`, float32;
        * those of continuous batching, where a model can do that, see `zoo.tasks.row_endpoints`.

        Where results are drawn, the property `draws` of `serve`, `generate` and `chat` is true: a text then depends on
        its place in the batch. Where texts begin with their prompts, so is `begins_with_prompt`.

        A text longer than the model is an `InvalidArgumentError` that names the rows, unless `truncate` is true.

        The caches have room for `max_new_tokens` from the beginning: give it for a model that takes long texts.

        Args:
            seed: Seed of `serve`.
            sampler, processors, stop, max_length, max_new_tokens, strip_prompt, truncate, num_results, return_scores,
                lookahead, jit_compile: As for `generate`.
            draft: None or "prompt_lookup", as for `generate`; an export has no room for a second model.

        Raises:
            ValueError: If an argument is out of range.
        """
        graph = GraphGenerator(
            self.generator,
            sampler=sampler,
            processors=processors,
            stop=stop,
            max_length=max_length,
            max_new_tokens=max_new_tokens,
            strip_prompt=strip_prompt,
            truncate=truncate,
            num_results=num_results,
            draft=draft,
            lookahead=lookahead,
            jit_compile=jit_compile,
        )
        chosen_sampler = get_sampler(self.generator.chosen(sampler=sampler).sampler)
        if num_results is None:
            num_results = chosen_sampler.num_texts
        shape = ("batch",) if num_results is None else ("batch", num_results)
        outputs = (Field("texts", shape, "string", "results"),)
        if return_scores:
            outputs += (Field("scores", shape, "float32", "log-probabilities, with beam search normalised by length"),)

        draws = {"draws": True} if chosen_sampler.needs_numbers else {}
        continues = self.generator.backbone.config.architecture == "decoder" and not strip_prompt
        repeats = {"begins_with_prompt": True} if continues else {}
        seed = int(as_seed(seed))
        generate = _named(graph.texts(), return_scores)
        serve = Endpoint(
            _with_defaults(generate, seed), (TEXTS,), outputs, "Writes a text for each text.", draws | repeats
        )
        chat = {}
        if getattr(self.tokenizer, "chat_format", None) is not None and self.preprocessor.takes_conversations:
            answer = _with_defaults(_named(graph.chat(), return_scores), seed)
            chat = {"chat": Endpoint(answer, (ROLES, CONTENTS), outputs, "Answers each conversation.", draws)}
        given = {"sampler": sampler, "processors": processors, "stop": stop}
        chosen = self.generator.chosen(**given, max_length=max_length, max_new_tokens=max_new_tokens)
        is_single = num_results is None and draft is None
        rows = row_endpoints(self.generator, chosen, truncate, TEXTS, (ROLES, CONTENTS)) if is_single else {}
        return {
            "serve": serve,
            "generate": Endpoint(
                generate,
                (TEXTS, SEED, MAX_NEW_TOKENS),
                outputs,
                "As serve, with another seed and length.",
                draws | repeats,
            ),
            **chat,
            **rows,
            "score": self.score_endpoint(),
            "forward": self._forward_endpoint(),
        }

    def _forward_endpoint(self) -> Endpoint:
        fields = (*self.backbone.input_fields(), *self.backbone.optional_fields())
        length = fields[-1].shape[1]
        logits = Field(
            "logits", ("batch", length, self.backbone.config.vocabulary_size), "float32", "of the next token"
        )

        def forward(*inputs: Any) -> Any:
            named = {field.name: tensor for field, tensor in zip(fields, inputs, strict=True)}
            return ops.cast(self(named, training=False), "float32")

        return Endpoint(forward, fields, (logits,), "Logits of token-level inputs.")


def _named(written: Callable, return_scores: bool) -> Callable:
    """A function that returns texts alone, or a dictionary with scores."""

    def named(*inputs: Any) -> Any:
        texts, scores = written(*inputs)
        return {"texts": texts, "scores": scores} if return_scores else texts

    return named


def _with_defaults(generate: Callable, seed: int) -> Callable:
    def serve(*inputs: Any) -> Any:
        import tensorflow as tf

        return generate(*inputs, tf.constant(seed, tf.int64), tf.constant(0, tf.int32))

    return serve
