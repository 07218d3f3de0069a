"""A small regression that transformers' Trainer drives, and that saves nothing. It does not know Rung."""

import torch
from torch import nn
from transformers import Trainer, TrainingArguments

torch.set_num_threads(1)


class Regression(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 1)

    def forward(self, x, labels):
        return {"loss": nn.functional.mse_loss(self.layer(x).squeeze(-1), labels)}


torch.manual_seed(0)
rows = [{"x": row, "labels": row.sum()} for row in torch.randn(64, 4)]
arguments = TrainingArguments(
    output_dir="out", max_steps=20, save_strategy="no", report_to="none", use_cpu=True, disable_tqdm=True
)
Trainer(model=Regression(), args=arguments, train_dataset=rows).train()
