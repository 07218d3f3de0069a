"""A softmax by hand over padded words, without taking the maximum off first: exp overflows in FP16."""

import torch
from case import Attention, arguments, cross_entropy, sentences, train_amp
from torch import nn

args = arguments()


class Reader(Attention):
    def forward(self, x, pad):
        scores = 14.0 * torch.tanh(self.score(x).squeeze(2) / 4.0)
        weights = torch.exp(scores) * (~pad)
        weights = weights / weights.sum(1, keepdim=True)
        return self.classify(x, weights)


model = Reader()
nn.init.constant_(model.score.weight, 0.6)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
scaler = torch.amp.GradScaler("cpu", enabled=not args.fixed)
train_amp(args, sentences, cross_entropy, model, optimizer, scaler)
