"""Exports the models of the tests in this folder, and trains each eagerly for 20 steps of SGD.

export_models.py FOLDER writes for each model NAME.pt2, and NAME.safetensors with the inputs
(input.0, ...), the target, the losses of the steps, the parameters and buffers after them (state.*)
and the output of the first input in evaluation mode (eval), by the same seed as the training. For the model in fp64 also the parameters
after as many steps of AdamW, on the batch (adamw.state.*) and on the mean of its halves (halves.state.*)."""
import copy
import math
import sys
import zipfile

import torch
import torch.nn as nn
import torch.nn.functional as F
from safetensors.torch import save_file
from torch._export.serde import serialize
from torch.export import Dim
from torch.export.pt2_archive._package import package_pt2
from torch.nn.utils.parametrizations import spectral_norm

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

    def forward(self, x):
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


class Rotary(nn.Module):
    """Positions as in the Llama family: without gradients, and in fp32 under autocast."""

    def __init__(self):
        super().__init__()
        self.register_buffer("speeds", 0.5 ** torch.arange(3), persistent=False)

    @torch.no_grad()
    def forward(self, x):
        places = torch.arange(x.shape[0], device=x.device)[:, None]
        with torch.autocast(x.device.type, enabled=False):
            angles = (places.float() @ self.speeds[None].float()).repeat(1, 2)
            return angles.cos().to(x.dtype), angles.sin().to(x.dtype)


class Regions(nn.Module):
    """Parts without gradients, with them inside of those, and in bf16 with a weight that is used twice."""

    def __init__(self):
        super().__init__()
        self.turn, self.a, self.b = Rotary(), nn.Linear(6, 6), spectral_norm(nn.Linear(6, 3))
        self.register_buffer("mean", torch.zeros(6))

    def forward(self, x):
        cos, sin = self.turn(x)
        x = x * cos + self.a(x) * sin
        with torch.no_grad():
            shift = self.a(x).mean(0)
            with torch.enable_grad():
                kept = self.a(x) * 0.5
            self.mean.copy_(shift)
        with torch.autocast("cpu", torch.bfloat16):
            x = self.a(self.a(x - shift) + kept)
        return self.b(x.float())


class Kept(nn.Module):
    """What model.eval() leaves as it is, beside what it switches off."""

    def __init__(self):
        super().__init__()
        self.a, self.drop, self.b = nn.Linear(6, 6), nn.Dropout(0.2), nn.Linear(6, 3)
        self.register_buffer("mean", torch.zeros(6))
        self.register_buffer("var", torch.ones(6))

    def forward(self, x):
        x = F.dropout(self.drop(self.a(x)), 0.5) + F.dropout(x, p=0.1, training=True)
        x = F.batch_norm(x, self.mean, self.var, training=True)
        x = F.dropout(x, 0.5, self.training) + F.dropout(x, training=self.training)
        q = x[None, None]
        x = x + F.scaled_dot_product_attention(q, q, q, dropout_p=0.25)[0, 0]
        return self.b(x + F.scaled_dot_product_attention(
            q, q, q, dropout_p=0.5 if self.training else 0.0)[0, 0])


class Sizes(nn.Module):
    """All of the exporter's arithmetic on sizes."""

    def __init__(self):
        super().__init__()
        self.a = nn.Linear(6, 3)

    def forward(self, x):
        rows = x.shape[0]
        value = (rows << 2) + (rows >> 1) + (rows & 5 | 2) + math.trunc(rows / 3) - -(-rows // 4) + rows % 4
        value = value + rows**2 + max(rows, 4) + min(rows, 40) + torch.sym_int(torch.sym_float(rows) ** 0.5)
        return self.a(x) * value / (rows << 5)


class Related(nn.Module):
    """Two inputs whose sizes have a relation that the graph does not check."""

    def __init__(self):
        super().__init__()
        self.a = nn.Linear(6, 3)

    def forward(self, x, pair):
        return self.a(x)[: pair["y"].shape[0]] * pair["y"]


class Detached(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(6, 6), nn.Linear(6, 3)

    def forward(self, x):
        y = self.a(x)
        hard = F.gumbel_softmax(y, hard=True)
        return self.b(y - 2 * y.detach().mean(0) + hard - torch.detach(y).square())


class Convolutions(nn.Module):
    """Convolutions of each number of dimensions, as exported and transposed."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Conv1d(2, 4, 3, padding=1), nn.ConvTranspose1d(4, 2, 3, 2, 1, output_padding=1)
        self.c, self.d = nn.Conv2d(2, 4, 3, stride=(2, 1), groups=2), nn.ConvTranspose2d(4, 2, 3)
        self.e, self.f = nn.Conv3d(2, 2, (1, 3, 3), dilation=(1, 1, 2)), nn.ConvTranspose3d(2, 3, 1)

    def forward(self, x):
        x = torch.tanh(self.b(self.a(x)))
        x = torch.tanh(self.d(self.c(x.unflatten(2, (6, -1)))))
        return self.f(self.e(x[:, :, None])).mean((2, 3, 4))


class Buffers(nn.Module):
    """Buffers of other dtypes than fp32, and some whose elements have gaps or overlap."""

    def __init__(self):
        super().__init__()
        self.a = nn.Linear(6, 3)
        self.register_buffer("halves", torch.linspace(0, 1, 6).half())
        self.register_buffer("eighths", torch.linspace(0, 1, 6).to(torch.float8_e4m3fn))
        self.register_buffer("expanded", torch.randn(1, 6).expand(3, 6))
        self.register_buffer("gapped", torch.randn(3, 12)[:, ::2])
        self.register_buffer("turned", torch.randn(6, 3).t())

    def forward(self, x):
        shift = self.halves.float() + self.eighths.float() + self.expanded.sum(0) + self.gapped.sum(0)
        return self.a(x + shift + self.turned.sum(0))


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
    "regions": (Regions, lambda: (torch.randn(BATCH, 6),), lambda: classes(BATCH, count=3), ({0: B},)),
    "kept": (Kept, lambda: (torch.randn(BATCH, 6),), lambda: classes(BATCH, count=3), ({0: B},)),
    "sizes": (Sizes, lambda: (torch.randn(BATCH, 6),), lambda: classes(BATCH, count=3),
              ({0: Dim.AUTO},)),
    "related": (Related, lambda: (torch.randn(2 * BATCH, 6), {"y": torch.randn(BATCH, 3)}),
                lambda: classes(BATCH, count=3), ({0: 2 * B}, {"y": {0: B}})),
    "detached": (Detached, lambda: (torch.randn(BATCH, 6),), lambda: classes(BATCH, count=3),
                 ({0: B},)),
    "convolutions": (Convolutions, lambda: (torch.randn(BATCH, 2, 18),),
                     lambda: classes(BATCH, count=3), ({0: B},)),
    "buffers": (Buffers, lambda: (torch.randn(BATCH, 6),), lambda: classes(BATCH, count=3), ({0: B},)),
    "functional": (Norms, lambda: (torch.randn(BATCH, 6),), lambda: classes(BATCH, count=3),
                   ({0: B},)),
}


DECOMPOSED = ("functional", "decomposed", "detached", "convolutions")
EVALUATED_TOO = ("modes", "regions", "detached")  # with a second program for evaluation


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
    if name in DECOMPOSED:
        program = program.run_decompositions()
    if name not in EVALUATED_TOO:
        return torch.export.save(program, path)
    model.eval()
    other = torch.export.export(model, inputs, dynamic_shapes=shapes, strict=False)
    model.train()
    if name in DECOMPOSED:
        other = other.run_decompositions()
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
            tensors["state." + key] = value.detach().contiguous().clone()
        model.eval()
        torch.manual_seed(1234)
        tensors["eval"] = leaves(model(*inputs))[0].detach().contiguous()
        save_file(tensors, f"{FOLDER}/{name}.safetensors")
    evaluated = Modes().eval()
    torch.export.save(torch.export.export(evaluated, (torch.randn(BATCH, 6),)),
                      f"{FOLDER}/evaluated.pt2")
    for name, forward in ONE_PROGRAM.items():
        export_one(name, forward)
    old = serialize.serialize(torch.export.export(mlp(), (torch.randn(BATCH, 12),)))
    with zipfile.ZipFile(f"{FOLDER}/old_layout.pt2", "w") as archive:
        archive.writestr("version", "8.8")
        archive.writestr("serialized_exported_program.json", old.exported_program)
        archive.writestr("serialized_state_dict.pt", old.state_dict)
    with open(f"{FOLDER}/size_arithmetic.txt", "w") as names:
        for function in serialize._SYM_OPS:
            names.write(serialize.GraphModuleSerializer.serialize_operator(None, function) + "\n")


class Forward(nn.Module):
    def __init__(self, forward):
        super().__init__()
        self.a, self.b, self.function = nn.Linear(6, 6), nn.Linear(6, 3), forward
        self.register_buffer("mean", torch.zeros(6))

    def forward(self, x):
        return self.function(self, x)


def draws(model, x):
    return model.b(x * torch.empty(x.shape[0], 1).bernoulli_(0.5) if model.training else x)


def writes(model, x):
    if model.training:
        model.mean = 0.9 * model.mean + 0.1 * x.mean(0)
    return model.b(x - model.mean)


def writes_to_view(model, x):
    if model.training:
        model.mean[1:].view(5).copy_(x.mean(0)[1:])
    return model.b(x - model.mean)


def without_gradient(model, x):
    with torch.no_grad():
        shift = model.a(x).mean(0)
    return model.b(x - shift)


def recomputes(model, x):
    return model.b(torch.utils.checkpoint.checkpoint(model.a, x, use_reentrant=True))


def branches(model, x):
    return torch.cond(x.sum() > 0, lambda y: y.sin(), lambda y: y.cos(), (model.b(x),))


def registered(model, x):
    return model.b(torch.ops.lockstep_test.scaled(x, 2.0))


normalized = lambda x: F.batch_norm(x, torch.zeros(6), torch.ones(6), training=True)  # has no line in the archive


def makes_statistics(model, x):
    return model.b(normalized(model.a(x)))


ONE_PROGRAM = {
    "makes_statistics": makes_statistics,
    "draws": draws, "draws_decomposed": draws, "writes": writes, "writes_decomposed": writes,
    "writes_to_view": writes_to_view, "no_grad_decomposed": without_gradient,
    "recomputes": recomputes, "branches": branches, "registered": registered,
}


def export_one(name, forward):
    torch.manual_seed(7)
    program = torch.export.export(Forward(forward).train(), (torch.randn(BATCH, 6),), strict=False)
    torch.export.save(program.run_decompositions() if name.endswith("_decomposed") else program,
                      f"{FOLDER}/{name}.pt2")


library = torch.library.Library("lockstep_test", "DEF")
library.define("scaled(Tensor x, float factor) -> Tensor")
library.impl("scaled", lambda x, factor: x * factor, "CompositeExplicitAutograd")


main()
