"""LoRA on a half-precision base with peft and the Trainer; the adapters stay in half precision too."""

import os

import torch
from peft import LoraConfig, get_peft_model
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

torch.set_num_threads(1)
torch.manual_seed(0)
generator = torch.Generator().manual_seed(1)
starts = torch.randint(0, 24, (1280, 1), generator=generator)
rows = (starts + 2 * torch.arange(12)) % 24
examples = [{"input_ids": row, "labels": row} for row in rows]

config = GPT2Config(vocab_size=24, n_positions=12, n_embd=32, n_layer=1, n_head=2, bos_token_id=0, eos_token_id=0)
base = GPT2LMHeadModel(config).half()
lora = LoraConfig(r=8, lora_alpha=16, target_modules=["c_attn", "c_proj", "c_fc"], fan_in_fan_out=True)
model = get_peft_model(base, lora, autocast_adapter_dtype=False)
model.print_trainable_parameters()

trainer = Trainer(
    model=model,
    args=TrainingArguments(
        output_dir=os.environ.get("OUTPUT_DIR", "out"),
        fp16=True,
        learning_rate=1e-2,
        num_train_epochs=2,
        per_device_train_batch_size=16,
        logging_steps=20,
        save_strategy="no",
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
    ),
    train_dataset=examples[:1024],
    eval_dataset=examples[1024:],
)
# A real scaler, on a machine without a GPU too.
trainer.accelerator.scaler = torch.amp.GradScaler("cpu")
trainer.accelerator.native_amp = True
trainer.train()
print(f"held-out loss {trainer.evaluate()['eval_loss']:.5f}")
