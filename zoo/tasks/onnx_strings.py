"""Strings in for ONNX."""

def text_inputs(task, format):
    raise NotImplementedError
