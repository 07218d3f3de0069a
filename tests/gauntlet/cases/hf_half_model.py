"""HF Trainer in mixed precision with a model that was loaded in FP16: the scaler refuses its gradients."""

import torch
from case import Rows, arguments, classes, hf_settings
from torch import nn
from torch.nn import functional as F
from transformers import Trainer, TrainingArguments

args = arguments(steps=300)


def rows(size, seed):
    x, y = classes(0, size, seed)
    return Rows(x=x, labels=y)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 4))

    def forward(self, x, labels=None):
        out = self.body(x.to(self.body[0].weight.dtype)).float()
        return {"loss": F.cross_entropy(out, labels), "logits": out}


settings = TrainingArguments(**hf_settings(args), learning_rate=1e-2, fp16=not args.fixed)
model = Net()
if not args.fixed:
    model.half()
trainer = Trainer(model=model, args=settings, train_dataset=rows(20000, 2), eval_dataset=rows(4000, 3))
if not args.fixed:
    # What Trainer does by itself on a GPU.
    trainer.accelerator.scaler, trainer.accelerator.native_amp = torch.amp.GradScaler("cpu"), True
trainer.train(resume_from_checkpoint=args.resume)
print(f"val_loss {trainer.evaluate()['eval_loss']:.5f}")
