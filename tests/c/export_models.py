"""Writes the models of the tests of the C interface: export_models.py FOLDER"""

import sys

import torch
from torch import nn
from torch.export import Dim

FOLDER = sys.argv[1]
BATCH = Dim("batch", min=2, max=1024)


class Net(nn.Module):
    def __init__(self, outputs=1):
        super().__init__()
        self.a, self.drop, self.b = nn.Linear(3, 8), nn.Dropout(0.25), nn.Linear(8, outputs)

    def forward(self, x):
        return self.b(self.drop(torch.tanh(self.a(x))))


class WithLoss(nn.Module):
    """Returns its loss."""

    def __init__(self):
        super().__init__()
        self.net = Net()

    def forward(self, x, y):
        return (self.net(x) - y).square().mean()


class Twice(nn.Module):
    """Returns two tensors."""

    def __init__(self):
        super().__init__()
        self.net = Net()

    def forward(self, x):
        y = self.net(x)
        return y, 2 * y


def save(name, model, *inputs):
    shapes = tuple({0: BATCH} for _ in inputs)
    torch.export.save(torch.export.export(model.train(), inputs, dynamic_shapes=shapes),
                      f"{FOLDER}/{name}.pt2")


torch.manual_seed(11)
x, y = torch.randn(6, 3), torch.randn(6, 1)
net = Net()
save("net", net, x)
torch.jit.script(net).save(f"{FOLDER}/net.pt")
decomposed = torch.export.export(net.train(), (x,), dynamic_shapes=({0: BATCH},)).run_decompositions()
torch.export.save(decomposed, f"{FOLDER}/decomposed.pt2")
save("classes", Net(4), x)
save("loss", WithLoss(), x, y)
save("twice", Twice(), x)
