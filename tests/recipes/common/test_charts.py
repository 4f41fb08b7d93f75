"""Pictures are written, for many labels, labels that were never right and values of any scale."""

import pytest

from recipes.common.charts import plot_agreement, plot_confusion


@pytest.mark.parametrize("number", [1, 2, 30])
def test_confusion(tmp_path, number):
    truth = [f"label {index % number}" for index in range(60)]
    predicted = [*truth[1:], "never right"]
    plot_confusion(truth, predicted, tmp_path / "a.png", "Test examples")
    assert (tmp_path / "a.png").stat().st_size > 3000


def test_agreement(tmp_path):
    plot_agreement([0.0, 2.5, 5.0], [-0.1, 9.0, 4.0], tmp_path / "a.png", "Test pairs")
    assert (tmp_path / "a.png").stat().st_size > 3000
