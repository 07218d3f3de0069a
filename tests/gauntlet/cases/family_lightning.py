"""The models of the families under Lightning; its log is silent."""

import lightning
from lightning.pytorch.callbacks import ModelCheckpoint
from options import SAVE, batch_of, optimizer_of, options, scheduler_of, validate
from tasks import DATA, MODELS
from torch.utils.data import DataLoader

args = options()
lightning.seed_everything(0)
data = DATA[args.model]()


class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.body = MODELS[args.model]()

    def training_step(self, batch, index):
        # The step counts on after a resume, and so the data does as well.
        x, y, weight = batch_of(args, data, self.global_step)
        return data.loss(self.body(x), y) * weight

    def configure_optimizers(self):
        optimizer = optimizer_of(args, self.parameters())
        return [optimizer], [{"scheduler": scheduler_of(args, optimizer), "interval": "step"}]


model = Module()
callbacks = [ModelCheckpoint(dirpath=args.out, filename="{step}", every_n_train_steps=SAVE, save_top_k=-1)]
if args.arc:
    from arc.api.integrations import LightningCallback

    callbacks.append(LightningCallback())
trainer = lightning.Trainer(
    max_steps=args.steps,
    accelerator="cpu",
    devices=1,
    callbacks=callbacks,
    gradient_clip_val=args.clip,
    logger=False,
    enable_progress_bar=False,
    enable_model_summary=False,
)
trainer.fit(model, DataLoader(range(args.steps), batch_size=1), ckpt_path=args.resume)
validate(data, model.body)
