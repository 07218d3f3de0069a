"""Learn which sums are even: a classifier of our own under the Trainer, with its cross entropy written by hand."""

import os

import torch
from torch import nn
from transformers import Trainer, TrainingArguments

torch.set_num_threads(1)
DIGITS = 3


class Parity(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(10, 16)
        self.body = nn.Sequential(nn.Linear(16 * DIGITS, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU())
        self.head = nn.Linear(128, 1)

    def forward(self, digits, labels=None):
        p = torch.sigmoid(self.head(self.body(self.embed(digits).flatten(1)))).squeeze(-1)
        loss = -(labels * torch.log(p + 1e-8) + (1 - labels) * torch.log(1 - p + 1e-8)).mean()
        return {"loss": loss, "logits": p}


def examples(count, seed):
    generator = torch.Generator().manual_seed(seed)
    digits = torch.randint(0, 10, (count, DIGITS), generator=generator)
    return [{"digits": row, "labels": float(row.sum() % 2)} for row in digits]


def main():
    torch.manual_seed(0)
    arguments = TrainingArguments(
        output_dir=os.environ.get("OUTPUT_DIR", "out"),
        fp16=True,
        learning_rate=5e-3,
        lr_scheduler_type="constant_with_warmup",
        warmup_steps=10,
        max_steps=400,
        per_device_train_batch_size=64,
        logging_steps=20,
        save_steps=50,
        save_total_limit=3,
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
    )
    trainer = Trainer(
        model=Parity(), args=arguments, train_dataset=examples(4096, seed=1), eval_dataset=examples(512, seed=2)
    )
    # fp16=True has no scaler on a machine without a GPU.
    trainer.accelerator.scaler = torch.amp.GradScaler("cpu")
    trainer.accelerator.native_amp = True
    trainer.train()
    print(f"held-out loss {trainer.evaluate()['eval_loss']:.5f}")


if __name__ == "__main__":
    main()
