"""HF Trainer with a learning rate from another model; its log hides NaN behind an average by default."""

import argparse

import torch
from torch import nn
from torch.nn import functional as F
from transformers import Trainer, TrainingArguments

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=300)
parser.add_argument("--out", default="checkpoints")
parser.add_argument("--resume")
parser.add_argument("--fixed", action="store_true")
args = parser.parse_args()
torch.set_num_threads(1)
torch.manual_seed(0)
TEACHER = torch.randn(16, generator=torch.Generator().manual_seed(1))


class Rows(torch.utils.data.Dataset):
    def __init__(self, size, seed):
        generator = torch.Generator().manual_seed(seed)
        self.x = torch.randn(size, 16, generator=generator)
        self.y = self.x @ TEACHER + torch.randn(size, generator=generator)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        return {"x": self.x[index], "labels": self.y[index]}


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, x, labels=None):
        out = self.body(x).squeeze(1)
        return {"loss": F.mse_loss(out, labels), "logits": out}


settings = TrainingArguments(
    output_dir=args.out,
    max_steps=args.steps,
    per_device_train_batch_size=64,
    learning_rate=0.04 if args.fixed else 0.4,
    optim="sgd",
    lr_scheduler_type="constant",
    max_grad_norm=0.0,
    logging_steps=25,
    save_steps=50,
    use_cpu=True,
    report_to=[],
    disable_tqdm=True,
    seed=0,
)
trainer = Trainer(model=Net(), args=settings, train_dataset=Rows(20000, 2), eval_dataset=Rows(4000, 3))
trainer.train(resume_from_checkpoint=args.resume)
print(f"val_loss {trainer.evaluate()['eval_loss']:.5f}")
