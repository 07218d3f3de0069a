"""Trains with fastai, which prints one row per epoch: `python fastai_.py FAULT`."""

import sys

import torch
from fastai.data.core import DataLoaders
from fastai.learner import Learner
from tiny import Data, Net, rate

fault = sys.argv[1]
loaders = DataLoaders(
    torch.utils.data.DataLoader(Data(), batch_size=32), torch.utils.data.DataLoader(Data(64), batch_size=32)
)
learner = Learner(loaders, Net(fault), loss_func=torch.nn.functional.mse_loss)
learner.fit(4, lr=rate(fault, 1e-2) * (1e30 if fault == "nan" else 1))
