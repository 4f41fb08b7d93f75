"""Language models, embedders and cross-encoders for the pipelines of OpenVINO GenAI, which need no Python."""

from zoo.openvino_genai.export import write_openvino_genai

__all__ = ["write_openvino_genai"]
