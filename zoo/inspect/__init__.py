"""Looking into models: what one does with a text, pictures of attention, training and positions."""

from layers.capture import Capture
from zoo.inspect.inspection import Inspection
from zoo.inspect.inspector import inspect_task
from zoo.inspect.plots import plot_attention, plot_curves, plot_position_encoding, save_figure
from zoo.inspect.row import Decisions

__all__ = [
    "Capture",
    "Decisions",
    "Inspection",
    "inspect_task",
    "plot_attention",
    "plot_curves",
    "plot_position_encoding",
    "save_figure",
]
