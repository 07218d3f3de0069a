"""The models of the families under HF Trainer."""

from case import Rows
from options import EPOCH, SAVE, optimizer_of, options, scheduler_of, validate
from tasks import DATA, MODELS
from torch import nn
from transformers import Trainer, TrainingArguments

args = options()
data = DATA[args.model]()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = MODELS[args.model]()

    def forward(self, x, labels=None):
        out = self.body(x)
        return {"loss": data.loss(out, labels), "logits": out}


x, y = data.batch(0, 20000)
settings = TrainingArguments(
    output_dir=args.out,
    max_steps=args.steps,
    per_device_train_batch_size=len(data.batch(0)[1]),
    max_grad_norm=args.clip or 0.0,
    save_steps=SAVE,
    logging_strategy="no" if args.log == "silent" else "steps",
    logging_steps={"every1": 1, "every10": 10}.get(args.log, EPOCH),
    disable_tqdm=True,
    report_to=[],
    use_cpu=True,
    seed=0,
)
model, guards = Net(), []
optimizer = optimizer_of(args, model.parameters())
if args.arc:
    from arc.api.integrations import HuggingFaceCallback

    guards = [HuggingFaceCallback()]
trainer = Trainer(
    model=model,
    args=settings,
    train_dataset=Rows(x=x, labels=y),
    optimizers=(optimizer, scheduler_of(args, optimizer)),
    callbacks=guards,
)
trainer.train(resume_from_checkpoint=args.resume)
validate(data, model.body)
