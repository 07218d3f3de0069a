"""The mask takes FP32's lowest number by name."""

import torch
from case import Attention, arguments, cross_entropy, sentences, train_amp

args = arguments()


class Reader(Attention):
    def forward(self, x, pad):
        scores = self.score(x).squeeze(2)
        lowest = torch.finfo(torch.float32).min
        scores = scores.masked_fill(pad, lowest)
        return self.classify(x, torch.softmax(scores, 1))


model = Reader()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
scaler = torch.amp.GradScaler("cpu", enabled=not args.fixed)
train_amp(args, sentences, cross_entropy, model, optimizer, scaler)
