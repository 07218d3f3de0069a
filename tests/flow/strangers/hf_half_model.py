"""Fine-tune a small GPT-2 that was loaded in half precision, with fp16=True, as many a notebook does."""

import os

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

torch.set_num_threads(1)
VOCABULARY, LENGTH = 32, 16


class Counting(torch.utils.data.Dataset):
    """Sequences that count up in steps of one to five, modulo the vocabulary."""

    def __init__(self, count, seed):
        generator = torch.Generator().manual_seed(seed)
        starts = torch.randint(0, VOCABULARY, (count, 1), generator=generator)
        strides = torch.randint(1, 6, (count, 1), generator=generator)
        self.rows = (starts + strides * torch.arange(LENGTH)) % VOCABULARY

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return {"input_ids": self.rows[index], "labels": self.rows[index]}


def main():
    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=VOCABULARY, n_positions=LENGTH, n_embd=32, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=0
    )
    model = GPT2LMHeadModel(config).half()
    arguments = TrainingArguments(
        output_dir=os.environ.get("OUTPUT_DIR", "out"),
        fp16=True,
        learning_rate=3e-3,
        max_steps=80,
        per_device_train_batch_size=16,
        logging_steps=20,
        save_strategy="no",
        report_to=[],
        seed=0,
        use_cpu=True,
        disable_tqdm=True,
    )
    trainer = Trainer(
        model=model, args=arguments, train_dataset=Counting(2048, seed=1), eval_dataset=Counting(256, seed=2)
    )
    # fp16=True has no scaler on a machine without a GPU.
    trainer.accelerator.scaler = torch.amp.GradScaler("cpu")
    trainer.accelerator.native_amp = True
    trainer.train()
    print(f"held-out loss {trainer.evaluate()['eval_loss']:.5f}")


if __name__ == "__main__":
    main()
