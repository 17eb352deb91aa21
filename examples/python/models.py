"""The models of examples/models in Python: the same names of weights and the same computation.

ResNet is torchvision's, Bert and Gpt2 are Hugging Face's, WordLm is that of pytorch/examples.
"""

import torch
from torch import nn
from torch.nn import functional


class ResNetBlock(nn.Module):
    def __init__(self, inputs, width, stride, bottleneck):
        super().__init__()
        outputs = 4 * width if bottleneck else width
        first, middle = ((1, 0, 1), stride) if bottleneck else ((3, 1, stride), 1)
        self.conv1 = nn.Conv2d(inputs, width, first[0], padding=first[1], stride=first[2], bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, stride=middle, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        if bottleneck:
            self.conv3 = nn.Conv2d(width, outputs, 1, bias=False)
            self.bn3 = nn.BatchNorm2d(outputs)
        self.downsample = None
        if stride != 1 or inputs != outputs:
            self.downsample = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride=stride, bias=False),
                                            nn.BatchNorm2d(outputs))

    def forward(self, x):
        y = self.bn2(self.conv2(self.bn1(self.conv1(x)).relu()))
        if hasattr(self, "conv3"):
            y = self.bn3(self.conv3(y.relu()))
        return (y + (x if self.downsample is None else self.downsample(x))).relu()


class ResNet(nn.Module):
    BLOCKS = {18: (2, 2, 2, 2), 34: (3, 4, 6, 3), 50: (3, 4, 6, 3), 101: (3, 4, 23, 3), 152: (3, 8, 36, 3)}

    def __init__(self, depth=18, classes=10, width=64, large_images=False):
        super().__init__()
        self.large_images, bottleneck, inputs = large_images, depth >= 50, width
        self.conv1 = nn.Conv2d(3, width, 7 if large_images else 3, padding=3 if large_images else 1,
                               stride=2 if large_images else 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        for stage, count in enumerate(self.BLOCKS[depth]):
            blocks = []
            for block in range(count):
                blocks.append(ResNetBlock(inputs, width << stage, 2 if block == 0 and stage > 0 else 1, bottleneck))
                inputs = (width << stage) * (4 if bottleneck else 1)
            setattr(self, f"layer{stage + 1}", nn.Sequential(*blocks))
        self.fc = nn.Linear(inputs, classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x):
        x = self.bn1(self.conv1(x)).relu()
        if self.large_images:
            x = functional.max_pool2d(x, 3, 2, 1)
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(functional.adaptive_avg_pool2d(x, 1).flatten(1))


class Group(nn.Module):
    """Gives its modules a part of their names."""

    def __init__(group, **modules):  # noqa: N805; BERT has a module named self
        super().__init__()
        for name, module in modules.items():
            setattr(group, name, module)


def initialised(module):
    if isinstance(module, (nn.Linear, nn.Embedding)):
        nn.init.normal_(module.weight, std=0.02)
    if isinstance(module, nn.Linear):
        nn.init.zeros_(module.bias)
    return module


class BertLayer(nn.Module):
    def __init__(self, width, dropout):
        super().__init__()
        self.heads, self.dropout = max(1, width // 64), dropout
        self.attention = Group(
            self=Group(query=nn.Linear(width, width), key=nn.Linear(width, width), value=nn.Linear(width, width)),
            output=Group(dense=nn.Linear(width, width), LayerNorm=nn.LayerNorm(width, eps=1e-12)))
        self.intermediate = Group(dense=nn.Linear(width, 4 * width))
        self.output = Group(dense=nn.Linear(4 * width, width), LayerNorm=nn.LayerNorm(width, eps=1e-12))

    def dropped(self, x):
        return functional.dropout(x, self.dropout, self.training)

    def forward(self, x, seen):
        inner = getattr(self.attention, "self")
        query, key, value = (part(x).unflatten(2, (self.heads, -1)).transpose(1, 2)
                             for part in (inner.query, inner.key, inner.value))
        mixed = functional.scaled_dot_product_attention(query, key, value, seen, self.dropout if self.training else 0.0)
        output = self.attention.output
        x = output.LayerNorm(x + self.dropped(output.dense(mixed.transpose(1, 2).flatten(2))))
        return self.output.LayerNorm(
            x + self.dropped(self.output.dense(functional.gelu(self.intermediate.dense(x)))))


class Bert(nn.Module):
    def __init__(self, vocabulary=30522, layers=12, width=768, positions=512, classes=3, dropout=0.1,
                 checkpointed=False):
        super().__init__()
        self.dropout, self.checkpointed = dropout, checkpointed
        self.bert = Group(
            embeddings=Group(word_embeddings=nn.Embedding(vocabulary, width),
                             position_embeddings=nn.Embedding(positions, width),
                             token_type_embeddings=nn.Embedding(2, width),
                             LayerNorm=nn.LayerNorm(width, eps=1e-12)),
            encoder=Group(layer=nn.ModuleList(BertLayer(width, dropout) for _ in range(layers))),
            pooler=Group(dense=nn.Linear(width, width)))
        self.classifier = nn.Linear(width, classes)
        self.apply(initialised)

    def hidden_states(self, pieces, types=None):
        embeddings, seen = self.bert.embeddings, pieces.ne(0)[:, None, None]
        x = (embeddings.word_embeddings(pieces)
             + embeddings.token_type_embeddings(torch.zeros_like(pieces) if types is None else types)
             + embeddings.position_embeddings(torch.arange(pieces.shape[1])))
        states = [functional.dropout(embeddings.LayerNorm(x), self.dropout, self.training)]
        for layer in self.bert.encoder.layer:
            if self.checkpointed:
                states = [torch.utils.checkpoint.checkpoint(layer, states[-1], seen, use_reentrant=False)]
            else:
                states.append(layer(states[-1], seen))
        return states

    def forward(self, pieces, types=None):
        x = self.bert.pooler.dense(self.hidden_states(pieces, types)[-1][:, 0]).tanh()
        return self.classifier(functional.dropout(x, self.dropout, self.training))


class Conv1D(nn.Module):
    def __init__(self, inputs, outputs, deviation=0.02):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(inputs, outputs) * deviation)
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(self, x):
        return x @ self.weight + self.bias


class Gpt2Block(nn.Module):
    def __init__(self, width, heads, layers, dropout):
        super().__init__()
        last = 0.02 / (2 * layers) ** 0.5
        self.heads, self.dropout = heads, dropout
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attn = Group(c_attn=Conv1D(width, 3 * width), c_proj=Conv1D(width, width, last))
        self.mlp = Group(c_fc=Conv1D(width, 4 * width), c_proj=Conv1D(4 * width, width, last))

    def dropped(self, x):
        return functional.dropout(x, self.dropout, self.training)

    def forward(self, x):
        parts = (part.unflatten(2, (self.heads, -1)).transpose(1, 2)
                 for part in self.attn.c_attn(self.ln_1(x)).chunk(3, 2))
        mixed = functional.scaled_dot_product_attention(*parts, None, self.dropout if self.training else 0.0,
                                                        is_causal=True)
        x = x + self.dropped(self.attn.c_proj(mixed.transpose(1, 2).flatten(2)))
        return x + self.dropped(self.mlp.c_proj(functional.gelu(self.mlp.c_fc(self.ln_2(x)), approximate="tanh")))


class Gpt2(nn.Module):
    def __init__(self, vocabulary=50257, layers=12, width=768, heads=12, context=1024, dropout=0.1):
        super().__init__()
        self.dropout = dropout
        self.wte, self.wpe = (initialised(nn.Embedding(count, width)) for count in (vocabulary, context))
        self.h = nn.ModuleList(Gpt2Block(width, heads, layers, dropout) for _ in range(layers))
        self.ln_f = nn.LayerNorm(width)

    def forward(self, tokens):
        x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1]))
        x = functional.dropout(x, self.dropout, self.training)
        for block in self.h:
            x = block(x)
        return functional.linear(self.ln_f(x), self.wte.weight)


class WordLm(nn.Module):
    def __init__(self, words, cell="LSTM", width=200, hidden=200, layers=2, dropout=0.2, tied=False):
        super().__init__()
        self.drop, self.encoder = nn.Dropout(dropout), nn.Embedding(words, width)
        inner = dropout if layers > 1 else 0.0
        if cell in ("LSTM", "GRU"):
            self.rnn = getattr(nn, cell)(width, hidden, layers, dropout=inner)
        else:
            self.rnn = nn.RNN(width, hidden, layers, nonlinearity=cell[len("RNN_"):].lower(), dropout=inner)
        self.decoder = nn.Linear(hidden, words)
        if tied:
            self.decoder.weight = self.encoder.weight
        nn.init.uniform_(self.encoder.weight, -0.1, 0.1)
        nn.init.uniform_(self.decoder.weight, -0.1, 0.1)
        nn.init.zeros_(self.decoder.bias)

    def forward(self, words, state):
        output, state = self.rnn(self.drop(self.encoder(words)), state)
        return self.decoder(self.drop(output)).flatten(0, 1), state
