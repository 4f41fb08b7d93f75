"""The fields of requests for vectors, scores and ranks, as other programs name them."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import AliasChoices, BeforeValidator, Field, PlainValidator

from zoo.serving.problems import Problem
from zoo.serving.request_fields import Fields, TextList, Texts


def _texts_of_objects(value: Any) -> Any:
    if not isinstance(value, list):
        return value
    return [each["text"] if isinstance(each, dict) and set(each) == {"text"} else each for each in value]


def _rows(value: Any) -> list[list[str]] | list[str]:
    """One row, or a list of rows; a row is a text, or a list of one or two."""
    rows = value if isinstance(value, list) and all(isinstance(each, list) for each in value) else [value]
    texts = [[row] if isinstance(row, str) else row for row in rows]
    if not rows or not all(
        isinstance(row, list) and 0 < len(row) < 3 and all(isinstance(text, str) for text in row) for row in texts
    ):
        raise ValueError("must be a text, a pair of texts, or a list of lists of one or two texts")
    return texts if rows is value else texts[0]


# As clients may write them: a row, or a list of rows; texts, or objects with one.
Rows = str | list[str] | list[list[str]]
Documents = list[str | dict[Literal["text"], str]]


class TextEmbeddingsFields(Fields):
    """What requests of Text Embeddings Inference have in common. Whether long texts are cut is as in the export."""

    idle: ClassVar = {"truncate": (True, False), "truncation_direction": ("right", "Right"), "parameters": ({},)}
    # beyond that interface, whose servers have one model each
    model: str | None = None


class EmbedBody(TextEmbeddingsFields):
    """A request for vectors."""

    inputs: Texts
    normalize: bool = True
    prompt_name: str | None = None
    dimensions: int | None = None


class Sentences(Fields):
    """A sentence, and those that it is compared with."""

    source_sentence: str
    sentences: TextList


class SimilarityParameters(TextEmbeddingsFields):
    """How they are made vectors."""

    prompt_name: str | None = None


class SimilarityBody(Fields):
    """A request for cosines."""

    model: str | None = None
    inputs: Sentences
    parameters: SimilarityParameters = SimilarityParameters()


class PredictBody(TextEmbeddingsFields):
    """A request for the probabilities of labels: of a row, or of a list of rows."""

    inputs: Annotated[list[Any], PlainValidator(_rows, json_schema_input_type=Rows)]
    raw_scores: bool = False


class RerankTextsBody(TextEmbeddingsFields):
    """A request for an order of texts, of Text Embeddings Inference."""

    query: str
    texts: TextList
    raw_scores: bool = False
    return_text: bool = False


class RerankBody(Fields):
    """A request for an order of documents, of Cohere, Jina, vLLM and llama-server."""

    idle: ClassVar = {
        "max_chunks_per_doc": (10,),
        "max_tokens_per_doc": (4096,),
        "rank_fields": (["text"],),
        "return_embeddings": (False,),
    }
    notes = ("user", "priority")
    model: str | None = None
    query: str
    documents: Annotated[TextList, BeforeValidator(_texts_of_objects, json_schema_input_type=Documents)]
    # 0 for all
    top_n: int = Field(0, ge=0)
    # None for what the route does
    return_documents: bool | None = None


class ScoreBody(Fields):
    """A request for the scores of pairs, of vLLM: of one text with each of many, or of as many texts with others."""

    idle: ClassVar = {"encoding_format": ("float",)}
    notes = ("user", "priority")
    model: str | None = None
    first: Texts = Field(validation_alias=AliasChoices("text_1", "queries", "data_1"))
    second: Texts = Field(validation_alias=AliasChoices("text_2", "documents", "data_2", "items"))

    def require_pairs(self) -> None:
        """Raises a `Problem` if the texts are no pairs."""
        if len(self.first) not in (1, len(self.second)):
            raise Problem(422, "text_1 must be one text, or as many as text_2.")
