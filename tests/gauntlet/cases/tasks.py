"""The tasks of the families: a small GPT, a CNN, a recommender, a recurrent net and an autoencoder, each with its data.

Batch `number` is drawn with a seed of its own, so a resumed run sees the same batches. Each task has noise that no
model can learn, as real data has.
"""

import random

import torch
from case import seeded
from torch import nn
from torch.nn import functional as F

LETTERS, LENGTH = 20, 12


class Text:
    """Letters: words of two to five, each followed by one of six others."""

    def __init__(self, seed=1):
        dice = random.Random(seed)
        words = [[dice.randrange(1, LETTERS) for _ in range(dice.randint(2, 5))] + [0] for _ in range(24)]
        follows = [[dice.randrange(24) for _ in range(6)] for _ in words]
        self.train, self.held_out = (self._write(words, follows, seed) for seed in (seed + 1, seed + 2))

    @staticmethod
    def _write(words, follows, seed):
        dice, word, letters = random.Random(seed), 0, []
        while len(letters) < 60000:
            word = dice.choice(follows[word])
            letters += words[word]
        return torch.tensor(letters)

    def batch(self, number, size=12):
        text = self.held_out if number < 0 else self.train
        starts = torch.randint(0, len(text) - LENGTH, (size, 1), generator=seeded(1000 + number))
        rows = text[starts + torch.arange(LENGTH + 1)]
        return rows[:, :-1], rows[:, 1:]

    @staticmethod
    def loss(out, y):
        return F.cross_entropy(out.flatten(0, 1).float(), y.flatten())


class Gpt(nn.Module):
    """One block of causal attention and a feed-forward net."""

    def __init__(self, width=24, heads=2):
        super().__init__()
        self.heads = heads
        self.letter, self.place = nn.Embedding(LETTERS, width), nn.Embedding(LENGTH, width)
        self.before, self.after, self.last = nn.LayerNorm(width), nn.LayerNorm(width), nn.LayerNorm(width)
        self.mixed, self.merged = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.feed = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.head = nn.Linear(width, LETTERS)

    def forward(self, x):
        h = self.letter(x) + self.place.weight[: x.shape[1]]
        split = self.mixed(self.before(h)).unflatten(2, (3 * self.heads, -1)).transpose(1, 2)
        seen = F.scaled_dot_product_attention(*split.chunk(3, 1), is_causal=True)
        h = h + self.merged(seen.transpose(1, 2).flatten(2))
        return self.head(self.last(h + self.feed(self.after(h))))


class Images:
    """Images of eight shapes, shifted and noisy; one label in ten is wrong."""

    def __init__(self):
        self.shapes = F.interpolate(torch.randn(8, 1, 4, 4, generator=seeded(1)), (12, 12), mode="bilinear")

    def batch(self, number, size=16):
        generator = seeded(1000 + number)
        y = torch.randint(0, 8, (size,), generator=generator)
        shift = torch.randint(0, 3, (1,), generator=generator).item()
        x = self.shapes[y].roll(shift, 3) + 0.7 * torch.randn(size, 1, 12, 12, generator=generator)
        wrong = torch.rand(size, generator=generator) < 0.1
        return x, torch.where(wrong, torch.randint(0, 8, (size,), generator=generator), y)

    @staticmethod
    def loss(out, y):
        return F.cross_entropy(out.float(), y)


def cnn():
    convolutions = nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 16, 3, padding=1)
    return nn.Sequential(*convolutions, nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(144, 8))


class Clicks:
    """Clicks of users on items, by their hidden tastes."""

    def __init__(self):
        self.users, self.items = torch.randn(40, 4, generator=seeded(1)), torch.randn(30, 4, generator=seeded(2))

    def batch(self, number, size=64):
        generator = seeded(1000 + number)
        user = torch.randint(0, 40, (size,), generator=generator)
        item = torch.randint(0, 30, (size,), generator=generator)
        liking = torch.sigmoid((self.users[user] * self.items[item]).sum(1))
        return torch.stack([user, item], 1), torch.bernoulli(liking, generator=generator)

    @staticmethod
    def loss(out, y):
        return F.binary_cross_entropy_with_logits(out.float(), y)


class Recommender(nn.Module):
    """Scores a user and an item by the product of their embeddings and by a small net."""

    def __init__(self, width=8):
        super().__init__()
        self.user, self.item = nn.Embedding(40, width), nn.Embedding(30, width)
        self.net = nn.Sequential(nn.Linear(2 * width, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, x):
        user, item = self.user(x[:, 0]), self.item(x[:, 1])
        return (user * item).sum(1) + self.net(torch.cat([user, item], 1)).squeeze(1)


class Sums:
    """Sequences of eight numbers, two of them marked; the target is the sum of these two, and some noise."""

    def batch(self, number, size=32):
        generator = seeded(1000 + number)
        values, rows = torch.rand(size, 8, generator=generator), torch.arange(size)
        marks = torch.zeros(size, 8)
        marks[rows, torch.randint(0, 4, (size,), generator=generator)] = 1.0
        marks[rows, torch.randint(4, 8, (size,), generator=generator)] = 1.0
        y = (values * marks).sum(1) + 0.3 * torch.randn(size, generator=generator)
        return torch.stack([values, marks], 2), y

    @staticmethod
    def loss(out, y):
        return F.mse_loss(out.float(), y)


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn, self.head = nn.GRU(2, 16, batch_first=True), nn.Linear(16, 1)

    def forward(self, x):
        return self.head(self.rnn(x)[0][:, -1]).squeeze(1)


class Signals:
    """Twenty-four sensors that show four hidden sources, bent and noisy; the target is the input itself."""

    def __init__(self):
        self.mixing = torch.randn(4, 24, generator=seeded(1))

    def batch(self, number, size=32):
        generator = seeded(1000 + number)
        sources = torch.randn(size, 4, generator=generator)
        x = torch.tanh(sources @ self.mixing) + 0.5 * torch.randn(size, 24, generator=generator)
        return x, x

    @staticmethod
    def loss(out, y):
        return F.mse_loss(out.float(), y)


def autoencoder():
    encoder = nn.Linear(24, 48), nn.ReLU(), nn.Linear(48, 4)
    return nn.Sequential(*encoder, nn.Linear(4, 48), nn.ReLU(), nn.Linear(48, 24))


DATA = {"gpt": Text, "cnn": Images, "recommender": Clicks, "rnn": Sums, "autoencoder": Signals}
MODELS = {"gpt": Gpt, "cnn": cnn, "recommender": Recommender, "rnn": Recurrent, "autoencoder": autoencoder}
