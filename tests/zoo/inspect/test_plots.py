import numpy as np
import pytest

pytest.importorskip("matplotlib")

from matplotlib.figure import Figure  # noqa: E402
from matplotlib.image import imread  # noqa: E402

from zoo.inspect import plot_attention, plot_curves, plot_position_encoding  # noqa: E402

TOKENS = ["a", " dog", "$5 and $6", "", "\u4f60\u597d", "^_\\{"]


def pixels(path):
    return imread(path)[..., :3]


def colours(image):
    return len(np.unique((image * 255).astype(int).reshape(-1, 3), axis=0))


@pytest.mark.parametrize("heads", [(), (1,), (5,)])
def test_attention(tmp_path, heads):
    weights = np.random.default_rng(0).dirichlet(np.ones(6), (*heads, 4))
    path = plot_attention(weights, TOKENS[:4], TOKENS, tmp_path / "new" / "attention.png", title="A title")
    assert path == tmp_path / "new" / "attention.png"
    image = pixels(path)
    # 24 weights have 24 colours of the map, in addition to those of the text and of the colour bar
    assert min(image.shape[:2]) > 200 and colours(image) > 24


def test_attention_shows_the_weights(tmp_path):
    first, second = (
        pixels(plot_attention(weights, ["x", "y"], ["x", "y"], tmp_path / "a.png"))
        for weights in (np.eye(2), np.eye(2)[::-1])
    )
    assert first.shape == second.shape and np.abs(first - second).max() > 0.5


@pytest.mark.parametrize("shape", [(2, 3), (3, 2, 2), (3,), (2, 2, 3, 2)])
def test_attention_with_tokens_that_do_not_fit(tmp_path, shape):
    with pytest.raises(ValueError, match=r"weights must have shape .* 3 query_tokens and 2 key_tokens, got"):
        plot_attention(np.ones(shape), ["a", "b", "c"], ["d", "e"], tmp_path / "a.png")
    assert not (tmp_path / "a.png").exists()


def test_curves(tmp_path):
    series = {"training": (range(100), np.linspace(3, 1, 100)), "validation": ([10, 50, 90], [3, 2, 1.5])}
    path = plot_curves(series, tmp_path / "loss.png", x_label="steps", y_label="loss (nats)", title="Loss")
    assert colours(pixels(path)) > 2
    with pytest.raises(ValueError, match=r"series\['training'\] must have as many x as y values, got 2 and 3"):
        plot_curves({"training": ([1, 2], [1, 2, 3])}, path, x_label="", y_label="", title="")


@pytest.mark.parametrize(("xs", "are_whole"), [([1, 2, 3, 4, 5], True), ([1.0, 2.5, 5.0], False)])
def test_curves_over_whole_numbers_have_whole_ticks(tmp_path, monkeypatch, xs, are_whole):
    ticks = []
    monkeypatch.setattr("zoo.inspect.plots.save_figure", lambda figure, path: ticks.extend(figure.axes[0].get_xticks()))
    plot_curves({"a": (xs, xs)}, tmp_path / "a.png", x_label="epoch", y_label="loss", title="")
    assert all(float(tick).is_integer() for tick in ticks) == are_whole


def test_position_encoding(tmp_path):
    path = plot_position_encoding(np.sin(np.arange(60).reshape(10, 6)), tmp_path / "positions.png")
    assert colours(pixels(path)) > 60
    plot_position_encoding(np.zeros((3, 2)), path)  # a limit of zero
    with pytest.raises(ValueError, match=r"encoding must have shape \(positions, dim\), got \(3,\)"):
        plot_position_encoding(np.zeros(3), path)


def test_an_error_leaves_the_old_picture(tmp_path, monkeypatch):
    path = plot_position_encoding(np.eye(3), tmp_path / "positions.png")
    before = path.read_bytes()

    def fail(self, file, **options):
        with open(file, "wb") as picture:
            picture.write(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Figure, "savefig", fail)
    with pytest.raises(OSError, match="No space left"):
        plot_position_encoding(np.eye(4), path)
    assert path.read_bytes() == before and list(tmp_path.iterdir()) == [path]
