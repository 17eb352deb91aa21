"""The reference models of models.h, in Python: the same layers, batches and parameter counts."""

import torch
from torch import nn
from torch.nn import functional


class LstmLanguageModel(nn.Module):
    VOCABULARY, UNITS, LAYERS, TOKENS, BATCH = 33278, 200, 2, 35, 20

    def __init__(self):
        super().__init__()
        self.dropout = nn.Dropout(0.2)
        self.embedding = nn.Embedding(self.VOCABULARY, self.UNITS)
        self.lstm = nn.LSTM(self.UNITS, self.UNITS, self.LAYERS, dropout=0.2)
        self.decoder = nn.Linear(self.UNITS, self.VOCABULARY)

    def forward(self, tokens):
        hidden, _ = self.lstm(self.dropout(self.embedding(tokens)))
        return self.decoder(self.dropout(hidden)).flatten(0, 1)

    def batch(self):
        return (torch.randint(self.VOCABULARY, (self.TOKENS, self.BATCH)),
                torch.randint(self.VOCABULARY, (self.TOKENS * self.BATCH,)))


class TransformerLayer(nn.Module):
    def __init__(self, units, heads, norm_first=False, causal=False, dropout=0.0):
        super().__init__()
        self.heads, self.norm_first, self.causal, self.dropout = heads, norm_first, causal, dropout
        self.norm1, self.norm2 = nn.LayerNorm(units), nn.LayerNorm(units)
        self.qkv, self.projection = nn.Linear(units, 3 * units), nn.Linear(units, units)
        self.up, self.down = nn.Linear(units, 4 * units), nn.Linear(4 * units, units)

    def _attention(self, x):
        batch, length, units = x.shape
        query, key, value = self.qkv(x).view(
            batch, length, 3, self.heads, units // self.heads).permute(2, 0, 3, 1, 4).unbind(0)
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=self.causal)
        return self.projection(mixed.transpose(1, 2).reshape(batch, length, units))

    def _dropped(self, x):
        return functional.dropout(x, self.dropout)

    def forward(self, x):
        if self.norm_first:
            x = x + self._dropped(self._attention(self.norm1(x)))
            return x + self._dropped(self.down(functional.gelu(self.up(self.norm2(x)))))
        x = self.norm1(x + self._dropped(self._attention(x)))
        return self.norm2(x + self._dropped(self.down(functional.gelu(self.up(x)))))


class Gpt(nn.Module):
    def __init__(self, vocabulary, units, heads, layers, length, batch, tied=False):
        super().__init__()
        self.vocabulary, self.shape, self.tied = vocabulary, (batch, length), tied
        self.token, self.position = nn.Embedding(vocabulary, units), nn.Embedding(length, units)
        self.layers = nn.Sequential(*(TransformerLayer(units, heads, True, True)
                                      for _ in range(layers)))
        if tied:
            self.norm = nn.LayerNorm(units)
        else:
            self.head = nn.Linear(units, vocabulary)

    def forward(self, tokens):
        places = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.layers(self.token(tokens) + self.position(places))
        y = functional.linear(self.norm(x), self.token.weight) if self.tied else self.head(x)
        return y.flatten(0, 1)

    def batch(self):
        return (torch.randint(self.vocabulary, self.shape),
                torch.randint(self.vocabulary, (self.shape[0] * self.shape[1],)))


class Bert(nn.Module):
    DROPOUT = 0.1

    def __init__(self, vocabulary, units, heads, layers, length, batch):
        super().__init__()
        self.vocabulary, self.shape = vocabulary, (batch, length)
        self.token, self.position = nn.Embedding(vocabulary, units), nn.Embedding(512, units)
        self.kind, self.norm = nn.Embedding(2, units), nn.LayerNorm(units)
        self.layers = nn.Sequential(*(TransformerLayer(units, heads, dropout=self.DROPOUT)
                                      for _ in range(layers)))
        self.pooler, self.head = nn.Linear(units, units), nn.Linear(units, 2)

    def forward(self, tokens):
        places = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.token(tokens) + self.position(places) + self.kind(torch.zeros_like(places))
        y = self.layers(functional.dropout(self.norm(x), self.DROPOUT))
        return self.head(functional.dropout(torch.tanh(self.pooler(y[:, 0])), self.DROPOUT))

    def batch(self):
        return torch.randint(self.vocabulary, self.shape), torch.randint(2, self.shape[:1])


def normalised(inputs, outputs, size, stride):
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, size, stride=stride, padding=size // 2, bias=False),
        nn.BatchNorm2d(outputs))


class BasicBlock(nn.Module):
    EXPANSION = 1

    def __init__(self, inputs, width, stride):
        super().__init__()
        self.first = normalised(inputs, width, 3, stride)
        self.second = normalised(width, width, 3, 1)
        self.shortcut = (nn.Identity() if stride == 1 and inputs == width
                         else normalised(inputs, width, 1, stride))

    def forward(self, x):
        return functional.relu(self.second(functional.relu(self.first(x))) + self.shortcut(x))


class Bottleneck(nn.Module):
    EXPANSION = 4

    def __init__(self, inputs, width, stride):
        super().__init__()
        outputs = self.EXPANSION * width
        self.first = normalised(inputs, width, 1, 1)
        self.second = normalised(width, width, 3, stride)
        self.third = normalised(width, outputs, 1, 1)
        self.shortcut = (nn.Identity() if stride == 1 and inputs == outputs
                         else normalised(inputs, outputs, 1, stride))

    def forward(self, x):
        y = functional.relu(self.second(functional.relu(self.first(x))))
        return functional.relu(self.third(y) + self.shortcut(x))


class ResNet(nn.Module):
    def __init__(self, block, depths, width, image, classes, batch, large_images=False):
        super().__init__()
        self.shape, self.classes = (batch, 3, image, image), classes
        self.large_images = large_images
        self.stem = normalised(3, width, 7, 2) if large_images else normalised(3, width, 3, 1)
        blocks, inputs = [], width
        for stage, depth in enumerate(depths):
            for i in range(depth):
                blocks.append(block(inputs, width << stage, 2 if i == 0 and stage > 0 else 1))
                inputs = block.EXPANSION * (width << stage)
        self.blocks, self.head = nn.Sequential(*blocks), nn.Linear(inputs, classes)

    def forward(self, images):
        x = functional.relu(self.stem(images))
        if self.large_images:
            x = functional.max_pool2d(x, 3, 2, 1)
        return self.head(functional.adaptive_avg_pool2d(self.blocks(x), 1).flatten(1))

    def batch(self):
        return torch.randn(self.shape), torch.randint(self.classes, self.shape[:1])


class Mlp(nn.Sequential):
    LAYERS = 16

    def __init__(self, units):
        super().__init__(*(nn.Linear(units, units) for _ in range(self.LAYERS)))
        self.units = units

    def batch(self):
        return torch.randn(1, self.units), torch.randint(self.units, (1,))


MODELS = {
    "lstm": LstmLanguageModel,
    "gpt": lambda: Gpt(256, 256, 8, 6, 128, 8),
    "gpt2": lambda: Gpt(50257, 768, 12, 12, 1024, 8, tied=True),
    "gpt2-tiny": lambda: Gpt(64, 32, 2, 2, 16, 2, tied=True),
    "bert": lambda: Bert(30522, 768, 12, 12, 128, 64),
    "bert-tiny": lambda: Bert(64, 32, 2, 2, 16, 2),
    "resnet18": lambda: ResNet(BasicBlock, (2, 2, 2, 2), 64, 32, 100, 16),
    "resnet18-tiny": lambda: ResNet(BasicBlock, (1, 1, 1, 1), 4, 8, 10, 2),
    "resnet50": lambda: ResNet(Bottleneck, (3, 4, 6, 3), 64, 224, 1000, 256, large_images=True),
    "resnet50-tiny": lambda: ResNet(Bottleneck, (1, 1, 1, 1), 4, 32, 10, 2, large_images=True),
    "mlp": lambda: Mlp(1024),
    "mlp-small": lambda: Mlp(16),
}
