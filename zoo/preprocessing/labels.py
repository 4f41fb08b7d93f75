"""Labels with names or numbers, and what users pass as the labels of rows; errors name the row."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from zoo.columns import is_list
from zoo.preprocessing.rows import as_sequence, require_count, require_same_length, shorten
from zoo.preprocessing.token_rows import require_all


class Labels:
    """The labels of a task: names, or numbers from 0.

    Args:
        labels: Their names, or how many there are.
        lowest: Least number of labels.

    Raises:
        TypeError, ValueError: If there are too few, or names that are no strings, empty or the same.

    Example:

    >>> labels = Labels(["bad", "good"])
    >>> labels.id_of("good", "y[0]"), labels[0]
    (1, 'bad')
    """

    def __init__(self, labels: int | Sequence[str], lowest: int = 1) -> None:
        self.names: list[str] | None = None
        if isinstance(labels, (list, tuple)):
            for index, name in enumerate(labels):
                if not isinstance(name, str) or not name:
                    raise ValueError(f"labels[{index}] must be a name that is not empty, got {name!r}.")
                if name in labels[:index]:
                    raise ValueError(
                        f"labels[{index}] must be unique, got {name!r}, the same as labels[{labels.index(name)}]."
                    )
            if len(labels) < lowest:
                raise ValueError(f"labels must hold at least {lowest} names, got {list(labels)!r}.")
            self.names, self._count = list(labels), len(labels)
        else:
            self._count = require_count(labels, "labels", lowest)
        self._ids = {name: index for index, name in enumerate(self.names or [])}

    def __repr__(self) -> str:
        return f"Labels({self.option!r})"

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> str | int:
        return int(index) if self.names is None else self.names[index]

    def __iter__(self) -> Iterator[str | int]:
        return (self[index] for index in range(len(self)))

    @property
    def option(self) -> int | list[str]:
        """The constructor's argument as a plain value."""
        return self._count if self.names is None else list(self.names)

    @property
    def strings(self) -> list[str]:
        """The labels as strings."""
        return [str(label) for label in self]

    def id_of(self, label: Any, name: str) -> int:
        """Returns the number of a label.

        Args:
            label: Its name or its number.
            name: Where it stands, for the error.

        Raises:
            ValueError: If there is no such label, naming where it stands.
        """
        if isinstance(label, bytes):
            label = label.decode("utf-8", "replace")
        is_flag = isinstance(label, (bool, np.bool_))
        if isinstance(label, str):
            if label in self._ids:
                return self._ids[label]
        elif isinstance(label, (int, np.integer)) and not is_flag and 0 <= label < len(self):
            return int(label)
        numbers = f"a number from 0 to {len(self) - 1}"
        allowed = numbers if self.names is None else f"one of {shorten(self.names)} or {numbers}"
        hint = ""
        if isinstance(label, (list, tuple, np.ndarray)) and len(label) == len(self) and sorted(label)[-1:] == [1]:
            hint = " Of one-hot rows pass np.argmax(y, axis=-1)."
        if is_flag:
            hint = " Booleans are the labels of 2 classes; pass numbers or names of more."
        raise ValueError(f"{name} must be {allowed}, got {shorten(label)}.{hint}")

    def class_of(self, label: Any, name: str) -> int:
        """Returns the number of the one label of a row or word, as `id_of`; False and True are those of two labels."""
        label = _scalar(label)
        if isinstance(label, (bool, np.bool_)) and len(self) == 2:
            return int(label)
        return self.id_of(label, name)

    def ids(self, y: Any, count: int, name: str, x_name: str) -> np.ndarray:
        """Returns the number of each row's label, int32 `(rows,)`.

        Args:
            y: Names or numbers `(rows,)`; or `(rows, 1)`, as columns of tables have it.
            count: Rows of the inputs.
            name, x_name: Names of the arguments.

        Raises:
            TypeError, ValueError: If there are not as many as rows, or one is no label, naming the row.
        """
        y = as_sequence(y, name, "labels")
        require_same_length(count, len(y), x_name, name, "label")
        if all(isinstance(label, (list, tuple, np.ndarray)) and np.shape(label) == (1,) for label in y):
            y = [label[0] for label in y]
        return np.array([self.class_of(label, f"{name}[{row}]") for row, label in enumerate(y)], "int32")

    def indicators(self, y: Any, count: int, name: str, x_name: str) -> np.ndarray:
        """Returns which labels each row has, zeros and ones in float32, `(rows, labels)`.

        Args:
            y: Zeros and ones `(rows, labels)`, an array or nested lists; or a list of lists of names or numbers.
            count, name, x_name: As for `ids`.

        Raises:
            TypeError, ValueError: If there are not as many rows, or one holds no labels, naming the row; if lists of 2
                labels can be read both ways.
        """
        is_ragged = hasattr(y, "row_splits")
        is_array = not is_ragged and (hasattr(y, "numpy") or (hasattr(y, "__array__") and np.asarray(y).ndim == 2))
        if not is_array:
            y = as_sequence(y, name, "lists of labels")
        if is_array or self._are_indicators(y, name):
            matrix = np.asarray(y)
            if matrix.shape != (count, len(self)):
                raise ValueError(
                    f"{name} must have the shape ({count}, {len(self)}), rows and labels, got {matrix.shape}."
                )
            wrong = np.argwhere((matrix != 0) & (matrix != 1))
            if len(wrong):
                row, label = wrong[0]
                raise ValueError(f"{name}[{row}, {label}] must be 0 or 1, got {matrix[row, label]!r}.")
            return matrix.astype("float32")
        require_same_length(count, len(y), x_name, name, "list of labels")
        matrix = np.zeros((count, len(self)), "float32")
        for row, labels in enumerate(y):
            if not isinstance(labels, (list, tuple, set, np.ndarray)):
                raise TypeError(f"{name}[{row}] must be a list of labels, got {shorten(labels)}.")
            for label in labels:
                number = self.id_of(_scalar(label), f"each label of {name}[{row}]")
                if matrix[row, number]:
                    raise ValueError(
                        f"{name}[{row}] must name each label once, got {shorten(labels)}. Zeros and ones need "
                        f"{len(self)} numbers in every row, one for each label."
                    )
                matrix[row, number] = 1.0
        return matrix

    def _are_indicators(self, y: Any, name: str) -> bool:
        """Whether nested lists hold zeros and ones, one for each label, and not the numbers of labels."""
        if not is_list(y) or not len(y):
            return False
        for labels in y:
            if not isinstance(labels, (list, tuple, np.ndarray)) or len(labels) != len(self):
                return False
            if any(isinstance(label, (str, bytes)) or label not in (0, 1) for label in labels):
                return False
        # the numbers of all labels look like zeros and ones only where there are one or two
        numbers = [label for labels in y for label in labels]
        are_integers = all(isinstance(label, (int, np.integer)) and not isinstance(label, bool) for label in numbers)
        if are_integers and all(sorted(labels) == list(range(len(self))) for labels in y):
            raise ValueError(
                f"{name} must be read one way, as numbers of labels or as zeros and ones, got {shorten(y)}: pass names "
                "of labels, or an array of zeros and ones."
            )
        return True

    def weights(self, values: Mapping[Any, float], name: str) -> np.ndarray:
        """Returns the weight of each label, float32 `(labels,)`: 1 for those that are not named.

        Args:
            values: Weights by the label's name or number.
            name: Name of the argument.

        Raises:
            TypeError, ValueError: If it is no dictionary, there is no such label, or a weight is no number above 0.
        """
        if not isinstance(values, Mapping):
            raise TypeError(f"{name} must be a dictionary of labels and numbers, got {shorten(values)}.")
        weights = np.ones(len(self), "float32")
        for label, weight in values.items():
            is_number = (
                isinstance(weight, (int, float, np.integer, np.floating)) and np.isfinite(weight) and weight >= 0
            )
            if not is_number:
                raise ValueError(f"{name}[{label!r}] must be a finite number of at least 0, got {shorten(weight)}.")
            weights[self.id_of(label, f"each key of {name}")] = weight
        return weights

    def graph_ids(self, y: Any) -> Any:
        """Returns the numbers of labels, int32; a graph function.

        Args:
            y: Tensor of names or numbers, of any shape.

        Raises:
            ValueError: If they are booleans, and the labels are not two.
            tf.errors.InvalidArgumentError: When it runs, if one is no label, naming its row in the batch.
        """
        import tensorflow as tf

        y = tf.convert_to_tensor(y)
        if y.dtype == tf.bool and len(self) != 2:
            raise ValueError(f"labels must be 2 for a dataset whose labels are booleans, got {shorten(self.strings)}.")
        given = y
        if y.dtype.is_floating:
            y = tf.where(tf.equal(y, tf.floor(y)), y, -1)
        if y.dtype == tf.string:
            names = tf.constant(self.strings)
            # few names: a comparison with each needs no table to keep alive
            matches = tf.equal(y[..., tf.newaxis], names)
            y = tf.where(tf.reduce_any(matches, -1), tf.argmax(tf.cast(matches, tf.int32), -1), -1)
        y = tf.cast(y, tf.int32)
        message = f"Every label must be one of {shorten(self.strings)}, numbers 0 to {len(self) - 1}; rows and labels:"
        given = require_all((y >= 0) & (y < len(self)), given, message)
        with tf.control_dependencies([given]):
            return tf.identity(y)

    def graph_indicators(self, y: Any) -> Any:
        """Returns which labels each row has, zeros and ones in float32, `(batch, labels)`; a graph function.

        Args:
            y: Zeros and ones `(batch, labels)`, also ragged floats; or names or numbers of labels `(batch, None)`,
                ragged or as many in each row (not as many numbers as there are labels: those are zeros and ones).

        Raises:
            ValueError: If names are no lists of names.
            tf.errors.InvalidArgumentError: When it runs, if a row holds something else, naming it, or if a ragged row
                of integers can be read both ways.
        """
        import tensorflow as tf

        count = len(self)
        if not isinstance(y, tf.RaggedTensor):
            y = tf.convert_to_tensor(y)
            is_numbers = y.dtype.is_integer and y.shape.rank == 2 and y.shape[1] not in (None, count)
            if y.dtype == tf.string and y.shape.rank != 2:
                raise ValueError(
                    f"A dataset must hold lists of names, of the shape (batch, None), got {tuple(y.shape)}."
                )
            # rows of equal length are no ragged batch
            y = tf.RaggedTensor.from_tensor(y) if y.dtype == tf.string or is_numbers else y
        if isinstance(y, tf.RaggedTensor) and y.dtype.is_floating:
            lengths = y.row_lengths()
            message = f"Every row of zeros and ones must have {count} numbers, one for each label; rows and lengths:"
            with tf.control_dependencies([require_all(lengths == count, lengths, message)]):
                y = tf.reshape(y.values, (-1, count))
        if isinstance(y, tf.RaggedTensor):
            ids = y.with_values(self.graph_ids(y.values))
            marks = tf.reduce_sum(ids.with_values(tf.one_hot(ids.values, count)), axis=1)
            message = "Every row must name each label once, or be floats: zeros and ones; rows, labels and counts:"
            marks = require_all(marks <= 1.0, marks, message)
            if count > 2 or y.dtype == tf.string:
                return marks
            # the numbers of all labels look like zeros and ones only where there are one or two
            lengths = y.row_lengths()
            message = "Rows of integers can be numbers of labels or zeros and ones: pass names, or floats; rows:"
            with tf.control_dependencies([require_all(lengths < count, lengths, message)]):
                return tf.identity(marks)
        y = tf.cast(y, tf.float32)
        if y.shape.rank == 1 and count == 1:
            y = y[:, tf.newaxis]
        y = tf.ensure_shape(y, (None, count))
        message = "Every target must be 0 or 1; rows, labels and targets:"
        return require_all((y == 0) | (y == 1), y, message)


def as_numbers(y: Any, count: int, width: int, name: str, x_name: str) -> np.ndarray:
    """Returns the values of a regression, float32 `(rows, width)`.

    Args:
        y: Numbers `(rows,)` where `width` is 1, or `(rows, width)`.
        count: Rows of the inputs.
        width: Values per row.
        name, x_name: Names of the arguments.

    Raises:
        ValueError: If the shape is another, or a value is not finite, naming the row.
    """
    try:
        values = np.asarray(y, dtype="float32")
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must hold numbers, {width} per row, got {shorten(y)}.") from error
    if values.ndim == 1 and width == 1:
        values = values[:, np.newaxis]
    if values.ndim != 2 or values.shape[1] != width:
        raise ValueError(f"{name} must have the shape ({count}, {width}), got {np.asarray(y).shape}.")
    require_same_length(count, len(values), x_name, name, "entry")
    wrong = np.flatnonzero(~np.isfinite(values).all(axis=1))
    if len(wrong):
        raise ValueError(f"{name}[{wrong[0]}] must be finite, got {values[wrong[0]].tolist()}.")
    return values


def _scalar(label: Any) -> Any:
    """Floats that are whole numbers, as arrays may hold them, as integers; arrays without axes as what they hold."""
    if isinstance(label, np.ndarray) and not label.ndim:
        label = label.item()
    if isinstance(label, (float, np.floating)) and float(label).is_integer():
        return int(label)
    return label


def have_same_outputs(labels: int | Sequence[str], others: int | Sequence[str]) -> bool:
    """Whether a head that was trained with some labels is one for others too: they are as many, perhaps renamed.

    Args:
        labels: Names of labels, or their number.
        others: The others. The same names in another order are labels of other outputs.

    Example:

    >>> have_same_outputs(["bad", "good"], 2), have_same_outputs(["bad", "good"], ["good", "bad"])
    (True, False)
    """
    labels, others = Labels(labels), Labels(others)
    if labels.names is None or others.names is None or set(labels.names) != set(others.names):
        return len(labels) == len(others)
    return labels.names == others.names
