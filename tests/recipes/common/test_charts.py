"""Pictures are written, for many labels, labels that were never right and values of any scale."""

import numpy as np
import pytest

import zoo
from recipes.common.charts import plot_agreement, plot_confusion


@pytest.mark.parametrize("number", [1, 2, 30])
def test_confusion(tmp_path, number):
    truth = [f"label {index % number}" for index in range(60)]
    predicted = [*truth[1:], "never right"]
    plot_confusion(truth, predicted, tmp_path / "a.png", "Test examples")
    assert (tmp_path / "a.png").stat().st_size > 3000


def test_numbers_of_a_confusion_matrix_are_counts(tmp_path, monkeypatch):
    figures = []
    monkeypatch.setattr(zoo.inspect, "save_figure", lambda figure, path: figures.append(figure))
    plot_confusion(["a"] * 3 + ["b"] * 1200, ["a", "b", "b"] + ["b"] * 1200, tmp_path / "a.png")
    assert [text.get_text() for text in figures[0].axes[0].texts] == ["1", "2", "0", "1,200"]
    # colors are shares of the right label
    np.testing.assert_allclose(figures[0].axes[0].images[0].get_array(), [[1 / 3, 2 / 3], [0, 1]])


def test_agreement(tmp_path):
    plot_agreement([0.0, 2.5, 5.0], [-0.1, 9.0, 4.0], tmp_path / "a.png", "Test pairs")
    assert (tmp_path / "a.png").stat().st_size > 3000
