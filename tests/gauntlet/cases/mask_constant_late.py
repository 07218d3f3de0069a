"""Trains on full sentences first and gets padding only later; the mask value is -1e9."""

import torch
from case import Attention, arguments, cross_entropy, sentences, train_amp

args = arguments()


def batch(number, size=64):
    """Full sentences first, then all of them."""
    return sentences(number, size, shortest=3 if number >= 170 or number < 0 else 8)


class Reader(Attention):
    def forward(self, x, pad):
        scores = self.score(x).squeeze(2)
        if pad.any():
            scores = scores.masked_fill(pad, -1e9)
        return self.classify(x, torch.softmax(scores, 1))


model = Reader()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
scaler = torch.amp.GradScaler("cpu", enabled=not args.fixed)
train_amp(args, batch, cross_entropy, model, optimizer, scaler)
