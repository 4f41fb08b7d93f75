"""Causal language models for the pipelines of OpenVINO GenAI, which write texts without Python."""

from zoo.openvino_genai.export import write_openvino_genai

__all__ = ["write_openvino_genai"]
