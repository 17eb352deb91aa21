"""06_tweet_sentiment in Python, in fp32, over DistributedDataParallel."""

import argparse
import csv
import operator
import pathlib
import statistics
import string
import time

import torch
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from common import Results, parallel, processes, rank, ranks
from models import Bert

MOODS = {"negative": 0, "neutral": 1, "positive": 2}


def pieces_of(word, numbers):
    pieces, begin = [], 0
    while begin < len(word):
        end = len(word)
        while end > begin and ("##" if begin else "") + word[begin:end] not in numbers:
            end -= 1
        if end == begin:
            return [numbers["[UNK]"]]
        pieces.append(numbers[("##" if begin else "") + word[begin:end]])
        begin = end
    return pieces


def encoded(text, numbers, length):
    lower = {ord(capital): small for capital, small in zip(string.ascii_uppercase, string.ascii_lowercase)}
    apart = {ord(sign): f" {sign} " for sign in string.punctuation}
    words = text.translate(lower | apart).split()
    pieces = [piece for word in words for piece in pieces_of(word, numbers)][:length - 2]
    pieces = [numbers["[CLS]"], *pieces, numbers["[SEP]"]]
    return pieces + [0] * (length - len(pieces))


def read_tweets(path, vocabulary, length):
    """(training, held out, size of the vocabulary): every tenth tweet is held out."""
    lines = pathlib.Path(vocabulary).read_text(encoding="utf-8").splitlines()
    numbers = {piece: number for number, piece in enumerate(lines)}
    with open(path, newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    pieces = torch.tensor([encoded(row["text"], numbers, length) for row in rows])
    labels = torch.tensor([MOODS[row["sentiment"]] for row in rows])
    tenth = torch.arange(len(rows)) % 10 == 0
    return TensorDataset(pieces[~tenth], labels[~tenth]), TensorDataset(pieces[tenth], labels[tenth]), len(numbers)


def optimizer_of(model, rate):
    decayed = [parameter for parameter in model.parameters() if parameter.dim() > 1]
    others = [parameter for parameter in model.parameters() if parameter.dim() <= 1]
    return torch.optim.AdamW([{"params": decayed, "weight_decay": 0.01}, {"params": others, "weight_decay": 0.0}], rate)


@torch.no_grad()
def accuracy(model, tweets):
    model.eval()
    right = sum((model(pieces).argmax(1) == labels).sum().item() for pieces, labels in DataLoader(tweets, 64))
    return right / len(tweets)


def train(options, tweets, held_out, vocabulary):
    sampler = DistributedSampler(tweets, ranks(), rank(), shuffle=True, drop_last=True)
    loader = DataLoader(tweets, options.batch_size // ranks(), sampler=sampler, drop_last=True)
    model = Bert(vocabulary, options.layers, options.width)
    wrapped = parallel(model, options.wire)
    optimizer, steps = optimizer_of(model, options.learning_rate), options.epochs * len(loader)
    warmup = steps // 10
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: (step + 1) / warmup if step < warmup else (steps - step) / (steps - warmup))
    results = Results(options.run, options.resume, model=model, optimizer=optimizer, schedule=schedule)
    for epoch in results.epochs(options.epochs):
        sampler.set_epoch(epoch)
        wrapped.train()
        for pieces, labels in loader:
            optimizer.zero_grad()
            cross_entropy(wrapped(pieces), labels).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
        results.epoch(accuracy(model, held_out))
    results.write({"held-out accuracy": max(results.values["curve"])})


def compare(options, tweets, vocabulary):
    """Peak of activations, from the profiler's record of allocations, and time of a step: plain and checkpointed."""
    pieces, labels = tweets[:options.batch_size]
    names = ("plain", "checkpoint")
    models = [Bert(vocabulary, options.layers, options.width, checkpointed=name == "checkpoint") for name in names]
    optimizers = [optimizer_of(model, options.learning_rate) for model in models]
    seconds = [[], []]
    for _ in range(10):  # the models take turns, since the speed of a machine changes
        for model, optimizer, times in zip(models, optimizers, seconds):
            begin = time.perf_counter()
            cross_entropy(model(pieces), labels).backward()
            optimizer.step()
            times.append(time.perf_counter() - begin)
    seconds = [times[3:] for times in seconds]
    values = {}
    for name, model, times in zip(names, models, seconds):
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
            cross_entropy(model(pieces), labels).backward()
        events = [event for event in profile.profiler.kineto_results.events() if event.name() == "[memory]"]
        live = peak = 0
        for event in sorted(events, key=lambda one: one.start_ns()):
            live += event.nbytes()
            peak = max(peak, live)
        values |= {f"{name}: peak, MiB": peak / 2**20, f"{name}: step, s": statistics.median(times),
                   f"{name}: step / plain": statistics.median(map(operator.truediv, times, seconds[0]))}
    Results(options.run).write(values)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tweets", required=True)
    parser.add_argument("--vocabulary", required=True)
    parser.add_argument("--run", default="runs/python_tweets")
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--length", type=int, default=16)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    parser.add_argument("--wire", default="fp32")
    parser.add_argument("--resume", action="store_true", help="go on after the last whole epoch in --run, if any")
    parser.add_argument("--compare", action="store_true")
    options = parser.parse_args()
    tweets, held_out, vocabulary = read_tweets(options.tweets, options.vocabulary, options.length)
    if options.compare:
        compare(options, tweets, vocabulary)
    else:
        train(options, tweets, held_out, vocabulary)


if __name__ == "__main__":
    with processes():
        main()
