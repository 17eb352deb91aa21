"""Ten models of ten families, in torch.nn alone: FAMILIES["torch.nn"] of scripts/corpus."""
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

WIDTH, TOKENS, LENGTH = 16, 40, 8


class ConvNeXt(nn.Module):
    """Depthwise convolutions, a norm over channels, and a scale of each channel."""

    def __init__(self):
        super().__init__()
        self.stem, self.depthwise = nn.Conv2d(3, WIDTH, 4, 4), nn.Conv2d(WIDTH, WIDTH, 7, padding=3, groups=WIDTH)
        self.norm, self.up, self.down = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.scale, self.head = nn.Parameter(torch.full((WIDTH,), 0.1)), nn.Linear(WIDTH, 10)

    def forward(self, x):
        x = self.stem(x)
        y = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        return self.head((x + (self.down(F.gelu(self.up(y))) * self.scale).permute(0, 3, 1, 2)).mean((2, 3)))


class Vit(nn.Module):
    def __init__(self):
        super().__init__()
        self.patches, self.first = nn.Conv2d(3, WIDTH, 4, 4), nn.Parameter(torch.randn(1, 1, WIDTH))
        self.places = nn.Parameter(torch.randn(1, 17, WIDTH) * 0.02)
        layer = nn.TransformerEncoderLayer(WIDTH, 2, 32, 0.1, "gelu", batch_first=True, norm_first=True)
        self.layers, self.head = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.Linear(WIDTH, 10)

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.first.expand(x.shape[0], -1, -1), x], 1) + self.places
        return self.head(self.layers(x)[:, 0])


class Swin(nn.Module):
    """Attention in shifted windows, with a learned bias for each distance."""

    def __init__(self):
        super().__init__()
        self.stem, self.qkv, self.out = nn.Conv2d(3, WIDTH, 2, 2), nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.bias, self.head = nn.Parameter(torch.randn(49, 2) * 0.02), nn.Linear(WIDTH, 10)
        places = torch.cartesian_prod(torch.arange(4), torch.arange(4))
        between = places[:, None] - places[None] + 3
        self.register_buffer("distances", between[..., 0] * 7 + between[..., 1])

    def forward(self, x):
        x = self.stem(x).permute(0, 2, 3, 1)
        rows, height, width, channels = x.shape
        y = torch.roll(x, (-2, -2), (1, 2)).view(rows, height // 4, 4, width // 4, 4, channels)
        y = y.transpose(2, 3).reshape(-1, 16, channels)
        q, k, v = self.qkv(y).view(-1, 16, 3, 2, channels // 2).permute(2, 0, 3, 1, 4).unbind(0)
        weight = (q @ k.transpose(-2, -1) / math.sqrt(channels // 2) + self.bias[self.distances].permute(2, 0, 1))
        y = self.out((weight.softmax(-1) @ v).transpose(1, 2).reshape(-1, 16, channels))
        y = y.view(rows, height // 4, width // 4, 4, 4, channels).transpose(2, 3).reshape(x.shape)
        return self.head((x + torch.roll(y, (2, 2), (1, 2))).mean((1, 2)))


class Mixer(nn.Module):
    def __init__(self):
        super().__init__()
        self.patches, self.norm, self.other = nn.Conv2d(3, WIDTH, 4, 4), nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.tokens = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Dropout(0.1), nn.Linear(32, 16))
        self.channels = nn.Sequential(nn.Linear(WIDTH, 32), nn.GELU(), nn.Linear(32, WIDTH))
        self.head = nn.Linear(WIDTH, 10)

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = x + self.tokens(self.norm(x).transpose(1, 2)).transpose(1, 2)
        return self.head((x + self.channels(self.other(x))).mean(1))


class Llama(nn.Module):
    """Grouped queries, rotary positions without gradients, and a gated MLP."""

    def __init__(self):
        super().__init__()
        self.words, self.norm, self.other = nn.Embedding(TOKENS, WIDTH), nn.RMSNorm(WIDTH), nn.RMSNorm(WIDTH)
        self.q, self.kv = nn.Linear(WIDTH, WIDTH, bias=False), nn.Linear(WIDTH, WIDTH, bias=False)
        self.gate, self.up, self.down = nn.Linear(WIDTH, 32), nn.Linear(WIDTH, 32), nn.Linear(32, WIDTH)
        self.register_buffer("speeds", 100.0 ** -(torch.arange(2) / 2), persistent=False)

    @torch.no_grad()
    def angles(self, length):
        angles = torch.outer(torch.arange(length), self.speeds).repeat(1, 2)
        return angles.cos(), angles.sin()

    def turn(self, x, cos, sin):
        a, b = x.chunk(2, -1)
        return x * cos + torch.cat([-b, a], -1) * sin

    def forward(self, tokens):
        x = self.words(tokens)
        rows, length, width = x.shape
        cos, sin = self.angles(length)
        y = self.norm(x)
        q = self.turn(self.q(y).view(rows, length, 4, 4).transpose(1, 2), cos, sin)
        k, v = self.kv(y).view(rows, length, 4, 4).transpose(1, 2).chunk(2, 1)
        y = F.scaled_dot_product_attention(q, self.turn(k, cos, sin), v, is_causal=True, enable_gqa=True)
        x = x + y.transpose(1, 2).reshape(rows, length, width)
        y = self.other(x)
        return F.linear(x + self.down(F.silu(self.gate(y)) * self.up(y)), self.words.weight)


class T5(nn.Module):
    """An encoder and a decoder of one embedding, with biases for buckets of distances."""

    def __init__(self):
        super().__init__()
        self.words, self.bias, self.norm = nn.Embedding(TOKENS, WIDTH), nn.Embedding(4, 2), nn.RMSNorm(WIDTH)
        self.own, self.cross = nn.Linear(WIDTH, 3 * WIDTH, bias=False), nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.drop = nn.Dropout(0.1)

    def attend(self, q, k, v, bias):
        q, k, v = (part.unflatten(-1, (2, -1)).transpose(1, 2) for part in (q, k, v))
        weight = self.drop((q @ k.transpose(-2, -1) + bias).softmax(-1))
        return (weight @ v).transpose(1, 2).flatten(2)

    def distances(self, length):
        places = torch.arange(length)
        buckets = (places[None] - places[:, None]).abs().float().add(1).log2().long().clamp(max=3)
        return self.bias(buckets).permute(2, 0, 1)

    def forward(self, source, target):
        bias = self.distances(source.shape[1])
        x = self.words(source)
        x = x + self.attend(*self.own(self.norm(x)).chunk(3, -1), bias)
        y = self.words(target)
        later = torch.full((y.shape[1], y.shape[1]), float("-inf")).triu(1)
        y = y + self.attend(*self.own(self.norm(y)).chunk(3, -1), self.distances(y.shape[1]) + later)
        q, (k, v) = self.cross(y).chunk(3, -1)[0], self.cross(x).chunk(3, -1)[1:]
        return F.linear(y + self.attend(q, k, v, 0), self.words.weight)


class Experts(nn.Module):
    """Each token goes to the best two of four experts."""

    def __init__(self):
        super().__init__()
        self.words, self.router = nn.Embedding(TOKENS, WIDTH), nn.Linear(WIDTH, 4, bias=False)
        self.up, self.down = nn.Parameter(torch.randn(4, WIDTH, 32) * 0.2), nn.Parameter(torch.randn(4, 32, WIDTH) * 0.2)
        self.head = nn.Linear(WIDTH, TOKENS)

    def forward(self, tokens):
        x = self.words(tokens)
        weight, chosen = self.router(x).softmax(-1).topk(2, -1)
        gates = torch.zeros(*x.shape[:2], 4).scatter(2, chosen, weight / weight.sum(-1, keepdim=True))
        y = torch.einsum("ble,blew->blw", gates, torch.einsum(
            "bleh,ehw->blew", F.relu(torch.einsum("blw,ewh->bleh", x, self.up)), self.down))
        return self.head(x + y), gates.mean((0, 1))


class Mamba(nn.Module):
    """A selective scan after a causal convolution."""

    def __init__(self):
        super().__init__()
        self.words, self.convolution = nn.Embedding(TOKENS, WIDTH), nn.Conv1d(WIDTH, WIDTH, 3, padding=2, groups=WIDTH)
        self.step, self.states, self.head = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 8), nn.Linear(WIDTH, TOKENS)
        self.decay = nn.Parameter(torch.log(torch.arange(1.0, 5.0)).repeat(WIDTH, 1))

    def forward(self, tokens):
        x = self.words(tokens)
        x = F.silu(self.convolution(x.transpose(1, 2))[..., : x.shape[1]].transpose(1, 2))
        step, (b, c) = F.softplus(self.step(x)), self.states(x).chunk(2, -1)
        state, results = torch.zeros(x.shape[0], WIDTH, 4), []
        for place in range(x.shape[1]):
            keep = torch.exp(-step[:, place, :, None] * self.decay.exp())
            state = keep * state + step[:, place, :, None] * b[:, place, None] * x[:, place, :, None]
            results.append((state * c[:, place, None]).sum(-1))
        return self.head(torch.stack(results, 1) * F.silu(x))


class Graph(nn.Module):
    """Messages along the edges of a graph, and attention over those that reach a node."""

    def __init__(self):
        super().__init__()
        self.nodes, self.message, self.score = nn.Linear(5, WIDTH), nn.Linear(2 * WIDTH, WIDTH), nn.Linear(WIDTH, 1)
        self.cell, self.head = nn.GRUCell(WIDTH, WIDTH), nn.Linear(WIDTH, 3)

    def forward(self, x, edges):
        x = torch.tanh(self.nodes(x))
        source, target = edges
        message = F.elu(self.message(torch.cat([x[source], x[target]], -1)))
        score = self.score(message).exp()
        sums = torch.zeros(x.shape[0], 1).index_add(0, target, score)
        mean = torch.zeros_like(x).scatter_add(0, target[:, None].expand_as(message), message * score)
        return self.head(self.cell(mean / (sums + 1e-6), x))


class Diffusion(nn.Module):
    """A U-Net that is told the time of its noise."""

    def __init__(self):
        super().__init__()
        self.time, self.enter = nn.Sequential(nn.Linear(8, WIDTH), nn.SiLU(), nn.Linear(WIDTH, WIDTH)), nn.Conv2d(3, 8, 3, padding=1)
        self.norm, self.down = nn.GroupNorm(4, 8), nn.Conv2d(8, WIDTH, 3, 2, 1)
        self.attention = nn.MultiheadAttention(WIDTH, 2, batch_first=True)
        self.up, self.leave = nn.Conv2d(WIDTH, 8, 3, padding=1), nn.Conv2d(16, 3, 3, padding=1)

    def forward(self, x, time):
        angles = time[:, None] * torch.exp(-torch.arange(4) * math.log(10.0))
        x = self.enter(x)
        y = self.down(F.silu(self.norm(x))) + self.time(torch.cat([angles.sin(), angles.cos()], -1))[:, :, None, None]
        tokens = y.flatten(2).transpose(1, 2)
        y = y + self.attention(tokens, tokens, tokens, need_weights=False)[0].transpose(1, 2).reshape(y.shape)
        return self.leave(torch.cat([x, self.up(F.interpolate(y, scale_factor=2, mode="nearest"))], 1))


def images():
    return torch.randn(2, 3, 16, 16)


def words():
    return torch.randint(0, TOKENS, (2, LENGTH))


def models():
    """Name: function that returns the model and its inputs."""
    inputs = {
        ConvNeXt: lambda: (images(),), Vit: lambda: (images(),), Swin: lambda: (images(),), Mixer: lambda: (images(),),
        Llama: lambda: (words(),), T5: lambda: (words(), words()), Experts: lambda: (words(),), Mamba: lambda: (words(),),
        Graph: lambda: (torch.randn(6, 5), torch.randint(0, 6, (2, 12))),
        Diffusion: lambda: (images(), torch.rand(2)),
    }
    return {kind.__name__.lower(): (lambda kind=kind, make=make: (kind(), make())) for kind, make in inputs.items()}
