"""Teaches a chat model new answers by low-rank updates (LoRA), and keeps the updates in a small file.

    python docs/examples/chat_by_lora.py chat-model conversations.jsonl

`chat-model` is a folder of the Transformers library or of this one, or hf://owner/name. Each line of the table is one
conversation: {"messages": [{"role": "user", "content": "..."}, {"role": "assistant", "content": "..."}]}.
"""

import argparse
import json
import random
from pathlib import Path

import keras

import zoo


def read(path):
    """Returns the conversations of a file."""
    with open(path, encoding="utf-8") as file:
        return [json.loads(line)["messages"] for line in file if line.strip()]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="a chat model")
    parser.add_argument("conversations", help="a file with a conversation in each line")
    parser.add_argument("--rank", type=int, default=8, help="width of the updates")
    parser.add_argument("--learning_rate", type=float, default=1e-3)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch_size", type=int, default=4)
    parser.add_argument("--max_new_tokens", type=int, default=60)
    parser.add_argument("--chat_format", help="how messages become text, where the model does not say it itself")
    parser.add_argument("--output", type=Path, default=Path("adapter"), help="where the updates are saved")
    arguments = parser.parse_args()

    keras.utils.set_random_seed(0)
    conversations = read(arguments.conversations)
    random.Random(0).shuffle(conversations)
    held_out = max(1, len(conversations) // 10)
    test, training = conversations[:held_out], conversations[held_out:]
    options = {"chat_format": arguments.chat_format} if arguments.chat_format else {}
    model = zoo.CausalLM.from_preset(arguments.model, **options)

    # What the model reads: its own marks around each message. It is trained on what the assistant says, no more.
    print(model.chat_format.render(training[0]))
    questions = [messages[:-1] for messages in test]

    def answers():
        return model.generate(questions[:3], max_new_tokens=arguments.max_new_tokens)

    before = answers()
    # Each large product gets a second one through `rank` features, which begins at zero. The rest is frozen.
    print(model.enable_lora(arguments.rank, targets="all"))
    model.compile(keras.optimizers.AdamW(arguments.learning_rate, weight_decay=0.0, global_clipnorm=1.0))
    losses = [model.evaluate(test, batch_size=arguments.batch_size, return_dict=True)["loss"]]
    model.fit(training, batch_size=arguments.batch_size, epochs=arguments.epochs, validation_data=test)
    losses.append(model.evaluate(test, batch_size=arguments.batch_size, return_dict=True)["loss"])
    print("held-out conversations: {:.3f} nats per token before, {:.3f} after".format(*losses))
    for question, old, new in zip(questions, before, answers(), strict=False):
        print(f"{question[-1]['content']}\n  before: {old}\n  after: {new}")

    # The adapter has the updates alone, in the format of the library PEFT. It is loaded onto the model it was made for.
    model.save_adapter(arguments.output, base_model=arguments.model)
    size = sum(file.stat().st_size for file in arguments.output.rglob("*") if file.is_file())
    print(f"{arguments.output}: {size / 1e6:.1f} MB, for {model.count_params():,} weights")
    again = zoo.CausalLM.from_preset(arguments.output)
    again.merge_lora()  # into one model of the usual form, which can be saved, exported and served
    print(again.generate(questions[0], max_new_tokens=arguments.max_new_tokens))


if __name__ == "__main__":
    main()
