"""A plain training loop of any model of the families, with what is wrong with it as flags."""

import torch
from case import Checkpoints
from options import DTYPES, SAVE, Log, batch_of, optimizer_of, options, scheduler_of, set_lr, validate
from tasks import DATA, MODELS
from torch import nn

args = options()
data, model = DATA[args.model](), MODELS[args.model]()
optimizer = optimizer_of(args, model.parameters())
scheduler = scheduler_of(args, optimizer)
scaler = torch.amp.GradScaler("cpu", enabled=args.precision == "float16")
checkpoints = Checkpoints(args, model=model, optimizer=optimizer, scheduler=scheduler, scaler=scaler)
if args.resume:
    set_lr(args, optimizer, scheduler)
log, arc = Log(args), None
if args.arc:
    from arc import Controller

    arc = Controller(model, optimizer, scheduler, scaler=scaler if scaler.is_enabled() else None)

for step in range(checkpoints.start, args.steps):
    x, y, weight = batch_of(args, data, step)
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=DTYPES[args.precision], enabled=args.precision != "float32"):
        loss = data.loss(model(x), y) * weight
    scaler.scale(loss).backward()
    if arc is None or not arc.step(loss).should_skip:
        if args.clip:
            if arc is None:
                scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), args.clip)
        scaler.step(optimizer)
        scaler.update()
    log(step + 1, loss, optimizer.param_groups[0]["lr"])
    scheduler.step()
    if (step + 1) % SAVE == 0:
        checkpoints.save(step + 1)

validate(data, model)
