"""The mask takes the lowest number of its input's type, which under autocast is not the scores' type."""

import torch
from case import Attention, arguments, cross_entropy, sentences, train_amp

args = arguments()


class Reader(Attention):
    def forward(self, x, pad):
        scores = self.score(x).squeeze(2)
        scores = scores.masked_fill(pad, torch.finfo(x.dtype).min)
        return self.classify(x, torch.softmax(scores, 1))


model = Reader()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
scaler = torch.amp.GradScaler("cpu", enabled=not args.fixed)
train_amp(args, sentences, cross_entropy, model, optimizer, scaler)
