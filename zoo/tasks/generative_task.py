"""Base class of the tasks that generate text: the decoding engine, likelihoods of texts, endpoints."""

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from keras import ops

from layers.errors import refuse_names
from zoo.backbones.backbone import Backbone
from zoo.export import Endpoint, Field, Request, with_defaults
from zoo.generation import GenerationDefaults, GraphGenerator, Greedy, TextGenerator, TextScorer, get_sampler
from zoo.generation.checks import as_seed
from zoo.inspect.row import Decisions
from zoo.openvino_genai import OpenVINOEngines
from zoo.preprocessing.rows import as_sequence
from zoo.signatures import signature_of
from zoo.tasks.row_endpoints import row_endpoints
from zoo.tasks.task import Task
from zoo.tasks.token_endpoints import writer_endpoints
from zoo.tasks.token_head import TokenHead
from zoo.tokenizers.chat import as_ragged

TEXTS = Field("texts", ("batch",), "string", "prompts, or sources of an encoder-decoder")
ROLES = Field(
    "roles", ("batch", "messages"), "string", "who says each message; empty behind the last of a conversation"
)
CONTENTS = Field("contents", ("batch", "messages"), "string", "what each message says")
# new tokens of the requests that warm a server
EXAMPLE_TOKENS = 8
# what a request may choose
REQUEST = (
    Field("seed", (), "int64", "seed of the sampler, from 0 to 2**32 - 1", 0),
    Field("max_new_tokens", (), "int32", "most tokens of a result, up to those of the export; 0: these", 0),
    Field("temperature", (), "float32", "0: the most probable token; below 0: as exported", -1.0),
    Field("top_k", (), "int32", "most probable tokens to draw from; 0: all; below 0: as exported", -1),
    Field("top_p", (), "float32", "share of probability to draw from, up to 1: all; below 0: as exported", -1.0),
    Field("stop", ("stops",), "string", "further texts that end a result; empty ones do not count", ()),
)
# arguments of `generate` of KerasHub and Transformers that are others here
_OTHER_NAMES = {
    "stop_token_ids": "stop, a list of texts and token ids; end tokens always end a text",
    **dict.fromkeys(("stop_strings", "eos_token_id"), "stop, a list of texts and token ids"),
    **{
        name: f"sampler={{'name': 'sample', '{name}': ...}}"
        for name in ("temperature", "top_k", "top_p", "min_p", "typical_p")
    },
    "do_sample": "sampler='sample'",
    "num_beams": "sampler={'name': 'beam', 'num_beams': ...}",
    "length_penalty": "sampler={'name': 'beam', 'length_penalty': ...}",
    "penalty_alpha": "sampler='contrastive'",
}


class GenerativeTask(Task):
    """Base class of tasks that generate text.

    A subclass defines `score_endpoint`. Its preprocessor makes prompts.

    Args:
        backbone, preprocessor: As for `Task`.
        generation: Default arguments of `generate`, `stream`, `predict` and exports, as JSON values, see
            `zoo.generation.GenerationDefaults`.
        **options: As for `Task`.
    """

    labels_are_of_tokens = True

    def __init__(
        self,
        backbone: Backbone,
        preprocessor: Any = None,
        *,
        generation: dict[str, Any] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(backbone, preprocessor, **options)
        self.generation_defaults: GenerationDefaults = GenerationDefaults.of(
            generation, backbone.config.vocabulary_size
        )
        self.token_head: TokenHead = TokenHead(backbone.score, backbone.output_map)
        self.generator: TextGenerator = TextGenerator(self, OpenVINOEngines(self))
        self.scorer: TextScorer = TextScorer(self)
        self.built = True

    @property
    def generation(self) -> dict[str, Any]:
        """Default arguments of `generate`, see `zoo.generation.GenerationDefaults`."""
        return self.generation_defaults.to_dict()

    def outputs_of(self, hidden: Any, inputs: dict[str, Any], training: bool | None = None) -> Any:
        return self.token_head(self.backbone.output_vectors(hidden), training)

    def decisions(self, outputs: Any, tokens: Sequence[str]) -> Decisions:
        """Returns the probabilities of the next token at each position."""
        return Decisions(ops.log_softmax(ops.cast(outputs, "float32"), axis=-1))

    def own_options(self) -> dict[str, Any]:
        return {"generation": self.generation} if self.generation else {}

    @signature_of(TextGenerator.generate)
    def generate(self, *arguments: Any, **options: Any) -> Any:
        refuse_names("generate()", options, _OTHER_NAMES)
        return self.generator.generate(*arguments, **options)

    @signature_of(TextGenerator.stream)
    def stream(self, *arguments: Any, **options: Any) -> Iterator[Any]:
        refuse_names("stream()", options, _OTHER_NAMES)
        return self.generator.stream(*arguments, **options)

    @signature_of(TextGenerator.generate_tokens)
    def generate_tokens(self, *arguments: Any, **options: Any) -> dict[str, Any]:
        return self.generator.generate_tokens(*arguments, **options)

    def predict_texts(self, x: Any, batch_size: int) -> list[Any]:
        """Returns the output of `generate` for the texts."""
        return self.generate(as_sequence(x, "x"), batch_size=batch_size)

    def example_requests(self, endpoints: Mapping[str, Endpoint], examples: Sequence[Any]) -> list[Request]:
        """Returns requests for a few new tokens: texts for `generate`, conversations for `chat_generate`."""
        texts = [example for example in examples if isinstance(example, (str, bytes))]
        talks = {f"examples[{row}]": each for row, each in enumerate(examples) if not isinstance(each, (str, bytes))}
        if talks and "chat_generate" not in endpoints:
            got = next(iter(talks.values()))
            raise ValueError(f"examples must be texts for this model, which takes no conversations, got {got!r}.")
        few = {"max_new_tokens": EXAMPLE_TOKENS}
        # one alone, then the others together
        asked = [("generate", {"texts": part}) for part in (texts[:1], texts[1:]) if part]
        if talks:
            plain = [self.tokenizer.chat_format.plain_messages(talk, name) for name, talk in talks.items()]
            roles, contents = (column.to_tensor("").numpy().tolist() for column in as_ragged(plain))
            asked.append(("chat_generate", {"roles": roles, "contents": contents}))
        return [Request(name, with_defaults(endpoints[name], {**values, **few})) for name, values in asked]

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
        lookahead: int | None = None,
        jit_compile: bool = False,
    ) -> dict[str, Endpoint]:
        """Returns the endpoints of an export, for any batch size.

        * `serve(texts)`: string tensor `(batch,)` to "texts" `(batch,)`, with the same results as `generate` of the
          task with the same arguments. With `num_results` the shape is `(batch, num_results)`. With `return_scores`
          there are also "scores" of the same shape, float32.
        * `generate(texts, seed, max_new_tokens, temperature, top_k, top_p, stop)`: the same, with settings of the
          request, see `zoo.generation.GraphGenerator`. A signature needs all its inputs, so requests without settings
          call `serve`.
        * `chat(roles, contents)`, only with a chat format: string tensors `(batch, messages)`, padded with empty roles,
          to the answers, "texts" `(batch,)`, with the same results as `generate` for conversations.
        * `chat_generate(roles, contents, seed, ...)`: the same, with settings of the request.
        * `score`: prompts and texts, or sources and targets, string tensors `(batch,)`, to "log_likelihoods"
          `(batch,)`, float32.
        * `forward`: token-level inputs to "logits" `(batch, length, vocabulary)`, float32.
        * the endpoints of continuous batching, if the model supports it, see `zoo.tasks.row_endpoints`.

        Endpoints have properties. `draws` of `serve`, `generate` and `chat` is true if results are random; a text then
        depends on its index in the batch. `may_draw` of `generate` and `chat_generate` is true if results are random
        only for a temperature above 0. `begins_with_prompt` is true if texts begin with their prompts.

        A text longer than the model allows raises an `InvalidArgumentError` that names the rows, unless `truncate` is
        true.

        The caches have room for `max_new_tokens` from the beginning, so set it for a model with a large `max_length`.

        Args:
            seed: Seed of `serve`.
            sampler, processors, stop, max_length, max_new_tokens, strip_prompt, truncate, num_results, return_scores,
                lookahead: As for `generate`.
            draft: None or "prompt_lookup", as for `generate`. An export cannot hold a second model.
            jit_compile: Whether XLA compiles the loop when the export runs. This takes some seconds for each new
                combination of batch size and length, and is faster afterwards. Not every server has XLA. Without it one
                program serves all sizes.

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

        # results that depend on the place in the batch; a request may ask for a temperature where there is none
        draws = {"draws": True} if chosen_sampler.needs_numbers else {}
        may_draw = {"may_draw": True} if type(chosen_sampler) is Greedy else draws
        continues = self.generator.backbone.config.architecture == "decoder" and not strip_prompt
        repeats = {"begins_with_prompt": True} if continues else {}
        seed = int(as_seed(seed))
        generate = _named(graph.texts(), return_scores)
        request = (dataclasses.replace(REQUEST[0], default=seed), *REQUEST[1:])
        serve = Endpoint(
            _with_defaults(generate, request), (TEXTS,), outputs, "Writes a text for each text.", draws | repeats
        )
        chat = {}
        if getattr(self.tokenizer, "chat_format", None) is not None and self.preprocessor.takes_conversations:
            answer, messages = _named(graph.chat(), return_scores), (ROLES, CONTENTS)
            answers = _with_defaults(answer, request)
            chat = {
                "chat": Endpoint(answers, messages, outputs, "Answers each conversation.", draws),
                "chat_generate": Endpoint(
                    answer, (*messages, *request), outputs, "As chat, with choices of a request.", may_draw
                ),
            }
        given = {"sampler": sampler, "processors": processors, "stop": stop}
        chosen = self.generator.chosen(**given, max_length=max_length, max_new_tokens=max_new_tokens)
        is_single = num_results is None and draft is None
        rows = row_endpoints(self.generator, chosen, truncate, TEXTS, (ROLES, CONTENTS)) if is_single else {}
        return {
            "serve": serve,
            "generate": Endpoint(
                generate, (TEXTS, *request), outputs, "As serve, with choices of a request.", may_draw | repeats
            ),
            **chat,
            **rows,
            "score": self.score_endpoint(),
            "forward": self._forward_endpoint(),
        }

    def token_endpoints(
        self, *, max_length: int | None = None, max_new_tokens: int | None = None
    ) -> dict[str, Endpoint]:
        """Returns the endpoints for a loop that generates token by token, see `zoo.tasks.token_endpoints`.

        Args:
            max_length, max_new_tokens: As for `generate`.

        Raises:
            ValueError: If the model needs more than its caches for the next step, or an argument is out of range.
        """
        return writer_endpoints(self.generator, max_length, max_new_tokens)

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


def _named(written: Callable[..., Any], return_scores: bool) -> Callable[..., Any]:
    """A function that returns texts alone, or a dictionary with scores."""

    def named(*inputs: Any) -> Any:
        texts, scores = written(*inputs)
        return {"texts": texts, "scores": scores} if return_scores else texts

    return named


def _with_defaults(generate: Callable[..., Any], request: tuple[Field, ...]) -> Callable[..., Any]:
    def serve(*inputs: Any) -> Any:
        import tensorflow as tf

        return generate(*inputs, *(tf.constant(field.default, field.dtype) for field in request))

    return serve
