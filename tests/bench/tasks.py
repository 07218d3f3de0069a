"""Small tasks that are really learned. Each trains several seeds at once, as slices of the same tensors.

The first dimension of every parameter and of every batch is the seed: the slices share no number, so each is a training
of its own, and a step of eight costs little more than a step of one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

Parameters = dict[str, Tensor]


@dataclass(frozen=True)
class Setting:
    """What a task may vary, besides its seed."""

    batch: int = 32
    # Share of labels that are wrong.
    label_noise: float = 0.0
    # Degrees of freedom of the noise on targets and inputs (Student's t): 2 has no variance. 0: no noise.
    tail: float = 0.0
    # One batch in so many is this many times too large.
    bad_every: int = 0
    bad_size: float = 1.0
    # How the activations are scaled in the middle of the network; far above 1 they end beyond FP16's 65504.
    gain: float = 1.0


class Task:
    """Makes parameters and batches, and computes one loss per seed."""

    def __init__(self, seeds: int, generator: torch.Generator, setting: Setting) -> None:
        self.seeds, self.generator, self.setting = seeds, generator, setting
        self.parameters: Parameters = {}
        self.prepare()
        for tensor in self.parameters.values():
            tensor.requires_grad_()

    def prepare(self) -> None:
        raise NotImplementedError

    def losses(self, step: int) -> Tensor:
        """Return the loss of every seed on a fresh batch."""
        raise NotImplementedError

    # What tasks are made of.

    def normal(self, *shape: int, scale: float = 1.0) -> Tensor:
        return torch.randn(self.seeds, *shape, generator=self.generator) * scale

    def uniform(self, *shape: int) -> Tensor:
        return torch.rand(self.seeds, *shape, generator=self.generator)

    def weight(self, name: str, *shape: int, gain: float = 1.0) -> Tensor:
        fan_in = shape[-2] if len(shape) > 1 else 1
        self.parameters[name] = self.normal(*shape, scale=gain / math.sqrt(fan_in))
        return self.parameters[name]

    def labels(self, truth: Tensor, classes: int) -> Tensor:
        """Return the labels with some of them replaced by chance."""
        if not self.setting.label_noise:
            return truth
        wrong = torch.rand(truth.shape, generator=self.generator) < self.setting.label_noise
        chance = torch.randint(0, classes, truth.shape, generator=self.generator)
        return torch.where(wrong, chance, truth)

    def noise(self, *shape: int) -> Tensor:
        """Return noise with the tail that is asked for."""
        if not self.setting.tail:
            return torch.zeros(self.seeds, *shape)
        freedom = self.setting.tail
        gamma = torch._standard_gamma(torch.full((self.seeds, *shape), freedom / 2), generator=self.generator)
        return self.normal(*shape) / (2 * gamma / freedom).clamp_min(1e-6).sqrt()

    def disturbed(self, inputs: Tensor, step: int) -> Tensor:
        """Return the inputs, far too large where this is a bad batch."""
        every = self.setting.bad_every
        return inputs * self.setting.bad_size if every and step % every == every - 1 else inputs


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    flat = F.cross_entropy(logits.float().flatten(0, -2), labels.flatten(), reduction="none")
    return flat.view(labels.shape[0], -1).mean(1)


class Clusters(Task):
    """Ten blurred clusters, classified by an MLP with ReLU."""

    CLASSES, WIDTH = 10, 32

    def prepare(self) -> None:
        self.centres = self.normal(self.CLASSES, 16, scale=0.7)
        self.weight("in", 16, self.WIDTH, gain=1.4)
        self.weight("mid", self.WIDTH, self.WIDTH, gain=1.4)
        self.weight("out", self.WIDTH, self.CLASSES)

    def losses(self, step: int) -> Tensor:
        truth = torch.randint(0, self.CLASSES, (self.seeds, self.setting.batch), generator=self.generator)
        centres = self.centres.gather(1, truth.unsqueeze(-1).expand(-1, -1, 16))
        inputs = self.disturbed(centres + self.normal(self.setting.batch, 16) + self.noise(self.setting.batch, 1), step)
        p = self.parameters
        hidden = (inputs @ p["in"]).relu() * self.setting.gain
        hidden = (hidden @ p["mid"]).relu() / self.setting.gain
        return cross_entropy(hidden @ p["out"], self.labels(truth, self.CLASSES))


class Teacher(Task):
    """Regression on the output of a random network, by an MLP with tanh."""

    def prepare(self) -> None:
        self.first, self.second = self.normal(8, 16, scale=0.6), self.normal(16, 1)
        self.weight("in", 8, 32)
        self.weight("mid", 32, 32)
        self.weight("out", 32, 1)

    def losses(self, step: int) -> Tensor:
        inputs = self.normal(self.setting.batch, 8)
        wanted = torch.tanh(inputs @ self.first) @ self.second + 0.3 * self.noise(self.setting.batch, 1)
        p = self.parameters
        hidden = torch.tanh(self.disturbed(inputs, step) @ p["in"])
        hidden = (hidden @ p["mid"]).relu() * self.setting.gain
        found = (hidden @ p["out"]).float() / self.setting.gain
        return (found - self.disturbed(wanted, step)).pow(2).mean((1, 2))


class Language(Task):
    """A language in which the next token depends on the last two, learned by a transformer of two layers."""

    WORDS, LENGTH, WIDTH = 24, 8, 16

    def prepare(self) -> None:
        self.habits = self.normal(self.WORDS, self.WORDS, scale=1.5)
        self.memory = self.normal(self.WORDS, self.WORDS, scale=1.0)
        self.parameters["words"] = self.normal(self.WORDS, self.WIDTH, scale=0.5)
        self.parameters["places"] = self.normal(self.LENGTH, self.WIDTH, scale=0.2)
        for layer in "ab":
            self.weight(f"ask_{layer}", self.WIDTH, 3 * self.WIDTH)
            self.weight(f"answer_{layer}", self.WIDTH, self.WIDTH, gain=0.5)
            self.weight(f"wide_{layer}", self.WIDTH, 2 * self.WIDTH, gain=1.4)
            self.weight(f"narrow_{layer}", 2 * self.WIDTH, self.WIDTH, gain=0.5)
        self.weight("out", self.WIDTH, self.WORDS)
        self.mask = torch.full((self.LENGTH, self.LENGTH), -1e4).triu(1)
        self.book = self.write(2048)

    def write(self, batch: int) -> Tensor:
        words = [torch.randint(0, self.WORDS, (self.seeds, batch), generator=self.generator) for _ in range(2)]
        pick = torch.arange(self.seeds).unsqueeze(1)
        for _ in range(self.LENGTH - 1):
            chances = (self.habits[pick, words[-1]] + self.memory[pick, words[-2]]).softmax(-1)
            drawn = torch.multinomial(chances.flatten(0, 1), 1, generator=self.generator)
            words.append(self.labels(drawn.view(self.seeds, batch), self.WORDS))
        return torch.stack(words[1:], -1)

    def losses(self, step: int) -> Tensor:
        batch = self.setting.batch
        pages = torch.randint(0, self.book.shape[1], (self.seeds, batch), generator=self.generator)
        text = self.book.gather(1, pages.unsqueeze(-1).expand(-1, -1, self.LENGTH))
        p = self.parameters
        pick = torch.arange(self.seeds).view(-1, 1, 1)
        flow = self.disturbed(p["words"][pick, text] + p["places"].unsqueeze(1), step)
        for layer in "ab":
            flow = flow + self.attend(norm(flow), layer)
            wide = (flat(norm(flow)) @ p[f"wide_{layer}"]).relu() * self.setting.gain
            flow = flow + (wide @ p[f"narrow_{layer}"]).view(flow.shape) / self.setting.gain
        logits = flat(norm(flow)[:, :, :-1]) @ p["out"]
        return cross_entropy(logits, text[:, :, 1:].flatten(1))

    def attend(self, flow: Tensor, layer: str) -> Tensor:
        ask, key, value = (flat(flow) @ self.parameters[f"ask_{layer}"]).view(*flow.shape[:3], -1).chunk(3, -1)
        scores = (ask @ key.transpose(-1, -2)).float() / math.sqrt(self.WIDTH) + self.mask
        return (flat(scores.softmax(-1).to(value.dtype) @ value) @ self.parameters[f"answer_{layer}"]).view(flow.shape)


def flat(flow: Tensor) -> Tensor:
    return flow.flatten(1, 2)


def norm(flow: Tensor) -> Tensor:
    return F.layer_norm(flow.float(), flow.shape[-1:])


class Ranking(Task):
    """Recommendation: embeddings trained by pairs, with log(sigmoid(x)) written by hand as in many scripts."""

    PEOPLE, THINGS, WIDTH = 60, 80, 8

    def prepare(self) -> None:
        self.tastes = self.normal(self.PEOPLE, 3) @ self.normal(3, self.THINGS)
        self.parameters["people"] = self.normal(self.PEOPLE, self.WIDTH, scale=0.3)
        self.parameters["things"] = self.normal(self.THINGS, self.WIDTH, scale=0.3)

    def losses(self, step: int) -> Tensor:
        shape, pick = (self.seeds, self.setting.batch), torch.arange(self.seeds).unsqueeze(1)
        who = torch.randint(0, self.PEOPLE, shape, generator=self.generator)
        one, other = (torch.randint(0, self.THINGS, shape, generator=self.generator) for _ in "ab")
        prefers = self.tastes[pick, who, one] > self.tastes[pick, who, other]
        sign = 2.0 * self.labels(prefers.long(), 2) - 1.0
        p = self.parameters
        likes = self.disturbed(p["people"][pick, who], step)
        ahead = (likes * (p["things"][pick, one] - p["things"][pick, other])).sum(-1) * self.setting.gain
        return -torch.log(torch.sigmoid(sign * ahead)).mean(1)


class Waves(Task):
    """Which of six wave forms is in a noisy signal: two convolutions and a mean."""

    CLASSES, LENGTH, WIDTH = 6, 24, 12

    def prepare(self) -> None:
        self.forms = self.normal(self.CLASSES, self.LENGTH)
        # Grouped convolutions want the seeds in the channels.
        self.parameters["first"] = self.normal(self.WIDTH, 1, 5, scale=0.6)
        self.parameters["second"] = self.normal(self.WIDTH, self.WIDTH, 5, scale=0.25)
        self.weight("out", self.WIDTH * 4, self.CLASSES)

    def losses(self, step: int) -> Tensor:
        seeds, batch = self.seeds, self.setting.batch
        truth = torch.randint(0, self.CLASSES, (seeds, batch), generator=self.generator)
        forms = self.forms.gather(1, truth.unsqueeze(-1).expand(-1, -1, self.LENGTH))
        inputs = forms + 0.8 * self.normal(batch, self.LENGTH) + self.noise(batch, 1)
        p = self.parameters
        flow = self.disturbed(inputs, step).transpose(0, 1)
        flow = F.conv1d(flow, p["first"].flatten(0, 1), groups=seeds, padding=2).relu() * self.setting.gain
        flow = F.conv1d(flow, p["second"].flatten(0, 1), groups=seeds, padding=2).relu() / self.setting.gain
        pooled = F.adaptive_avg_pool1d(flow.float(), 4).view(batch, seeds, -1).transpose(0, 1)
        return cross_entropy(pooled @ p["out"], self.labels(truth, self.CLASSES))


class Adding(Task):
    """Two numbers marked in a sequence are to be added up, by a plain recurrent network that explodes easily."""

    LENGTH, WIDTH = 8, 24

    def prepare(self) -> None:
        self.weight("in", 2, self.WIDTH)
        start = 0.9 * torch.eye(self.WIDTH).expand(self.seeds, -1, -1)
        self.parameters["again"] = start + self.normal(self.WIDTH, self.WIDTH, scale=0.02)
        self.weight("out", self.WIDTH, 1)

    def losses(self, step: int) -> Tensor:
        batch = self.setting.batch
        values = self.uniform(batch, self.LENGTH)
        marks = torch.zeros_like(values)
        places = torch.argsort(self.uniform(batch, self.LENGTH), -1)[..., :2]
        marks.scatter_(2, places, 1.0)
        wanted = (values * marks).sum(-1) + 0.1 * self.noise(batch)
        inputs = self.disturbed(torch.stack([values, marks], -1), step)
        p = self.parameters
        state = torch.zeros(self.seeds, batch, self.WIDTH)
        for place in range(self.LENGTH):
            state = F.leaky_relu(inputs[:, :, place] @ p["in"] + state @ p["again"], 0.3)
        return ((state @ p["out"]).squeeze(-1).float() - wanted).pow(2).mean(1)


class Density(Task):
    """Mean and variance of a noisy curve by negative log likelihood: a loss that goes below zero."""

    def prepare(self) -> None:
        self.phase = self.uniform(1, 4) * 6
        self.weight("in", 4, 32)
        self.weight("mid", 32, 32, gain=1.4)
        self.weight("out", 32, 2)

    def losses(self, step: int) -> Tensor:
        batch = self.setting.batch
        inputs = self.normal(batch, 4)
        width = 0.03 + 0.1 * inputs[..., :1].abs()
        wanted = torch.sin(2 * inputs + self.phase).mean(-1, keepdim=True) + width * self.normal(batch, 1)
        wanted = wanted + 0.05 * self.noise(batch, 1)
        p = self.parameters
        hidden = torch.tanh(self.disturbed(inputs, step) @ p["in"])
        found = ((hidden @ p["mid"]).relu() * self.setting.gain) @ p["out"] / self.setting.gain
        mean, log_variance = found.float().chunk(2, -1)
        return (0.5 * log_variance + 0.5 * (wanted - mean).pow(2) / log_variance.exp()).mean((1, 2))


class Bandit(Task):
    """Policy gradient on a bandit with contexts: a loss around zero that means little, and heavy noise."""

    ARMS = 6

    def prepare(self) -> None:
        self.rewards = self.normal(8, self.ARMS)
        self.weight("in", 8, 24, gain=1.4)
        self.weight("out", 24, self.ARMS, gain=0.5)
        self.worth = torch.zeros(self.seeds, 1)

    def losses(self, step: int) -> Tensor:
        batch = self.setting.batch
        contexts = self.disturbed(self.normal(batch, 8), step)
        p = self.parameters
        logits = ((contexts @ p["in"]).relu() @ p["out"]).float()
        chances = logits.detach().nan_to_num().clamp(-50, 50).softmax(-1)
        arms = torch.multinomial(chances.flatten(0, 1), 1, generator=self.generator).view(self.seeds, batch, 1)
        reward = (contexts @ self.rewards).gather(2, arms).squeeze(-1) + self.noise(batch)
        gain = reward - self.worth
        self.worth = 0.95 * self.worth + 0.05 * reward.mean(1, keepdim=True)
        log_chance = logits.log_softmax(-1).gather(2, arms).squeeze(-1)
        return -(gain * log_chance).mean(1)


TASKS: dict[str, Callable[[int, torch.Generator, Setting], Task]] = {
    "clusters": Clusters,
    "teacher": Teacher,
    "language": Language,
    "ranking": Ranking,
    "waves": Waves,
    "adding": Adding,
    "density": Density,
    "bandit": Bandit,
}
