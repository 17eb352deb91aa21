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
    options = parser.parse_args()
    (train, valid, test), words = read_corpus(options.data)
    model = WordLm(words, options.cell, options.width, options.hidden, options.layers, options.dropout)
    wrapped, results = parallel(model, options.wire), Results(options.run)
    each = options.batch_size // ranks()
    columns = in_columns(train, options.batch_size)[:, rank() * each:(rank() + 1) * each].contiguous()
    rate, best, weights = options.learning_rate, None, None
    for _ in range(options.epochs):
        state = None
        for text, following in stretches(columns, options.length):
            wrapped.zero_grad()
            scores, state = wrapped(text, state)
            state = detached(state)
            cross_entropy(scores, following.flatten()).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), options.clip)
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter.add_(parameter.grad, alpha=-rate)
        found = perplexity(model, valid, options.length)
        results.epoch(found)
        if best is None or found < best:
            best, weights = found, {name: value.clone() for name, value in model.state_dict().items()}
        else:
            rate /= 4
    model.load_state_dict(weights)
    results.write({"test perplexity": perplexity(model, test, options.length)})


if __name__ == "__main__":
    with processes():
        main()
