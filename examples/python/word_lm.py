"""07_word_lm in Python: the training of pytorch/examples/word_language_model, over DistributedDataParallel."""

import argparse
import math
import pathlib

import torch
from torch.nn.functional import cross_entropy

from common import Results, parallel, processes, rank, ranks
from models import WordLm


def read_corpus(folder):
    numbers, texts = {}, []
    for name in ("train.txt", "valid.txt", "test.txt"):
        text = []
        with open(pathlib.Path(folder) / name, encoding="utf-8", newline="\n") as file:
            for line in file:
                text += [numbers.setdefault(word, len(numbers)) for word in [*line.split(), "<eos>"]]
        texts.append(torch.tensor(text))
    return texts, len(numbers)


def in_columns(text, count):
    length = len(text) // count
    return text[:length * count].view(count, length).t().contiguous()


def detached(state):
    return tuple(part.detach() for part in state) if isinstance(state, tuple) else state.detach()


def stretches(columns, length):
    for begin in range(0, len(columns) - 1, length):
        count = min(length, len(columns) - 1 - begin)
        yield columns[begin:begin + count], columns[begin + 1:begin + 1 + count]


@torch.no_grad()
def perplexity(model, text, length):
    model.eval()
    state, loss, columns = None, 0.0, in_columns(text, 10)
    for words, following in stretches(columns, length):
        scores, state = model(words, state)
        loss += cross_entropy(scores, following.flatten(), reduction="sum").item()
    model.train()
    return math.exp(loss / ((len(columns) - 1) * 10))


class Rate:
    """The learning rate, a quarter of it after each epoch that did not help, and the weights of the best epoch."""

    def __init__(self, rate):
        self.values = {"rate": rate, "best": None, "weights": None}

    def epoch(self, found, model):
        if self.values["best"] is None or found < self.values["best"]:
            weights = {name: value.clone() for name, value in model.state_dict().items()}
            self.values |= {"best": found, "weights": weights}
        else:
            self.values["rate"] /= 4

    def state_dict(self):
        return self.values

    def load_state_dict(self, values):
        self.values = values


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", required=True)
    parser.add_argument("--run", default="runs/python_word_lm")
    parser.add_argument("--cell", default="LSTM")
    parser.add_argument("--width", type=int, default=200)
    parser.add_argument("--hidden", type=int, default=200)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--dropout", type=float, default=0.2)
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--batch-size", type=int, default=20)
    parser.add_argument("--length", type=int, default=35)
    parser.add_argument("--learning-rate", type=float, default=20.0)
    parser.add_argument("--clip", type=float, default=0.25)
    parser.add_argument("--wire", default="fp32")
    parser.add_argument("--resume", action="store_true", help="go on after the last whole epoch in --run, if any")
    options = parser.parse_args()
    (train, valid, test), words = read_corpus(options.data)
    model = WordLm(words, options.cell, options.width, options.hidden, options.layers, options.dropout)
    wrapped, rate = parallel(model, options.wire), Rate(options.learning_rate)
    results = Results(options.run, options.resume, model=model, rate=rate)
    each = options.batch_size // ranks()
    columns = in_columns(train, options.batch_size)[:, rank() * each:(rank() + 1) * each].contiguous()
    for _ in results.epochs(options.epochs):
        state = None
        for text, following in stretches(columns, options.length):
            wrapped.zero_grad()
            scores, state = wrapped(text, state)
            state = detached(state)
            cross_entropy(scores, following.flatten()).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), options.clip)
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter.add_(parameter.grad, alpha=-rate.values["rate"])
        found = perplexity(model, valid, options.length)
        rate.epoch(found, model)
        results.epoch(found)
    model.load_state_dict(rate.values["weights"])
    results.write({"test perplexity": perplexity(model, test, options.length)})


if __name__ == "__main__":
    with processes():
        main()
