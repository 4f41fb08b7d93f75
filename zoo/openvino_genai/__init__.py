"""Language models, embedders and cross-encoders on OpenVINO: folders for its pipelines, engines of `generate`."""

from zoo.openvino_genai.engines import OpenVINOEngines
from zoo.openvino_genai.export import write_openvino_genai

__all__ = ["OpenVINOEngines", "write_openvino_genai"]
