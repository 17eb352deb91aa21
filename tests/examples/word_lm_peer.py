"""Computes what WordLm computed, with the model of pytorch/examples/word_language_model.

word_lm_peer.py FILE...    each from word_lm_test.cpp; exit code 1 if a number differs
"""

import sys

import torch
from safetensors import safe_open
from torch import nn


class RNNModel(nn.Module):
    def __init__(self, cell, words, width, hidden, layers, tied):
        super().__init__()
        self.encoder = nn.Embedding(words, width)
        if cell in ("LSTM", "GRU"):
            self.rnn = getattr(nn, cell)(width, hidden, layers)
        else:
            self.rnn = nn.RNN(width, hidden, layers, nonlinearity=cell[len("RNN_"):].lower())
        self.decoder = nn.Linear(hidden, words)
        if tied:
            self.decoder.weight = self.encoder.weight

    def forward(self, words, state):
        output, state = self.rnn(self.encoder(words), state)
        return torch.log_softmax(self.decoder(output).flatten(0, 1), dim=1), state


for path in sys.argv[1:]:
    with safe_open(path, "pt") as file:
        saved = {name: file.get_tensor(name) for name in file.keys()}
    cell, tied = path.split("/")[-1].split(".")[:2]
    weights = {name[len("weight:"):]: value for name, value in saved.items() if name.startswith("weight:")}
    words, width = weights["encoder.weight"].shape
    layers = sum(name.startswith("rnn.weight_hh_l") for name in weights)
    model = RNNModel(cell, words, width, weights["decoder.weight"].shape[1], layers, tied == "tied")
    model.load_state_dict(weights, strict=True)

    # Two stretches, so that the state that is carried counts.
    first, second, following = saved["first"], saved["second"], saved["following"]
    _, state = model(first, None)
    state = tuple(part.detach() for part in state) if cell == "LSTM" else state.detach()
    scores, _ = model(second, state)
    loss = nn.functional.nll_loss(scores, following.flatten())
    loss.backward()
    torch.testing.assert_close(torch.log_softmax(saved["scores"].flatten(0, 1), dim=1), scores)
    torch.testing.assert_close(saved["loss"], loss)
    compared = 0
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(saved["gradient:" + name], parameter.grad, msg=lambda text: f"{path}, {name}: {text}")
        compared += 1
    assert compared == 2 + 4 * layers + (tied != "tied"), compared
