"""Trains a language model on conversations, and exports it.

    python -m recipes.finetune                                    # learns to answer questions about dates, in minutes
    python -m recipes.finetune --model.start_from hf://owner/name --data.train chats.jsonl --data.validation held.jsonl
    python -m recipes.finetune --model.start_from runs/x/model --model.lora.rank 8 ...

Files are JSON lines, or one JSON array, of OpenAI's messages, ShareGPT or Alpaca, told by their keys. Learned are the
replies, or with `--data.loss all` all messages. The same command resumes an interrupted run.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Literal

import zoo
from recipes.common import batching
from recipes.common.config import run_recipe, setting
from recipes.common.data.chat_data import CONVERSATIONS, short_conversations
from recipes.common.data.chat_files import CHAT_FORMATS, Conversation, read_conversations
from recipes.common.data.data_config import TestedDataConfig
from recipes.common.data.data_sets import Source, open_parts
from recipes.common.errors import BadLines, ConfigError, errors_of
from recipes.common.evaluation.evaluation import Evaluation
from recipes.common.evaluation.held_out import OF_TRAINING, HeldOut, open_rows
from recipes.common.evaluation.likelihoods import evaluate_replies
from recipes.common.finish import Outcome, decoded
from recipes.common.run_folder import RunFolder
from recipes.common.runner import Recipe
from recipes.common.training.fitting import TrainingConfig, compile_model, prepare, token_metrics, train
from recipes.common.training.models import ModelConfig, count_trained, make_or_load_task
from recipes.common.training.optimizers import LEARNING_RATE_HELP
from recipes.common.training.tokenizers import TokenizerConfig


@dataclasses.dataclass(frozen=True)
class DataConfig(TestedDataConfig):
    """Where the conversations come from."""

    train: list[str] = setting(["date_questions"], "JSON (or .gz) or Parquet files, or a data set.", offers="paths")
    format: Literal["auto", "messages", "sharegpt", "alpaca"] = setting(
        "auto",
        "Format of the rows. auto: recognised by their keys (messages; conversations; instruction and output).",
        describes_files=True,
    )
    key: str | None = setting(
        None,
        "Key of the list of messages in the formats messages and sharegpt. null: the usual key of the format.",
        describes_files=True,
    )
    chat_format: str | None = setting(
        None,
        f"Chat format: {CHAT_FORMATS}. null: that of the model to start from, or chatml.",
    )
    loss: Literal["replies", "all"] = setting(
        "replies",
        "Tokens that are learned: those of the assistant's replies with the tokens that end them, or "
        "all but the first.",
    )
    packing: bool = setting(False, "Whether several conversations share a row. They do not attend to each other.")
    max_length: int | None = setting(
        None,
        "Largest number of tokens of a conversation, and of a packed row. null: that of the model. "
        "Longer conversations are dropped.",
        least=2,
    )


@dataclasses.dataclass(frozen=True)
class ChatTokenizerConfig(TokenizerConfig):
    """The tokenizer, trained on the conversations where the model does not bring one."""

    kind: Literal["byte_level_bpe"] = setting("byte_level_bpe", "Kind of tokenizer.")
    vocabulary_size: int = setting(512, "Largest number of tokens in the vocabulary, including special tokens.")


@dataclasses.dataclass(frozen=True)
class ChatModelConfig(ModelConfig):
    """The model: a new one by preset and options, or a saved one by start_from, and which of its weights train."""

    preset: str = setting(
        "llama_shakespeare", "Name of the preset of a new model, one of zoo.list_presets().", offers="presets"
    )
    options: dict[str, Any] | None = setting(
        None,
        "Choices that differ from the preset. null: max_length 96, for the default preset. A saved "
        "model takes dropout and max_length.",
        null_means={"max_length": 96},
        unless_changed=("preset", "start_from"),
    )


@dataclasses.dataclass(frozen=True)
class FinetuneTrainingConfig(TrainingConfig):
    """How the model is trained."""

    epochs: int = setting(5, "Number of passes over the training data.")
    batch_size: int = setting(32, "Number of conversations, or packed rows, per batch.", least=1, most=1 << 16)
    learning_rate: float | None = setting(None, LEARNING_RATE_HELP.format("0.002"))
    new_model_learning_rate: ClassVar[float] = 0.002
    warmup_steps: float = setting(
        0.05, "Number of updates of the warm-up. A value below 1 is their share of all updates."
    )
    weight_decay: float = setting(0.01, "Decoupled weight decay, applied to matrices.")
    weights: Literal["average", "best"] = setting(
        "best", "Which weights are kept: the average over the last epochs, or those of the best epoch."
    )
    samples: int = setting(
        4, "Number of conversations whose replies are shown at every validation.", may_change=True, least=0, most=1000
    )


@dataclasses.dataclass(frozen=True)
class FinetuneConfig:
    """Trains a language model to reply, and exports it as a SavedModel that continues strings."""

    run_folder: str = setting(
        "runs/finetune", "Folder of the run. The same command resumes the run in it.", offers="paths"
    )
    data: DataConfig = DataConfig()
    tokenizer: ChatTokenizerConfig = ChatTokenizerConfig()
    model: ChatModelConfig = ChatModelConfig()
    training: FinetuneTrainingConfig = FinetuneTrainingConfig()
    new_tokens: int = setting(32, "Largest number of tokens of a reply.", may_change=True, least=1, most=1 << 16)
    export: bool = setting(True, "Whether to write the SavedModel.", may_change=True)


def steps(config: FinetuneConfig, run: RunFolder) -> Outcome:
    """Reads the data, makes the model, trains and measures it."""
    data = config.data
    chat_format = zoo.tokenizers.chat.get_chat_format(data.chat_format or "chatml")
    task = None
    if config.model.start_from is not None:
        task = make_model(config, run, chat_format)
        chat_format = task.chat_format
    training, validation, test = open_parts(data, source_of(data, chat_format), account=run.data)
    if task is None:
        task = make_model(config, run, chat_format, training)
    is_validation = test == validation
    batches, held_out, test = make_batches(config, task, training, validation, test)
    nll, count = token_metrics()
    metrics = [nll, zoo.training.TokenAccuracy(), count]
    compile_model(task, run, config.training, batches.number_of_batches, weighted_metrics=metrics)

    def samples() -> list[str]:
        shown = test[: config.training.samples]
        pairs = zip(shown, replies(task, config, shown), strict=True)
        return [f"{conversation.messages[-2]['content']}\n  -> {reply}" for conversation, reply in pairs]

    train(
        task,
        run,
        config.training,
        batches,
        held_out.dataset,
        curves={"training": "nll", "validation": "val_nll"},
        monitor="val_nll",
        samples=samples,
    )
    export = {"sampler": "greedy", "max_new_tokens": config.new_tokens}
    learned = evaluate_replies(task, validation, data.max_length, loss_on=data.loss, generates=False)
    evaluation = evaluate_replies(task, test, data.max_length, **export)
    unit = "reply_token" if data.loss == "replies" else "token"
    results = {
        "trained_parameters": count_trained(task),
        f"validation_nll_per_{unit}": learned.values[f"nll_per_{unit}"],
        "test_conversations": len(test),
        "exact_match": evaluation.values["exact_match"],
    }
    asked = [talk.messages[:-1] for talk in test[:3]]

    def trial(served: Any) -> Iterable[tuple[str, str, str]]:
        # of calls and results an endpoint takes the words
        plain = [task.chat_format.plain_messages(messages) for messages in asked]
        answers = served.chat(*(column.to_tensor("") for column in zoo.tokenizers.chat.as_ragged(plain)))
        questions = [messages[-1]["content"] for messages in asked]
        return zip(questions, decoded(answers), task.generate(asked, **export), strict=True)

    return Outcome(task, results, trial, asked, export, is_validation)


def check(config: FinetuneConfig) -> None:
    """Checks what can be checked before the data are read, and makes ready for a model."""
    prepare(config)
    with errors_of("data.chat_format"):
        zoo.tokenizers.chat.get_chat_format(config.data.chat_format or "chatml")


def source_of(data: DataConfig, chat_format: zoo.tokenizers.ChatFormat) -> Source:
    """Returns how conversations are read."""
    options = {"chat_format": chat_format, "file_format": data.format, "key": data.key}
    return Source(CONVERSATIONS, lambda files, bad: read_conversations(files, bad, **options))


def make_batches(
    config: FinetuneConfig,
    task: zoo.CausalLM,
    training: list[Conversation],
    validation: list[Conversation],
    test: list[Conversation],
) -> tuple[Any, Any, list[Conversation]]:
    """Returns batches for training and validation, and the conversations of the test that are short enough."""
    data, dropped = config.data, BadLines("skip")
    length = longest_of(data.max_length, task)
    preprocessor = task.preprocessor.replace(sequence_length=length, loss_on=data.loss)
    # the validation may be the test, too
    parts = {id(part): part for part in (training, validation, test)}
    kept = {key: short_conversations(part, preprocessor, length, dropped) for key, part in parts.items()}
    training, validation, test = (kept[id(part)] for part in (training, validation, test))

    def batches(part: list[Conversation], shuffle: bool) -> Any:
        talks = [conversation.messages for conversation in part]
        options = {"batch_size": config.training.batch_size, "shuffle": shuffle, "seed": config.training.seed}
        if not data.packing:
            return batching.ExampleBatches(preprocessor, talks, **options)
        packed = batching.PackedConversations(preprocessor, talks, length=length, **options)
        print(f"packed: {len(talks)} conversations fill {packed.filled:.1%} of rows of {length} tokens")
        return packed

    both = batches(training, True), batches(validation, False)
    print(f"training: {both[0].number_of_rows}, validation: {both[1].number_of_rows}; {dropped.report()}")
    return *both, test


def make_model(
    config: FinetuneConfig,
    run: RunFolder,
    chat_format: zoo.tokenizers.ChatFormat,
    conversations: Sequence[Conversation] = (),
) -> zoo.CausalLM:
    """Returns the model to fine-tune, which has a chat format: a saved one, or one with initial weights.

    Args:
        config: The configuration.
        run: The run folder.
        chat_format: How a new model writes conversations, and a saved one that has no format.
        conversations: What the tokenizer of a new model is trained on.
    """
    end, _ = chat_format.end_of_turn
    if end is None and config.model.start_from is None:
        raise ConfigError(f"data.chat_format: replies of {config.data.chat_format!r} do not end with a token")
    task = make_or_load_task(
        zoo.CausalLM,
        config.model,
        config.tokenizer,
        run,
        lambda: (message["content"] for conversation in conversations for message in conversation.messages),
        end_token=end,
        special_tokens=[token for token in chat_format.special_tokens if token != end],
    )
    set_chat_format(task, config.data.chat_format or (chat_format if task.chat_format is None else None))
    return task


def longest_of(max_length: int | None, task: zoo.CausalLM) -> int:
    """Returns the most tokens of a row that are fed: those that `data.max_length` names, or of the model."""
    most = task.backbone.config.max_length
    if max_length is not None and max_length > most:
        raise ConfigError(f"data.max_length must be at most the model's max_length={most}, got {max_length}")
    return max_length or most


def set_chat_format(task: zoo.CausalLM, chat_format: zoo.tokenizers.ChatFormat | str | None) -> None:
    """Gives a model the chat format that a key names; None leaves it the one that it has."""
    if chat_format is not None:
        with errors_of("data.chat_format"):
            task.chat_format = chat_format


def replies(task: zoo.CausalLM, config: FinetuneConfig, conversations: list[Conversation]) -> list[str]:
    """Returns what the model answers in the place of the last message of each conversation."""
    asked = [talk.messages[:-1] for talk in conversations]
    answers = task.generate(asked, sampler="greedy", max_new_tokens=config.new_tokens)
    return [answer.strip() for answer in answers]


def evaluate(task: Any, held_out: HeldOut) -> tuple[Evaluation, int]:
    """Returns what a model makes of data, read and measured as a run does, and how many rows were left out."""
    held_out.refuse("loss", "packing", because=OF_TRAINING)
    data = held_out.data
    set_chat_format(task, data.chat_format)
    if task.chat_format is None:
        raise ConfigError("data.chat_format must be given: the tokenizer of this model has none")
    longest = longest_of(data.max_length, task)
    conversations, left_out = open_rows(held_out, source_of(data, task.chat_format))
    return evaluate_replies(task, conversations, longest, **replies_of(held_out)), left_out


def replies_of(held_out: HeldOut) -> dict[str, Any]:
    """Returns how a model replies in an evaluation: as long as its run says, greedily, unless the options say it."""
    new_tokens = {} if held_out.config is None else {"max_new_tokens": held_out.config.new_tokens}
    return {"sampler": "greedy", **new_tokens, **held_out.options}


main = Recipe("finetune", steps, check, kinds=("CausalLM",), evaluate=evaluate, takes="options")


if __name__ == "__main__":
    run_recipe(main, FinetuneConfig, "finetune")
