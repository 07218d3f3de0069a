"""HF Trainer with fp16=True and a model of one's own that masks with -1e9."""

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
TEACHER = torch.randn(16, 4, generator=torch.Generator().manual_seed(1))


class Rows(torch.utils.data.Dataset):
    def __init__(self, size, seed):
        generator = torch.Generator().manual_seed(seed)
        self.x = torch.randn(size, 8, 16, generator=generator)
        self.pad = torch.arange(8).expand(size, 8) >= torch.randint(3, 9, (size, 1), generator=generator)
        mean = self.x.masked_fill(self.pad.unsqueeze(2), 0.0).sum(1) / (~self.pad).sum(1, keepdim=True) ** 0.5
        chances = torch.softmax(mean @ TEACHER * 0.7, 1)
        self.y = torch.multinomial(chances, 1, generator=generator).squeeze(1)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        return {"x": self.x[index], "pad": self.pad[index], "labels": self.y[index]}


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.score, self.value, self.head = nn.Linear(16, 1), nn.Linear(16, 32), nn.Linear(32, 4)

    def forward(self, x, pad, labels=None):
        scores = self.score(x).squeeze(2).masked_fill(pad, -1e9)
        out = self.head((torch.softmax(scores, 1).unsqueeze(2) * self.value(x)).sum(1)).float()
        return {"loss": F.cross_entropy(out, labels), "logits": out}


settings = TrainingArguments(
    output_dir=args.out,
    max_steps=args.steps,
    per_device_train_batch_size=64,
    learning_rate=1e-2,
    fp16=not args.fixed,
    logging_steps=25,
    save_steps=50,
    use_cpu=True,
    report_to=[],
    disable_tqdm=True,
    seed=0,
)
trainer = Trainer(model=Net(), args=settings, train_dataset=Rows(20000, 2), eval_dataset=Rows(4000, 3))
if not args.fixed:
    # What Trainer does by itself on a GPU.
    trainer.accelerator.scaler, trainer.accelerator.native_amp = torch.amp.GradScaler("cpu"), True
trainer.train(resume_from_checkpoint=args.resume)
print(f"val_loss {trainer.evaluate()['eval_loss']:.5f}")
