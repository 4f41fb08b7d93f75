"""What all recipes share between the data and the results: keys, optimizer, `model.fit`, resume, loss curve."""

from __future__ import annotations

import dataclasses
import functools
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal

import keras
import pooch

import zoo
from recipes.common import batching
from recipes.common.config import setting
from recipes.common.data.data_config import check_data
from recipes.common.errors import ConfigError, RecipeError, RunFolderError, errors_of, shown
from recipes.common.output_file import check_place
from recipes.common.run_folder import RunFolder, trained, validation_unit
from recipes.common.training import progress
from recipes.common.training.callbacks import check_callbacks, make_callbacks
from recipes.common.training.models import check_model
from recipes.common.training.optimizers import (
    FINITE,
    OPTIMIZER_HELP,
    OPTIMIZERS,
    SCHEDULE_HELP,
    SCHEDULE_NAMES,
    check_optimizer,
    make_schedule,
    new_optimizer,
    usual_learning_rate,
)
from recipes.common.training.precision import describe_step

# metrics of which less is better, by their names
_SMALLER_IS_BETTER = re.compile("loss|nll|error|perplexity|distance")


@dataclasses.dataclass(frozen=True)
class TrainingConfig:
    """How a model is trained; recipes derive from it, with defaults and keys of their own."""

    epochs: int = setting(5, "Largest number of passes over the training data.", least=1, most=10**6)
    optimizer: str = setting("adamw", OPTIMIZER_HELP, offers=OPTIMIZERS)
    optimizer_options: dict[str, Any] = setting({}, "Further arguments of the optimizer, for example {momentum: 0.9}.")
    learning_rate: float | None = setting(0.001, "Peak learning rate, after the warm-up.", above=0)
    # what null stands for where a model is new, in recipes whose default is null
    new_model_learning_rate: ClassVar[float] = 0.001
    schedule: str = setting("cosine", SCHEDULE_HELP, offers=SCHEDULE_NAMES)
    schedule_options: dict[str, Any] = setting(
        {},
        "Arguments of a schedule of Keras, counted in updates after the warm-up. warmup_stable_decay "
        "takes decay, its shape.",
    )
    warmup_steps: float = setting(
        100, "Number of updates of the warm-up. A value below 1 is their share of all updates.", least=0
    )
    decay_share: float = setting(0.2, "Share of the updates in which warmup_stable_decay decays.", above=0, most=1)
    final_learning_rate: float = setting(
        0.0, "Learning rate after the last update (linear, cosine, warmup_stable_decay).", least=0
    )
    layer_decay: float | None = setting(
        None,
        "Factor by which the learning rate falls from each layer to the one below. The head has the full rate.",
        above=0,
        most=1,
    )
    beta_1: float = setting(0.9, "Adam's first decay rate.", least=0, below=1)
    beta_2: float = setting(0.999, "Adam's second decay rate.", least=0, below=1)
    epsilon: float = setting(1e-8, "Adam's epsilon.", above=0)
    weight_decay: float = setting(0.0, "Decoupled weight decay, applied to matrices.", least=0)
    clip_norm: float | None = setting(1.0, "Largest norm of the whole gradient. Gradients are clipped to it.", above=0)
    accumulation_steps: int | None = setting(
        None, "Number of batches whose gradients are averaged before an update.", least=1, most=10**6
    )
    dtype: str = setting("float32", "Dtype policy; mixed_bfloat16 is faster on accelerators and on some CPUs.")
    jit_compile: bool | None = setting(None, "Whether XLA compiles the training step. null: only on JAX.")
    distribution: dict[str, int] | Literal["mirrored", "data", "fsdp", "model"] | None = setting(
        None,
        "Several devices: mirrored (TensorFlow, one machine); data, fsdp, model or a mesh {fsdp: 4, model: 2} (JAX, "
        "all processes).",
        may_change=True,
    )
    evaluate_every: int | None = setting(
        None,
        "Number of batches between two validations; the training then has the nearest number of such rounds. null: a "
        "validation after each epoch.",
        least=1,
        most=10**6,
    )
    monitor: str | None = setting(
        None,
        "Metric of the validation that decides about patience and the best weights: loss, accuracy, ... null: that of "
        "the recipe.",
    )
    patience: int | None = setting(
        None, "Number of validations without a better metric after which training stops.", least=0
    )
    callbacks: list[str | dict[str, Any]] = setting(
        [], "Your own callbacks: my_module.MyCallback, or {class: my_module.MyCallback, argument: value}."
    )
    weights: Literal["average", "best"] = setting(
        "average", "Which weights are kept: the average over the last epochs, or those of the best epoch."
    )
    average_checkpoints: int = setting(
        1, "Number of last epochs whose weights are averaged. 1: the weights of the last epoch.", least=1, most=10**6
    )
    save_every: int = setting(
        200, "Number of batches between two saved states within an epoch.", may_change=True, least=1
    )
    seed: int = setting(
        0, "Seed of the initial weights, of dropout and of the order of the data.", least=0, most=2**32 - 1
    )

    @property
    def is_compiled(self) -> bool:
        """Whether XLA compiles the training step."""
        return keras.backend.backend() == "jax" if self.jit_compile is None else self.jit_compile

    @property
    def may_be_longer(self) -> bool:
        """Whether a resumed run may have more epochs: no learning rate depends on how many there are."""
        return self.schedule not in FINITE and (self.warmup_steps >= 1 or not self.warmup_steps)


def prepare(config: Any) -> None:
    """Checks the configuration before data are read, and sets seed and dtype policy before a model is made.

    Args:
        config: The configuration of a recipe, with the groups `data`, `model` and `training` and the key `export`.

    Raises:
        ConfigError: If a value is out of range, or does not go together with another.
    """
    training = config.training
    # the rest of a run may be where no SavedModel can be
    check_place(config.run_folder, "run_folder", saved_model=config.export, otherwise=", or use --export false")
    # before anything is computed: processes that train together find each other first
    _choose_devices(training)
    _keep_programs()
    check_optimizer(training, type(config)().training)
    check_callbacks(training.callbacks)
    if training.weights == "best" and training.average_checkpoints != 1:
        raise ConfigError(
            f"training.average_checkpoints must be 1 with weights 'best', got {training.average_checkpoints}"
        )
    if training.patience is not None and training.weights == "average" and training.average_checkpoints == 1:
        raise ConfigError(
            f"training.weights must be 'best' with training.patience {training.patience}: training stops after an "
            "epoch that was not better, whose weights would be kept; or average several by "
            "training.average_checkpoints"
        )
    if training.monitor is not None and training.patience is None and training.weights != "best":
        raise ConfigError(
            f"training.monitor must be null with training.weights {training.weights!r} and without training.patience, "
            f"for which it decides, got {shown(training.monitor)}"
        )
    check_model(config)
    check_data(config.data)
    keras.utils.set_random_seed(training.seed)
    with errors_of("training.dtype"):
        policy = keras.DTypePolicy(training.dtype)
        zoo.backbones.backbone.require_plain_policy(policy)
    keras.config.set_dtype_policy(policy)


def _choose_devices(training: TrainingConfig) -> None:
    if training.distribution == "mirrored":
        _require_mirrored(training)
    with errors_of("training.distribution"):
        zoo.distribution.use(training.distribution)
    if not zoo.distribution.is_first_process():
        # what it says is what the first one says
        sys.stdout = open(os.devnull, "w", encoding="utf-8", errors="replace")


def _keep_programs() -> None:
    """Has JAX keep what it compiles for an accelerator, so that the next process need not compile it again.

    What JAX keeps for a processor is for that processor alone, and compiling takes little time there.
    """
    if keras.backend.backend() != "jax":
        return
    import jax

    # JAX_COMPILATION_CACHE_DIR names another folder
    if jax.default_backend() != "cpu" and jax.config.jax_compilation_cache_dir is None:
        jax.config.update("jax_compilation_cache_dir", str(Path(pooch.os_cache("keras_transformer_zoo")) / "jax"))


def _require_mirrored(training: TrainingConfig) -> None:
    for key, allowed, is_allowed in (
        ("jit_compile", "false", not training.jit_compile),
        ("accumulation_steps", "null", (training.accumulation_steps or 1) == 1),
        ("dtype", "float32 or mixed_bfloat16", training.dtype != "mixed_float16"),
    ):
        if not is_allowed:
            raise ConfigError(
                f"training.{key} must be {allowed} with training.distribution mirrored, got "
                f"{shown(getattr(training, key))}"
            )


def require_one_device(config: Any, recipe: str) -> None:
    """Raises a `ConfigError` if a recipe that trains on one device is to train on several.

    Args:
        config: The configuration.
        recipe: Name of the recipe.
    """
    if config.training.distribution is not None:
        raise ConfigError(
            f"training.distribution must be null with recipes.{recipe}, which has two models at a time, got "
            f"{shown(config.training.distribution)}"
        )


def number_of_rounds(epochs: int, batches: int, length: int | None) -> int:
    """Returns how many rounds come nearest to some epochs, one at least; the epochs where there are no rounds.

    Args:
        epochs: Number of epochs.
        batches: Number of batches of an epoch.
        length: Number of batches of a round; None for none.

    Example:

    >>> number_of_rounds(3, 188, 100)
    6
    """
    return epochs if length is None else max(1, round(epochs * batches / length))


def make_optimizer(config: TrainingConfig, batches: int, model: keras.Model) -> keras.optimizers.Optimizer:
    """Returns the optimizer.

    Weight decay acts on matrices only, not on biases, norms, other vectors or embeddings.

    Args:
        config: The configuration.
        batches: Number of batches of an epoch.
        model: The model, built: its variables tell which are not decayed.

    Raises:
        ConfigError: If there are fewer batches than one update takes, or the model has no layers for `layer_decay`.
    """
    every, total = config.accumulation_steps or 1, config.epochs * batches
    if config.evaluate_every is not None:
        total = config.evaluate_every * number_of_rounds(config.epochs, batches, config.evaluate_every)
    if every > total:
        raise ConfigError(
            f"training.accumulation_steps must be at most the {total} batches of the training, got {every}: no weight "
            "would change"
        )
    rate = make_schedule(config, max(1, total // every))
    if every > 1 and not isinstance(rate, float):
        rate = zoo.training.PerUpdate(rate, every)
    optimizer = new_optimizer(config, rate)
    if config.layer_decay is not None:
        with errors_of("training.layer_decay"):
            optimizer = zoo.training.scale_learning_rates(
                optimizer, zoo.training.layer_decay_factors(model, config.layer_decay)
            )
    if config.weight_decay:
        optimizer.exclude_from_weight_decay(
            [weight for weight in model.trainable_variables if len(weight.shape) < 2 or "embedding" in weight.path]
        )
    return optimizer


def compile_model(
    model: keras.Model,
    run: RunFolder,
    config: TrainingConfig,
    batches: int,
    *,
    task: zoo.Task | None = None,
    **options: Any,
) -> None:
    """Compiles a model for its training, on the devices that the config names.

    Args:
        model: The task, or a model around one.
        run: The run folder, which knows whether the model is a saved one.
        config: The configuration.
        batches: Number of batches of an epoch.
        task: The task that is trained, where the model is one around it.
        **options: Further arguments of `compile`, such as `loss` and `weighted_metrics`.
    """
    task = model if task is None else task
    if config.learning_rate is None:
        config = dataclasses.replace(config, learning_rate=usual_learning_rate(config, task, run.start is not None))
        if config.final_learning_rate > config.learning_rate:
            raise ConfigError(
                f"training.final_learning_rate must be at most {config.learning_rate:.2g}, which is the learning rate "
                f"where training.learning_rate is null, got {config.final_learning_rate}"
            )
        if run.start is not None:
            print(f"learning rate: {config.learning_rate:.2g} (training.learning_rate)")
    with zoo.distribution.scope():
        optimizer = make_optimizer(config, batches, task)
        model.compile(optimizer=optimizer, jit_compile=config.is_compiled, **options)


def token_metrics() -> list[keras.metrics.Metric]:
    """Returns what is measured of models that guess tokens: "nll", their negative log-likelihood, and their number."""
    return [zoo.training.TokenNegativeLogLikelihood(name="nll"), zoo.training.TokenCount()]


def train(
    model: keras.Model,
    run: RunFolder,
    config: TrainingConfig,
    batches: Any,
    validation: Any,
    *,
    curves: Mapping[str, str],
    monitor: str = "val_loss",
    mode: str = "min",
    samples: Callable[[], Iterable[str]] | None = None,
    throughput: bool = True,
    task: zoo.Task | None = None,
) -> float:
    """Trains a task, or goes on where an interrupted run was, and saves it with the weights that the config asks for.

    Args:
        model: The compiled task, or model around one.
        run: The run folder.
        config: The configuration.
        batches: Training data, see `zoo.training.ResumableData`.
        validation: `tf.data.Dataset` of validation batches.
        curves: What the loss curve shows: label to name in the history.
        monitor: Validation metric that decides about early stopping and the best weights.
        mode: "min" or "max".
        samples: Makes lines of text to print and keep at every validation.
        throughput: Whether to note the tokens per second, which a `TokenCount` among the metrics counts.
        task: The task that is saved, where the model is one around it.

    Returns:
        The seconds of training, of all processes.

    Raises:
        RunFolderError: If the run was begun with other data, or has been trained for more rounds.
        RecipeError: If the loss is not finite.
    """
    epochs, unit = config.epochs, validation_unit(config)
    if config.evaluate_every is not None:
        epochs = number_of_rounds(epochs, batches.number_of_batches, config.evaluate_every)
        print(
            f"a validation every {config.evaluate_every} batches, {epochs} rounds in all; an epoch has "
            f"{batches.number_of_batches} batches"
        )
        batches = batching.Rounds(batches, config.evaluate_every)
        done, begun = trained(run.path) or (0, 0)
        # of epochs the run folder says it, which does not know how many batches they have
        if epochs < done + (begun > 0):
            raise RunFolderError(
                f"training.epochs must give at least {done + (begun > 0)} rounds, as many as have been begun in "
                f"{str(run.path)!r}, got {config.epochs}, which gives {epochs}; name another folder for a shorter run"
            )
    if config.monitor is not None:
        monitor = f"val_{config.monitor.removeprefix('val_')}"
        mode = "min" if _SMALLER_IS_BETTER.search(monitor) else "max"
    checkpoints = run.folder("checkpoints")
    averaging = zoo.training.CheckpointAveraging(checkpoints / "last_epochs", keep=config.average_checkpoints)
    own = make_callbacks(config.callbacks)
    stateful = [callback for callback in own if zoo.training.has_state(callback)]
    if config.patience is not None:
        stateful.append(keras.callbacks.EarlyStopping(monitor=monitor, mode=mode, patience=config.patience, verbose=1))
    stateful += [
        keras.callbacks.CSVLogger(run.path / "metrics.csv", append=True),
        keras.callbacks.TensorBoard(run.folder("tensorboard"), write_graph=False),
    ]
    try:
        state = zoo.training.TrainingState(
            checkpoints / "state", batches, stateful, save_every=config.save_every, monitor=monitor, mode=mode
        )
    except ValueError as error:
        _end_if_lost(error)
        raise RunFolderError(str(error)) from error
    if state.resumed:
        print(_where_it_goes_on(state.initial_epoch, epochs, unit))
    elif config.monitor is not None:
        _require_metric(model, validation, config)
    others: list[keras.callbacks.Callback] = [zoo.training.Throughput()] if throughput else []
    if samples is not None:
        outputs = zoo.training.SampleOutputs(lambda: _samples_alone(model, samples), run.folder("samples"))
        # they may fail without the training
        outputs.on_epoch_end = functools.partial(run.final_steps.attempt, "samples", outputs.on_epoch_end)
        others.append(outputs)
    # which see in the logs what those before them have added
    others += [callback for callback in own if callback not in stateful]
    # at once, also into a file: a run may be killed
    print(describe_step(config.is_compiled) + _devices(), flush=True)
    try:
        history = model.fit(
            batches.dataset,
            validation_data=validation,
            epochs=epochs,
            initial_epoch=state.initial_epoch,
            verbose=0,
            shuffle=False,  # the order of an epoch is made by the batches themselves
            callbacks=[
                zoo.training.StopOnNonFiniteLoss(),
                *others,
                progress.EpochLines(epochs, unit),
                averaging,
                *stateful,
                state,
            ],
        )
        zoo.distribution.wait_for_all("weights")
    except FloatingPointError as error:
        rate = "" if config.learning_rate is None else f" {config.learning_rate:g}"
        raise RecipeError(f"training.learning_rate{rate}? {error}") from error
    except (RuntimeError, ValueError) as error:
        _end_if_lost(error)
        raise
    if config.weights == "best":
        if not state.best_weights_path.exists():
            raise RecipeError(f"training.weights 'best': {monitor} was finite after no epoch; lower the rate?")
        zoo.storage.load_weights(state.best_weights_path, model)
        with zoo.storage.open_tensors(state.best_weights_path) as file:
            best = file.metadata()
        run.best = {f"best_{unit}": int(best["epoch"]) + 1}
        print(f"the weights of {unit} {run.best[f'best_{unit}']} are kept: {monitor} {float(best['value']):.4g}")
    else:
        zoo.storage.average_weights(averaging.paths, model)
    if not zoo.distribution.move_to_one_device(model):
        # what follows is done by the first process
        raise SystemExit(0)
    run.training_seconds = state.seconds
    # before anything else can fail
    task = model if task is None else task
    task.save_to_preset(run.path / "model")
    numbers = range(1, len(history.history["loss"]) + 1)
    run.draw(
        "loss.png",
        zoo.inspect.plot_curves,
        {label: (numbers, history.history[key]) for label, key in curves.items()},
        x_label=unit,
        y_label="loss",
        title="Training",
    )
    return state.seconds


def _devices() -> str:
    """What the log says of several devices."""
    chosen = zoo.distribution.chosen()
    if chosen is None:
        return ""
    if isinstance(chosen, zoo.distribution.ModelLayouts):
        if chosen.data_size * chosen.model_size == 1:
            # of GPUs whose driver JAX does not find, or of a CPU that simulates no devices
            return ", on one device, the only one that JAX sees: training.distribution divides nothing"
        first = "fsdp" if chosen.divides_along_data else "data"
        mesh, processes = f"{first} {chosen.data_size}, model {chosen.model_size}", zoo.distribution.num_processes()
        return f", on devices along the axes {mesh}, of {processes} {'process' if processes == 1 else 'processes'}"
    return f", on {chosen.num_replicas_in_sync} devices, mirrored"


def _end_if_lost(error: Exception) -> None:
    """Raises a `RecipeError` if an error says that another process is gone."""
    if zoo.distribution.is_lost_process(error):
        raise RecipeError(
            f"process {zoo.distribution.process_id()} of {zoo.distribution.num_processes()} lost the others ({error}); "
            "the same command resumes from the last saved state"
        ) from error


def _samples_alone(model: keras.Model, samples: Callable[[], Iterable[str]]) -> list[str]:
    """The samples, which one device makes."""
    with zoo.distribution.on_one_device(model) as may_compute:
        return list(samples()) if may_compute else []


def _require_metric(model: keras.Model, validation: Any, config: TrainingConfig) -> None:
    """Raises a `ConfigError` if the validation has no metric of the name that was chosen, before the training."""
    logs = model.evaluate(validation, steps=1, return_dict=True, verbose=0)
    name = config.monitor.removeprefix("val_")
    # callbacks of one's own may add what nobody knows yet
    if name not in logs and not config.callbacks:
        names = ", ".join(each for each in logs if each != "tokens")
        raise ConfigError(f"training.monitor must be one of {names}, got {shown(config.monitor)}")


def _where_it_goes_on(epoch: int, epochs: int, unit: str = "epoch") -> str:
    """What is said of a run that is resumed at an epoch, or a round, counted from 0."""
    if epoch < epochs:
        return f"resuming in {unit} {epoch + 1}"
    if epoch == epochs:
        return f"all {epochs} {unit}s have been trained"
    return "the training was stopped by a callback (training.patience), and does not go on"


def save_adapter(model: zoo.Task, run: RunFolder) -> None:
    """Writes the low-rank updates that were trained, and the head, to `adapter` in the files of the PEFT library.

    Args:
        model: The trained task, with all that was fitted to its outputs; nothing is written without such updates.
        run: The run folder.
    """
    adapters = model.backbone.adapters
    trained = [name for name in adapters if adapters[name].trainable]
    if len(trained) != 1:
        return
    if run.start is None:
        print("the low-rank updates are not written alone: the weights that they are for are in this run only")
    else:
        # from wherever it is read; as PEFT names models of the hub
        is_local = Path(run.start).exists()
        base = str(Path(run.start).resolve()) if is_local else re.sub("^hf://([^@]+)$", r"\1", run.start)
        kind = model.save_adapter(run.path / "adapter", trained[0], base_model=base)
        whose = "by this project" if kind is None else f"by PEFT too, beside a model of the type {kind!r}"
        print(f"{run.path / 'adapter'}: the low-rank updates alone, read {whose}")
