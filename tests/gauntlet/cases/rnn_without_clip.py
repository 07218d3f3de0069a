"""A recurrent net over forty steps, SGD, no clipping: some batches make the gradient explode."""

import torch
from case import Checkpoints, arguments, seeded, validate
from torch import nn
from torch.nn import functional as F

args = arguments()


def batch(number, size=32):
    """Adding problem: the sum of the two marked numbers of a sequence, and some noise."""
    generator = seeded(1000 + number)
    values = torch.rand(size, 40, generator=generator)
    marks = torch.zeros(size, 40)
    marks[torch.arange(size), torch.randint(0, 20, (size,), generator=generator)] = 1.0
    marks[torch.arange(size), torch.randint(20, 40, (size,), generator=generator)] = 1.0
    y = (values * marks).sum(1) + 0.5 * torch.randn(size, generator=generator)
    return torch.stack([values, marks], 2), y


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn, self.head = nn.RNN(2, 24, nonlinearity="relu", batch_first=True), nn.Linear(24, 1)
        nn.init.eye_(self.rnn.weight_hh_l0)
        with torch.no_grad():
            self.rnn.weight_hh_l0.mul_(1.03)

    def forward(self, x):
        return self.head(self.rnn(x)[0][:, -1]).squeeze(1)


def criterion(model, x, y):
    return F.mse_loss(model(x), y)


model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
checkpoints = Checkpoints(args, model=model, optimizer=optimizer)

for step in range(checkpoints.start, args.steps):
    x, y = batch(step)
    optimizer.zero_grad()
    loss = criterion(model, x, y)
    loss.backward()
    if args.fixed:
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    checkpoints.log(step + 1, loss)

validate(criterion, model, batch(-1, size=4000))
