"""Looking into models: pictures of attention, training and positions."""

from zoo.inspect.plots import plot_attention, plot_curves, plot_position_encoding

__all__ = ["plot_attention", "plot_curves", "plot_position_encoding"]
