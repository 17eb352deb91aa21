"""Exports the models of the tests in this folder, and trains each eagerly for 20 steps of SGD.

export_models.py FOLDER writes for each model NAME.pt2, and NAME.safetensors with the inputs
(input.0, ...), the target, the losses of the steps, the parameters and buffers after them (state.*)
and the output of the first input in evaluation mode (eval). For the model in fp64 also the parameters
after as many steps of AdamW, on the batch (adamw.state.*) and on the mean of its halves (halves.state.*)."""
import copy
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F
from safetensors.torch import save_file
from torch.export import Dim
from torch.export.pt2_archive._package import package_pt2

FOLDER = sys.argv[1]
STEPS = 20
BATCH = 6
TOKENS = 50


class ResidualBlock(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.shortcut = nn.Sequential()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False),
                                          nn.BatchNorm2d(outputs))

    def forward(self, x):
        y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        return F.relu(y + self.shortcut(x))


class ResNet18(nn.Module):
    """All layers of ResNet-18, with 4 channels in place of 64."""

    def __init__(self):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 4, 3, 1, 1, bias=False), nn.BatchNorm2d(4)
        blocks = []
        for inputs, outputs, stride in ((4, 4, 1), (4, 8, 2), (8, 16, 2), (16, 32, 2)):
            blocks += [ResidualBlock(inputs, outputs, stride), ResidualBlock(outputs, outputs, 1)]
        self.blocks, self.fc = nn.Sequential(*blocks), nn.Linear(32, 10)

    def forward(self, x):
        x = self.blocks(F.relu(self.bn1(self.conv1(x))))
        return self.fc(F.adaptive_avg_pool2d(x, 1).flatten(1))


class Depthwise(nn.Module):
    """Inverted residuals, squeeze and excitation, as in MobileNet."""

    def __init__(self):
        super().__init__()
        self.expand = nn.Sequential(nn.Conv2d(3, 12, 1, bias=False), nn.BatchNorm2d(12), nn.ReLU6())
        self.depthwise = nn.Sequential(nn.Conv2d(12, 12, 3, 2, 1, groups=12, bias=False),
                                       nn.BatchNorm2d(12), nn.Hardswish())
        self.squeeze, self.excite = nn.Conv2d(12, 4, 1), nn.Conv2d(4, 12, 1)
        self.project, self.fc = nn.Conv2d(12, 8, 1, bias=False), nn.Linear(8, 10)
        self.drop = nn.Dropout2d(0.2)

    def forward(self, x):
        x = self.depthwise(self.expand(x))
        gate = F.hardsigmoid(self.excite(F.relu(self.squeeze(x.mean((2, 3), keepdim=True)))))
        return self.fc(self.drop(self.project(x * gate)).mean((2, 3)))


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.down1 = nn.Sequential(nn.Conv2d(1, 6, 3, padding=1), nn.GroupNorm(2, 6), nn.SiLU())
        self.down2 = nn.Sequential(nn.Conv2d(6, 12, 3, padding=1), nn.InstanceNorm2d(12), nn.SiLU())
        self.up = nn.ConvTranspose2d(12, 6, 2, stride=2)
        self.out = nn.Conv2d(18, 3, 3, padding=1)

    def forward(self, x):
        skip = self.down1(x)
        low = self.down2(F.max_pool2d(skip, 2))
        smooth = F.interpolate(low[:, :6], scale_factor=2, mode="bilinear", align_corners=False)
        return self.out(torch.cat([skip, self.up(low), smooth], 1))


class Recurrent(nn.Module):
    def __init__(self, layer, tied):
        super().__init__()
        self.encoder, self.drop = nn.Embedding(TOKENS, 16), nn.Dropout(0.2)
        self.rnn = layer(16, 16, 2, batch_first=True, dropout=0.2)
        self.decoder = nn.Linear(16, TOKENS)
        if tied:
            self.decoder.weight = self.encoder.weight

    def forward(self, tokens):
        return self.decoder(self.drop(self.rnn(self.drop(self.encoder(tokens)))[0]))


class Bert(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(TOKENS, 32), nn.Embedding(64, 32)
        self.layer = nn.TransformerEncoderLayer(32, 4, 64, 0.1, F.gelu, batch_first=True)
        self.head = nn.Linear(32, 10)

    def forward(self, tokens, padding):
        places = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.layer(self.words(tokens) + self.places(places), src_key_padding_mask=padding)
        return self.head(x.mean(1))


class Gpt(nn.Module):
    """Pre-norm block with causal attention, rotary positions in a buffer that is not persistent, and
    a head that shares the embedding."""

    def __init__(self):
        super().__init__()
        self.words, self.norm1, self.norm2 = nn.Embedding(TOKENS, 32), nn.LayerNorm(32), nn.RMSNorm(32)
        self.qkv, self.out = nn.Linear(32, 96, bias=False), nn.Linear(32, 32, bias=False)
        self.up, self.down = nn.Linear(32, 64), nn.Linear(64, 32)
        self.head = nn.Linear(32, TOKENS, bias=False)
        self.head.weight = self.words.weight
        angles = torch.outer(torch.arange(64.0), 100.0 ** (-torch.arange(0, 4) / 4))
        self.register_buffer("angles", angles, persistent=False)

    def turn(self, x):
        angles = self.angles[: x.shape[2]].to(x.dtype)
        a, b = x.chunk(2, -1)
        return torch.cat([a * angles.cos() - b * angles.sin(), a * angles.sin() + b * angles.cos()], -1)

    def forward(self, tokens):
        batch, length = tokens.shape
        x = self.words(tokens)
        q, k, v = self.qkv(self.norm1(x)).view(batch, length, 12, 8).transpose(1, 2).chunk(3, 1)
        y = F.scaled_dot_product_attention(self.turn(q), self.turn(k), v, is_causal=True,
                                           dropout_p=0.1 if self.training else 0.0)
        x = x + self.out(y.transpose(1, 2).reshape(batch, length, 32))
        return self.head(x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh")))


class Masked(nn.Module):
    """A constant, masks of -inf and of a number that 16 bits cannot hold, arithmetic on sizes, a frozen
    parameter, an unused one."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(8, 8), nn.Linear(16, 5)
        self.shift = torch.tensor([0.5, -0.5])
        self.scale = nn.Parameter(torch.full((8,), 1.5), requires_grad=False)
        self.unused = nn.Parameter(torch.ones(3))

    def forward(self, x):  # (batch, length, 8), length even
        batch, length, width = x.shape
        y = self.a(x) * self.scale
        later = torch.ones(length, length, dtype=torch.bool, device=x.device).triu(1)
        lowest = torch.full((length, length), torch.finfo(torch.float32).min, device=x.device).triu(1)
        weight = (y @ y.transpose(1, 2) / width**0.5).masked_fill(later, float("-inf"))
        weight = (weight + lowest).softmax(-1)
        pairs = (weight @ y).reshape(batch, length // 2, 2 * width)
        zeros = torch.zeros(batch, 1, 2 * width, dtype=x.dtype, device=x.device)
        return self.b(torch.cat([zeros, pairs], 1).sum(1) / (length + (length & 12)) + self.shift.repeat(8) * batch)


class Several(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = nn.Linear(6, 6), nn.Linear(6, 3), nn.Linear(6, 2)

    def forward(self, x, extra, scale=None):
        hidden = torch.tanh(self.a(x) + extra["bias"] * scale)
        return {"logits": self.b(hidden), "states": [hidden, (self.c(hidden), None)], "rows": x.shape[0]}


class Modes(nn.Module):
    """Does something else in evaluation, which needs two programs."""

    def __init__(self):
        super().__init__()
        self.a, self.norm, self.b = nn.Linear(6, 6), nn.BatchNorm1d(6), nn.Linear(6, 3)

    def forward(self, x):
        x = self.norm(self.a(x))
        return self.b(F.dropout(x, 0.5) if self.training else x * 2 + 1)


class Norms(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.norm, self.b = nn.Linear(6, 6), nn.BatchNorm1d(6), nn.Linear(6, 3)
        self.register_buffer("seen", torch.zeros((), dtype=torch.int64))

    def forward(self, x):
        self.seen += x.shape[0]
        return self.b(F.relu(self.norm(self.a(x))))


class NormKinds(nn.Module):
    """A norm that is used twice, one with frozen statistics in training, one without running statistics."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(6, 6), nn.Linear(6, 3)
        self.shared, self.frozen = nn.BatchNorm1d(6), nn.BatchNorm1d(6)
        self.batch = nn.BatchNorm1d(6, track_running_stats=False)
        self.frozen.running_mean.uniform_(-1, 1)
        self.frozen.running_var.uniform_(0.5, 2)

    def train(self, mode=True):
        super().train(mode)
        self.frozen.eval()
        return self

    def forward(self, x):
        x = self.shared(F.relu(self.shared(self.a(x))))
        return self.b(F.relu(self.batch(F.relu(self.frozen(x)))))


def mlp(dtype=torch.float32):
    return nn.Sequential(nn.Linear(12, 32), nn.Tanh(), nn.Linear(32, 1)).to(dtype)


def images(channels=3):
    return torch.randn(BATCH, channels, 16, 16)


def words():
    return torch.randint(0, TOKENS, (BATCH, 8))


def classes(*sizes, count=10):
    return torch.randint(0, count, sizes)


B, T = Dim("batch", max=1024), Dim("length", max=64)
TEXT = ({0: B, 1: T},)
# name: model, inputs, target, dynamic shapes
CASES = {
    "mlp": (mlp, lambda: (torch.randn(BATCH, 12),), lambda: torch.randn(BATCH, 1), ({0: B},)),
    "resnet18": (ResNet18, lambda: (images(),), lambda: classes(BATCH), ({0: B},)),
    "depthwise": (Depthwise, lambda: (images(),), lambda: classes(BATCH), ({0: B},)),
    "unet": (UNet, lambda: (images(1),), lambda: classes(BATCH, 16, 16, count=3), ({0: B},)),
    "lstm": (lambda: Recurrent(nn.LSTM, False), lambda: (words(),),
             lambda: classes(BATCH, 8, count=TOKENS), ({0: B},)),
    "gru": (lambda: Recurrent(nn.GRU, True), lambda: (words(),),
            lambda: classes(BATCH, 8, count=TOKENS), ({0: B},)),
    "bert": (Bert, lambda: (words(), torch.arange(8) >= torch.randint(5, 9, (BATCH, 1))),
             lambda: classes(BATCH), ({0: B}, {0: B})),
    "gpt": (Gpt, lambda: (words(),), lambda: classes(BATCH, 8, count=TOKENS), TEXT),
    "forces": (lambda: mlp(torch.float64), lambda: (torch.randn(BATCH, 12, dtype=torch.float64),),
               lambda: torch.randn(BATCH, 12, dtype=torch.float64), ({0: B},)),
    "masked": (Masked, lambda: (torch.randn(BATCH, 8, 8),), lambda: classes(BATCH, count=5),
               ({0: B, 1: 2 * Dim("half", min=2, max=32)},)),
    "several": (Several, lambda: (torch.randn(BATCH, 6), {"bias": torch.randn(BATCH, 6)},
                                  torch.randn(6)),
                lambda: classes(BATCH, count=3), ({0: B}, {"bias": {0: B}}, None)),
    "modes": (Modes, lambda: (torch.randn(BATCH, 6),), lambda: classes(BATCH, count=3), ({0: B},)),
    "norms": (NormKinds, lambda: (torch.randn(BATCH, 6),), lambda: classes(BATCH, count=3), ({0: B},)),
    "decomposed": (NormKinds, lambda: (torch.randn(BATCH, 6),), lambda: classes(BATCH, count=3),
                   ({0: B},)),
    "functional": (Norms, lambda: (torch.randn(BATCH, 6),), lambda: classes(BATCH, count=3),
                   ({0: B},)),
}


def loss_of(name, model, inputs, target):
    if name == "forces":  # minus the derivative of the energy, fitted
        x = inputs[0].detach().requires_grad_(True)
        energy = model(x).sum()
        slope, = torch.autograd.grad(energy, x, create_graph=True)
        return (slope + target).square().mean() + energy.square() * 1e-3
    output = model(*inputs)
    if name == "several":
        hidden, (other, _) = output["states"]
        return (F.cross_entropy(output["logits"], target) + hidden.square().mean()
                + other.square().mean())
    if name == "mlp":
        return F.mse_loss(output, target)
    return F.cross_entropy(output.flatten(0, 1) if output.dim() == 3 else output, target.flatten()
                           if output.dim() == 3 else target)


def leaves(value):
    return [leaf for leaf in torch.utils._pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def export(name, model, inputs, shapes):
    program = torch.export.export(model, inputs, dynamic_shapes=shapes, strict=False)
    path = f"{FOLDER}/{name}.pt2"
    if name in ("functional", "decomposed"):
        program = program.run_decompositions()
    if name != "modes":
        return torch.export.save(program, path)
    model.eval()
    other = torch.export.export(model, inputs, dynamic_shapes=shapes, strict=False)
    model.train()
    package_pt2(path, exported_programs={"train": program, "eval": other})


def train(name, model, inputs, target):
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], 0.05)
    torch.manual_seed(1234)
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = loss_of(name, model, inputs, target)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return torch.stack(losses)


def train_by_adamw(name, model, inputs, target, parts):
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2, weight_decay=0.1)
    rows = BATCH // parts
    for _ in range(STEPS):
        optimizer.zero_grad()
        for begin in range(0, BATCH, rows):
            part = slice(begin, begin + rows)
            (loss_of(name, model, (inputs[0][part],), target[part]) / parts).backward()
        optimizer.step()
    return model.state_dict()


def main():
    torch.set_num_threads(1)
    for name, (make, make_inputs, make_target, shapes) in CASES.items():
        torch.manual_seed(7)
        model, inputs, target = make().train(), make_inputs(), make_target()
        export(name, model, inputs, shapes)
        tensors = {f"input.{i}": x.contiguous() for i, x in enumerate(leaves(inputs))}
        tensors["target"] = target
        if name == "forces":
            for kind, parts in (("adamw", 1), ("halves", 2)):
                state = train_by_adamw(name, copy.deepcopy(model), inputs, target, parts)
                tensors.update({f"{kind}.state.{key}": value.detach() for key, value in state.items()})
        tensors["losses"] = train(name, model, inputs, target)
        for key, value in model.state_dict().items():
            tensors["state." + key] = value.detach().clone()
        model.eval()
        tensors["eval"] = leaves(model(*inputs))[0].detach().contiguous()
        save_file(tensors, f"{FOLDER}/{name}.safetensors")
    evaluated = Modes().eval()
    torch.export.save(torch.export.export(evaluated, (torch.randn(BATCH, 6),)),
                      f"{FOLDER}/evaluated.pt2")


main()
