"""The data sets that are put together from others: all English texts, questions about them."""

import pytest

from recipes.common.data.chat_data import CONVERSATIONS
from recipes.common.data.data_sets import Splits
from recipes.common.data.labelled_text import LABELLED
from recipes.common.data.plain_text import PLAIN, english_texts
from recipes.common.data.preference_data import PREFERENCES


@pytest.mark.usefixtures("data_folder")
def test_texts_for_pretraining_are_of_training_parts_alone():
    splits = english_texts((PLAIN["wikitext2"], lambda: Splits(["once", "again", "again", "held"], ["held", "other"])))
    train, validation = (set(part) for part in splits[:2])
    assert {"once", "again"} < train | validation
    assert not {"held", "other", *PLAIN["wikitext2"]().validation} & (train | validation)
    assert len(train) + len(validation) == len(splits.train) + len(splits.validation)
    assert len(validation) / len(train) == pytest.approx(1 / 19, rel=1e-3)
    for name in ("sst2", "ag_news", "stsb"):
        for part in LABELLED[name]()[1:]:
            held_out = {text for row in part or () for text in row.texts}
            assert not held_out & (train | validation), name
    learned = {row.texts[0] for row in LABELLED["sst2"]().train}
    assert len(learned & (train | validation)) > 0.99 * len(learned)


@pytest.mark.usefixtures("data_folder")
def test_questions_have_the_answers_of_the_labels():
    conversations, preferences = CONVERSATIONS["english_questions"](), PREFERENCES["english_preferences"]()
    reviews, news = LABELLED["sst2"](), LABELLED["ag_news"]()
    sizes = [len(part) for part in conversations]
    assert sizes == [6574 + 8003, 345 + len(news.validation), 872 + len(news.test)]
    for part, pairs in zip(conversations, preferences, strict=True):
        assert [row.messages for row in part] == [
            [*row.prompt, {"role": "assistant", "content": row.chosen}] for row in pairs
        ]
        assert all(row.rejected != row.chosen for row in pairs)
    words = {"World": "world", "Sports": "sports", "Business": "business", "Sci/Tech": "technology"}
    expected = [(row.texts[0], row.label) for row in reviews.validation]
    expected += [(row.texts[0], words[row.label]) for row in news.test]
    for row, (text, word) in zip(conversations.test, expected, strict=True):
        question, answer = (message["content"] for message in row.messages)
        assert question.endswith(f"?\n{text}")
        assert answer.endswith(f" {word}.")
    # a wrong answer is of the same question
    about_news = [row for row in preferences.train if "news" in row.chosen]
    assert {row.rejected for row in about_news} == {row.chosen for row in about_news}
