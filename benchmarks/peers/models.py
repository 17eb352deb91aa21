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


class GptBlock(nn.Module):
    HEADS = 8

    def __init__(self, units):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(units), nn.LayerNorm(units)
        self.qkv, self.projection = nn.Linear(units, 3 * units), nn.Linear(units, units)
        self.up, self.down = nn.Linear(units, 4 * units), nn.Linear(4 * units, units)

    def forward(self, x):
        batch, length, units = x.shape
        query, key, value = self.qkv(self.norm1(x)).view(
            batch, length, 3, self.HEADS, units // self.HEADS).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.projection(mixed.transpose(1, 2).reshape(batch, length, units))
        return x + self.down(functional.gelu(self.up(self.norm2(x))))


class Gpt(nn.Module):
    VOCABULARY, UNITS, LAYERS, LENGTH, BATCH = 256, 256, 6, 128, 8

    def __init__(self):
        super().__init__()
        self.token = nn.Embedding(self.VOCABULARY, self.UNITS)
        self.position = nn.Embedding(self.LENGTH, self.UNITS)
        self.blocks = nn.Sequential(*(GptBlock(self.UNITS) for _ in range(self.LAYERS)))
        self.head = nn.Linear(self.UNITS, self.VOCABULARY)

    def forward(self, tokens):
        x = self.token(tokens) + self.position(torch.arange(tokens.shape[1]))
        return self.head(self.blocks(x)).flatten(0, 1)

    def batch(self):
        return (torch.randint(self.VOCABULARY, (self.BATCH, self.LENGTH)),
                torch.randint(self.VOCABULARY, (self.BATCH * self.LENGTH,)))


def convolution(inputs, outputs, size, stride):
    return nn.Conv2d(inputs, outputs, size, stride=stride, padding=size // 2, bias=False)


class ResidualBlock(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1, self.norm1 = convolution(inputs, outputs, 3, stride), nn.BatchNorm2d(outputs)
        self.conv2, self.norm2 = convolution(outputs, outputs, 3, 1), nn.BatchNorm2d(outputs)
        self.shortcut = nn.Sequential()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(convolution(inputs, outputs, 1, stride),
                                          nn.BatchNorm2d(outputs))

    def forward(self, x):
        y = self.norm2(self.conv2(functional.relu(self.norm1(self.conv1(x)))))
        return functional.relu(y + self.shortcut(x))


class ResNet18(nn.Module):
    BATCH, CLASSES = 16, 100

    def __init__(self):
        super().__init__()
        self.stem, self.norm = convolution(3, 64, 3, 1), nn.BatchNorm2d(64)
        blocks, inputs = [], 64
        for outputs in (64, 128, 256, 512):
            for stride in (1 if outputs == 64 else 2, 1):
                blocks.append(ResidualBlock(inputs, outputs, stride))
                inputs = outputs
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(512, self.CLASSES)

    def forward(self, images):
        x = self.blocks(functional.relu(self.norm(self.stem(images))))
        return self.head(functional.adaptive_avg_pool2d(x, 1).flatten(1))

    def batch(self):
        return torch.randn(self.BATCH, 3, 32, 32), torch.randint(self.CLASSES, (self.BATCH,))


MODELS = {"lstm": LstmLanguageModel, "gpt": Gpt, "resnet18": ResNet18}
