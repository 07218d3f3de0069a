"""Trains a tiny GPT-2 with transformers' Trainer: `python transformers_.py FAULT [quiet] [unfiltered] [lora]`."""

import sys
import tempfile

import torch
from tiny import rate
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

fault, options = sys.argv[1], sys.argv[2:]


class Tokens(torch.utils.data.Dataset):
    def __len__(self):
        return 160

    def __getitem__(self, index):
        ids = (torch.arange(12) * (index % 7 + 1)) % 50
        return {"input_ids": ids, "labels": ids}


model = GPT2LMHeadModel(GPT2Config(vocab_size=50, n_positions=16, n_embd=16, n_layer=1, n_head=2))
if "lora" in options:
    from peft import LoraConfig, get_peft_model

    model = get_peft_model(model, LoraConfig(r=2, target_modules=["c_attn"], fan_in_fan_out=True))
if fault == "unscale":
    model = model.half()
arguments = TrainingArguments(
    output_dir=tempfile.mkdtemp(),
    per_device_train_batch_size=8,
    num_train_epochs=4,
    learning_rate=rate(fault, 1e-3),
    logging_steps=4,
    eval_strategy="epoch",
    save_strategy="no",
    report_to=[],
    use_cpu=True,
    disable_tqdm="quiet" in options,
    logging_nan_inf_filter="unfiltered" not in options,
)
trainer = Trainer(model=model, args=arguments, train_dataset=Tokens(), eval_dataset=Tokens())
if fault in ("unscale", "scaler"):
    trainer.accelerator.scaler, trainer.accelerator.native_amp = torch.amp.GradScaler("cpu"), True
trainer.train()
