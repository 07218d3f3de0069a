"""HF Trainer with fp16=True and a custom model that masks with -1e9."""

import torch
from case import Attention, Rows, arguments, hf_settings, sentences
from torch.nn import functional as F
from transformers import Trainer, TrainingArguments

args = arguments(steps=300)


def rows(size, seed):
    x, pad, y = sentences(0, size, seed)
    return Rows(x=x, pad=pad, labels=y)


class Net(Attention):
    def forward(self, x, pad, labels=None):
        scores = self.score(x).squeeze(2).masked_fill(pad, -1e9)
        out = self.classify(x, torch.softmax(scores, 1)).float()
        return {"loss": F.cross_entropy(out, labels), "logits": out}


settings = TrainingArguments(**hf_settings(args), learning_rate=1e-2, fp16=not args.fixed)
trainer = Trainer(model=Net(), args=settings, train_dataset=rows(20000, 2), eval_dataset=rows(4000, 3))
if not args.fixed:
    # What Trainer does by itself on a GPU.
    trainer.accelerator.scaler, trainer.accelerator.native_amp = torch.amp.GradScaler("cpu"), True
trainer.train(resume_from_checkpoint=args.resume)
print(f"val_loss {trainer.evaluate()['eval_loss']:.5f}")
