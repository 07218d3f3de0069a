"""HF Trainer with a learning rate from another model; its log hides NaN behind an average by default."""

from case import Rows, arguments, hf_settings, regression
from torch import nn
from torch.nn import functional as F
from transformers import Trainer, TrainingArguments

args = arguments(steps=300)


def rows(size, seed):
    x, y = regression(0, size, seed)
    return Rows(x=x, labels=y)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, x, labels=None):
        out = self.body(x).squeeze(1)
        return {"loss": F.mse_loss(out, labels), "logits": out}


settings = TrainingArguments(
    **hf_settings(args),
    learning_rate=0.04 if args.fixed else 0.4,
    optim="sgd",
    lr_scheduler_type="constant",
    max_grad_norm=0.0,
)
trainer = Trainer(model=Net(), args=settings, train_dataset=rows(20000, 2), eval_dataset=rows(4000, 3))
trainer.train(resume_from_checkpoint=args.resume)
print(f"val_loss {trainer.evaluate()['eval_loss']:.5f}")
