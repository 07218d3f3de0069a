"""Trains with mmengine's Runner, as mmdetection does: `python mmengine_.py FAULT [iters]`."""

import sys
import tempfile

from mmengine.model import BaseModel
from mmengine.runner import Runner
from tiny import Data, Net, rate

fault, options = sys.argv[1], sys.argv[2:]


class Model(BaseModel):
    def __init__(self):
        super().__init__()
        self.net = Net(fault)

    def forward(self, x, y, mode="tensor"):
        error = self.net(x) - y
        return {"loss_bbox": error.square().mean(), "loss_cls": 0.1 * error.abs().mean()}


loop = (
    dict(by_epoch=False, max_iters=60, val_interval=1000) if "iters" in options else dict(by_epoch=True, max_epochs=3)
)
Runner(
    model=Model(),
    work_dir=tempfile.mkdtemp(),
    train_dataloader=dict(
        batch_size=16,
        dataset=Data(),
        sampler=dict(type="DefaultSampler", shuffle=True),
        collate_fn=dict(type="default_collate"),
    ),
    train_cfg=loop,
    optim_wrapper=dict(
        optimizer=dict(type="SGD", lr=rate(fault, 0.02)), clip_grad=dict(max_norm=35.0 if fault != "nan" else 1e30)
    ),
    default_hooks=dict(logger=dict(type="LoggerHook", interval=4), checkpoint=None),
    log_processor=dict(by_epoch="iters" not in options),
).train()
