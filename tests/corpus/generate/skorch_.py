"""Trains with skorch, which prints a table: `python skorch_.py FAULT`."""

import sys

import torch
from skorch import NeuralNetRegressor
from tiny import Data, Net, rate

fault = sys.argv[1]
data = Data()
net = NeuralNetRegressor(Net(fault), max_epochs=12, lr=rate(fault, 0.02), batch_size=32, optimizer=torch.optim.SGD)
net.fit(data.x.numpy(), data.y.numpy())
