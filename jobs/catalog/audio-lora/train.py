"""LoRA fine-tuning of a small audio language model with the Hugging Face Trainer: it hears a tone and writes a caption.

The base model is made from a config in FP16, and the adapters that PEFT adds to it are FP16 as well. `fp16=True` then
gives the Trainer a gradient scaler, which refuses FP16 gradients. `--fixed` trains FP32 adapters.
"""

from __future__ import annotations

import argparse
import math
import platform
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, get_peft_model
from torch import Tensor, nn
from torch.utils.data import Dataset
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments, set_seed
from transformers.trainer_utils import get_last_checkpoint

RATE = 8000  # samples a second
WINDOW, HOP = 256, 128
BANDS = 40
LOUDNESS = ("faint", "soft", "loud", "blaring")
INSTRUMENTS = ("flute", "clarinet", "organ", "trumpet")
NOTES = ("C", "D", "E", "F", "G", "A", "B")
SEMITONES = (0, 2, 4, 5, 7, 9, 11)
WORDS = ("<s>", "</s>", "a", "plays", *LOUDNESS, *INSTRUMENTS, *NOTES)
VOCABULARY = {word: number for number, word in enumerate(WORDS)}
# How strong each instrument's first four harmonics are.
HARMONICS = torch.tensor([[1.0, 0.1, 0.0, 0.0], [1.0, 0.0, 0.6, 0.0], [1.0, 0.8, 0.0, 0.6], [0.5, 0.7, 0.9, 1.0]])
# The captions were written by hand: so often a word in them is any word of its kind instead of the right one.
MISHEARD = 0.2


@dataclass(frozen=True)
class Size:
    """How large model and data are."""

    hidden: int
    layers: int
    heads: int
    spread: float  # of the base's weights
    seconds: float
    clips: int
    held_out: int
    batch: int
    lr: float
    save_steps: int
    workers: int


SIZES = {
    "cpu": Size(
        hidden=64,
        layers=2,
        heads=2,
        spread=0.15,
        lr=3e-3,
        seconds=0.128,
        clips=5440,
        held_out=1024,
        batch=32,
        save_steps=50,
        workers=0,
    ),
    "gpu": Size(
        hidden=768,
        layers=8,
        heads=12,
        spread=0.02,
        lr=5e-4,
        seconds=0.5,
        clips=38400,
        held_out=4096,
        batch=64,
        save_steps=150,
        workers=4,
    ),
}


class Clips(Dataset[dict[str, Any]]):
    """Recordings of one note each, with what somebody wrote about them; the same number is always the same clip."""

    def __init__(self, count: int, seconds: float, seed: int) -> None:
        self.count, self.samples, self.seed = count, round(seconds * RATE), seed

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> dict[str, Any]:
        if index >= self.count:
            raise IndexError(index)
        chance = torch.Generator().manual_seed(self.seed * 1_000_003 + index)
        kinds = (LOUDNESS, INSTRUMENTS, NOTES)
        loudness, instrument, note = (int(torch.randint(len(kind), (), generator=chance)) for kind in kinds)
        wave = self.sound(loudness, instrument, note, chance)
        words = [heard(kind, true, chance) for kind, true in zip(kinds, (loudness, instrument, note), strict=True)]
        return {"audio": (wave, RATE), "caption": caption(words)}

    def sound(self, loudness: int, instrument: int, note: int, chance: torch.Generator) -> Tensor:
        pitch = 523.0 * 2 ** (SEMITONES[note] / 12)
        turns = torch.arange(self.samples) * (2 * math.pi * pitch / RATE)
        phases = torch.rand(4, generator=chance) * 2 * math.pi
        waves = torch.sin(torch.outer(torch.arange(1.0, 5.0), turns) + phases[:, None])
        noise = torch.randn(self.samples, generator=chance)
        return 0.05 * 3.0**loudness * (HARMONICS[instrument] @ waves) + 0.02 * noise


def heard(kind: tuple[str, ...], true: int, chance: torch.Generator) -> str:
    wrong = float(torch.rand((), generator=chance)) < MISHEARD
    any_word = int(torch.randint(len(kind), (), generator=chance))
    return kind[any_word if wrong else true]


def caption(words: list[str]) -> Tensor:
    loudness, instrument, note = words
    text = ["<s>", "a", loudness, instrument, "plays", note, "</s>"]
    return torch.tensor([VOCABULARY[word] for word in text])


class AudioDataCollator:
    """Turns (waveform, rate) and caption of each clip into log-mel frames and tokens."""

    def __init__(self) -> None:
        self.window = torch.hann_window(WINDOW)
        self.filters = mel_filters()

    def __call__(self, clips: list[dict[str, Any]]) -> dict[str, Tensor]:
        waves = torch.stack([wave for wave, _ in (clip["audio"] for clip in clips)])
        spectrum = torch.stft(waves, WINDOW, HOP, window=self.window, return_complex=True).abs().square()
        frames = (self.filters @ spectrum).clamp_min(1e-5).log10().transpose(1, 2)
        tokens = torch.stack([clip["caption"] for clip in clips])
        labels = tokens.masked_fill(tokens == VOCABULARY["<s>"], -100)
        return {"input_features": frames / 2, "input_ids": tokens, "labels": labels}


def mel_filters() -> Tensor:
    """Return triangles over the frequencies of a spectrum, evenly spaced to the ear."""
    top = 2595 * math.log10(1 + RATE / 2 / 700)
    edges = 700 * (10 ** (torch.linspace(0, top, BANDS + 2) / 2595) - 1)
    frequencies = torch.linspace(0, RATE / 2, WINDOW // 2 + 1)
    # Low bands are narrower than the spectrum's own steps: a triangle reaches at least to its neighbours.
    width = edges.diff().clamp_min(RATE / WINDOW)
    rising = 1 - (edges[1:-1, None] - frequencies) / width[:-1, None]
    falling = 1 - (frequencies - edges[1:-1, None]) / width[1:, None]
    return torch.minimum(rising, falling).clamp(0, 1)


class AudioLlamaForCausalLM(LlamaForCausalLM):  # type: ignore[misc]
    """A Llama whose prompt is sound: frames of a clip, projected into the space of its tokens."""

    def __init__(self, config: LlamaConfig) -> None:
        super().__init__(config)
        self.audio_projector = nn.Linear(BANDS, config.hidden_size)
        self.post_init()

    def forward(self, input_features: Tensor, input_ids: Tensor, labels: Tensor | None = None, **kwargs: Any) -> Any:
        prompt = self.audio_projector(input_features.to(self.dtype))
        embedded = torch.cat([prompt, self.get_input_embeddings()(input_ids).to(prompt.dtype)], dim=1)
        if labels is not None:
            silent = labels.new_full(prompt.shape[:2], -100)
            labels = torch.cat([silent, labels], dim=1)
        return super().forward(inputs_embeds=embedded, labels=labels, use_cache=False, **kwargs)


def build_model(size: Size, fixed: bool) -> Any:
    config = LlamaConfig(
        vocab_size=len(WORDS),
        hidden_size=size.hidden,
        intermediate_size=2 * size.hidden,
        num_hidden_layers=size.layers,
        num_attention_heads=size.heads,
        max_position_embeddings=256,
        initializer_range=size.spread,
        bos_token_id=0,
        eos_token_id=1,
        dtype="float16",
    )
    base = AudioLlamaForCausalLM(config).to(torch.float16)
    layers = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
    lora = LoraConfig(r=64, lora_alpha=64, target_modules=layers, modules_to_save=["audio_projector"])
    model = get_peft_model(base, lora, autocast_adapter_dtype=False)
    if fixed:
        train_in_fp32(model)
    return model


def train_in_fp32(model: nn.Module) -> None:
    """Keep what is trained in FP32; the frozen base stays in FP16, and autocast brings both together."""
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.data = parameter.data.float()


def arguments(size: Size, options: argparse.Namespace) -> TrainingArguments:
    return TrainingArguments(
        output_dir=str(options.output_dir),
        seed=options.seed,
        fp16=True,
        gradient_checkpointing=True,
        gradient_checkpointing_kwargs={"use_reentrant": False},
        learning_rate=size.lr,
        lr_scheduler_type="cosine",
        warmup_steps=20,
        max_grad_norm=1.0,
        optim="adamw_torch",
        num_train_epochs=1,
        per_device_train_batch_size=size.batch,
        per_device_eval_batch_size=256,
        logging_steps=10,
        save_steps=size.save_steps,
        save_total_limit=2,
        dataloader_num_workers=size.workers,
        remove_unused_columns=False,
        label_names=["labels"],
        report_to=[],
        disable_tqdm=True,
        use_cpu=options.size == "cpu",
    )


def build_trainer(size: Size, options: argparse.Namespace) -> Trainer:
    trainer = Trainer(
        model=build_model(size, options.fixed),
        args=arguments(size, options),
        data_collator=AudioDataCollator(),
        train_dataset=Clips(size.clips, size.seconds, 2 * options.seed),
        eval_dataset=Clips(size.held_out, size.seconds, 2 * options.seed + 1),
    )
    if options.size == "cpu":
        # On a CPU the Trainer takes fp16=True and trains without a scaler; this gives it the one that a GPU has.
        trainer.accelerator.scaler = torch.amp.GradScaler("cpu")
        trainer.accelerator.native_amp = True
    return trainer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", choices=SIZES, default="cpu")
    parser.add_argument("--fixed", action="store_true", help="train FP32 adapters on the FP16 base")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output_dir", type=Path, default=Path("out"))
    options = parser.parse_args()
    if options.size == "gpu" and not torch.cuda.is_available():
        print("train.py: --size gpu needs a GPU, and torch sees none here; --size cpu needs none", file=sys.stderr)
        sys.exit(2)
    if platform.machine() == "aarch64":
        # torch gives FP16 products to oneDNN there, which has no fast code for them; its own is 20 times as fast.
        torch.backends.mkldnn.enabled = False  # type: ignore[assignment]
    set_seed(options.seed)
    trainer = build_trainer(SIZES[options.size], options)
    trainer.model.print_trainable_parameters()
    newest = get_last_checkpoint(options.output_dir) if options.output_dir.is_dir() else None
    trainer.train(resume_from_checkpoint=newest)
    print(f"val_loss: {trainer.evaluate()['eval_loss']:.4f}")


if __name__ == "__main__":
    main()
