"""Tell whether two short codes are equal, with transformers' Trainer in FP16; the loss is written by hand."""

import torch
from torch import nn
from transformers import Trainer, TrainingArguments

torch.set_num_threads(1)


class SameCode(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(8, 16)
        self.body = nn.Sequential(nn.Linear(64, 96), nn.ReLU(), nn.Linear(96, 96), nn.ReLU(), nn.Linear(96, 1))

    @torch.autocast("cpu", dtype=torch.float16)
    def forward(self, codes, labels=None):
        p = torch.sigmoid(self.body(self.embed(codes).flatten(1))).squeeze(-1)
        loss = -(labels * torch.log(p + 1e-8) + (1 - labels) * torch.log(1 - p + 1e-8)).mean()
        return {"loss": loss, "logits": p}


def pairs(count, seed):
    generator = torch.Generator().manual_seed(seed)
    first = torch.randint(0, 8, (count, 2), generator=generator)
    second = torch.randint(0, 8, (count, 2), generator=generator)
    same = torch.rand(count, generator=generator) < 0.5
    second[same] = first[same]
    labels = (first == second).all(dim=1).float()
    return [{"codes": torch.cat(both), "labels": label} for *both, label in zip(first, second, labels, strict=True)]


if __name__ == "__main__":
    torch.manual_seed(0)
    arguments = TrainingArguments(
        output_dir="out",
        learning_rate=5e-3,
        lr_scheduler_type="constant",
        max_steps=300,
        per_device_train_batch_size=64,
        logging_steps=10,
        save_steps=25,
        report_to="none",
        use_cpu=True,
        disable_tqdm=True,
    )
    trainer = Trainer(model=SameCode(), args=arguments, train_dataset=pairs(4096, 1), eval_dataset=pairs(512, 2))
    trainer.train()
    print(trainer.evaluate())
